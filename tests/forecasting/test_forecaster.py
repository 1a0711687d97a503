"""The forecaster: padding, units, quantiles, patches, covariates, training and saving."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import Forecaster, ForecastLoss
from keras_transformer.forecasting.windows import rolling_windows
from keras_transformer.layers.positional_embedding import sinusoidal_positions

SMALL = {
    "history_length": 10,
    "horizon": 5,
    "num_features": 2,
    "num_covariates": 3,
    "num_layers": 2,
    "d_model": 16,
    "num_heads": 4,
    "d_ff": 32,
}
SERIES_OF_TWO = {
    "history_length": 8,
    "horizon": 3,
    "num_features": 2,
    "num_layers": 1,
    "d_model": 8,
    "num_heads": 2,
    "d_ff": 8,
    "dropout": 0.0,
}
PATCHES = pytest.mark.parametrize("patch_length", [1, 3, 4])
# Keras 3.15 turns its variables into arrays in a way of which NumPy 2.4 warns.
saves_variables = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy"
)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def forecaster(randomize):
    """A 2-layer model of random weights; biases and norms are random, too."""

    def make(**kwargs):
        return randomize(Forecaster(**{**SMALL, **kwargs}), scale=0.2)

    return make


@pytest.fixture
def series(random):
    """series(T): inputs of a batch of four, all steps real."""
    return lambda length: {"history": random(4, length, 2), "covariates": random(4, length + 5, 3)}


def padded(inputs, before, after, value=np.nan):
    """The same steps with padding around them that holds something else."""
    rows, length = inputs["history"].shape[:2]
    mask = np.pad(np.ones((rows, length), bool), ((0, 0), (before, after)))
    around = ((0, 0), (before, after), (0, 0))
    return {
        "history": np.pad(inputs["history"], around, constant_values=value),
        "covariates": np.pad(inputs["covariates"], around, constant_values=7.0),
        "padding_mask": mask,
    }


# Padding.


@PATCHES
@pytest.mark.parametrize("length", [3, 14])
def test_a_row_does_not_depend_on_its_padding(forecaster, series, patch_length, length):
    model, inputs = forecaster(patch_length=patch_length), series(length)
    expected = as_array(model(inputs))
    assert expected.shape == (4, 5, 2, 4)
    for before, after in ((6, 0), (0, 6), (11, 2)):
        for value in (np.nan, -1e30):
            output = as_array(model(padded(inputs, before, after, value)))
            np.testing.assert_allclose(output, expected, atol=1e-5)


def test_rows_of_differing_length_in_one_batch_are_those_alone(forecaster, series):
    model, inputs = forecaster(patch_length=3), series(12)
    lengths = [12, 7, 1, 4]
    mask = np.arange(12) < np.array(lengths)[:, None]
    together = as_array(model({**inputs, "padding_mask": mask}))
    for i, length in enumerate(lengths):
        alone = {
            "history": inputs["history"][i : i + 1, :length],
            "covariates": inputs["covariates"][i : i + 1, : length + 5],
        }
        np.testing.assert_allclose(together[i], as_array(model(alone))[0], atol=1e-5)


def test_of_a_longer_history_the_last_steps_are_read(forecaster, series):
    model, inputs = forecaster(), series(25)
    last = {name: values[:, 15:] for name, values in inputs.items()}
    np.testing.assert_array_equal(as_array(model(inputs)), as_array(model(last)))


@PATCHES
def test_a_missing_step_hides_its_value_and_keeps_its_place(forecaster, series, patch_length):
    model, inputs = forecaster(patch_length=patch_length), series(10)
    mask = np.ones((4, 10), bool)
    mask[:, 6] = False
    expected = as_array(model({**inputs, "padding_mask": mask}))
    gap = {**inputs, "history": np.where(mask[..., None], inputs["history"], np.nan)}
    np.testing.assert_array_equal(as_array(model(gap)), expected)
    other = {**inputs, "history": np.where(mask[..., None], inputs["history"], 1e3)}
    other = as_array(model({**other, "padding_mask": mask}))
    np.testing.assert_array_equal(other, expected)
    closed = {"history": np.delete(inputs["history"], 6, 1)}
    closed["covariates"] = np.delete(inputs["covariates"], 6, 1)
    assert np.abs(as_array(model(closed)) - expected).max() > 1e-2
    assert np.abs(as_array(model(inputs)) - expected).max() > 1e-2


def test_a_row_without_real_steps_is_finite_and_changes_no_other(forecaster, series):
    model, inputs = forecaster(patch_length=3), series(8)
    mask = np.ones((4, 8), bool)
    mask[1] = False
    output = as_array(model({**inputs, "padding_mask": mask}))
    assert np.isfinite(output).all()
    expected = as_array(model(inputs))
    np.testing.assert_allclose(output[[0, 2, 3]], expected[[0, 2, 3]], atol=1e-5)
    empty = {"history": np.zeros((2, 0, 2)), "covariates": np.zeros((2, 5, 3))}
    assert np.isfinite(as_array(model(empty))).all()


# Level and scale.


@PATCHES
@pytest.mark.parametrize("length", [6, 10])
def test_forecasts_are_in_the_units_of_their_history(forecaster, series, patch_length, length):
    """`f(a x + b) = a f(x) + b` for each row and feature alone, to float32's digits."""
    model, inputs = forecaster(patch_length=patch_length), padded(series(length), 2, 1)
    expected = as_array(model(inputs))
    scale = np.array([[[1e-6, 3.0]], [[1e4, 1.0]], [[0.5, 1e8]], [[1e20, 1e-20]]], "float32")
    level = scale * np.array([[[0.0, 9.0]], [[-30.0, 1.0]], [[70.0, -5.0]], [[0.0, 2.0]]])
    scaled = {**inputs, "history": (scale * inputs["history"] + level).astype("float32")}
    output = (as_array(model(scaled)) - level[..., None]) / scale[..., None]
    np.testing.assert_allclose(output, expected, atol=2e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e7, 1e-12])
