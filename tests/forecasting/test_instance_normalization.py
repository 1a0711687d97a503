import numpy as np
import pytest
from keras import ops

from keras_transformer.forecasting.instance_normalization import normalize_windows

MASK = np.array([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], bool)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def values(random):
    """Windows (4, 5, 2) with nonsense at padding."""
    values = 100 + 10 * random(4, 5, 2)
    values[~MASK] = np.nan
    return values


def test_level_and_scale_are_those_of_the_real_steps(values):
    _, level, scale = (as_array(x) for x in normalize_windows(values, MASK))
    for i in range(3):
        real = values[i, MASK[i]]
        np.testing.assert_allclose(level[i, 0], real.mean(0), rtol=1e-6)
        np.testing.assert_allclose(scale[i, 0], real.std(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal([level[3], scale[3]], 0)


def test_normalized_windows_have_level_0_and_scale_1_and_there_is_a_way_back(values):
    normal, level, scale = (as_array(x) for x in normalize_windows(values, MASK))
    np.testing.assert_array_equal(normal[~MASK], 0)
    np.testing.assert_allclose(normal[1].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(normal[1].std(0), 1, rtol=1e-5)
    back = level + scale * normal
    np.testing.assert_allclose(back[:2][MASK[:2]], values[:2][MASK[:2]], rtol=1e-6)
    np.testing.assert_array_equal(normal[2:], 0)  # one step or none has no scale


def test_without_a_mask_all_steps_are_real(random):
    values = random(2, 5, 3)
    for x, y in zip(normalize_windows(values), normalize_windows(values, MASK[1:2]), strict=True):
        np.testing.assert_array_equal(as_array(x), as_array(y))


@pytest.mark.parametrize("value", [0.1, -7e7, 3e-30, 2e37])
def test_a_repeated_value_has_no_scale(value):
    windows = normalize_windows(np.full((1, 7, 1), value, "float32"))
    assert as_array(windows.level).item() == np.float32(value)
    assert as_array(windows.scale).item() == 0


@pytest.mark.parametrize("value", [0.1, 123456.7])
@pytest.mark.parametrize("real", [[1, 1, 1, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
def test_a_repeated_value_has_no_scale_wherever_padding_is(value, real):
    windows = normalize_windows(np.full((1, 4, 1), value, "float32"), np.array([real], bool))
    assert as_array(windows.level).item() == np.float32(value)
    assert as_array(windows.scale).item() == 0
