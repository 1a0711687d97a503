"""Running a search to its results: in one loop, or with compaction of the batch and its cache.

A search is a `Search` with `step(state)` and `result(state)`, a `SearchResult`. Its state is a
named tuple with at least `position`, a scalar, `sentences` (B,), `options`, `ids` (..., L), `done`,
bool (B,), and `cache`.
"""

from dataclasses import dataclass
from typing import ClassVar

from keras import ops

from keras_transformer.backend import take
from keras_transformer.checks import check_count
from keras_transformer.decoding.result import IMPOSSIBLE, LEAST_POSSIBLE, SearchResult
from keras_transformer.decoding.search_model import SearchModel, as_search_model
from keras_transformer.decoding.strategies import Strategy

# The fewest steps of a round. Those of beams are shorter, since K hypotheses attend to K times as
# many empty places. That of a single sentence is longer: its steps cost less than another round.
SHORTEST_ROUND, SHORTEST_ROUND_OF_BEAMS, SHORTEST_ROUND_OF_ONE = 16, 8, 32
# A round also ends when this many of its sentences are done: they would cost more than a round.
MOST_DONE = 16


@dataclass(frozen=True)
class Search:
    """What a search is given for all sentences."""

    model: SearchModel
    strategy: Strategy
    end_id: int
    kinds: ClassVar[tuple[type, ...]]  # of its strategies; the first is the default

    @classmethod
    def of(cls, model, strategy, end_id):
        """Checks the arguments of a search, and makes it."""
        strategy = cls.kinds[0]() if strategy is None else strategy
        if not isinstance(strategy, cls.kinds):
            first, *_ = names = [kind.__name__ for kind in cls.kinds]
            raise ValueError(
                f"strategy of a {first.lower()} search must be {'(...) or '.join(names)}(...), but "
                f"is {strategy!r}; use beam_search for Beam(...), greedy_search for the others."
            )
        return cls(as_search_model(model), strategy, check_count("end_id", end_id))


def run_search(search, state, max_length) -> SearchResult:
    """Steps until every sentence is done, and returns their results.

    Args:
        search: a search, see above.
        state: its first state.
        max_length: L, integer or integer scalar.
    """
    if search.model.compact_cache is None:
        return search.result(run_in_one_loop(search, state))
    return run_with_compaction(search, state, max_length)


def run_in_one_loop(search, state):
    """Steps until every sentence is done. Shapes never change, which XLA needs."""

    def any_left(state):
        return ops.logical_not(ops.all(state.done))

    return ops.while_loop(any_left, lambda state: (search.step(state),), (state,))[0]


def run_with_compaction(search, state, max_length) -> SearchResult:
    """Steps in rounds, between which sentences that are done are dropped.

    Shapes never change within a round. A round ends when its capacity is full or enough of its
    sentences are done. Then their results are kept, the others go on, and the capacity grows. So a
    long sentence does not make the short ones wait, and a step costs what its own length needs.
    Shapes change between rounds, so this is not for a backend that compiles.

    Args:
        search, state, max_length: as in `run_search`.

    Returns:
        A `SearchResult` in the order of the first state's sentences.
    """
    shortest = SHORTEST_ROUND if search.strategy.size == 1 else SHORTEST_ROUND_OF_BEAMS

    def any_left(results, state):
        return ops.any(ops.logical_not(state.done))

    def search_round(results, state):
        (rows,) = ops.nonzero(ops.logical_not(state.done))
        size = ops.shape(rows)[0]
        capacity = next_capacity(state.position, max_length, shortest, size)
        state = compacted(state, ops.cast(rows, "int32"), capacity, search.model.compact_cache)

        def keep_going(state):
            done = ops.sum(ops.cast(state.done, "int32"))
            # Half, rounded up: a single sentence ends its round when it is done, and not before.
            enough = ops.minimum((size + 1) // 2, MOST_DONE)
            return ops.logical_and(done < enough, state.position < capacity)

        (state,) = ops.while_loop(keep_going, lambda state: (search.step(state),), (state,))
        results = write_results(results, state.sentences, search.result(state), max_length)
        return results, state

    batch_size = ops.shape(state.sentences)[0]
    results = no_results(batch_size, search.strategy.num_hypotheses, max_length)
    results, _ = ops.while_loop(any_left, search_round, (results, with_unknown_sizes(state)))
    return SearchResult(*results)


def compacted(state, rows, capacity, compact_cache):
    """Drops all sentences but those at `rows`, and makes room for `capacity` tokens."""
    missing = capacity - ops.shape(state.ids)[-1]
    state = state._replace(
        ids=ops.pad(state.ids, (*[(0, 0)] * (len(state.ids.shape) - 1), (0, missing))),
        cache=compact_cache(state.cache, rows, capacity),
    )
    fields = [field for field in state._fields if field not in ("position", "cache")]
    return take_sentences(state, rows, fields)


def with_unknown_sizes(state):
    """Gathers every row of the options, so that TensorFlow forgets their number.

    Rounds change it, and a loop refuses tensors of another known shape. The caller's may have one.
    """
    return take_sentences(state, state.sentences, ["options"])


def take_sentences(state, rows, fields):
    """Takes the sentences at `rows` of some fields of the state."""
    old = {field: getattr(state, field) for field in fields}
    return state._replace(**take(old, rows))


def no_capacity(start_ids):
    """The length 0, in a graph as a tensor: a number would fix a shape that rounds change."""
    return ops.shape(start_ids)[0] * 0


def next_capacity(position, max_length, shortest, size):
    """Room for the tokens so far and a quarter more, or at least `shortest` more.

    A round of few sentences, `size` of them, is longer: the fewer they are, the less steps cost.
    """
    shortest = ops.maximum(shortest, SHORTEST_ROUND_OF_ONE // size)
    return ops.minimum(position + ops.maximum(shortest, position // 4), max_length)


def result_of(ids, lengths, scores, log_probs) -> SearchResult:
    """A `SearchResult` of fields (B, N, ...), padded where a place holds no hypothesis."""
    exists = log_probs > LEAST_POSSIBLE  # (B, N)
    return SearchResult(
        ids=ops.where(ops.expand_dims(exists, 2), ids, 0),
        lengths=ops.where(exists, lengths, 0),
        scores=ops.where(exists, scores, IMPOSSIBLE),
        log_probs=ops.where(exists, log_probs, IMPOSSIBLE),
    )


def no_results(batch_size, count, max_length):
    """What `write_results` fills, with `count` hypotheses per sentence."""
    lengths = ops.zeros((batch_size, count), "int32")
    scores = ops.zeros((batch_size, count), "float32") + IMPOSSIBLE
    return ops.zeros((batch_size, count, max_length), "int32"), lengths, scores, scores


def write_results(results, sentences, new, max_length):
    """`results` with those of `sentences` replaced by `new`."""
    missing = max_length - ops.shape(new.ids)[2]
    new = new._replace(ids=ops.pad(new.ids, ((0, 0), (0, 0), (0, missing))))
    rows = ops.expand_dims(sentences, 1)  # (b, 1)
    return tuple(
        ops.scatter_update(old, rows, value) for old, value in zip(results, new, strict=True)
    )
