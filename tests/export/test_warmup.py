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
    WARMUP_FILE,
    write_batching_parameters,
    write_warmup_requests,
)

NO_API = "needs tensorflow-serving-api, the extra [serving]"


@pytest.fixture(scope="module")
def protos():
    pytest.importorskip("tensorflow_serving", reason=NO_API)
    from tensorflow_serving.apis import prediction_log_pb2

    return prediction_log_pb2


def requests_in(directory, protos):
    """The signature and the batch of each warm-up request."""
    for record in tf.data.TFRecordDataset(str(Path(directory) / WARMUP_FILE)):
        log = protos.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert set(request.inputs) == {"text"}
        yield request.model_spec.signature_name, tf.make_ndarray(request.inputs["text"])


def test_requests_of_an_export_can_be_answered(exported, served, sentences, protos):
    requests = list(requests_in(exported[1], protos))
    assert {name for name, _ in requests} == {"serving_default"}
    batches = [batch for _, batch in requests]
    assert [batch.tolist() for batch in batches[:6]] == [[text.encode()] for text in sentences[0]]
    assert {len(batch) for batch in batches} == {1, *BATCH_SIZES}
    assert len(requests) <= 1000, "TensorFlow Serving reads no more"
    for name, batch in requests:
        assert batch.ndim == 1 and batch.dtype == object
        output = served(name, text=batch.tolist())
        assert output["translation"].shape == (len(batch),)
        assert np.isfinite(output["score"]).all()
    assert output["translation"][1].decode() == sentences[1][1]


def test_of_many_texts_some_of_every_length_are_sent(protos, tmp_path):
    texts = ["a" * (1 + i * 7 % 1500) for i in range(1500)]
    write_warmup_requests(tmp_path, texts)
    requests = list(requests_in(tmp_path, protos))
    assert len(requests) == 102
    lengths = [len(batch[0]) for _, batch in requests if len(batch) == 1]
    assert lengths[0] == 1 and lengths[-1] == 1500
    assert np.diff(lengths).min() >= 15 and np.diff(lengths).max() <= 16


def test_texts_are_sent_alone_and_in_batches(protos, tmp_path):
    texts = ["ein Hund", "", "\U0001f600 \x00"]
    write_warmup_requests(tmp_path, texts)
    batches = [batch for _, batch in requests_in(tmp_path, protos)]
    assert [len(batch) for batch in batches] == [1, 1, 1, 8, 32]
    for batch in batches[3:]:
        assert [text.decode() for text in batch] == (texts * 11)[: len(batch)]


def test_no_texts_are_refused(protos, tmp_path):
    with pytest.raises(ValueError, match="warmup must hold at least one text, but is empty"):
        write_warmup_requests(tmp_path, [])
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match=r"pip install keras-transformer-layers\[serving\]"):
        write_warmup_requests(tmp_path, ["a"])
    assert not list(tmp_path.iterdir())


def test_a_failed_warm_up_leaves_no_version(exported, monkeypatch, tmp_path):
    from keras_transformer.export import saved_model

    def build(translator, precision, names):
        module = tf.Module()
        module.signature_functions = {}
        return module

    monkeypatch.setattr(saved_model, "serving_module", build)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match="Warm-up requests need the extra"):
        exported[0].export(tmp_path / "model", warmup=["a dog"])
    assert not list(tmp_path.iterdir())


# `BatchingParameters` of tensorflow_serving/servables/tensorflow/session_bundle_config.proto, whose
# numbers are wrapped in messages; no Python package has it.
WRAPPED = {
    "max_batch_size",
    "batch_timeout_micros",
    "max_enqueued_batches",
    "num_batch_threads",
    "pad_variable_length_inputs",
}


def batching_parameters(directory) -> dict[str, int]:
    text = (Path(directory) / BATCHING_FILE).read_text("utf-8")
    fields = [re.fullmatch(r"(\w+) \{ value: (\d+) \}", line) for line in text.splitlines()]
    assert all(fields), text
    return {field[1]: int(field[2]) for field in fields}


def test_batching_parameters_are_those_of_the_server(exported, protos, tmp_path):
    parameters = batching_parameters(exported[1])
    assert set(parameters) <= WRAPPED
    assert parameters["max_batch_size"] in BATCH_SIZES, "a full batch is warm"
    write_batching_parameters(tmp_path, max_batch_size=64, timeout_micros=0)
    changed = {"max_batch_size": 64, "batch_timeout_micros": 0}
    assert batching_parameters(tmp_path) == {**parameters, **changed}
