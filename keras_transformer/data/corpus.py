"""Readers of parallel text, strictly checked: a pair is read, counted as skipped, or an error."""

import codecs
import gzip
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import zip_longest
from typing import BinaryIO, NamedTuple

from keras_transformer.checks import check_choice, check_local, check_positive_int
from keras_transformer.data.blank_text import is_blank
from keras_transformer.type_hints import StrPath

MAX_CHARS = 10_000
BYTES_PER_CHAR = 4  # at most, in UTF-8
# A longer line is not held in memory whole.
MAX_LINE_BYTES, SKIPPED_BYTES = 1 << 22, 1 << 16
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


class Corpus(NamedTuple):
    """Parallel text: `targets[i]` translates `sources[i]`; `skipped` counts what was left out.

    Example:
        >>> corpus = Corpus(["a dog"], ["ein Hund"], {"empty": 2})
        >>> corpus.targets[0], sum(corpus.skipped.values())
        ('ein Hund', 2)
    """

    sources: list[str]
    targets: list[str]
    skipped: dict[str, int]  # by reason: "empty", "too long", "invalid UTF-8"


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


def iterate_lines(path: StrPath, *, errors: str = "strict") -> Iterator[str]:
    """Yields the lines that `read_lines` returns, one at a time."""
    check_choice("errors", errors, ("strict", "replace"))
    name, num_cut = os.fspath(path), 0
    with closing(_raw_lines(name, MAX_LINE_BYTES)) as lines:
        for i, line in enumerate(lines, start=1):
            if len(line) > MAX_LINE_BYTES:
                line, num_cut = cut_line(line), num_cut + 1
            yield _decode(line, f"{name}:{i}", errors, "replace")
    if num_cut:
        warnings.warn(cut_note(name, num_cut), stacklevel=3)


def read_files(
    source_path: StrPath,
    target_path: StrPath,
    *,
    errors: str = "strict",
    max_chars: int = MAX_CHARS,
) -> Corpus:
    r"""Reads two files; line i of one translates line i of the other.

    Args:
        source_path: a UTF-8 file, compressed if its name ends in .gz.
        target_path: another one, with the same number of lines.
        errors: what to do at invalid UTF-8: "strict" raises, "skip" skips the pair.
        max_chars: skips a pair with more characters on either side.

    Returns:
        The `Corpus` of the pairs with text on both sides.

    Raises:
        ValueError: for bad options; `CorpusError` if a file is bad or the line counts differ.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as de, tempfile.NamedTemporaryFile() as en:
        ...     _ = de.write(b"Hallo\n\n"), de.flush(), en.write(b"hello\n-\n"), en.flush()
        ...     read_files(de.name, en.name)
        Corpus(sources=['Hallo'], targets=['hello'], skipped={'empty': 1})
    """
    names = os.fspath(source_path), os.fspath(target_path)
    return _corpus(_aligned_lines(*names, max_chars), errors, max_chars, names)


def read_tsv(path: StrPath, *, errors: str = "strict", max_chars: int = MAX_CHARS) -> Corpus:
    r"""Reads a file of lines `source<TAB>target`; quotation marks are ordinary text.

    Args:
        path: a UTF-8 file, compressed if its name ends in .gz.
        errors: as for `read_files`.
        max_chars: as for `read_files`.

    Returns:
        The `Corpus` of the pairs with text on both sides.

    Raises:
        ValueError: as `read_files`, and `CorpusError` if a line does not have exactly one tab.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"Hallo\thello\n"), file.flush()
        ...     read_tsv(file.name)
        Corpus(sources=['Hallo'], targets=['hello'], skipped={})
    """
    name = os.fspath(path)
    return _corpus(_tsv_pairs(name, max_chars), errors, max_chars, [name])


