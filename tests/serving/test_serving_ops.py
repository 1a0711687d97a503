"""Every op of an exported SavedModel is one that TensorFlow Serving has."""

import pytest
import tensorflow as tf
import tensorflow_text

from keras_transformer import Forecaster, SequenceClassifier, Translator
from keras_transformer.export.classifier import export_classifier
from keras_transformer.forecasting.export import export_forecaster
from tests.serving.served_ops import TEXT_OPS, core_ops, refused


def save(function, directory):
    """A SavedModel of a function from floats to floats; its path."""
    module = tf.Module()
    module.weight = tf.Variable(2.0)
    specification = tf.TensorSpec([None], tf.float32, name="x")
    module.serving_default = tf.function(
        lambda x: {"y": function(x) * module.weight}, input_signature=[specification]
    )
    tf.saved_model.save(module, str(directory), {"serving_default": module.serving_default})
    return directory


def test_an_export_has_only_ops_that_the_server_has(exported):
    assert not refused(exported[1])


@pytest.mark.slow
def test_an_export_of_another_search_has_only_such_ops(trained, tokenizer, tmp_path):
    translator = Translator(trained, tokenizer, "greedy")
    assert not refused(translator.export(tmp_path / "model", signatures=("translate", "align")))


def test_exports_of_the_encoder_alone_have_only_such_ops(tokenizer, tmp_path):
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    forecaster = Forecaster(history_length=4, horizon=2, num_covariates=1, **sizes)
    assert not refused(export_forecaster(forecaster, tmp_path / "series"))
    classifier = SequenceClassifier(num_classes=2, vocab_size=tokenizer.vocab_size, **sizes)
    path = export_classifier(classifier, tmp_path / "languages", tokenizer=tokenizer)
    assert not refused(path)


def test_core_ops_are_those_without_tensorflow_text():
    assert not core_ops() & TEXT_OPS


def python(x):
    return tf.ensure_shape(tf.py_function(lambda y: y, [x], tf.float32), [None])


def numpy(x):
    return tf.ensure_shape(tf.numpy_function(lambda y: y, [x], tf.float32), [None])


def xla_op(x):
    return tf.raw_ops.XlaConcatND(inputs=[x], num_concats=[1])


def printing(x):
    tf.print("texts", x)
    return x


def unseeded(x):
    return x + tf.random.uniform(tf.shape(x))


def nondeterministic(x):
    return x + tf.cast(tf.raw_ops.NonDeterministicInts(shape=[1]), tf.float32)


def newer_text_op(x):
    rows = tf.RaggedTensor.from_tensor(x[:, tf.newaxis])
    return tensorflow_text.RoundRobinTrimmer(1).trim([rows])[0].values


REFUSED = {
    python: "EagerPyFunc",
    numpy: "PyFunc",
    xla_op: "XlaConcatND",
    printing: "PrintV2",
    unseeded: "RandomUniform",
    nondeterministic: "NonDeterministicInts",
    newer_text_op: "TFText>RoundRobinTrim",
    tf.function(lambda x: x + 1.0, jit_compile=True): "jit_compile",
}


@pytest.mark.parametrize(("function", "op"), REFUSED.items(), ids=REFUSED.values())
def test_what_the_server_cannot_run_is_refused(function, op, tmp_path):
    assert refused(save(function, tmp_path)) == {op}


def test_a_stateless_random_op_is_no_hidden_state(tmp_path):
    def seeded(x):
        return x + tf.random.stateless_uniform(tf.shape(x), seed=[1, 2])

    assert not refused(save(seeded, tmp_path))
