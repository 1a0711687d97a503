"""`keras-transformer translate`: one line in, exactly one line out."""

import codecs
import sys

from keras_transformer.commands.loading import loaded

CHUNK_BYTES, MOST_LINES = 1 << 16, 512


def run(options) -> None:
    """Translates standard input to its end, in batches of the lines that have arrived."""
    with loaded(options.model, options) as translate:
        for lines in arriving_lines(sys.stdin.buffer):
            for translation in translate([decode(line) for line in lines]):
                sys.stdout.buffer.write(one_line(translation).encode() + b"\n")
            sys.stdout.buffer.flush()


def arriving_lines(stream):
    """Yields lists of the lines that have arrived, as bytes without their ends.

    It does not wait for more than one line. A byte order mark at the beginning is not text.
    """
    rest, mark = b"", codecs.BOM_UTF8
    while data := stream.read1(CHUNK_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            lines[0], mark = lines[0].removeprefix(mark), b""
        for start in range(0, len(lines), MOST_LINES):
            yield lines[start : start + MOST_LINES]
    if rest := rest.removeprefix(mark):
        yield [rest]


def decode(line: bytes) -> str:
    """Decodes a line; bytes that are not UTF-8 become U+FFFD."""
    return line.removesuffix(b"\r").decode("utf-8", "replace")


def one_line(text: str) -> str:
    """Replaces the line breaks of a translation, which would shift all lines after it."""
    return text.replace("\r", " ").replace("\n", " ")
