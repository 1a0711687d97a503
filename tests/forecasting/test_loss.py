"""The pinball loss and the loss of a forecast, by hand and by their minima."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import ForecastLoss
from keras_transformer.forecasting.loss import pinball_loss

LEVELS = (0.1, 0.5, 0.9)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


def test_pinball_loss_weighs_errors_by_their_side():
    # Of 10: 8 and 7 are 2 and 3 below, 15 is 5 above.
    losses = pinball_loss(np.array([10.0]), np.array([[8.0, 7.0, 15.0]]), LEVELS)
    np.testing.assert_allclose(as_array(losses), [[0.1 * 2, 0.5 * 3, 0.1 * 5]], rtol=1e-6)
    losses = pinball_loss(np.array([10.0]), np.array([[12.0, 7.0, 5.0]]), LEVELS)
    np.testing.assert_allclose(as_array(losses), [[0.9 * 2, 0.5 * 3, 0.9 * 5]], rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_pinball_loss_is_least_at_the_quantile(level):
    draws = np.random.default_rng(0).normal(3.0, 2.0, 2001)
    guesses = np.linspace(-4, 10, 281)
    forecasts = np.broadcast_to(guesses[:, None, None], (281, 2001, 1))
    losses = as_array(pinball_loss(np.broadcast_to(draws, (281, 2001)), forecasts, (level,)))
    least = guesses[losses.mean(axis=(1, 2)).argmin()]
    assert least == pytest.approx(np.quantile(draws, level), abs=0.05)


def test_the_loss_is_the_formula(random):
    targets, forecasts = random(4, 3, 2), random(4, 3, 2, 4)
    weights = np.abs(random(4, 3, 2))
    errors = targets[..., None] - forecasts
    levels = np.array(LEVELS)
    pinball = np.where(errors[..., 1:] > 0, levels, levels - 1) * errors[..., 1:]
    expected = errors[..., 0] ** 2 + 2 * pinball.mean(-1)
    loss = ForecastLoss(LEVELS)
    assert float(loss(targets, forecasts)) == pytest.approx(expected.mean(), rel=1e-5)
    for weight, whole in (
        (weights, weights),
        (weights[..., 0], weights[..., :1]),
        (weights[:, 0, 0], weights[:, :1, :1]),
    ):
        value = float(loss(targets, forecasts, sample_weight=weight))
        assert value == pytest.approx((expected * whole).mean(), rel=1e-5)
    assert as_array(ForecastLoss(LEVELS, reduction=None)(targets, forecasts)).shape == (4, 3, 2)


def test_without_quantiles_it_is_the_squared_error(random):
    targets, forecasts = random(4, 3, 2), random(4, 3, 2, 1)
    value = float(ForecastLoss(())(targets, forecasts))
    assert value == pytest.approx(np.mean((targets - forecasts[..., 0]) ** 2), rel=1e-5)


def test_its_second_term_approximates_the_crps():
    """With many levels, that of a normal distribution (Gneiting and Raftery, 2007, eq. 21)."""
    levels = (np.arange(999) + 1) / 1000
    draws = np.random.default_rng(0).normal(size=200_001)
    quantiles = np.quantile(draws, levels)
    forecasts = np.concatenate([[0.7], quantiles])[None, None, None]  # no error of the mean
    value = float(ForecastLoss(levels.tolist())(np.array([[[0.7]]]), forecasts))
    density, distribution = np.exp(-(0.7**2) / 2) / np.sqrt(2 * np.pi), 0.758036
    crps = 0.7 * (2 * distribution - 1) + 2 * density - 1 / np.sqrt(np.pi)
    assert value == pytest.approx(crps, rel=0.01)


def test_the_config_describes_the_loss():
    loss = ForecastLoss((0.2, 0.8), name="cost")
    config = {"quantiles": [0.2, 0.8], "reduction": "sum_over_batch_size", "name": "cost"}
    assert loss.get_config() == config
    restored = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(restored, ForecastLoss) and restored.get_config() == config


def test_what_does_not_fit_is_named(random):
    with pytest.raises(ValueError, match=r"mean and 3 quantiles, but its shape is \(4, 3, 2, 3\)"):
        ForecastLoss(LEVELS)(random(4, 3, 2), random(4, 3, 2, 3))
    with pytest.raises(ValueError, match=r"per mean of y_pred \(4, 3, 1, 4\).*is \(4, 3\)"):
        ForecastLoss(LEVELS)(random(4, 3), random(4, 3, 1, 4))
    for levels in ((0.5, 0.5), (1.0,), (-0.1,), ("0.5",), 1.5):
        with pytest.raises(ValueError, match=r"quantiles must be rising numbers in \(0, 1\)"):
            ForecastLoss(levels)
