"""Forecasters and classifiers as SavedModels that need no Python of ours."""

import numpy as np
import tensorflow as tf

from keras_transformer.export.strings import check_backend
from keras_transformer.export.version_directory import write_version


def export_forecaster(model, directory, *, overwrite=False) -> str:
    """Writes `directory/<version>/`, a SavedModel from histories to forecasts.

    Every input and output has one row for each series, so that a server may join requests into a
    batch. The result of a row does not depend on the others or on its padding. Two signatures:

    - `serving_default`: `history` (B, T, F), float32, and `length` (B,), int32, how many of its
      steps are real; what follows is padding.
    - `masked`: `history` and `padding_mask` (B, T), bool, True at real steps.

    Both take `covariates` (B, T + horizon, C), too, if the model has any, and give `mean`
    (B, horizon, F) and `quantiles` (B, horizon, F, Q), float32. A step with a NaN is a missing one.

    Args:
        model: a `Forecaster`.
        directory: the model's directory; versions count up from 1. If its name is a number, it is
            the version itself.
        overwrite: whether a version that exists is replaced.

    Returns:
        The path of the new version, which has been loaded and has made a forecast.

    Raises:
        ValueError: if the version exists, or the Keras backend is another than TensorFlow.
        RuntimeError: if a forecast is not finite.
    """

    def forecast(history, padding_mask, *covariates):
        least = tf.shape(history)[1] + model.horizon
        message = f"covariates must cover the history and the {model.horizon} steps of the horizon."
        checks = [
            tf.debugging.assert_greater_equal(tf.shape(values)[1], least, message)
            for values in covariates
        ]
        with tf.control_dependencies(checks):
            covariates = [tf.identity(values) for values in covariates]
        inputs = {"history": history, "padding_mask": padding_mask}
        inputs.update(zip(["covariates"], covariates, strict=False))
        outputs = model(inputs, training=False)  # (B, horizon, F, 1 + Q)
        return {"mean": outputs[..., 0], "quantiles": outputs[..., 1:]}

    def by_length(history, length, *covariates):
        steps = tf.range(tf.shape(history)[1])
        return forecast(history, steps < tf.reshape(length, [-1, 1]), *covariates)

    history = tf.TensorSpec([None, None, model.num_features], tf.float32, "history")
    length = tf.TensorSpec([None], tf.int32, "length")
    mask = tf.TensorSpec([None, None], tf.bool, "padding_mask")
    covariates = [tf.TensorSpec([None, None, model.num_covariates], tf.float32, "covariates")]
    covariates = covariates if model.num_covariates else []
    signatures = {
        "serving_default": _function(by_length, history, length, *covariates),
        "masked": _function(forecast, history, mask, *covariates),
    }
    rng = np.random.default_rng(0)
    steps = model.history_length
    example = {
        "history": rng.normal(size=(2, steps, model.num_features)).astype("float32"),
        "length": np.array([steps, 1], "int32"),
    }
    if covariates:
        shape = (2, steps + model.horizon, model.num_covariates)
        example["covariates"] = rng.normal(size=shape).astype("float32")
    return _export(model, directory, signatures, example, overwrite)


def export_classifier(model, directory, *, tokenizer=None, overwrite=False) -> str:
    """Writes `directory/<version>/`, a SavedModel from sequences to the probabilities of classes.

    - `serving_default`: `ids` (B, T), int32, padded with 0 at the end.
    - `text`, with a tokenizer: `text` (B,), strings.

    Of each sequence the first `max_length` tokens are read, as many as the model has been given.
    Both give `probabilities` (B, C), float32, and `class_id` (B,), int32, the likeliest.

    Args:
        model: a `SequenceClassifier`.
        directory: the model's directory; versions count up from 1. If its name is a number, it is
            the version itself.
        tokenizer: the `Tokenizer` whose ids the model was trained on, without special tokens;
            None for no signature from text.
        overwrite: whether a version that exists is replaced.

    Returns:
        The path of the new version, which has been loaded and has classified something.

    Raises:
        ValueError: if the version exists, the tokenizer has ids that the model has not, or the
            Keras backend is another than TensorFlow.
        RuntimeError: if a probability is not finite.
    """

    def classify(ids):
        ids = ids[:, : model.embedding.max_length]
        message = f"ids must be in [0, {model.embedding.vocab_size})."
        checks = [
            tf.debugging.assert_non_negative(ids, message),
            tf.debugging.assert_less(ids, model.embedding.vocab_size, message),
        ]
        with tf.control_dependencies(checks):
            ids = tf.identity(ids)
        probabilities = tf.nn.softmax(model(ids, training=False))  # (B, C)
        class_id = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"probabilities": probabilities, "class_id": class_id}

    def classify_text(text):
        ids = tokenizer.tokenize(tf.reshape(text, [-1])).to_tensor(0)
        return classify(tf.pad(ids, [[0, 0], [0, 1]]))  # a token where all texts are blank

    if tokenizer is not None and tokenizer.vocab_size > model.embedding.vocab_size:
        raise ValueError(
            f"The model has vocab_size={model.embedding.vocab_size}, but the tokenizer has "
            f"{tokenizer.vocab_size} ids; export it with the tokenizer that it was trained with."
        )
    ids = tf.TensorSpec([None, None], tf.int32, "ids")
    signatures = {"serving_default": _function(classify, ids)}
    if tokenizer is not None:
        text = tf.TensorSpec([None], tf.string, "text")
        signatures["text"] = _function(classify_text, text)
    some_id = min(1, model.embedding.vocab_size - 1)
    example = {"ids": np.array([[some_id, some_id], [some_id, 0]], "int32")}
    return _export(model, directory, signatures, example, overwrite, tokenizer)


def _function(function, *specs):
    return tf.function(function, input_signature=specs, autograph=False)


def _export(model, directory, signatures, example, overwrite, tokenizer=None) -> str:
    """Saves the signatures with the weights they use, and asks `serving_default` the example."""
    check_backend("SavedModel")
    module = tf.Module()
    module.model_weights = [weight.value for weight in model.weights]
    module.tokenizer = tokenizer

    def write(path):
        tf.saved_model.save(module, str(path), signatures=signatures)
        loaded = tf.saved_model.load(str(path)).signatures["serving_default"]
        outputs = loaded(**{name: tf.constant(value) for name, value in example.items()})
        for name, values in outputs.items():
            if not np.isfinite(values.numpy()).all():
                raise RuntimeError(
                    f"The exported model gave {name} that are not finite; its weights are not. "
                    "Nothing was exported; train again or use an earlier run."
                )

    return write_version(directory, write, overwrite)
