"""Translates standard input, one sentence a line, through TensorFlow Serving's gRPC interface.

pip install tensorflow-serving-api
python grpc_client.py --model en-de < sentences.txt
"""

import argparse
import os
import sys
from itertools import islice

# TensorFlow reads it when it is imported; most of its log would only hide the line of an error.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

BATCH_SIZE = 32


class ServerError(Exception):
    """No answer, or an answer without translations."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the client; returns its exit code: 0 done, 1 failed, 2 bad usage."""
    options = build_parser().parse_args(arguments)
    lines = (decode(line) for line in sys.stdin.buffer)
    try:
        with grpc.insecure_channel(options.host) as channel:
            stub = PredictionServiceStub(channel)
            # The loop ends before an empty list is sent, which a batching server never answers.
            while texts := list(islice(lines, BATCH_SIZE)):
                for translation, score in translate(stub, options.model, texts, options.deadline):
                    prefix = f"{score:.4f}\t" if options.scores else ""
                    sys.stdout.buffer.write(f"{prefix}{one_line(translation)}\n".encode())
                sys.stdout.buffer.flush()
    except ServerError as error:
        print(f"grpc_client: {options.host}: {' '.join(str(error).split())}", file=sys.stderr)
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
    parser.add_argument("--deadline", type=float, default=60, help="seconds (%(default)s)")
    return parser


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
    if missing := {"translation", "score"} - set(outputs):
        raise ServerError(f"{model} has no output {' and '.join(sorted(missing))}")
    translations = [text.decode() for text in tf.make_ndarray(outputs["translation"])]
    scores = tf.make_ndarray(outputs["score"]).tolist()
    if not len(translations) == len(scores) == len(texts):
        raise ServerError(
            f"{model} gave {len(translations)} translations for {len(texts)} sentences"
        )
    return list(zip(translations, scores, strict=True))


def decode(line: bytes) -> str:
    """A line without its end; bytes that are no UTF-8 become U+FFFD."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """A translation without line breaks, which would shift all lines after it."""
    return text.replace("\r", " ").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
