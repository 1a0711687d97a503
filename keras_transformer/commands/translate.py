"""`keras-transformer translate`: one line in, exactly one line out."""

import sys
from itertools import islice

from keras_transformer.commands.loading import load

LINES_AT_A_TIME = 512


def run(options) -> None:
    """Translates standard input until it ends."""
    translate = load(options.model, options)
    lines = (decode(line) for line in sys.stdin.buffer)
    while chunk := list(islice(lines, LINES_AT_A_TIME)):
        for translation in translate(chunk):
            sys.stdout.buffer.write(one_line(translation).encode() + b"\n")
        sys.stdout.buffer.flush()


def decode(line: bytes) -> str:
    """A line without its end; bytes that are no UTF-8 become U+FFFD."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """A translation without line breaks, which would shift all lines after it."""
    return text.replace("\r", " ").replace("\n", " ")