def test_a_constant_history_is_its_own_forecast(forecaster, series, value):
    model, inputs = forecaster(), series(9)
    inputs["history"] = np.full((4, 9, 2), value, "float32")
    np.testing.assert_array_equal(as_array(model(inputs)), np.float32(value))


def test_a_feature_sees_the_others(forecaster, series):
    model, inputs = forecaster(), series(10)
    changed = inputs["history"].copy()
    changed[:, 4, 1] += 1.0
    difference = as_array(model({**inputs, "history": changed})) - as_array(model(inputs))
    assert (np.abs(difference[:, :, 0]).max(axis=(1, 2)) > 1e-3).all()


# Outputs.


def test_quantiles_do_not_cross(forecaster, series):
    model = forecaster(quantiles=(0.05, 0.25, 0.5, 0.75, 0.95))
    output = as_array(model(series(10)))
    assert output.shape == (4, 5, 2, 6)
    assert (np.diff(output[..., 1:], axis=-1) >= 0).all()


def test_without_quantiles_the_mean_alone_has_the_same_form(forecaster, series):
    assert as_array(forecaster(quantiles=())(series(10))).shape == (4, 5, 2, 1)


def test_the_forecast_is_the_formula_of_its_parts(forecaster, series):
    """Patches by hand: a step is its two values, whether they are known, and its covariates."""
    model, inputs = forecaster(patch_length=4), padded(series(7), 0, 2)
    history, covariates = inputs["history"][:, :7], inputs["covariates"][:, :12]
    level, scale = history.mean(1, keepdims=True), history.std(1, keepdims=True)
    normal = (history - level) / scale
    # History of 10 steps in 3 patches of 4: 2 of padding, 3 unknown ones, 7 known ones. Horizon of
    # 5 steps in 2 patches: 3 of padding.
    steps = np.zeros((4, 20, 6), "float32")
    steps[:, 5:12, :2], steps[:, 5:12, 2] = normal, 1.0
    steps[:, 5:17, 3:] = covariates
    positions = sinusoidal_positions(5, 16)[::-1]
    x = as_array(model.patch_projection(steps.reshape(4, 5, 24))) + positions
    mask = np.array([[False, True, True, True, True]] * 4)
    y = as_array(model.output_projection(model.encoder(x, padding_mask=mask)))[:, 3:]
    y = y.reshape(4, 8, 2, 4)[:, :5]
    padded_normal = np.pad(normal, ((0, 0), (3, 0), (0, 0))).transpose(0, 2, 1)
    linear = padded_normal @ as_array(model.autoregression.kernel)  # (B, F, horizon)
    y = y + linear.transpose(0, 2, 1)[..., None]
    y[..., 1:] = np.sort(y[..., 1:], axis=-1)
    expected = y * scale[..., None] + level[..., None]
    np.testing.assert_allclose(as_array(model(inputs)), expected, atol=1e-4)


