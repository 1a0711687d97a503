"""Lines as a command reads them: from files, or as they arrive; each line in is one line out."""

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from keras_transformer.data.text_lines import MAX_LINE_BYTES, cut_line, stream_lines, without_mark
from keras_transformer.files import sha256

CHUNK_BYTES, MOST_LINES = 1 << 16, 512
INPUT = "standard input"
# The bytes of the longest byte order mark.
LONGEST_MARK = 4


class Survey(NamedTuple):
    """What a file holds: how many lines, and its SHA-256."""

    lines: int
    sha256: str


def survey(path) -> Survey | None:
    """Reads a file once; None for a pipe or a device, which can be read once only."""
    if is_stream(path):
        return None
    return Survey(sum(1 for _ in stream_lines(path)), sha256(path))


def is_stream(path) -> bool:
    """Returns whether something can be read once only: a pipe or a device."""
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def file_rows(paths, skip=0) -> Iterator[tuple[list[str], bool]]:
    """Yields the texts of a line of all files, and whether one of them was cut.

    Args:
        paths: files of as many lines as one another, with a text for each line of the first.
        skip: how many lines to leave out at the beginning.

    Raises:
        ValueError: if one has more lines than another.
    """
    readers = [stream_lines(path) for path in paths]
    number = 0
    while True:
        lines = [next(reader, None) for reader in readers]
        if all(line is None for line in lines):
            return
        if None in lines:
            refuse_short_file(paths, lines, number)
        if number >= skip:
            yield [decode(line) for line in lines], any(map(is_cut, lines))
        number += 1


def refuse_short_file(paths, lines, number) -> None:
    """Raises a ValueError that says which file ends first."""
    short, long = (
        next(path for path, line in zip(paths, lines, strict=True) if (line is None) == ends)
        for ends in (True, False)
    )
    raise ValueError(
        f"{short} ends after line {number}, but {long} goes on; line n of one must belong to line "
        "n of the other."
    )


def arriving_lines(stream, prompt=None, name: str = INPUT) -> Iterator[list[bytes]]:
    """Yields lists of the lines that have arrived, as bytes without their ends.

    It does not wait for more than one line. A byte order mark at the beginning is not text. Of a
    line of over `MAX_LINE_BYTES` it yields one byte more than that. `prompt` is called whenever it
    is about to wait. `name` is that of the stream, for errors.
    """
    rest, is_text = b"", False
    while data := _read(stream, prompt):
        if len(rest) > MAX_LINE_BYTES and b"\n" not in data:
            continue
        rest += data
        if not is_text:
            if len(rest) < LONGEST_MARK and b"\n" not in rest:
                continue
            rest, is_text = without_mark(rest, name), True
        *lines, rest = (line[: MAX_LINE_BYTES + 1] for line in rest.split(b"\n"))
        for start in range(0, len(lines), MOST_LINES):
            yield lines[start : start + MOST_LINES]
    if rest := rest if is_text else without_mark(rest, name):
        yield [rest]


def _read(stream, prompt) -> bytes:
    if prompt is not None:
        prompt()
    return stream.read1(CHUNK_BYTES)


def decode(line: bytes) -> str:
    """Decodes a line, or the beginning of a long one; bytes that are not UTF-8 become U+FFFD."""
    line = line.removesuffix(b"\r")
    line = cut_line(line) if is_cut(line) else line
    return line.decode("utf-8", "replace")


def is_cut(line: bytes) -> bool:
    """Returns whether a line is the beginning of a longer one."""
    return len(line) > MAX_LINE_BYTES
