import pytest

from keras_transformer.training import precision as module
from keras_transformer.training.precision import policy, product_rates


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("float32", "float32"), ("bfloat16", "mixed_bfloat16"), ("float16", "mixed_float16")],
)
def test_a_precision_is_a_policy_of_keras(precision, expected):
    assert policy(precision) == expected


@pytest.mark.parametrize(
    ("rate", "expected"), [(0.5, "float32"), (1.09, "float32"), (1.1, "mixed_bfloat16")]
)
def test_bfloat16_is_chosen_where_it_is_timed_to_be_faster(monkeypatch, rate, expected):
    rates = {"float32": 1.0, "bfloat16": rate}
    monkeypatch.setattr(module, "product_rates", lambda d_model, d_ff: rates)
    assert policy("auto") == expected


def test_products_are_timed_once_for_a_size(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 512)
    rates = product_rates(8, 16)
    assert set(rates) == {"float32", "bfloat16"} and min(rates.values()) > 0
    assert product_rates(8, 16) is rates


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be one of .* but is 'int8'"):
        policy("int8")
