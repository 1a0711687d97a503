"""Translates standard input, one sentence a line, through TensorFlow Serving's REST interface.

python rest_client.py --model en-de < sentences.txt

It needs nothing but Python. It trusts the server with nothing: an answer may take `--timeout`
seconds and 4 MiB, and what is not a list of translations is an error of one line.
"""

import argparse
import http.client
import json
import math
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from itertools import islice
from typing import Any

BATCH_SIZE = 32
CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
# The most bytes of an answer. Python's objects for the worst of them take about 30 times that.
MOST_BYTES = 4 << 20
LONGEST_MESSAGE = 500  # characters
TIMED_OUT = "timed out"


class ServerError(Exception):
    """No answer, or an answer without translations."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses to ask another address than the one that was given."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


def main(arguments: list[str] | None = None) -> int:
    """Runs the client; returns its exit code: 0 done, 1 failed, 2 bad usage."""
    options = build_parser().parse_args(arguments)
    url = f"{options.url.rstrip('/')}/v1/models/{urllib.parse.quote(options.model)}:predict"
    lines = (decode(line) for line in sys.stdin.buffer)
    shown = spelled if sys.stdout.isatty() else str
    try:
        # The loop ends before an empty list is sent, which a batching server never answers.
        while texts := list(islice(lines, BATCH_SIZE)):
            for translation, score in translate(url, texts, options.timeout):
                prefix = f"{score:.4f}\t" if options.scores else ""
                sys.stdout.buffer.write(f"{prefix}{shown(one_line(translation))}\n".encode())
            sys.stdout.buffer.flush()
    except ServerError as error:
        message = spelled(" ".join(str(error).split()))[:LONGEST_MESSAGE]
        print(f"rest_client: {message}", file=sys.stderr)
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
    parser.add_argument(
        "--timeout", type=seconds, default=60, help="seconds for a whole request (%(default)s)"
    )
    return parser


def seconds(word: str) -> float:
    """A time limit."""
    number = float(word)
    if not 0 < number <= threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"must be seconds above 0, but is {word}")
    return number


def translate(url: str, texts: list[str], timeout: float) -> list[tuple[str, float]]:
    """One request: the translation and the score of each text; ServerError if there are none."""
    answer = in_time(lambda: ask(url, texts, timeout), timeout, url)
    try:
        results = [translation_of(row) for row in json.loads(answer)["predictions"]]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ServerError(f"{url} gave no translations and scores: {answer[:100]!r}") from error
    if len(results) != len(texts):
        raise ServerError(f"{url} gave {len(results)} translations for {len(texts)} sentences")
    return results


def in_time(function, timeout: float, url: str):
    """The result of `function()`; ServerError after `timeout` seconds, whatever it waits for.

    A socket's own limit is for each read, so a server that sends a byte now and then would never
    meet it. The thread that is left behind ends with the process.
    """
    results = []

    def work():
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout)
    result = results[0] if results else ServerError(f"no answer from {url}: {TIMED_OUT}")
    if isinstance(result, Exception):
        raise result
    return result


def ask(url: str, texts: list[str], timeout: float) -> bytes:
    """The bytes that the server answers."""
    deadline = time.monotonic() + timeout
    body = json.dumps({"instances": texts}).encode()
    opener = urllib.request.build_opener(NoRedirects)
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with opener.open(request, timeout=timeout) as response:
            return read(response, deadline)
    except urllib.error.HTTPError as error:
        with error:
            message = explanation(error, deadline)
        raise ServerError(f"{url} answered {error.code}: {message}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServerError(f"no answer from {url}: {getattr(error, 'reason', error)}") from error


def read(response, deadline: float) -> bytes:
    """The body of an answer, unless it is too long, too late, or shorter than it says."""
    body = bytearray()
    while data := response.read1(1 << 16):
        body += data
        if len(body) > MOST_BYTES:
            raise ValueError(f"the answer has over {MOST_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(TIMED_OUT)
    if response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    return bytes(body)


def explanation(error: urllib.error.HTTPError, deadline: float) -> str:
    """TensorFlow Serving explains itself as {"error": "..."}; a proxy in between may not."""
    try:
        message = json.loads(read(error, deadline))["error"]
    except (OSError, http.client.HTTPException, KeyError, TypeError, ValueError, RecursionError):
        message = None
    return message if isinstance(message, str) else str(error.reason)


def translation_of(row: dict[str, Any]) -> tuple[str, float]:
    """Translation and score of a row; TypeError or ValueError if they are none."""
    translation, score = row["translation"], row["score"]
    if not isinstance(translation, str) or isinstance(score, bool):
        raise TypeError
    translation.encode()  # half a surrogate pair is no text
    if not math.isfinite(score):
        raise ValueError
    return translation, float(score)


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
