"""What TensorFlow Serving reads beside a SavedModel: warm-up requests and batching parameters."""

from pathlib import Path

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCHING_FILE = "batching_params.pbtxt"
# A server that joins requests fills them up to one of these sizes; each is warmed.
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
# What a warm-up request asks for, by the name of an input; every other input is of texts.
OPTIONS = {"length_penalty": 0.6, "max_length": 64, "prefix": ""}


def check_warmup(texts) -> None:
    """Raises a ValueError if there are no texts, or an ImportError without their package."""
    if not texts:
        raise ValueError("warmup must hold at least one text, but is empty.")
    try:
        from tensorflow_serving.apis import prediction_log_pb2  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Warm-up requests need the package tensorflow-serving-api: "
            "pip install tensorflow-serving-api."
        ) from error


def write_warmup_requests(version_directory, texts) -> None:
    """Writes the requests that a server sends to itself before it serves a version.

    The first request to each signature is slow, since TensorFlow then optimizes its graph. So each
    is sent a batch of every size in `BATCH_SIZES`, short and long texts mixed.

    Args:
        version_directory: the path of a SavedModel. Its inputs are texts and `OPTIONS`.
        texts: list of strings, some short and some long.

    Raises:
        ImportError: if the extra `[serving]` is not installed.
        ValueError: if there are no texts.
    """
    import tensorflow as tf

    check_warmup(texts)
    path = Path(version_directory) / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    ranked = sorted((text.encode("utf-8", "replace") for text in texts), key=len, reverse=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, inputs in _signatures(version_directory).items():
            for size in BATCH_SIZES:
                writer.write(_record(name, inputs, _spread(ranked, size)))


def _signatures(version_directory) -> dict[str, dict]:
    """The signatures of a SavedModel, by name: the dtype of each input."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((Path(version_directory) / "saved_model.pb").read_bytes())
    found = saved_model.meta_graphs[0].signature_def
    return {
        name: {key: info.dtype for key, info in found[name].inputs.items()}
        for name in sorted(found)
        if not name.startswith("__")  # the initialization of the graph
    }


def _record(name, inputs, texts) -> bytes:
    """A request to the signature `name` as the server's file holds it."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.signature_name = name
    for key, dtype in inputs.items():
        values = [OPTIONS[key]] * len(texts) if key in OPTIONS else texts
        request.inputs[key].CopyFrom(tf.make_tensor_proto(values, dtype, [len(texts)]))
    log = prediction_log_pb2.PredictLog(request=request)
    return prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString()


def _spread(texts, count):
    """Takes `count` texts, from the first to the last at equal distances."""
    return [texts[i * (len(texts) - 1) // max(count - 1, 1)] for i in range(count)]


def write_batching_parameters(version_directory) -> None:
    """Writes `batching_params.pbtxt`, which tells a server how to join requests.

    It reads the file with `--enable_batching --enable_per_model_batching_parameters`.

    Args:
        version_directory: the path of a SavedModel.
    """
    lines = (
        f"max_batch_size {{ value: {BATCH_SIZES[-1]} }}",
        *(f"allowed_batch_sizes: {size}" for size in BATCH_SIZES),
        "batch_timeout_micros { value: 2000 }",
        "max_enqueued_batches { value: 100 }",
        "num_batch_threads { value: 2 }",
    )
    (Path(version_directory) / BATCHING_FILE).write_text("\n".join(lines) + "\n", "utf-8")
