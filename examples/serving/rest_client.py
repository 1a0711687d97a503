"""Translates standard input, one sentence a line, through TensorFlow Serving's REST interface.

python rest_client.py --model en-de < sentences.txt

It needs nothing but Python.
"""

import argparse
import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from itertools import islice

BATCH_SIZE = 32


class ServerError(Exception):
    """No answer, or an answer without translations."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the client; returns its exit code: 0 done, 1 failed, 2 bad usage."""
    options = build_parser().parse_args(arguments)
    url = f"{options.url.rstrip('/')}/v1/models/{urllib.parse.quote(options.model)}:predict"
    lines = (decode(line) for line in sys.stdin.buffer)
    try:
        # The loop ends before an empty list is sent, which a batching server never answers.
        while texts := list(islice(lines, BATCH_SIZE)):
            for translation, score in translate(url, texts, options.timeout):
                prefix = f"{score:.4f}\t" if options.scores else ""
                sys.stdout.buffer.write(f"{prefix}{one_line(translation)}\n".encode())
            sys.stdout.buffer.flush()
    except ServerError as error:
        print(f"rest_client: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has gone; keep the interpreter from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Translate standard input, line by line.")
    parser.add_argument("--url", default="http://localhost:8501", help="(%(default)s)")
    parser.add_argument("--model", default="en-de", help="MODEL_NAME of the server (%(default)s)")
    parser.add_argument("--scores", action="store_true", help="print score, tab, translation")
    parser.add_argument("--timeout", type=float, default=60, help="seconds (%(default)s)")
    return parser


def translate(url: str, texts: list[str], timeout: float) -> list[tuple[str, float]]:
    """One request: the translation and the score of each text; ServerError if there are none."""
    body = json.dumps({"instances": texts}).encode()
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        raise ServerError(f"{url} answered {error.code}: {explanation(error)}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServerError(f"no answer from {url}: {getattr(error, 'reason', error)}") from error
    try:
        rows = json.loads(answer)["predictions"]
        results = [(row["translation"], float(row["score"])) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ServerError(f"{url} gave no translations and scores: {answer[:100]!r}") from error
    if len(results) != len(texts):
        raise ServerError(f"{url} gave {len(results)} translations for {len(texts)} sentences")
    return results


def explanation(error: urllib.error.HTTPError) -> str:
    """TensorFlow Serving explains itself as {"error": "..."}; a proxy in between may not."""
    try:
        return json.loads(error.read())["error"]
    except (KeyError, TypeError, ValueError):
        return error.reason


def decode(line: bytes) -> str:
    """A line without its end; bytes that are no UTF-8 become U+FFFD."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """A translation without line breaks, which would shift all lines after it."""
    return text.replace("\r", " ").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