def test_covariates_of_the_horizon_matter_where_they_stand(forecaster, series):
    model, inputs = forecaster(), series(10)
    expected = as_array(model(inputs))
    for step in (3, 10, 14):
        changed = inputs["covariates"].copy()
        changed[:, step] += 1.0
        output = as_array(model({**inputs, "covariates": changed}))
        assert (np.abs(output - expected).max(axis=(1, 2, 3)) > 1e-3).all(), step
    beyond = np.pad(inputs["covariates"], ((0, 0), (0, 3), (0, 0)), constant_values=9.0)
    np.testing.assert_array_equal(as_array(model({**inputs, "covariates": beyond})), expected)


def test_a_history_alone_is_a_dict_of_it(random):
    model = Forecaster(**{**SMALL, "num_covariates": 0})
    history = random(2, 10, 2)
    np.testing.assert_array_equal(as_array(model(history)), as_array(model({"history": history})))


def test_patches_shorten_what_attention_reads():
    model = Forecaster(**{**SMALL, "history_length": 512, "horizon": 96, "patch_length": 16})
    assert model.num_patches == (32, 6)
    assert model.positions.shape == (38, 16)


# Graphs, shapes and precision.


def test_a_functional_model_of_unknown_lengths_equals_eager(forecaster, series):
    model, inputs = forecaster(patch_length=3), padded(series(7), 3, 2)
    shapes = {"history": (None, 2), "covariates": (None, 3), "padding_mask": (None,)}
    symbolic = {
        name: keras.Input(shape, name=name, dtype="bool" if "mask" in name else "float32")
        for name, shape in shapes.items()
    }
    functional = keras.Model(symbolic, model(symbolic))
    assert functional.output_shape == (None, 5, 2, 4)
    expected = as_array(model(inputs))
    np.testing.assert_allclose(as_array(functional(inputs)), expected, atol=1e-5)


def test_mixed_bfloat16_keeps_weights_levels_and_forecasts_in_float32(random):
    sizes = {**SMALL, "num_covariates": 0, "num_features": 1}
    exact, half = Forecaster(**sizes), Forecaster(**sizes, dtype="mixed_bfloat16")
    half.set_weights(exact.get_weights())
    history = 1e6 + random(3, 10, 1)  # bfloat16 has no number between 1e6 and 1e6 + 4096
    output, expected = as_array(half(history)), as_array(exact(history))
    assert output.dtype == np.float32 and {w.dtype for w in half.weights} == {"float32"}
    assert np.abs(output - expected).max() < 0.3
    assert np.ptp(output) > 0.1


