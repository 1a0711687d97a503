import pytest

from keras_transformer.training import precision as module
from keras_transformer.training.precision import policy


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("float32", "float32"), ("bfloat16", "mixed_bfloat16"), ("float16", "mixed_float16")],
)
def test_a_precision_is_a_policy_of_keras(precision, expected):
    assert policy(precision) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"fpu", "avx512_bf16"}, "mixed_bfloat16"),
        ({"fpu", "amx_bf16"}, "mixed_bfloat16"),
        ({"fpu", "avx2"}, "float32"),
        (set(), "float32"),
    ],
)
def test_bfloat16_is_chosen_where_the_processor_multiplies_it(monkeypatch, flags, expected):
    monkeypatch.setattr(module, "processor_flags", lambda: flags)
    assert policy("auto") == expected


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be one of .* but is 'int8'"):
        policy("int8")
