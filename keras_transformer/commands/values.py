"""The values of options: how each kind is read, or refused in words."""

import argparse
import math
import re
from difflib import get_close_matches
from typing import NamedTuple

STRATEGIES = ("none", "mirrored", "multi_worker", "data_parallel", "model_parallel=K")


def number_reader(kind, allowed: str, least, below=math.inf):
    """Makes a function that reads a number in [least, below), or says what is allowed."""

    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if least <= value < below:
            return value
        raise argparse.ArgumentTypeError(f"must be {allowed}, but is {text}")

    return read


def choice_reader(choices):
    """Makes a function that reads one of some words, or says which there are."""

    def read(text):
        if text in choices:
            return text
        likely = get_close_matches(text, choices, 1)
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(choices)}, but is {text}"
            + (f" (did you mean {likely[0]}?)" if likely else "")
        )

    return read


def read_strategy(text):
    """Reads the name of a strategy; K is the number of devices that share the weights."""
    if re.fullmatch(r"model_parallel=([2-9]|[1-9]\d+)", text):
        return text
    return choice_reader(STRATEGIES)(text)


class Shard(NamedTuple):
    """One of `count` parts of something, `index` of them, from 1."""

    index: int
    count: int

    def lines(self, total: int) -> range:
        """Returns its lines of `total`, from 0; all parts together are all lines, in order.

        >>> [list(Shard(i, 3).lines(5)) for i in (1, 2, 3)]
        [[0], [1, 2], [3, 4]]
        """
        return range((self.index - 1) * total // self.count, self.index * total // self.count)


def read_shard(text) -> Shard:
    """Reads I/N, or says what is allowed."""
    index, slash, count = text.partition("/")
    # Not `isdecimal` alone, which other scripts' digits are, too.
    if slash and index.isascii() and index.isdecimal() and count.isascii() and count.isdecimal():
        if 1 <= int(index) <= int(count):
            return Shard(int(index), int(count))
    raise argparse.ArgumentTypeError(f"must be I/N with I from 1 to N, such as 1/8, but is {text}")


# Readers of the values of options, by metavar; every other value is text.
KINDS = {
    "STRATEGY": read_strategy,
    "N": number_reader(int, "an integer of at least 1", 1),
    "N_OR_0": number_reader(int, "an integer of at least 0", 0),
    "SEED": number_reader(int, "an integer in [0, 2**32)", 0, 2**32),
    "X": number_reader(float, "a positive number", math.ulp(0.0)),
    "SHARE": number_reader(float, "a number in [0, 1)", 0, 1),
    "PART": number_reader(float, "a number above 0 and at most 1", math.ulp(0.0), 1 + 1e-12),
    "WEIGHT": number_reader(float, "a number of at least 0", 0),
    "EXPONENT": number_reader(float, "a number in [0, 10]", 0, math.nextafter(10, 11)),
    "PENALTY": number_reader(float, "a number in [0, 100)", 0, 100),
    "I/N": read_shard,
}