def test_dropout_acts_in_training_only(forecaster, series):
    model, inputs = forecaster(dropout=0.5), series(10)
    first, second = (as_array(model(inputs)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(as_array(model(inputs, training=True)) - first).max() > 1e-2


@saves_variables
def test_configuration_weights_and_whole_model_survive_saving(forecaster, series, tmp_path):
    arguments = {
        **SMALL,
        "quantiles": [0.2, 0.8],
        "patch_length": 3,
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "feed_forward_dropout": 0.15,
        "activation": "gelu",
        "norm_first": True,
        "norm": "rms_norm",
        "use_bias": False,
        "name": "mine",
    }
    model, inputs = forecaster(**arguments), series(10)
    config = model.get_config()
    assert {name: config[name] for name in arguments} == arguments
    expected = as_array(model(inputs))
    copy = Forecaster.from_config(config)
    assert copy.get_config() == config
    model.save_weights(tmp_path / "model.weights.h5")
    copy.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(as_array(copy(inputs)), expected)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is Forecaster and loaded.get_config() == config
    np.testing.assert_array_equal(as_array(loaded(inputs)), expected)


# Training.


def test_one_training_step_moves_every_weight(series, random):
    model = Forecaster(**SMALL, patch_length=3, dropout=0.0)
    model.compile(keras.optimizers.SGD(1.0), ForecastLoss(model.quantiles), run_eagerly=True)
    before = model.get_weights()
    model.train_on_batch(padded(series(9), 0, 2), random(4, 5, 2))
    for weight, old, new in zip(model.weights, before, model.get_weights(), strict=True):
        assert np.isfinite(new).all() and not np.array_equal(new, old), weight.path


@pytest.mark.slow
def test_the_loss_is_in_units_of_the_window(series, random):
    """A model trained on `a x + b` is the model trained on x, with forecasts in its units."""
    inputs, targets = series(9), random(4, 5, 2)
    scale, level = np.float32([[[1e4, 1e-3]]]), np.float32([[[-5e4, 2.0]]])
    scaled = {**inputs, "history": scale * inputs["history"] + level}
    outputs, losses = [], []
    for x, y in ((inputs, targets), (scaled, scale * targets + level)):
        keras.utils.set_random_seed(0)
        model = Forecaster(**SMALL)
        model.compile(keras.optimizers.SGD(0.1), ForecastLoss(model.quantiles), run_eagerly=True)
        losses.append([model.train_on_batch(x, y) for _ in range(3)])
        outputs.append(as_array(model(inputs)))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    np.testing.assert_allclose(outputs[0], outputs[1], atol=2e-3)
    _, deviation = inputs["history"].mean(1, keepdims=True), inputs["history"].std(1, keepdims=True)
    errors = (targets[..., None] - outputs[0]) / deviation[..., None]
    levels = np.array(model.quantiles)
    pinball = np.maximum(levels * errors[..., 1:], (levels - 1) * errors[..., 1:])
    expected = np.mean(errors[..., 0] ** 2) + 2 * pinball.mean()
    assert model.test_on_batch(inputs, targets) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("quantiles", [(), (0.5,)])
def test_metrics_compare_means_and_targets_in_the_units_of_the_series(series, random, quantiles):
    inputs, targets = series(9), random(4, 5, 2)
    model = Forecaster(**{**SMALL, "quantiles": quantiles})
    model.compile("sgd", ForecastLoss(quantiles), metrics=["mae"], run_eagerly=True)
    expected = np.abs(targets - as_array(model(inputs))[..., 0]).mean()
    logs = model.test_on_batch(inputs, targets, return_dict=True)
    assert logs["mae"] == pytest.approx(expected, rel=1e-5)
    model.train_on_batch(inputs, targets)
    assert model.test_on_batch(inputs, targets, return_dict=True)["loss"] < logs["loss"]


@pytest.mark.parametrize("loss", ["mse", keras.losses.mean_squared_error, keras.losses.Huber()])
def test_a_loss_of_keras_is_refused_where_there_are_quantiles(series, random, loss):
    inputs, targets = series(9), random(4, 5, 2)
    model = Forecaster(**SMALL)
    model.compile("sgd", loss, run_eagerly=True)
    with pytest.raises(ValueError, match="compares a target with one number.*use ForecastLoss"):
        model.train_on_batch(inputs, targets)
    model = Forecaster(**{**SMALL, "quantiles": ()})
    model.compile("sgd", loss, run_eagerly=True)
    assert np.isfinite(model.train_on_batch(inputs, targets))


def test_a_window_without_scale_does_not_count(series, random):
    model = Forecaster(**SMALL)
    model.compile("sgd", ForecastLoss(model.quantiles), run_eagerly=True)
    inputs = series(9)
    inputs["history"][:] = 4.0
    assert model.test_on_batch(inputs, random(4, 5, 2)) == 0


@pytest.mark.slow
def test_fit_learns_a_season_and_its_noise():
    rng = np.random.default_rng(0)
    steps = np.arange(600)
    signal = 50 + 10 * np.sin(2 * np.pi * steps / 12)
    observed = signal + rng.normal(0, 1, 600)
    windows = rolling_windows(observed, history_length=24, horizon=6)
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.0}
    model = Forecaster(history_length=24, horizon=6, patch_length=6, **sizes)
    model.compile(keras.optimizers.Adam(3e-3), ForecastLoss(model.quantiles))
    model.fit(*windows, batch_size=64, epochs=25, verbose=0)
    forecast = model.predict(windows.inputs, batch_size=600, verbose=0)[:, :, 0]
    truth = np.stack([signal[o : o + 6] for o in range(24, 595)])
    assert np.abs(forecast[..., 0] - truth).mean() < 0.6  # of an amplitude of 10
    inside = (windows.targets[..., 0] >= forecast[..., 1]) & (
        windows.targets[..., 0] <= forecast[..., 3]
    )
    assert 0.7 < inside.mean() < 0.9  # between the 0.1- and the 0.9-quantile


# Errors.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon must be an integer of at least 1, but is 0"),
        ({"history_length": 2.5}, "history_length must be an integer of at least 1, but is 2.5"),
        ({"num_covariates": -1}, "num_covariates must be an integer of at least 0, but is -1"),
        ({"quantiles": (0.9, 0.1)}, r"rising numbers in \(0, 1\).*not \(0.9, 0.1\)"),
        ({"quantiles": (0.0, 0.5)}, r"rising numbers in \(0, 1\).*not \(0.0, 0.5\)"),
        ({"d_model": 15}, "d_model must be a multiple of num_heads, but d_model=15"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\), but is 1.0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Forecaster(**{**SMALL, **arguments})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((2, 9)), r"history must have the shape \(B, T, 2\).*but has \(2, 9\)"),
        (
            {"history": np.zeros((2, 9, 1))},
            r"history must have the shape \(B, T, 2\), because num_features=2, but has "
            r"\(2, 9, 1\); .*series in the rows of a matrix as list\(matrix\)",
        ),
        (
            {"history": np.zeros((2, 9, 2))},
            r"covariates must have the shape \(B, T, 3\).*but is missing",
        ),
        (
            {"history": np.zeros((2, 9, 2)), "covariates": np.zeros((2, 9, 3))},
            r"covariates must cover the 9 steps of the history and the 5 steps of .* have 9",
        ),
        (
            {
                "history": np.zeros((2, 9, 2)),
                "padding_mask": np.ones((2, 8), bool),
                "covariates": np.zeros((2, 14, 3)),
            },
            r"padding_mask must have the shape \(B, T\).*\(2, 9, 2\), but has \(2, 8\)",
        ),
        ({"series": np.zeros((2, 9, 2))}, r"but the keys are \['series'\]"),
    ],
)
def test_wrong_inputs_are_named(inputs, message):
    with pytest.raises(ValueError, match=message):
        Forecaster(**SMALL)(inputs)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 1), (4, 6, 2)])
