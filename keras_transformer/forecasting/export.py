"""The export of a forecaster: a SavedModel from histories to forecasts."""

import numpy as np
import tensorflow as tf

from keras_transformer.export.tested_export import export_tested
from keras_transformer.forecasting.forecaster import Forecaster
from keras_transformer.type_hints import StrPath


def export_forecaster(model: Forecaster, directory: StrPath, *, overwrite: bool = False) -> str:
    """Writes `directory/<version>/`, a SavedModel that maps histories to forecasts.

    Every input and output has one row per series, so a server may join requests into a batch. A
    row's forecast does not depend on the other rows or on its padding. There are two signatures:

    - `serving_default`: `history` (B, T, F), float32, and `length` (B,), int32, the number of real
      steps, 0 to T; padding follows them.
    - `masked`: `history` and `padding_mask` (B, T), bool, True at real steps.

    If the model has covariates, both also take `covariates` (B, T + horizon, C). Both return
    `mean` (B, horizon, F) and `quantiles` (B, horizon, F, Q), float32. A step with a NaN or an
    infinite value counts as missing. The forecast of a row without a known step is 0. Inputs that
    do not fit the history are an error that names them.

    Args:
        model: the forecaster.
        directory: the model's directory; versions count up from 1. If its name is a number, that
            is the version.
        overwrite: whether to replace a version that exists.

    Returns:
        The path of the new version. It appears only after it was loaded and has forecast.

    Raises:
        ValueError: if the version exists, or the Keras backend is not TensorFlow.
        RuntimeError: if a forecast is not finite.

    Example:
        >>> import tempfile
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = Forecaster(history_length=4, horizon=2, **sizes)
        >>> path = export_forecaster(model, tempfile.mkdtemp())
        >>> forecast = tf.saved_model.load(path).signatures["serving_default"]
        >>> answer = forecast(history=tf.ones([1, 4, 1]), length=tf.constant([4]))
        >>> answer["mean"].numpy().ravel().tolist()
        [1.0, 1.0]
    """

    def forecast(history, padding_mask, *covariates):
        inputs = {"history": history, "padding_mask": padding_mask}
        if covariates:
            inputs["covariates"] = _checked_covariates(covariates[0], history, model.horizon)
        outputs = model(inputs, training=False)  # (B, horizon, F, 1 + Q)
        return {"mean": outputs[..., 0], "quantiles": outputs[..., 1:]}

    def forecast_by_length(history, length, *covariates):
        return forecast(history, _mask_of(length, history), *covariates)

    def forecast_masked(history, padding_mask, *covariates):
        return forecast(history, _checked_mask(padding_mask, history), *covariates)

    history = tf.TensorSpec([None, None, model.num_features], tf.float32, "history")
    length = tf.TensorSpec([None], tf.int32, "length")
    mask = tf.TensorSpec([None, None], tf.bool, "padding_mask")
    covariates = [tf.TensorSpec([None, None, model.num_covariates], tf.float32, "covariates")]
    covariates = covariates if model.num_covariates else []
    signatures = {
        "serving_default": (forecast_by_length, history, length, *covariates),
        "masked": (forecast_masked, history, mask, *covariates),
    }
    return export_tested(model, directory, signatures, _example(model), overwrite=overwrite)


def _mask_of(length, history):
    """Turns lengths (B,) into a mask (B, T), True at real steps."""
    rows, steps = tf.unstack(tf.shape(history)[:2])
    in_range = "length must be in [0, T], the number of real ones among the T steps of history."
    # TensorFlow would broadcast one value over all series without a word.
    checks = [
        tf.debugging.assert_equal(
            tf.size(length), rows, "length must have one value for each series of history."
        ),
        tf.debugging.assert_greater_equal(length, 0, in_range),
        tf.debugging.assert_less_equal(length, steps, in_range),
    ]
    with tf.control_dependencies(checks):
        return tf.range(steps) < tf.reshape(length, [-1, 1])


def _checked_mask(padding_mask, history):
    message = "padding_mask must have one value for each series and step of history."
    check = tf.debugging.assert_equal(tf.shape(padding_mask), tf.shape(history)[:2], message)
    with tf.control_dependencies([check]):
        return tf.identity(padding_mask)


def _checked_covariates(covariates, history, horizon):
    (rows, steps), (known_rows, known_steps) = (
        tf.unstack(tf.shape(x)[:2]) for x in (history, covariates)
    )
    one_each = "covariates must have one row for each series of history."
    enough = f"covariates must cover the history and the {horizon} steps of the horizon."
    checks = [
        tf.debugging.assert_equal(known_rows, rows, one_each),
        tf.debugging.assert_greater_equal(known_steps, steps + horizon, enough),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(covariates)


def _example(model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    steps = model.history_length
    example = {
        "history": rng.normal(size=(2, steps, model.num_features)).astype("float32"),
        "length": np.array([steps, 1], "int32"),
    }
    if model.num_covariates:
        shape = (2, steps + model.horizon, model.num_covariates)
        example["covariates"] = rng.normal(size=shape).astype("float32")
    return example
