"""What a model offers to a search: a step, and what is done with its cache."""

from typing import NamedTuple

from keras_transformer.backend import take
from keras_transformer.decoding.beginning import Spelling
from keras_transformer.type_hints import CacheFunction, Elementwise, StepFunction


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
