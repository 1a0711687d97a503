"""Translates standard input, one sentence a line, through TensorFlow Serving's gRPC interface.

pip install tensorflow-serving-api
python grpc_client.py --model en-de < sentences.txt
"""

import argparse
import math
import os
import re
import sys
from itertools import islice

# TensorFlow reads it when it is imported; most of its log would only hide the line of an error.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

BATCH_SIZE = 32
CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
LONGEST_MESSAGE = 500  # characters
OUTPUTS = {"translation": tf.string, "score": tf.float32}


class ServerError(Exception):
    """No answer, or an answer without translations."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the client; returns its exit code: 0 done, 1 failed, 2 bad usage."""
    options = build_parser().parse_args(arguments)
    lines = (decode(line) for line in sys.stdin.buffer)
    shown = spelled if sys.stdout.isatty() else str
    try:
        with grpc.insecure_channel(options.host) as channel:
            stub = PredictionServiceStub(channel)
            # The loop ends before an empty list is sent, which a batching server never answers.
            while texts := list(islice(lines, BATCH_SIZE)):
                for translation, score in translate(stub, options.model, texts, options.deadline):
                    prefix = f"{score:.4f}\t" if options.scores else ""
                    sys.stdout.buffer.write(f"{prefix}{shown(one_line(translation))}\n".encode())
                sys.stdout.buffer.flush()
    except ServerError as error:
        message = spelled(" ".join(str(error).split()))[:LONGEST_MESSAGE]
        print(f"grpc_client: {options.host}: {message}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has gone; keep the interpreter from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Translate standard input, line by line.")
    parser.add_argument("--host", default="localhost:8500", help="host:port (%(default)s)")
    parser.add_argument("--model", default="en-de", help="MODEL_NAME of the server (%(default)s)")
    parser.add_argument("--scores", action="store_true", help="print score, tab, translation")
    parser.add_argument(
        "--deadline", type=seconds, default=60, help="seconds for a whole request (%(default)s)"
    )
    return parser


def seconds(word: str) -> float:
    """A time limit."""
    number = float(word)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be seconds above 0, but is {word}")
    return number


def translate(
    stub: PredictionServiceStub, model: str, texts: list[str], deadline: float
) -> list[tuple[str, float]]:
    """One request: the translation and the score of each text; ServerError if there are none."""
    request = PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = "serving_default"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto([text.encode() for text in texts]))
    try:
        outputs = stub.Predict(request, timeout=deadline).outputs
    except grpc.RpcError as error:
        raise ServerError(f"{error.code().name}: {error.details()}") from error
    if missing := set(OUTPUTS) - set(outputs):
        raise ServerError(f"{model} has no output {' and '.join(sorted(missing))}")
    values = [vector(model, name, outputs[name], OUTPUTS[name]) for name in OUTPUTS]
    if any(len(value) != len(texts) for value in values):
        raise ServerError(f"{model} gave {len(values[0])} translations for {len(texts)} sentences")
    return list(zip(*values, strict=True))


def vector(model: str, name: str, tensor, dtype: tf.DType) -> list[str] | list[float]:
    """The values of an output; ServerError if they are not a vector of texts, or of numbers."""
    sizes = [axis.size for axis in tensor.tensor_shape.dim]
    try:
        # A tensor may say that it is larger than its message, and be made so.
        if (
            tensor.dtype != dtype.as_datatype_enum
            or len(sizes) != 1
            or not 0 <= sizes[0] <= BATCH_SIZE
        ):
            raise ValueError(f"type {tensor.dtype}, shape {sizes}")
        values = tf.make_ndarray(tensor).tolist()
        if dtype == tf.string:
            return [text.decode() for text in values]
        if not all(map(math.isfinite, values)):
            raise ValueError("not finite")
    except (AttributeError, TypeError, ValueError) as error:
        raise ServerError(f"{model} gave a strange output {name}: {error}") from error
    return values


def decode(line: bytes) -> str:
    """A line without its end; bytes that are no UTF-8 become U+FFFD."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """A translation without line breaks, which would shift all lines after it."""
    return text.replace("\r", " ").replace("\n", " ")


def spelled(text: str) -> str:
    r"""A text with its control characters spelled, as in `\x1b`: a terminal would obey them."""
    return CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


if __name__ == "__main__":
    sys.exit(main())
