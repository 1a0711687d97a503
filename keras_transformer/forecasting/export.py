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
      steps; padding follows them.
    - `masked`: `history` and `padding_mask` (B, T), bool, True at real steps.

    If the model has covariates, both also take `covariates` (B, T + horizon, C). Both return
    `mean` (B, horizon, F) and `quantiles` (B, horizon, F, Q), float32. A step with a NaN counts as
    missing.

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
            steps = tf.shape(history)[1]
            inputs["covariates"] = _long_enough(covariates[0], steps, model.horizon)
        outputs = model(inputs, training=False)  # (B, horizon, F, 1 + Q)
        return {"mean": outputs[..., 0], "quantiles": outputs[..., 1:]}

    def forecast_by_length(history, length, *covariates):
        steps = tf.range(tf.shape(history)[1])
        return forecast(history, steps < tf.reshape(length, [-1, 1]), *covariates)

    history = tf.TensorSpec([None, None, model.num_features], tf.float32, "history")
    length = tf.TensorSpec([None], tf.int32, "length")
    mask = tf.TensorSpec([None, None], tf.bool, "padding_mask")
    covariates = [tf.TensorSpec([None, None, model.num_covariates], tf.float32, "covariates")]
    covariates = covariates if model.num_covariates else []
    signatures = {
        "serving_default": (forecast_by_length, history, length, *covariates),
        "masked": (forecast, history, mask, *covariates),
    }
    return export_tested(model, directory, signatures, _example(model), overwrite=overwrite)


def _long_enough(covariates, steps, horizon):
    message = f"covariates must cover the history and the {horizon} steps of the horizon."
    check = tf.debugging.assert_greater_equal(tf.shape(covariates)[1], steps + horizon, message)
    with tf.control_dependencies([check]):
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
