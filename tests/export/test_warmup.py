"""The files beside a SavedModel that TensorFlow Serving reads."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.export.warmup import (
    BATCH_SIZES,
    BATCHING_FILE,
    OPTIONS,
    WARMUP_FILE,
    write_warmup_requests,
)

NO_API = "needs tensorflow-serving-api, the extra [serving]"


@pytest.fixture(scope="module")
def protos():
    pytest.importorskip("tensorflow_serving", reason=NO_API)
    from tensorflow_serving.apis import prediction_log_pb2

    return prediction_log_pb2


@pytest.fixture
def echo(tmp_path):
    """A SavedModel of one signature, which gives its texts back."""
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.string, name="text")
    module.echo = tf.function(lambda text: {"text": text}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.echo})
    return tmp_path


def requests_in(directory, protos):
    """The signature and the inputs of each warm-up request."""
    for record in tf.data.TFRecordDataset(str(Path(directory) / WARMUP_FILE)):
        log = protos.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        yield request.model_spec.signature_name, inputs


def check_every_signature_is_warmed(directory, protos):
    """Each gets all of its inputs, of its dtypes, in every size that a server makes."""
    signatures = tf.saved_model.load(str(directory)).signatures
    requests = list(requests_in(directory, protos))
    assert len(requests) == len(signatures) * len(BATCH_SIZES) <= 1000
    for signature, function in signatures.items():
        specs = function.structured_input_signature[1]
        asked = [inputs for name, inputs in requests if name == signature]
        for inputs, size in zip(asked, BATCH_SIZES, strict=True):
            assert set(inputs) == set(specs)
            for name, values in inputs.items():
                assert values.shape == (size,)
                assert tf.as_dtype(values.dtype) == specs[name].dtype
    return requests


@pytest.mark.slow
def test_every_signature_of_an_export_is_warmed(exported, served, sentences, protos):
    requests = check_every_signature_is_warmed(exported[1], protos)
    asked = {name for _, inputs in requests for name in inputs}
    assert asked == {"text", "source", "target", *OPTIONS}
    for signature, inputs in requests:
        if len(next(iter(inputs.values()))) == 8:
            output = served(signature, **{name: v.tolist() for name, v in inputs.items()})
            assert all(len(values) == 8 for values in output.values())
    batch = next(inputs["text"] for name, inputs in requests if name == "serving_default")
    assert batch.tolist() == [max(sentences[0], key=len).encode()]


@pytest.mark.slow
def test_every_signature_of_a_generator_is_warmed(tokenizer, protos, tmp_path):
    from keras_transformer import LanguageModel, TextGenerator

    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = LanguageModel(**sizes, vocab_size=tokenizer.vocab_size)
    path = TextGenerator(model, tokenizer, max_length=4).export(tmp_path, warmup=["a dog", ""])
    check_every_signature_is_warmed(path, protos)


@pytest.mark.parametrize("count", [1, 2, 5, 64, 1500])
def test_texts_of_every_length_are_sent(protos, echo, count):
    texts = ["a" * (1 + i * 7 % count) for i in range(count)]
    write_warmup_requests(echo, texts)
    batches = [inputs["text"].tolist() for _, inputs in requests_in(echo, protos)]
    assert [len(batch) for batch in batches] == list(BATCH_SIZES)
    for batch in batches:
        lengths = [len(text) for text in batch]
        assert lengths[0] == max(map(len, texts)) and lengths == sorted(lengths, reverse=True)
        if len(batch) > 1:
            assert lengths[-1] == 1
            assert -np.diff(lengths).min() <= -(-count // (len(batch) - 1))


def test_texts_are_sent_as_they_are(protos, echo):
    texts = ["ein Hund", "", "\U0001f600 \x00"]
    write_warmup_requests(echo, texts)
    *_, (_, inputs) = requests_in(echo, protos)
    assert {text.decode() for text in inputs["text"]} == set(texts)


def test_no_texts_are_refused(protos, tmp_path):
    with pytest.raises(ValueError, match="warmup must hold at least one text, but is empty"):
        write_warmup_requests(tmp_path, [])
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match="pip install tensorflow-serving-api"):
        write_warmup_requests(tmp_path, ["a"])
    assert not list(tmp_path.iterdir())


def test_a_warm_up_that_cannot_be_written_is_refused_before_the_work(
    exported, monkeypatch, tmp_path
):
    from keras_transformer.export import saved_model

    monkeypatch.setattr(saved_model, "serving_module", lambda *_: pytest.fail("it was built"))
    with pytest.raises(ValueError, match="warmup must hold at least one text"):
        exported[0].export(tmp_path / "model", warmup=iter([]))
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match="Warm-up requests need the package"):
        exported[0].export(tmp_path / "model", warmup=["a dog"])
    assert not list(tmp_path.iterdir())


# `BatchingParameters` of tensorflow_serving/servables/tensorflow/session_bundle_config.proto, most
# of whose numbers are wrapped in messages; no Python package has it.
WRAPPED = {
    "max_batch_size",
    "batch_timeout_micros",
    "max_enqueued_batches",
    "num_batch_threads",
    "pad_variable_length_inputs",
}


def batching_parameters(directory) -> tuple[dict[str, int], list[int]]:
    """The wrapped numbers, and the sizes that a batch may have."""
    lines = (Path(directory) / BATCHING_FILE).read_text("utf-8").splitlines()
    sizes = [re.fullmatch(r"allowed_batch_sizes: (\d+)", line) for line in lines]
    fields = [re.fullmatch(r"(\w+) \{ value: (\d+) \}", line) for line in lines]
    assert all(a or b for a, b in zip(sizes, fields, strict=True)), lines
    return {f[1]: int(f[2]) for f in fields if f}, [int(size[1]) for size in sizes if size]


def test_batching_parameters_are_those_of_the_server(exported, protos, tmp_path):
    parameters, sizes = batching_parameters(exported[1])
    assert set(parameters) <= WRAPPED
    assert sizes == sorted(set(sizes)), "the server takes no others"
    assert sizes[-1] == parameters["max_batch_size"], "the server refuses others"
    warmed = {
        len(inputs["text"]) for name, inputs in requests_in(exported[1], protos) if name == "beam"
    }
    assert set(sizes) == warmed
