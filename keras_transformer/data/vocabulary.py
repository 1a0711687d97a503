"""A vocabulary learnt from a sample of the lines of a text of any size."""

from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from keras_transformer.data.corpus import raw_pairs, usable_pairs
from keras_transformer.data.subwords import learn_model


class Vocabulary(NamedTuple):
    """A vocabulary to learn from a text of any size.

    Attributes:
        size: the number of subwords.
        lines: how many lines to learn from, drawn from both sides; all lines if there are fewer.
        seed: of that draw.

    Example:
        >>> Vocabulary(size=32_000).lines
        1000000
    """

    size: int = 8000
    lines: int = 1_000_000
    seed: int = 0


def silent(what: str, total: int | None = None, unit: str = ""):
    """Shows nothing. It is used as a bar is: `with silent(what) as bar: bar.advance(1)`."""
    return nullcontext(SimpleNamespace(advance=lambda number: None))


def draw_sample(items: Iterable, number: int, seed: int) -> list:
    """Draws some items of a stream at random, each as likely as another, in their order.

    Args:
        items: anything, lines or pairs of them.
        number: how many to draw; if there are fewer, all are returned.
        seed: of the draw.
    """
    generator, items = np.random.default_rng(seed), iter(items)
    kept = list(enumerate(islice(items, number)))
    begin = len(kept)
    while block := list(islice(items, 2**14)):
        # Item n, from 0, takes the place of one of those kept with probability number / (n + 1).
        places = generator.integers(0, np.arange(begin + 1, begin + len(block) + 1))
        for i in np.flatnonzero(places < number):
            kept[places[i]] = begin + int(i), block[i]
        begin += len(block)
    return [item for _, item in sorted(kept, key=lambda numbered: numbered[0])]


def learn_from_files(texts, asked: Vocabulary, total: int, show=silent) -> bytes:
    """Learns a vocabulary from a sample of the lines of text files.

    Args:
        texts: as for `prepare_store`; they are files, for they are read again.
        asked: the vocabulary.
        total: the number of pairs, to show how far it is.
        show: as for `prepare_store`.

    Returns:
        The bytes of the tokenizer's model.
    """
    with show("drawing lines to learn from", total, "pairs") as progress:
        with closing(_all_pairs(texts, progress)) as pairs:
            drawn = draw_sample(pairs, max(asked.lines // 2, 1), asked.seed)
    with show(f"learning a vocabulary of up to {asked.size:,} subwords"):
        # Bad text is refused when it is split.
        corpus = usable_pairs(drawn, ("the text",), errors="skip")
        return learn_model(corpus.sources + corpus.targets, asked.size)


def _all_pairs(texts, progress) -> Iterator:
    for names in texts:
        with closing(raw_pairs(names)) as pairs:
            while block := list(islice(pairs, 2**14)):
                yield from block
                progress.advance(len(block))
