import math

import pytest

from keras_transformer.evaluation.perplexity import text_perplexity


def test_a_uniform_model_hesitates_between_all_it_knows():
    """5 tokens of 32 kinds, in 10 bytes: 25 bits, 2.5 a byte."""
    perplexity = text_perplexity(5 * math.log(1 / 32), num_tokens=5, num_bytes=10)
    assert perplexity.per_token == pytest.approx(32)
    assert perplexity.bits_per_byte == pytest.approx(2.5)
    assert perplexity.per_byte == pytest.approx(2**2.5)


def test_a_certain_model_does_not_hesitate():
    assert text_perplexity(0.0, 3, 7) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_no_text_has_no_perplexity(sizes):
    with pytest.raises(ValueError, match="num_tokens and num_bytes must be at least 1"):
        text_perplexity(0.0, *sizes)


def test_a_text_without_hope_has_an_infinite_perplexity():
    perplexity = text_perplexity(-1000.0, num_tokens=1, num_bytes=1)
    assert perplexity.per_token == perplexity.per_byte == math.inf
    assert perplexity.bits_per_byte == pytest.approx(1000 / math.log(2))
