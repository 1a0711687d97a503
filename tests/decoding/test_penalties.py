import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.decoding.strategies import check_settings, length_penalty


@pytest.mark.parametrize(
    ("length", "alpha", "expected"),
    [
        (1, 0.6, 1.0),  # 6 / 6
        (2, 0.2, 7**0.2 / 6**0.2),
        (7, 1.0, 2.0),  # 12 / 6
        (7, 0.5, 2**0.5),
        (19, 2.0, 16.0),  # (24 / 6) ** 2
        (0, 1.0, 5 / 6),
        (1000, 0, 1.0),
    ],
)
def test_penalty_equals_hand_arithmetic(length, alpha, expected):
    assert float(length_penalty(length, alpha)) == pytest.approx(expected, rel=1e-6)


def test_a_tensor_of_lengths_gives_a_float32_penalty_each():
    penalties = np.asarray(length_penalty(np.array([[1, 7], [13, 19]], "int32"), 1.0))
    assert penalties.dtype == "float32"
    np.testing.assert_allclose(penalties, [[1, 2], [3, 4]], rtol=1e-6)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 10_000), st.floats(0.01, 4))
def test_longer_hypotheses_are_forgiven_more(length, alpha):
    assert float(length_penalty(length + 1, alpha)) >= float(length_penalty(length, alpha)) >= 1


@pytest.mark.parametrize("alpha", [-0.1, 10.1, float("nan"), float("inf"), True, "0.6", None])
def test_a_penalty_out_of_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"length_penalty must be a number in \[0, 10\], but is"):
        check_settings(length_penalty=alpha)


@pytest.mark.parametrize("alpha", [0, 0.6, 1, 10, np.float32(0.6)])
def test_a_penalty_in_range_is_returned(alpha):
    assert check_settings(length_penalty=alpha) == {"length_penalty": alpha}
