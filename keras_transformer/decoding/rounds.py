"""Searching in one loop, or in rounds, between which a batch shrinks and its cache grows."""

from keras import ops

from keras_transformer.decoding.search_result import IMPOSSIBLE, SearchResult
from keras_transformer.gather import rows_of

# The first round has room for this many tokens; later ones for a quarter of what there is. A beam
# attends to the empty room of all its hypotheses, so that less of it is faster; but few sentences
# attend so quickly that another round costs more.
SHORTEST_ROUND, SHORTEST_ROUND_OF_BEAMS, SHORTEST_ROUND_OF_ONE = 16, 8, 32
# A round ends when half its sentences are done, or so many: they would be worth more steps than
# another round costs.
MOST_DONE = 16


def search_in_rounds(
    state, step, is_done, result_of, resize, max_length, shortest=SHORTEST_ROUND
) -> SearchResult:
    """Runs `step` until every sentence is done, and drops those that are.

    Within a round all shapes stay. A round ends when its room is full or enough of its sentences
    are done; then results are kept, the sentences that are not done go on, and the room grows. So a
    long sentence does not make the short ones beside it wait, and a step costs what its own length
    needs. Shapes change between rounds: not for a backend that compiles.

    Args:
        state: named tuple with `position` (a scalar), `sentences` (B,), and whatever `step` needs.
        step: `step(*state) -> state`.
        is_done: `is_done(state)`, bool (B,).
        result_of: `result_of(state)`, a `SearchResult` of the sentences in the state.
        resize: `resize(state, rows, room)`, the state of these rows with room for that many tokens.
        max_length: L, integer scalar.
        shortest: the fewest tokens that a round has room for.

    Returns:
        A `SearchResult` in the order of the first state's sentences.
    """
    kind = type(state)

    def any_left(results, state):
        return ops.any(ops.logical_not(is_done(kind(*state))))

    def search_round(results, state):
        state = kind(*state)
        (rows,) = ops.nonzero(ops.logical_not(is_done(state)))
        size = ops.shape(rows)[0]
        room = next_room(state.position, max_length, shortest, size)
        state = resize(state, ops.cast(rows, "int32"), room)

        def keep_going(*state):
            state = kind(*state)
            done = ops.sum(ops.cast(is_done(state), "int32"))
            # Half, rounded up: a single sentence ends its round when it is done, and not before.
            enough = ops.minimum((size + 1) // 2, MOST_DONE)
            return ops.logical_and(done < enough, state.position < room)

        state = kind(*ops.while_loop(keep_going, step, state))
        results = write_results(results, state.sentences, result_of(state), max_length)
        return results, tuple(state)

    batch_size = ops.shape(state.sentences)[0]
    first = result_of(state)  # of sentences that are done before the first round
    results = no_results(batch_size, first, max_length)
    results = write_results(results, state.sentences, first, max_length)
    state = of_any_size(state)
    results, _ = ops.while_loop(any_left, search_round, (results, tuple(state)))
    return SearchResult(*results)


def search_in_one_loop(state, step, is_done):
    """Runs `step` until every sentence is done: all shapes stay, as a compiler needs it.

    Args:
        state, step, is_done: as in `search_in_rounds`.

    Returns:
        The last state.
    """
    kind = type(state)

    def any_left(*state):
        return ops.logical_not(ops.all(is_done(kind(*state))))

    return kind(*ops.while_loop(any_left, step, state))


def of_any_size(state):
    """The state without known sizes, which rounds change: what callers give may have one."""
    return take_sentences(state, state.sentences, ("limits", "alpha", "prefix"))


def take_sentences(state, rows, fields=None):
    """A state, its cache aside, of the sentences at `rows` only; `fields` of it, or all."""
    fields = fields or [field for field in state._fields if field not in ("position", "cache")]
    return state._replace(**{f: rows_of(getattr(state, f), rows) for f in fields})


def no_room(start_ids):
    """0 tokens, but in a graph as a tensor: a number would fix the shape that rounds change."""
    return ops.shape(start_ids)[0] * 0


def next_room(position, max_length, shortest, size):
    """Room for the tokens so far and a quarter more, at least `shortest`.

    Where a round has few sentences, `size` of them, its room is at least their share of that of
    one alone.
    """
    shortest = ops.maximum(shortest, SHORTEST_ROUND_OF_ONE // size)
    return ops.minimum(position + ops.maximum(shortest, position // 4), max_length)


def no_results(batch_size, like, max_length):
    """What `write_results` fills; `like` is a result whose number of hypotheses is taken."""
    count = like.lengths.shape[1]
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
