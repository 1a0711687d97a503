"""How many subwords suit a text: by the length of its targets, and by its characters."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import numpy as np

from keras_transformer.data.corpus import MAX_CHARS
from keras_transformer.data.subwords import COVERAGE
from keras_transformer.data.text_lines import stream_lines

# By the letters of all targets, up to which so many subwords serve. More text fills more of
# them. The first is 3,000 captions; from 280,000 on 8,000 were measured to be better than fewer.
SUBWORDS = ((200_000, 2_000), (14_000_000, 8_000), (140_000_000, 16_000))
MOST_SUBWORDS, ALPHABET = 32_000, 300
# Of a text that can be read only once, and so not be counted before.
UNCOUNTED = 8_000
# The lines of a file that are read to find its frequent characters.
SAMPLED_LINES = 100_000
# The lines that are counted at a time, as each call costs some time.
COUNTED_LINES = 1000
# How many letters a character stands for, by its first byte in UTF-8: kana and Hangul for 2, Han
# for 3. Its other bytes add nothing.
LETTERS = np.ones(256, "uint8")
LETTERS[0x80:0xC0], LETTERS[0xE3:0xEE], LETTERS[0xE4:0xEA] = 0, 2, 3


def vocab_size(num_letters: int, num_characters: int = 0) -> int:
    """Returns how many subwords suit a text.

    Args:
        num_letters: of all targets, as `count_letters` counts them.
        num_characters: how many characters are frequent. Each one is a subword; those beyond an
            alphabet leave room for others.
    """
    size = next((size for most, size in SUBWORDS if num_letters <= most), MOST_SUBWORDS)
    return size + max(0, num_characters - ALPHABET)


def count_letters(text: bytes) -> int:
    """Counts the letters that a text in UTF-8 stands for: of Han each character counts three times.

    >>> [count_letters(text.encode()) for text in ("dog", "собака", "いぬ", "개", "犬")]
    [3, 6, 4, 2, 3]
    """
    return int(LETTERS[np.frombuffer(text, "uint8")].sum())


def vocab_size_of_corpus(corpus) -> int:
    """Returns how many subwords suit a `Corpus`."""
    num_letters = count_letters("".join(corpus.targets).encode())
    return vocab_size(num_letters, num_characters(chain(corpus.sources, corpus.targets)))


def vocab_size_of_files(texts: Iterable[tuple[str, ...]]) -> int:
    """Returns how many subwords suit the text in files.

    Args:
        texts: the paths of each text: those of both sides, or the one of a file with tabs.
    """
    texts = list(texts)
    if not all(map(os.path.isfile, chain(*texts))):
        return UNCOUNTED
    targets, num_letters = chain.from_iterable(map(_targets, texts)), 0
    while joined := b"".join(islice(targets, COUNTED_LINES)):
        num_letters += count_letters(joined)
    return vocab_size(num_letters, num_characters(chain.from_iterable(map(_begin, texts))))


def num_characters(texts: Iterable[str]) -> int:
    """Returns about how many of the characters of texts a vocabulary has as subwords."""
    counts = Counter()
    for text in texts:
        counts.update(text)
    found = np.sort([*counts.values()])[::-1].cumsum()
    return int(np.searchsorted(found, COVERAGE * found[-1])) + 1 if len(found) else 0


def choose_vocab_size(options, size_of_text) -> None:
    """Gives the options the number of subwords to learn, unless one is given.

    Args:
        options: those of the command; `chosen` lists the names of those that were not given.
        size_of_text: function that returns the number which suits the text.
    """
    if options.vocab_size is None:
        options.vocab_size = size_of_text()
        options.chosen = [*options.chosen, "vocab_size"]


def _targets(paths) -> Iterator[bytes]:
    """Yields the targets of a text that a training reads."""
    for line in stream_lines(paths[-1]):
        target = (line.rpartition(b"\t")[2] if len(paths) == 1 else line).strip()
        if target and _is_short(target):
            yield target


def _begin(paths) -> Iterator[str]:
    """Yields what a training reads of the first lines of each file of a text."""
    for path in paths:
        for line in islice(stream_lines(path), SAMPLED_LINES):
            for text in line.split(b"\t") if len(paths) == 1 else [line]:
                if _is_short(text):
                    yield text.decode("utf-8", "replace")


def _is_short(text: bytes) -> bool:
    """Returns whether a training reads a text of such a length."""
    return len(text) <= MAX_CHARS or len(text.decode("utf-8", "replace")) <= MAX_CHARS
