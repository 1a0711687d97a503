"""What TensorFlow Serving reads beside a SavedModel: warm-up requests and batching parameters."""

from pathlib import Path

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCHING_FILE = "batching_params.pbtxt"
BATCH_SIZES = (8, 32)
# Every request delays the start of a server, and a server refuses a file of over 1,000.
MOST_TEXTS = 100


def write_warmup_requests(version_directory, texts) -> None:
    """Writes the requests that a server sends to itself before it serves a version.

    The first request of each shape is slow. Up to 100 texts, from the shortest to the longest, are
    sent to `serving_default` one by one, and, repeated as needed, in batches of 8 and 32.

    Args:
        version_directory: the path of a SavedModel.
        texts: list of strings, some short and some long.

    Raises:
        ImportError: if the extra `[serving]` is not installed.
        ValueError: if there are no texts.
    """
    import tensorflow as tf

    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError as error:
        raise ImportError(
            'Warm-up requests need the extra "serving": '
            "pip install keras-transformer-layers[serving]."
        ) from error
    if not texts:
        raise ValueError("warmup must hold at least one text, but is empty.")
    path = Path(version_directory) / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for batch in _batches(_of_all_lengths(list(texts))):
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = "serving_default"
            tensor = tf.make_tensor_proto(batch, tf.string, [len(batch)])
            request.inputs["text"].CopyFrom(tensor)
            log = prediction_log_pb2.PredictLog(request=request)
            record = prediction_log_pb2.PredictionLog(predict_log=log)
            writer.write(record.SerializeToString())


def _of_all_lengths(texts):
    """Chooses at most `MOST_TEXTS` texts, from the shortest to the longest."""
    if len(texts) <= MOST_TEXTS:
        return texts
    ranked = sorted(texts, key=len)
    return [ranked[i * (len(texts) - 1) // (MOST_TEXTS - 1)] for i in range(MOST_TEXTS)]


def _batches(texts):
    """Yields every text alone, then batches of `BATCH_SIZES`, short and long texts mixed."""
    texts = [text.encode("utf-8", "replace") for text in texts]
    yield from ([text] for text in texts)
    for size in BATCH_SIZES:
        yield [texts[i % len(texts)] for i in range(size)]


def write_batching_parameters(version_directory, *, max_batch_size=32, timeout_micros=2000):
    """Writes `batching_params.pbtxt`, which tells a server how to join requests.

    It reads the file with `--enable_batching --enable_per_model_batching_parameters`.

    Args:
        version_directory: the path of a SavedModel.
        max_batch_size: the most texts that a server joins.
        timeout_micros: how long a request waits for others, in microseconds.
    """
    lines = (
        f"max_batch_size {{ value: {max_batch_size} }}",
        f"batch_timeout_micros {{ value: {timeout_micros} }}",
        "max_enqueued_batches { value: 100 }",
        "num_batch_threads { value: 2 }",
    )
    (Path(version_directory) / BATCHING_FILE).write_text("\n".join(lines) + "\n", "utf-8")
