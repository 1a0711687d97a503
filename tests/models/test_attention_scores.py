"""The scores that a model shows are those it used."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import Transformer
from keras_transformer.layers import attention as attention_module
from keras_transformer.layers import multi_head_attention
from keras_transformer.models.transformer import AttentionScores

SIZES = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32, "source_vocab_size": 24}
SOURCE = np.array([[5, 9, 7, 3, 0, 0], [8, 6, 11, 20, 4, 3]], "int32")
TARGET = np.array([[2, 7, 9, 0, 0], [2, 21, 5, 6, 4]], "int32")


@pytest.fixture
def make(randomize):
    return lambda **kwargs: randomize(Transformer(**SIZES, **kwargs))


def scores_of(model, source=SOURCE, target=TARGET):
    return AttentionScores(*map(np.array, model.attention_scores((source, target))))


def test_every_row_sums_to_one_in_float32(make):
    scores = scores_of(make())
    assert scores.encoder.shape == (2, 2, 4, 6, 6)
    assert scores.decoder.shape == (2, 2, 4, 5, 5)
    assert scores.cross.shape == (2, 2, 4, 5, 6)
    for part in scores:
        assert part.dtype == "float32" and part.min() >= 0
        np.testing.assert_allclose(part.sum(-1), 1, atol=1e-6)


def test_nothing_is_taken_from_padding_or_from_what_comes_later(make):
    scores = scores_of(make())
    source_padding, target_padding = SOURCE[0] == 0, TARGET[0] == 0
    assert not scores.encoder[:, 0][..., source_padding].any()
    assert not scores.cross[:, 0][..., source_padding].any()
    assert not scores.decoder[:, 0][..., target_padding].any()
    later = np.triu(np.ones((5, 5), "bool"), 1)
    assert not scores.decoder[..., later].any()
    # What may be looked at is looked at, since a softmax of finite scores is positive.
    assert (scores.encoder[:, 1] > 0).all() and (scores.cross[:, 1] > 0).all()
    assert (scores.decoder[:, 1][..., ~later] > 0).all()


@pytest.mark.parametrize("norm_first", [False, True])
def test_they_are_those_that_the_forward_pass_multiplies_values_with(make, norm_first, monkeypatch):
    model, used = make(norm_first=norm_first), []
    attention = attention_module.dot_product_attention

    def recording(query, key, value, *args, **kwargs):
        heads, _ = attention(query, key, value, *args, **kwargs)
        # The scores from outputs and values alone: head_dim values a key are more than enough.
        used.append((np.array(value), np.array(heads)))
        return heads, _

    monkeypatch.setattr(attention_module, "dot_product_attention", recording)
    model((SOURCE, TARGET), training=False)
    passed = used.copy()
    scores = scores_of(model)
    decoder = zip(scores.decoder, scores.cross, strict=True)
    shown = [*scores.encoder, *(part for layer in decoder for part in layer)]
    assert len(passed) == len(shown) == 6
    for (value, heads), part in zip(passed, shown, strict=True):
        np.testing.assert_allclose(part @ value, heads, rtol=1e-5, atol=1e-6)


def test_no_layer_makes_scores_that_nobody_asked_for(make, monkeypatch):
    model, asked = make(), []
    call = multi_head_attention.MultiHeadAttention.call

    def recording(self, *args, return_attention_scores=False, **kwargs):
        asked.append(return_attention_scores)
        return call(self, *args, return_attention_scores=return_attention_scores, **kwargs)

    monkeypatch.setattr(multi_head_attention.MultiHeadAttention, "call", recording)
    model((SOURCE, TARGET), training=False)
    scores_of(model)
    assert asked == [False] * 6 + [True] * 6


def test_dropout_changes_nothing(make):
    model = make(dropout=0.5, attention_dropout=0.5)
    for one, other in zip(scores_of(model), scores_of(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_sentence_alone_has_the_scores_it_has_beside_others(make):
    model = make()
    together, alone = scores_of(model), scores_of(model, SOURCE[:1, :4], TARGET[:1, :3])
    np.testing.assert_allclose(
        together.encoder[:, :1, :, :4, :4], alone.encoder, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        together.decoder[:, :1, :, :3, :3], alone.decoder, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(together.cross[:, :1, :, :3, :4], alone.cross, rtol=1e-5, atol=1e-5)


def test_alignment_is_the_mean_of_the_heads_of_the_last_layer(make):
    model = make()
    alignment = ops.convert_to_numpy(model.cross_attention_scores((SOURCE, TARGET)))
    np.testing.assert_allclose(alignment, scores_of(model).cross[-1].mean(1), atol=1e-7)