def test_targets_of_another_shape_are_refused(series, shape):
    model = Forecaster(**SMALL)
    model.compile("sgd", ForecastLoss(model.quantiles), run_eagerly=True)
    with pytest.raises(ValueError, match=r"targets must have the shape \(B, 5, 2\).*but have"):
        model.train_on_batch(series(9), np.zeros(shape))


def test_missing_targets_do_not_count(random):
    """The loss and the new weights are those of a batch in which they were never asked for."""
    model = Forecaster(**SERIES_OF_TWO)
    history, targets = random(6, 8, 2), random(6, 3, 2)
    missing = targets.copy()
    missing[1, 2, 0], missing[4, 0, 1], missing[5] = np.nan, np.inf, np.nan
    forecast = as_array(model(history)).astype("float64")
    known = np.isfinite(missing).all(axis=-1)  # (B, horizon)
    scale = history.std(axis=1, keepdims=True, dtype="float64")
    errors = (targets[..., None] - forecast) / scale[..., None]
    levels = np.array(model.quantiles)
    pinball = np.maximum(levels * errors[..., 1:], (levels - 1) * errors[..., 1:])
    losses = errors[..., 0] ** 2 + 2 * pinball.mean(axis=-1)  # (B, horizon, F)
    weights = np.arange(1.0, 7.0)
    model.compile(keras.optimizers.SGD(0.1), ForecastLoss(model.quantiles), run_eagerly=True)
    found = model.test_on_batch(history, missing, sample_weight=weights)
    expected = (losses * weights[:, None, None])[known].mean()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = model.train_on_batch(history, missing)
    np.testing.assert_allclose(found, losses[known].mean(), rtol=1e-5)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_missing_targets_of_a_window_without_scale_do_not_count(random):
    model = Forecaster(**SERIES_OF_TWO)
    model.compile("sgd", ForecastLoss(model.quantiles), run_eagerly=True)
    history, targets = random(2, 8, 2), random(2, 3, 2)
    history[1], targets[1] = 5.0, np.nan
    alone = model.test_on_batch(history[:1], targets[:1])
    np.testing.assert_allclose(model.test_on_batch(history, targets), alone, rtol=1e-6)


