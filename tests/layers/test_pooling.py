import numpy as np
from keras import ops

from keras_transformer.layers.pooling import masked_mean


def test_masked_mean_is_that_of_the_real_positions(random):
    x = random(3, 4, 5)
    mask = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]], bool)
    x[~mask] = np.nan
    mean = ops.convert_to_numpy(masked_mean(x, mask))
    np.testing.assert_allclose(mean[0], x[0].mean(0), rtol=1e-5)
    np.testing.assert_allclose(mean[1], (x[1, 1] + x[1, 3]) / 2, rtol=1e-5)
    np.testing.assert_array_equal(mean[2], 0)
