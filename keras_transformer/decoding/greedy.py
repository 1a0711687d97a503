"""One hypothesis per sentence: the most probable token at every step, or a sample."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.compaction import Search, no_capacity, result_of, run_search
from keras_transformer.decoding.processors import candidates
from keras_transformer.decoding.result import LEAST_POSSIBLE, SearchResult
from keras_transformer.decoding.row_options import RowOptions, check_max_length, row_options
from keras_transformer.decoding.strategies import Greedy, Sample, length_penalty
from keras_transformer.type_hints import TensorLike


def greedy_search(
    model: object,
    start_ids: TensorLike,
    cache: object,
    strategy: Greedy | Sample | None = None,
    *,
    rows: RowOptions | None = None,
    end_id: int,
    max_length: int | TensorLike,
) -> SearchResult:
    """Extends each hypothesis by one token per step until the end token.

    If the logits are not finite, the hypothesis ends at this step and counts as missing.

    Args:
        model: `step_fn(token_ids, cache, position) -> (logits, cache)` with ids (B,) and logits
            (B, V); a model with such a `decode_step`; or a `SearchModel`.
        start_ids: integers (B,), the token each hypothesis starts from.
        cache: nested structure of tensors, which the step function reads and returns changed.
        strategy: `Greedy` or `Sample`; `Greedy()` by default.
        rows: `RowOptions`, what each sentence has for itself.
        end_id: the token that ends a hypothesis.
        max_length: L, the most tokens of any hypothesis; an integer, or in a TensorFlow graph an
            integer scalar.

    Returns:
        A `SearchResult` with N = 1.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> result = greedy_search(spell, ops.array([0]), (), end_id=3, max_length=5)
        >>> np.array(result.ids).tolist()
        [[[1, 2, 3, 0, 0]]]
    """
    search = GreedySearch.of(model, strategy, end_id)
    max_length = check_max_length(max_length)
    start_ids = ops.cast(start_ids, "int32")
    state = search.start(start_ids, cache, rows, max_length)
    return run_search(search, state, max_length)


class GreedyState(NamedTuple):
    """The loop variables: one hypothesis per sentence."""

    position: Any  # int32 scalar, tokens so far
    sentences: Any  # int32 (B,), the place of each sentence in the caller's batch
    options: RowOptions  # from `row_options`
    tokens: Any  # int32 (B,), the last of each hypothesis
    ids: Any  # int32 (B, L)
    lengths: Any  # int32 (B,)
    log_probs: Any  # float32 (B,)
    done: Any  # bool (B,), whether the hypothesis has ended
    cache: Any


class GreedySearch(Search):
    """A greedy search in its parts; see `compaction`."""

    kinds = (Greedy, Sample)

    def start(self, start_ids, cache, rows, max_length) -> GreedyState:
        """Hypotheses of no tokens."""
        has_rounds = self.model.compact_cache is not None
        capacity = no_capacity(start_ids) if has_rounds else max_length
        return GreedyState(
            position=ops.convert_to_tensor(0, "int32"),
            sentences=ops.arange(ops.shape(start_ids)[0], dtype="int32"),
            options=row_options(rows, start_ids, self.strategy, max_length),
            tokens=start_ids,
            ids=ops.zeros((ops.shape(start_ids)[0], capacity), "int32"),
            lengths=ops.zeros_like(start_ids),
            log_probs=ops.zeros_like(start_ids, "float32"),
            done=ops.zeros_like(start_ids, "bool"),
            cache=cache,
        )

    def step(self, state: GreedyState) -> GreedyState:
        """One more token for each hypothesis."""
        outputs, cache = self.model.step(state.tokens, state.cache, state.position)
        logits = outputs if self.model.logits is None else self.model.logits(outputs)  # (B, V)
        options = state.options
        log_probs, tokens = candidates(
            logits, state.ids, options.beginning, state.position, 1, self, options.seeds
        )
        log_probs, tokens = log_probs[:, 0], tokens[:, 0]  # (B,)
        here = ops.arange(ops.shape(state.ids)[1]) == state.position  # (L,)
        here = ops.logical_and(here, ops.logical_not(ops.expand_dims(state.done, 1)))  # (B, L)
        length = state.position + 1
        ends = ops.logical_or(tokens == self.end_id, log_probs < LEAST_POSSIBLE)  # (B,)
        ends = ops.logical_or(ends, length >= options.max_lengths)  # (B,)
        return state._replace(
            position=length,
            tokens=tokens,
            ids=ops.where(here, ops.expand_dims(tokens, 1), state.ids),
            lengths=ops.where(state.done, state.lengths, length),
            log_probs=state.log_probs + ops.where(state.done, 0.0, log_probs),
            done=ops.logical_or(state.done, ends),
            cache=cache,
        )

    def result(self, state: GreedyState) -> SearchResult:
        """The hypotheses as they are, one per sentence."""
        penalty = length_penalty(state.lengths, state.options.length_penalty)  # (B,)
        fields = state.ids, state.lengths, state.log_probs / penalty, state.log_probs
        return result_of(*(ops.expand_dims(field, 1) for field in fields))  # (B, 1, ...)