def test_a_batch_of_missing_targets_changes_nothing(random):
    model = Forecaster(**SERIES_OF_TWO)
    model.compile(keras.optimizers.SGD(0.1), ForecastLoss(model.quantiles), run_eagerly=True)
    before = model.get_weights()
    assert model.train_on_batch(random(2, 8, 2), np.full((2, 3, 2), np.nan)) == 0.0
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_other_losses_refuse_a_missing_target(random):
    model = Forecaster(**{**SERIES_OF_TWO, "quantiles": ()})
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    before = model.get_weights()
    with pytest.raises(tf.errors.InvalidArgumentError, match="A target is missing"):
        model.train_on_batch(random(2, 8, 2), np.full((2, 3, 2), np.nan))
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


@pytest.mark.parametrize("run_eagerly", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_a_gap_in_covariates_trains_nothing(series, random, gap, run_eagerly):
    model, inputs = Forecaster(**SMALL, dropout=0.0), series(9)
    model.compile(keras.optimizers.SGD(0.1), ForecastLoss(), run_eagerly=run_eagerly)
    before = model.get_weights()
    inputs["covariates"][2, 13, 1] = gap  # of the horizon
    with pytest.raises(tf.errors.InvalidArgumentError, match="covariate is NaN or infinite; fill"):
        model.train_on_batch(inputs, random(4, 5, 2))
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_covariates_of_steps_that_are_not_read_may_be_anything(series, random):
    """Of the covariates beside padding, before it, and beside missing steps."""
    losses, inputs, targets = [], series(12), random(4, 5, 2)
    inputs["padding_mask"] = np.arange(12) < 11
    inputs["padding_mask"] = np.tile(inputs["padding_mask"], (4, 1))
    inputs["padding_mask"][:, 6] = False
    for value in (0.0, np.nan):
        keras.utils.set_random_seed(0)
        inputs["covariates"][:, [0, 6, 16]] = value
        model = Forecaster(**SMALL, dropout=0.0)
        model.compile(keras.optimizers.SGD(0.1), ForecastLoss(), run_eagerly=True)
        losses.append([model.train_on_batch(inputs, targets) for _ in range(2)])
    assert np.isfinite(losses).all() and losses[0] == losses[1]
