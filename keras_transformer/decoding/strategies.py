"""How to search: greedily, with a beam, or by drawing."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from keras import ops

from keras_transformer.checks import check_counts, check_ints, check_number
from keras_transformer.type_hints import LogitsProcessor

# With a larger length penalty, the scores of all long hypotheses are too near 0 to differ.
LARGEST_ALPHA = 10


def length_penalty(length, alpha):
    """What a log-probability is divided by: `((5 + n) / 6) ** alpha`.

    Wu et al. (2016), "Google's Neural Machine Translation System", equation 14. Every token lowers
    a log-probability, so without it short hypotheses win. 0 turns it off; the paper uses 0.6.

    Args:
        length: n, the number of tokens with the end token; a number or a tensor.
        alpha: the exponent, in [0, 10]; a number or a tensor.

    Returns:
        Tensor like `length`, float32.

    Example:
        >>> float(length_penalty(1, 0.6))
        1.0
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


# The least value of each setting that is an integer, and `check_number`'s arguments of the others.
LEAST = {"min_length": 0, "no_repeat_ngram": 0, "size": 1, "num_hypotheses": 1}
LEAST |= {"max_lengths": 1, "seeds": 0}  # of each sentence
NO_TEMPERATURE = "for the most probable token use Greedy()"
NUMBERS = {
    "length_penalty": (float, "a number in [0, 10]", lambda x: 0 <= x <= LARGEST_ALPHA),
    "coverage_penalty": (float, "a number in [0, 100)", lambda x: 0 <= x < 100),
    "temperature": (float, "a number above 0", lambda x: 0 < x < math.inf, NO_TEMPERATURE),
    "top_k": (int, "an integer of at least 0", lambda x: x >= 0, "0 keeps every token"),
    "top_p": (float, "a number above 0 and at most 1", lambda x: 0 < x <= 1, "1 keeps every token"),
    "seed": (int, "an integer in [0, 2**32)", lambda x: 0 <= x < 2**32, "take seed % 2**32"),
}


def check_settings(**settings):
    """Checks that each number is in range, and returns the settings."""
    checked = check_ints(settings, LEAST)
    return {k: check_number(k, v, *NUMBERS[k]) if k in NUMBERS else v for k, v in checked.items()}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What `Greedy`, `Beam` and `Sample` have in common; use one of those.

    A strategy is a value: it checks itself, two with the same settings are equal, and
    `dataclasses.replace` makes a changed copy.

    Args:
        length_penalty: alpha of the scores, `log_prob / ((5 + n) / 6) ** alpha`; see
            `strategies.length_penalty`. Only a beam search chooses by scores.
        min_length: the fewest tokens of a hypothesis, the end token included.
        no_repeat_ngram: n, if no n tokens in a row may occur twice in a hypothesis, a prompt not
            counted; 0 for any.
        suppress_ids: tokens that are never chosen.
        logits_processors: what else must not be chosen; see `decoding.processors`.

    Raises:
        ValueError: if a setting is out of range.

    Example:
        >>> isinstance(Beam(size=2), Strategy)
        True
    """

    length_penalty: float = 0.6
    min_length: int = 0
    no_repeat_ngram: int = 0
    suppress_ids: tuple[int, ...] = ()
    logits_processors: tuple[LogitsProcessor, ...] = ()

    # Of a search that keeps one hypothesis; `Beam` has its own.
    size: ClassVar[int] = 1
    num_hypotheses: ClassVar[int] = 1
    coverage_penalty: ClassVar[float] = 0.0

    def __post_init__(self):
        ids = self.suppress_ids
        if not hasattr(ids, "__iter__"):
            raise ValueError(f"suppress_ids must be a list, but is {ids!r}; () for none.")
        if not hasattr(self.logits_processors, "__iter__"):
            raise ValueError(
                f"logits_processors must be a list, but is {self.logits_processors!r}; give (f,) "
                "for one function f."
            )
        checked = check_settings(**vars(self))
        checked["suppress_ids"] = check_counts("suppress_ids", ids)
        checked["logits_processors"] = tuple(self.logits_processors)
        vars(self).update(checked)  # not setattr, which a frozen class refuses


@dataclass(frozen=True, kw_only=True)
class Greedy(Strategy):
    """The most probable token at every step. Its settings are those of `Strategy`.

    Example:
        >>> Greedy(min_length=3).min_length
        3
    """


@dataclass(frozen=True, kw_only=True)
class Beam(Strategy):
    """The `size` best hypotheses at every step; a wider beam finds more probable ones.

    Args:
        size: K, how many hypotheses of a sentence are extended at once.
        num_hypotheses: N, how many `beam_search` returns, at most K. A `Translator` asks for one,
            and for K in `nbest`.
        coverage_penalty: beta, what a hypothesis loses for source tokens that it has not attended
            to; see `beam.coverage_penalty`. 0 for none.

    The other settings are those of `Strategy`.

    Raises:
        ValueError: if a setting is out of range.

    Example:
        >>> Beam(size=2) == Beam(size=2, length_penalty=0.6)
        True
    """

    size: int = 4
    num_hypotheses: int = 1
    coverage_penalty: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.num_hypotheses > self.size:
            raise ValueError(
                f"num_hypotheses must be at most size={self.size}, but is {self.num_hypotheses}; "
                "widen the beam."
            )


@dataclass(frozen=True, kw_only=True)
class Sample(Strategy):
    """A token drawn from the model's distribution at every step; see `decoding.sampling`.

    The draw depends on nothing but the seed, the sentence, the place in the hypothesis and the
    logits. So equal sentences get equal translations: for several samples of one, use several
    seeds.

    Args:
        temperature: above 0, what logits are divided by. Below 1 sharpens the distribution, and
            near 0 is greedy search.
        top_k: only this many of the largest logits are kept; 0 for all.
        top_p: in (0, 1]. Of the tokens that `top_k` keeps, only the most probable are kept: as few
            as together have this probability. Without `top_k`, every step sorts the vocabulary.
        seed: integer in [0, 2**32).

    The other settings are those of `Strategy`.

    Raises:
        ValueError: if a setting is out of range.

    Example:
        >>> Sample(temperature=0.8, top_p=0.95, seed=1).top_k
        0
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


def as_strategy(strategy) -> Strategy:
    """A strategy as it is; "greedy" and "beam" are short for `Greedy()` and `Beam()`.

    Raises:
        ValueError: if it is something else.
    """
    if isinstance(strategy, (Greedy, Beam, Sample)):
        return strategy
    if isinstance(strategy, str) and strategy in ("greedy", "beam"):
        return Greedy() if strategy == "greedy" else Beam()
    raise ValueError(
        "strategy must be 'greedy', 'beam' or an object such as Beam(size=4) or "
        f"Sample(temperature=0.8, seed=1), but is {strategy!r}."
    )


def as_strategy_of_prompts(strategy) -> Strategy:
    """A strategy as in `as_strategy`, for prompts, which need not be covered.

    Raises:
        ValueError: if it is none, or has a coverage penalty.
    """
    strategy = as_strategy(strategy)
    if strategy.coverage_penalty:
        raise ValueError(
            "coverage_penalty must be 0 for a language model, which has no source to cover, but is "
            f"{strategy.coverage_penalty}; leave it out."
        )
    return strategy


def of_kind(kind, strategy: Strategy) -> Strategy:
    """A strategy of the class `kind` with the settings that it shares with `strategy`."""
    if isinstance(strategy, kind):
        return strategy
    return kind(**{field.name: getattr(strategy, field.name) for field in fields(Strategy)})