def read_tfds(
    name: str,
    *,
    split: str = "train",
    data_dir: StrPath | None = None,
    download: bool = True,
    languages: tuple[str, str] | None = None,
    errors: str = "strict",
    max_chars: int = MAX_CHARS,
) -> Corpus:
    """Reads a translation set of tensorflow-datasets.

    Args:
        name: the set and its configuration, such as "ted_hrlr_translate/pt_to_en".
        split: the part to read, such as "train", "validation" or "train[:10%]".
        data_dir: the folder of prepared sets, None for `~/tensorflow_datasets`.
        download: whether to download and prepare a set that is not there yet.
        languages: (source, target) among the set's text features, None for its own direction.
        errors: as for `read_files`.
        max_chars: as for `read_files`.

    Returns:
        The `Corpus` of the pairs with text on both sides, in the set's order.

    Raises:
        ValueError: for bad options; `CorpusError` if the set cannot be loaded or has no direction.

    Example:
        >>> import tensorflow_datasets as tfds
        >>> with tfds.testing.mock_data(num_examples=3):  # random letters, no download
        ...     len(read_tfds("ted_hrlr_translate/pt_to_en").sources)
        3
    """
    pairs = _tfds_pairs(name, split, data_dir, download, languages)
    return _corpus(pairs, errors, max_chars, [f"{name}[{split}]"])


def _corpus(pairs: Iterator[tuple[bytes, bytes]], errors, max_chars, names) -> Corpus:
    check_choice("errors", errors, ("strict", "skip"))
    check_positive_int("max_chars", max_chars)
    with closing(pairs):
        corpus = usable_pairs(pairs, names, errors=errors, max_chars=max_chars)
    if not corpus.sources:
        refuse_unusable(names, corpus.skipped, max_chars)
    return corpus


def usable_pairs(
    pairs: Iterable[tuple[bytes, bytes]],
    names: Iterable[str],
    first: int = 1,
    errors: str = "strict",
    max_chars: int = MAX_CHARS,
) -> Corpus:
    """Decodes pairs of lines, and leaves out those that are of no use.

    Args:
        pairs: the lines of both sides as bytes, such as from `raw_pairs`.
        names: what the sides are called in an error, or the one name of both.
        first: the number of the first line, for errors.
        errors, max_chars: as for `read_files`.
    """
    sources, targets, skipped = [], [], Counter()
    for i, pair in enumerate(pairs, start=first):
        if max(map(len, pair)) > BYTES_PER_CHAR * max_chars:
            skipped["too long"] += 1  # and perhaps cut within a character
            continue
        source = _decode(pair[0], f"{names[0]}:{i}", errors, "skip")
        target = _decode(pair[1], f"{names[-1]}:{i}", errors, "skip")
        if source is None or target is None:
            skipped["invalid UTF-8"] += 1
        elif is_blank(source) or is_blank(target):
            skipped["empty"] += 1
        elif max(len(source), len(target)) > max_chars:
            skipped["too long"] += 1
        else:
            sources.append(source)
            targets.append(target)
    return Corpus(sources, targets, dict(skipped))


def refuse_unusable(names, skipped, max_chars: int = MAX_CHARS) -> None:
    """Raises a `CorpusError` for a text without a usable pair."""
    counts = ", ".join(f"{fault}: {n}" for fault, n in skipped.items()) or "it has none"
    remedy = f"give UTF-8 text on both sides, at most max_chars={max_chars} long"
    raise CorpusError(f"{' and '.join(names)}: no usable pair ({counts}); {remedy}.")


def raw_pairs(names: tuple[str, ...], max_chars: int = MAX_CHARS) -> Iterator[tuple[bytes, bytes]]:
    """Yields the lines of both sides as bytes, one pair at a time: what `usable_pairs` takes.

    Args:
        names: the paths of both sides, or the one of a file of lines `source<TAB>target`.
        max_chars: of a line that is certainly longer only the beginning is read.

    Raises:
        CorpusError: if a file is bad, the line counts differ, or a line has not exactly one tab.
    """
    return (_aligned_lines if len(names) == 2 else _tsv_pairs)(*names, max_chars)


def _decode(text: bytes, place: str, errors: str, lenient: str) -> str | None:
    try:
        return text.decode("utf-8", "replace" if errors == "replace" else "strict")
    except UnicodeDecodeError:
        if errors == "skip":
            return None
        command = " (--errors skip)" if lenient == "skip" else ""
        remedy = f"convert the file, as with iconv, or pass errors={lenient!r}{command}"
        raise CorpusError(f"{place}: invalid UTF-8; {remedy}.") from None


