"""`model.export` of Keras writes a SavedModel of each model, also before it has been called."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import (
    Forecaster,
    LanguageModel,
    MaskedCrossentropy,
    SequenceClassifier,
    Transformer,
)

STACK = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
SERIES = {"history_length": 6, "horizon": 2, **STACK}


def ids(name="ids"):
    return {name: np.array([[5, 6, 3], [7, 3, 0]], "int32")}


def transformer():
    inputs = ids("source_ids") | {"target_ids": np.array([[2, 7], [2, 9]], "int32")}
    return Transformer(**STACK, source_vocab_size=12), inputs, tuple(inputs.values())


def language_model():
    return LanguageModel(**STACK, vocab_size=12), ids(), ids()["ids"]


def classifier():
    return SequenceClassifier(**STACK, vocab_size=12, num_classes=3), ids(), ids()["ids"]


def forecaster():
    inputs = {"history": np.arange(16, dtype="float32").reshape(2, 8, 1) ** 2}
    return Forecaster(**SERIES), inputs, inputs["history"]


def forecaster_with_covariates():
    _, inputs, _ = forecaster()
    inputs["covariates"] = np.ones((2, 10, 3), "float32")
    return Forecaster(**SERIES, num_covariates=3), inputs, inputs


MODELS = [transformer, language_model, classifier, forecaster, forecaster_with_covariates]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        make if make in (transformer, forecaster) else pytest.param(make, marks=pytest.mark.slow)
        for make in MODELS
    ],
    ids=lambda make: make.__name__,
)
def test_export_of_keras_needs_no_call_and_no_signature(make, tmp_path):
    model, inputs, arguments = make()
    model.export(tmp_path / "model", verbose=False)
    signature = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    exported = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    (values,) = exported.values()
    np.testing.assert_allclose(values, model(arguments), rtol=1e-5, atol=1e-5)


def test_a_signature_that_is_given_is_taken(tmp_path):
    model, inputs, arguments = language_model()
    model.export(
        tmp_path / "model", verbose=False, input_signature=[tf.TensorSpec((2, 3), "int32")]
    )
    exported = tf.saved_model.load(str(tmp_path / "model"))
    with pytest.raises(TypeError, match=r"shape=\(2, 3\)"):
        exported.serve(tf.constant(inputs["ids"][:1]))
    np.testing.assert_allclose(exported.serve(inputs["ids"]), model(arguments), atol=1e-5)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_the_output_is_said_to_be_what_it_is(make, dtype):
    keras.config.set_dtype_policy(dtype)
    try:
        model, inputs, arguments = make()
    finally:
        keras.config.set_dtype_policy("float32")
    symbols = keras.tree.map_structure(lambda x: keras.Input(x.shape[1:], dtype=x.dtype), arguments)
    symbolic, output = model(symbols), model(arguments)
    assert symbolic.dtype == keras.backend.standardize_dtype(output.dtype) == "float32"
    assert symbolic.shape[1:] == output.shape[1:]


def test_a_batch_is_trained_by_the_positions_of_keras():
    model = language_model()[0]
    model.compile("sgd", MaskedCrossentropy(), run_eagerly=True)
    batch = np.array([[5, 6, 3], [7, 3, 0]], "int32")
    logs = model.train_on_batch(batch, batch, np.ones(2), None, True)
    assert np.isfinite(logs["loss"])


def test_a_subclass_has_layers_of_its_own_if_it_sets_them_first():
    class Own(LanguageModel):
        def __init__(self, **arguments):
            self.more = keras.layers.Dense(8)
            super().__init__(**arguments)

    assert len(Own(**STACK, vocab_size=12).trainable_weights) == 2 + len(
        language_model()[0].trainable_weights
    )
