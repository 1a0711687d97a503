"""Lines of a text file, strictly checked; only a line feed ends one."""

import codecs
import gzip
import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import BinaryIO

from keras_transformer.checks import check_choice, check_local
from keras_transformer.type_hints import StrPath

BYTES_PER_CHAR = 4  # at most, in UTF-8
# A longer line is not held in memory whole.
MAX_LINE_BYTES, SKIPPED_BYTES = 1 << 22, 1 << 16
# What compressed data that is damaged raises.
GZIP_ERRORS = EOFError, zlib.error, gzip.BadGzipFile
_UTF16_AND_UTF32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class CorpusError(ValueError):
    """Text that cannot be read or trusted; the message names the place and the remedy.

    Example:
        >>> try:
        ...     read_lines("missing.txt")
        ... except CorpusError as error:
        ...     print(error)
        missing.txt: cannot be read (No such file or directory); check the path and its permissions.
    """


def read_lines(path: StrPath, *, errors: str = "strict") -> list[str]:
    r"""Reads a text file into one string per line, including empty lines.

    Only "\n" or "\r\n" ends a line. The other separators of `str.splitlines`, such as U+2028,
    occur inside sentences: splitting there would shift all lines that follow.

    Args:
        path: a UTF-8 file, compressed if its name ends in .gz.
        errors: what to do at invalid UTF-8: "strict" raises, "replace" puts U+FFFD. No line is ever
            skipped.

    Returns:
        The lines without their ends. A line of over 4 MiB is cut there, and a warning counts such
        lines.

    Raises:
        ValueError: for bad options; `CorpusError` if the file is missing, empty or not UTF-8 text.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"Guten Tag\n\nHallo\r\n"), file.flush()
        ...     read_lines(file.name)
        ['Guten Tag', '', 'Hallo']
    """
    return list(iterate_lines(path, errors=errors))


def bad_gzip(name: str, line: int, error: Exception) -> CorpusError:
    """Makes the error of compressed data that is damaged after a line."""
    remedy = "get the file again, or drop the suffix .gz if it is plain text"
    return CorpusError(f"{name}: bad gzip data after line {line} ({error}); {remedy}.")


def iterate_lines(path: StrPath, *, errors: str = "strict") -> Iterator[str]:
    """Yields the lines that `read_lines` returns, one at a time."""
    check_choice("errors", errors, ("strict", "replace"))
    name, num_cut = os.fspath(path), 0
    with closing(raw_lines(name, MAX_LINE_BYTES)) as lines:
        for i, line in enumerate(lines, start=1):
            if len(line) > MAX_LINE_BYTES:
                line, num_cut = cut_line(line), num_cut + 1
            yield decode_line(line, f"{name}:{i}", errors, "replace")
    if num_cut:
        warnings.warn(cut_note(name, num_cut), stacklevel=3)


def stream_lines(path: StrPath) -> Iterator[bytes]:
    """Yields the lines of a file as bytes without their ends, one at a time; none if it is empty.

    Of a line of more than `MAX_LINE_BYTES` it yields one byte more than that.

    Raises:
        CorpusError: if it cannot be read, or is in another encoding.
    """
    with closing(raw_lines(os.fspath(path), MAX_LINE_BYTES, may_be_empty=True)) as lines:
        yield from lines


def decode_line(text: bytes, place: str, errors: str, lenient: str) -> str | None:
    """Decodes a line from UTF-8.

    Args:
        text: the line.
        place: the file and the number of the line, for an error.
        errors: what to do at invalid UTF-8: "strict" raises, "replace" puts U+FFFD, "skip" returns
            None.
        lenient: the value of `errors` that the error advises.

    Raises:
        CorpusError: if it is not UTF-8 and `errors` is "strict".
    """
    try:
        return text.decode("utf-8", "replace" if errors == "replace" else "strict")
    except UnicodeDecodeError:
        if errors == "skip":
            return None
        command = " (--errors skip)" if lenient == "skip" else " in Python"
        remedy = f"convert the file, as with iconv, or pass errors={lenient!r}{command}"
        raise CorpusError(f"{place}: invalid UTF-8; {remedy}.") from None


def raw_lines(name: str, most: int, may_be_empty: bool = False) -> Iterator[bytes]:
    """Yields lines as bytes, without their ends; text files split at more than line feeds.

    Of a line of more than `most` bytes it yields the first `most + 1`. The caller must close it: an
    error that somebody keeps would keep the file open.
    """
    check_local("The text", name)
    i = 0
    try:
        with open(name, "rb") as file, _checked_text(file, name) as text:
            for line in _limited_lines(text, most, name):
                i += 1
                yield line
    except GZIP_ERRORS as error:
        raise bad_gzip(name, i, error) from None
    except OSError as error:
        remedy = "check the path and its permissions"
        raise CorpusError(f"{name}: cannot be read ({error.strerror}); {remedy}.") from None
    if not i and not may_be_empty:
        raise CorpusError(f"{name}: the file is empty; give a file with at least one line.")


def _limited_lines(file: BinaryIO, most: int, name: str) -> Iterator[bytes]:
    size = most + len(b"\r\n")
    line = file.readline(size + 1)
    if line.rstrip(b"\r").count(b"\r") > 1 and not line.endswith(b"\n"):
        remedy = r"convert it, as with tr '\r' '\n'"
        raise CorpusError(f"{name} ends its lines with CR alone; {remedy}.")
    while line:
        rest = line if len(line) > size else b"\n"
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(SKIPPED_BYTES)
        yield line.removesuffix(b"\n").removesuffix(b"\r")[: most + 1]
        line = file.readline(size + 1)


def cut_line(line: bytes) -> bytes:
    """Returns the beginning of a line of over `MAX_LINE_BYTES`, cut between two characters."""
    end = MAX_LINE_BYTES
    while end > MAX_LINE_BYTES - BYTES_PER_CHAR and line[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return line[:end]


def cut_note(name: str, number: int) -> str:
    """Says how many lines were cut."""
    lines = "1 line is" if number == 1 else f"{number} lines are"
    return (
        f"{name}: {lines} over {MAX_LINE_BYTES:,} bytes long, and only the beginning is read; "
        "give one sentence per line."
    )


def _checked_text(file: BinaryIO, name: str) -> BinaryIO:
    """Returns the file after its BOM, decompressed; peeks, because a pipe cannot be read twice."""
    text = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
    head = text.peek(4096)
    text.read(len(head) - len(without_mark(head, name)))
    return text


def without_mark(head: bytes, name: str) -> bytes:
    """Returns the beginning of a text without its byte order mark.

    Raises:
        CorpusError: if it is compressed, in another encoding, or no text.
    """
    if head.startswith(b"\x1f\x8b"):
        raise CorpusError(f"{name}: gzip data under another name; rename it to .gz or unpack it.")
    if head.startswith(_UTF16_AND_UTF32) or head.count(b"\0") > len(head) / 8:
        raise CorpusError(f"{name}: UTF-16, UTF-32 or binary data; convert it to UTF-8 text.")
    return head.removeprefix(codecs.BOM_UTF8)
