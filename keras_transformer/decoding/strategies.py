"""How to search: strategies, what each sentence has for itself, what a model offers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Number
from typing import ClassVar, NamedTuple

import numpy as np
from keras import ops

from keras_transformer.backend import take
from keras_transformer.checks import check_counts, check_ints, check_number, check_positive_int
from keras_transformer.decoding.beginning import Beginning, Spelling
from keras_transformer.type_hints import (
    CacheFunction,
    Elementwise,
    LogitsProcessor,
    StepFunction,
    TensorLike,
)

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
        no_repeat_ngram: n, if no n tokens in a row may occur twice in a hypothesis; 0 for any.
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


def of_kind(kind, strategy: Strategy) -> Strategy:
    """A strategy of the class `kind` with the settings that it shares with `strategy`."""
    if isinstance(strategy, kind):
        return strategy
    return kind(**{field.name: getattr(strategy, field.name) for field in fields(Strategy)})


class RowOptions(NamedTuple):
    """What each sentence of a batch may have for itself; None for what the search says.

    Attributes:
        length_penalty: floats (B,), alpha of each sentence.
        max_lengths: integers (B,) of at least 1, the most tokens of each. A hypothesis that reaches
            it competes as it is.
        prefix_ids: integers (B, P), padded with 0: every hypothesis begins so.
        prefix_text: integers (B, W, 2), text that follows these; see `decoding.beginning`. The
            `SearchModel` must have a `spelling`.
        seeds: integers (B,), of a `Sample`: rows with different ones draw independently. A
            `Translator`, and all that takes texts or ids, gives each sentence one of its own.

    Example:
        >>> RowOptions(max_lengths=[5, 9]).max_lengths
        [5, 9]
    """

    length_penalty: TensorLike | Sequence[float] | None = None
    max_lengths: TensorLike | Sequence[int] | None = None
    prefix_ids: TensorLike | None = None
    prefix_text: TensorLike | None = None
    seeds: TensorLike | Sequence[int] | None = None

    @property
    def beginning(self) -> Beginning:
        """How the hypotheses of each sentence begin."""
        return Beginning(self.prefix_ids, self.prefix_text)


def row_options(rows, start_ids, strategy, max_length) -> RowOptions:
    """`rows` (None for no options) with every option as a tensor of the whole batch.

    Args:
        rows: `RowOptions` or None.
        start_ids: int32 (B,).
        strategy: `Strategy`, for its `length_penalty`.
        max_length: integer, or integer scalar.

    Returns:
        `RowOptions` of float32 (B,), int32 (B,), int32 (B, P), int32 (B, W, 2), and int32 (B, 1);
        the last is (B, 0) without seeds.
    """
    rows = RowOptions() if rows is None else rows
    if not isinstance(rows, RowOptions):
        raise ValueError(f"rows must be RowOptions(...) or None, but is {rows!r}.")
    alpha, max_lengths, prefix_ids, prefix_text, seeds = rows
    alpha = (
        strategy.length_penalty if alpha is None else _values("length_penalty", start_ids, alpha)
    )
    own = max_length if max_lengths is None else _values("max_lengths", start_ids, max_lengths)
    max_lengths = ops.zeros_like(start_ids) + max_length  # (B,)
    if prefix_ids is None:
        prefix_ids = ops.zeros((ops.shape(start_ids)[0], 0), "int32")
    if prefix_text is None:
        prefix_text = ops.zeros((ops.shape(start_ids)[0], 0, 2), "int32")
    if seeds is None:
        seeds = ops.zeros((ops.shape(start_ids)[0], 0), "int32")
    else:
        seeds = ops.expand_dims(_values("seeds", start_ids, seeds), 1)
    return RowOptions(
        ops.zeros_like(start_ids, "float32") + ops.cast(alpha, "float32"),
        ops.minimum(max_lengths, ops.cast(own, "int32")),
        ops.cast(prefix_ids, "int32"),
        ops.cast(prefix_text, "int32"),
        ops.cast(seeds, "int32"),
    )


def check_max_length(max_length):
    """Checks a number; a tensor is returned as it is, since a graph does not know its value."""
    return max_length if _is_tensor(max_length) else check_positive_int("max_length", max_length)


def _values(name, start_ids, values):
    """A tensor (B,); its values are checked unless it is a tensor already."""
    shape = tuple(values.shape if hasattr(values, "shape") else np.shape(values))
    size = start_ids.shape[0]
    if len(shape) != 1 or None not in (size, shape[0]) and shape[0] != size:
        raise ValueError(
            f"{name} must have one value for each of {size or 'the'} sentences, but its shape is "
            f"{shape}."
        )
    return (
        values
        if _is_tensor(values)
        else ops.convert_to_tensor([check_settings(**{name: x})[name] for x in values])
    )


def _is_tensor(value):
    return hasattr(value, "shape") and not isinstance(value, (Number, np.ndarray))


def gather_rows(cache, rows):
    """The default `reorder_cache`: row `rows[i]` of every tensor becomes row i."""
    return take(cache, rows)


class SearchModel(NamedTuple):
    """A step function, and what else a model offers to a search.

    Attributes:
        step: `step(token_ids, cache, position) -> (logits, cache)` with ids (B * K,) and logits
            (B * K, V), a sentence's K hypotheses side by side; K = 1 in a greedy search.
        reorder_cache: `reorder_cache(cache, rows) -> cache`, with integers (B * K,): the row that
            each hypothesis continues. By default, row `rows[i]` of every tensor becomes row i.
        compact_cache: `compact_cache(cache, sentences, capacity) -> cache`: the cache of these
            sentences, integers (b,), with room for `capacity` tokens, of the same structure. With
            it a search drops sentences that are done; see `decoding.compaction`. In a graph, sizes
            that it changes must be unknown.
        logits: `logits(hidden_states) -> logits`, (R, D) to (R, V), if `step` returns hidden states
            (B * K, D) instead. A beam search then computes the logits of only those hypotheses that
            can still win. R changes from step to step.
        score_adjustment: `score_adjustment(cache)`, floats (B, K) of at most 0, added to the score
            of a hypothesis that ends.
        spelling: what the tokens spell, a `Spelling`; for rows with a `prefix_text`.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> model = SearchModel(spell, score_adjustment=lambda cache: cache - 1.0)
        >>> start = ops.array([0]), ops.zeros((1, 1))
        >>> result = beam_search(model, *start, Beam(size=1), end_id=3, max_length=5)
        >>> bool(result.scores[0, 0] < -1)
        True
    """

    step: StepFunction
    reorder_cache: CacheFunction = gather_rows
    compact_cache: CacheFunction | None = None
    logits: Elementwise | None = None
    score_adjustment: CacheFunction | None = None
    spelling: Spelling | None = None


def as_search_model(model) -> SearchModel:
    """A `SearchModel`, a step function, or a model with a `decode_step`, as a `SearchModel`."""
    if isinstance(model, SearchModel):
        return model
    if hasattr(model, "decode_step"):
        # Without compaction, so that shapes stay and a compiler can take the loop.
        return SearchModel(model.decode_step, model.reorder_cache)
    if not callable(model):
        raise TypeError(
            f"model must be a step function, a SearchModel or have a decode_step, but is {model!r}."
        )
    return SearchModel(model)
