"""Readers of parallel text, strictly checked: a pair is read, counted as skipped, or an error."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import zip_longest
from typing import NamedTuple

from keras_transformer.checks import check_choice, check_positive_int
from keras_transformer.data.blank_text import is_blank
from keras_transformer.data.text_lines import BYTES_PER_CHAR, CorpusError, decode_line, raw_lines
from keras_transformer.type_hints import StrPath

MAX_CHARS = 10_000


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
    return checked_corpus(_aligned_lines(*names, max_chars), errors, max_chars, names)


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
    return checked_corpus(_tsv_pairs(name, max_chars), errors, max_chars, [name])


def checked_corpus(pairs: Iterator[tuple[bytes, bytes]], errors, max_chars, names) -> Corpus:
    """Returns the usable ones of some pairs of lines, and refuses a text that has none.

    Args:
        pairs: the lines of both sides as bytes; a generator, which is closed.
        errors, max_chars: as for `read_files`.
        names: as for `usable_pairs`.
    """
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
        source = decode_line(pair[0], f"{names[0]}:{i}", errors, "skip")
        target = decode_line(pair[1], f"{names[-1]}:{i}", errors, "skip")
        if source is None or target is None:
            skipped["invalid UTF-8"] += 1
        elif is_blank(source) or is_blank(target):
            skipped["empty"] += 1
        elif max(len(source), len(target)) > max_chars:
            skipped["too long"] += 1
        else:
            # A translator reads nothing else of a text.
            sources.append(source.strip())
            targets.append(target.strip())
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


def _aligned_lines(
    source_name: str, target_name: str, max_chars: int
) -> Iterator[tuple[bytes, bytes]]:
    most = BYTES_PER_CHAR * max_chars
    sources, targets = raw_lines(source_name, most), raw_lines(target_name, most)
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
    with closing(raw_lines(name, most)) as lines:
        for i, line in enumerate(lines, start=1):
            if len(line) > most:
                yield line, line  # one of its sides is too long, whichever it is
                continue
            columns = tuple(line.split(b"\t"))
            if len(columns) != 2:
                fault = f"{len(columns) - 1} tabs instead of the one between source and target"
                raise CorpusError(f"{name}:{i}: {fault}; keep two columns, as with cut -s -f1,2.")
            yield columns
