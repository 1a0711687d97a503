"""How many subwords suit a text: by the length of its targets, and by its characters."""

import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice

import numpy as np

from keras_transformer.data.subwords import COVERAGE
from keras_transformer.data.text_lines import stream_lines

# By the bytes of all targets, up to which so many subwords serve. More text fills more of them. The
# first is 3,000 captions; from 280,000 bytes on 8,000 were measured to be better than fewer.
SUBWORDS = ((200_000, 2_000), (14_000_000, 8_000), (140_000_000, 16_000))
MOST_SUBWORDS, ALPHABET = 32_000, 300
# Of a text that can be read only once, and so not be counted before.
UNCOUNTED = 8_000
# The lines of a file that are read to find its frequent characters.
SAMPLED_LINES = 100_000


def vocab_size(num_bytes: int, num_characters: int = 0) -> int:
    """Returns how many subwords suit a text.

    Args:
        num_bytes: of all targets, in UTF-8.
        num_characters: how many characters are frequent. Each one is a subword; those beyond an
            alphabet leave room for others.
    """
    size = next((size for most, size in SUBWORDS if num_bytes <= most), MOST_SUBWORDS)
    return size + max(0, num_characters - ALPHABET)


def vocab_size_of_corpus(corpus) -> int:
    """Returns how many subwords suit a `Corpus`."""
    num_bytes = sum(len(target.encode()) for target in corpus.targets)
    return vocab_size(num_bytes, num_characters(chain(corpus.sources, corpus.targets)))


def vocab_size_of_files(texts: Iterable[tuple[str, ...]]) -> int:
    """Returns how many subwords suit the text in files.

    Args:
        texts: the paths of each text: those of both sides, or the one of a file with tabs.
    """
    texts = list(texts)
    if not all(map(os.path.isfile, chain(*texts))):
        return UNCOUNTED
    num_bytes = sum(
        len(line.rpartition(b"\t")[2] if len(paths) == 1 else line)
        for paths in texts
        for line in stream_lines(paths[-1])
    )
    return vocab_size(num_bytes, num_characters(chain.from_iterable(map(_begin, chain(*texts)))))


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


def _begin(path):
    return (line.decode("utf-8", "replace") for line in islice(stream_lines(path), SAMPLED_LINES))
