import keras
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def fixed_seed():
    keras.utils.set_random_seed(0)


@pytest.fixture
def random():
    """Standard normal float32 arrays: random(2, 3, 8)."""
    generator = np.random.default_rng(0)
    return lambda *shape: generator.normal(size=shape).astype("float32")


@pytest.fixture
def randomize(random):
    """Gives every weight of a layer, biases and norms too, a value of its own."""

    def fill(layer, scale=0.3):
        for weight in layer.weights:
            weight.assign(weight + scale * random(*weight.shape))
        return layer

    return fill