def _aligned_lines(
    source_name: str, target_name: str, max_chars: int
) -> Iterator[tuple[bytes, bytes]]:
    most = BYTES_PER_CHAR * max_chars
    sources, targets = _raw_lines(source_name, most), _raw_lines(target_name, most)
    with closing(sources), closing(targets):
        pairs = zip_longest(sources, targets)
        for shorter, pair in enumerate(pairs):
            if None in pair:
                longer = shorter + 1 + sum(1 for _ in pairs)
                lines = (shorter, longer) if pair[0] is None else (longer, shorter)
                fault = f"{source_name} has {lines[0]} lines, {target_name} has {lines[1]}"
                raise CorpusError(f"{fault}; line i of one must translate line i of the other.")
            yield pair


def _tsv_pairs(name: str, max_chars: int) -> Iterator[tuple[bytes, bytes]]:
    most = 2 * BYTES_PER_CHAR * max_chars + 1
    with closing(_raw_lines(name, most)) as lines:
        for i, line in enumerate(lines, start=1):
            if len(line) > most:
                yield line, line  # one of its sides is too long, whichever it is
                continue
            columns = tuple(line.split(b"\t"))
            if len(columns) != 2:
                fault = f"{len(columns) - 1} tabs instead of the one between source and target"
                raise CorpusError(f"{name}:{i}: {fault}; keep two columns, as with cut -f1,2.")
            yield columns


def _tfds_pairs(name, split, data_dir, download, languages) -> Iterator[tuple[bytes, bytes]]:
    try:
        import tensorflow_datasets as tfds

        builder = tfds.builder(name, data_dir=data_dir)
        texts = [k for k, v in builder.info.features.items() if isinstance(v, tfds.features.Text)]
        pair = languages or builder.info.supervised_keys or ()
        if len(pair) != 2 or not all(key in texts for key in pair):
            fault = f"its direction cannot be {pair!r}, its text features are {texts}"
            raise CorpusError(f"{name}: {fault}; pass two of them, languages=(source, target).")
        if download:
            builder.download_and_prepare()
        for batch in builder.as_dataset(split=split).batch(1024).as_numpy_iterator():
            yield from zip(*(batch[key].tolist() for key in pair), strict=True)
    except CorpusError:
        raise
    except ImportError as error:
        remedy = "pip install tensorflow-datasets importlib_resources"
        raise CorpusError(f"{name}: tensorflow-datasets is missing ({error}); {remedy}.") from error
    except Exception as error:  # anything from AssertionError to what an HTTP library raises
        remedy = "check name, split and network, or pass the data_dir of a prepared copy"
        raise CorpusError(
            f"{name}[{split}]: cannot be loaded ({error!r:.300}); {remedy}."
        ) from error


def _raw_lines(name: str, most: int, may_be_empty: bool = False) -> Iterator[bytes]:
    """Yields lines as bytes, without their ends; text files split at more than line feeds.

    Of a line of more than `most` bytes it yields the first `most + 1`. The caller must close it: an
    error that somebody keeps would keep the file open.
    """
    check_local("The text", name)
    i = 0
    try:
        with open(name, "rb") as file, _checked_text(file, name) as text:
            for line in _limited_lines(text, most):
                i += 1
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        remedy = "get the file again, or drop the suffix .gz if it is plain text"
        raise CorpusError(f"{name}: bad gzip data after line {i} ({error}); {remedy}.") from None
    except OSError as error:
        remedy = "check the path and its permissions"
        raise CorpusError(f"{name}: cannot be read ({error.strerror}); {remedy}.") from None
    if not i and not may_be_empty:
        raise CorpusError(f"{name}: the file is empty; give a file with at least one line.")


def stream_lines(path: StrPath) -> Iterator[bytes]:
    """Yields the lines of a file as bytes without their ends, one at a time; none if it is empty.

    Of a line of more than `MAX_LINE_BYTES` it yields one byte more than that.

    Raises:
        CorpusError: if it cannot be read, or is in another encoding.
    """
    with closing(_raw_lines(os.fspath(path), MAX_LINE_BYTES, may_be_empty=True)) as lines:
        yield from lines


def _limited_lines(file: BinaryIO, most: int) -> Iterator[bytes]:
    size = most + len(b"\r\n")
    while line := file.readline(size + 1):
        rest = line if len(line) > size else b"\n"
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(SKIPPED_BYTES)
        yield line.removesuffix(b"\n").removesuffix(b"\r")[: most + 1]


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
