"""Beam search: the most probable translation that a search of bounded width finds.

From top to bottom: the search, its state, its start, a step (what each hypothesis offers, what is
chosen of all that, the state after it), when it is done, and its result.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.backend import batched_gather, take
from keras_transformer.decoding.beginning import Beginning
from keras_transformer.decoding.compaction import (
    Search,
    no_capacity,
    result_of,
    run_search,
)
from keras_transformer.decoding.processors import candidates
from keras_transformer.decoding.result import IMPOSSIBLE, LEAST_POSSIBLE, NEVER, SearchResult
from keras_transformer.decoding.row_options import RowOptions, check_max_length, row_options
from keras_transformer.decoding.strategies import Beam, length_penalty
from keras_transformer.type_hints import TensorLike


def beam_search(
    model: object,
    start_ids: TensorLike,
    cache: object,
    strategy: Beam | None = None,
    *,
    rows: RowOptions | None = None,
    end_id: int,
    max_length: int | TensorLike,
) -> SearchResult:
    """Extends the K best hypotheses of each sentence at once.

    At each step every live hypothesis offers its K best continuations, and the most probable of
    all fill the places that finished hypotheses leave free. A finished hypothesis is frozen: it
    keeps its place, its tokens and its score. A sentence is done when none of its live
    hypotheses can still enter the N best: log-probabilities only fall, so
    `log_prob / length_penalty(max_length)` bounds what a live one can reach. With a beam of one
    this is greedy search; with a beam as wide as the space of translations it is exhaustive.

    If its logits are not finite, a hypothesis is dropped.

    Args:
        model: `step_fn(token_ids, cache, position) -> (logits, cache)` with ids (B * K,) and logits
            (B * K, V), a sentence's hypotheses side by side; a model with such a `decode_step`; or
            a `SearchModel`.
        start_ids: integers (B,), the token each hypothesis starts from.
        cache: nested structure of tensors with first axis B * K, or another structure if the model
            has a `reorder_cache`.
        strategy: `Beam`; `Beam()` by default.
        rows: `RowOptions`, what each sentence has for itself.
        end_id: the token that ends a hypothesis.
        max_length: L, the most tokens of any hypothesis; an integer, or in a TensorFlow graph an
            integer scalar.

    Returns:
        A `SearchResult`.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> result = beam_search(spell, ops.array([0]), (), end_id=3, max_length=5)
        >>> np.array(result.ids).tolist()
        [[[1, 2, 3, 0, 0]]]
    """
    search = BeamSearch.of(model, strategy, end_id)
    max_length = check_max_length(max_length)
    state = search.start(start_ids, cache, rows, max_length)
    return run_search(search, state, max_length)


class BeamState(NamedTuple):
    """The loop variables: K hypotheses per sentence, live or finished."""

    position: Any  # int32 scalar, tokens so far
    sentences: Any  # int32 (B,), the place of each sentence in the caller's batch
    options: RowOptions  # from `row_options`
    tokens: Any  # int32 (B, K), the last of each hypothesis
    ids: Any  # int32 (B, K, L)
    lengths: Any  # int32 (B, K)
    log_probs: Any  # float32 (B, K); IMPOSSIBLE in a place that holds no hypothesis
    adjustments: Any  # float32 (B, K), at most 0, added to a finished score; () without any
    finished: Any  # bool (B, K)
    done: Any  # bool (B,), whether no live hypothesis can be a result any more
    cache: Any

    @property
    def can_win(self):
        """The hypotheses that can still be among the results: bool (B, K)."""
        possible = self.log_probs > LEAST_POSSIBLE  # (B, K)
        over = ops.logical_or(self.finished, ops.expand_dims(self.done, 1))  # (B, K)
        return ops.logical_and(possible, ops.logical_not(over))

    @property
    def scores(self):
        """`log_prob / length_penalty + adjustment` of each hypothesis: float32 (B, K)."""
        alpha = ops.expand_dims(self.options.length_penalty, 1)  # (B, 1)
        scores = self.log_probs / length_penalty(self.lengths, alpha)
        return scores if isinstance(self.adjustments, tuple) else scores + self.adjustments

    @property
    def finished_scores(self):
        """The scores of finished hypotheses, and NEVER in other places: float32 (B, K)."""
        exists = ops.logical_and(self.finished, self.log_probs > LEAST_POSSIBLE)  # (B, K)
        return ops.where(exists, self.scores, NEVER)


class BeamSearch(Search):
    """A beam search in its parts; see `compaction`."""

    kinds = (Beam,)

    def start(self, start_ids, cache, rows, max_length) -> BeamState:
        """One hypothesis of no tokens per sentence, and K - 1 free places."""
        start_ids = ops.cast(start_ids, "int32")  # (B,)
        batch_size, beam_size = ops.shape(start_ids)[0], self.strategy.size
        has_rounds = self.model.compact_cache is not None
        capacity = no_capacity(start_ids) if has_rounds else max_length
        zeros = ops.zeros((batch_size, beam_size), "int32")
        is_free = ops.arange(beam_size) > 0  # (K,)
        log_probs = ops.zeros_like(zeros, "float32") + ops.where(is_free, IMPOSSIBLE, 0.0)
        return BeamState(
            position=ops.convert_to_tensor(0, "int32"),
            sentences=ops.arange(batch_size, dtype="int32"),
            options=row_options(rows, start_ids, self.strategy, max_length),
            tokens=zeros + ops.expand_dims(start_ids, 1),
            ids=ops.zeros((batch_size, beam_size, capacity), "int32"),
            lengths=zeros,
            log_probs=log_probs,
            adjustments=ops.zeros_like(log_probs) if self.adjusts else (),
            finished=ops.zeros_like(zeros, "bool"),
            done=ops.zeros_like(start_ids, "bool"),
            cache=cache,
        )

    def step(self, state: BeamState) -> BeamState:
        """One more token for each hypothesis."""
        state, outputs = self.read(state)
        log_probs, tokens = self.offers(state, outputs)  # (B, K, k) each
        log_probs, origins, tokens = best_offers(state, log_probs, tokens)  # (B, K) each
        return self.next_state(state, log_probs, origins, tokens)

    def read(self, state: BeamState):
        """Reads the last tokens: the state with the new cache, and the model's outputs."""
        tokens = ops.reshape(state.tokens, (-1,))  # (B * K,)
        outputs, cache = self.model.step(tokens, state.cache, state.position)
        return state._replace(cache=cache), outputs

    def offers(self, state: BeamState, outputs):
        """The best k <= K tokens after each hypothesis, and the log-probabilities they lead to.

        A finished hypothesis offers padding at cost 0. One inside its beginning offers only what
        goes on with that. One that cannot win offers only what is impossible.

        Args:
            state: `BeamState`.
            outputs: from `read`: logits (B * K, V), or hidden states (B * K, D) if the model has
                `logits`.

        Returns:
            Log-probabilities and tokens (B, K, k).
        """
        beam_size = self.strategy.size
        ids = ops.reshape(state.ids, (-1, ops.shape(state.ids)[2]))  # (B * K, L)
        beginning = Beginning(
            *(ops.repeat(field, beam_size, axis=0) for field in state.options.beginning)
        )  # (B * K, ...) each
        logits, only_live = outputs, self.model.logits is not None
        if only_live:
            live = live_rows(state)  # (R,)
            outputs, ids, beginning = take((outputs, ids, beginning), live)  # (R, ...) each
            logits = self.model.logits(outputs)  # (R, V)
        k = min(beam_size, logits.shape[-1])
        log_probs, tokens = candidates(
            logits, ids, beginning, state.position, k, self
        )  # (R, k) each; R = B * K unless only_live
        if only_live:
            log_probs, tokens = spread((log_probs, tokens), state)  # (B * K, k) each
        log_probs, tokens = (ops.reshape(x, (-1, beam_size, k)) for x in (log_probs, tokens))
        can_win = ops.expand_dims(state.can_win, 2)  # (B, K, 1)
        cost = ops.where(ops.expand_dims(state.finished, 2), 0.0, IMPOSSIBLE)  # (B, K, 1)
        log_probs = ops.expand_dims(state.log_probs, 2) + ops.where(can_win, log_probs, cost)
        return ops.maximum(log_probs, IMPOSSIBLE), ops.where(can_win, tokens, 0)

    def next_state(self, state: BeamState, log_probs, origins, tokens) -> BeamState:
        """The state of the chosen continuations.

        Args:
            state: `BeamState` with the cache after the step.
            log_probs: float32 (B, K), of the hypotheses with their new tokens.
            origins: int32 (B, K), which hypothesis of its sentence each continues.
            tokens: int32 (B, K), the new ones.
        """
        old = state.finished, state.lengths, state.adjustments, state.ids
        finished, lengths, adjustments, ids = batched_gather(old, origins)
        batch_size = ops.shape(state.sentences)[0]
        first = ops.arange(batch_size, dtype="int32") * origins.shape[1]  # (B,)
        rows = ops.reshape(origins + ops.expand_dims(first, 1), (-1,))  # (B * K,)
        cache = self.model.reorder_cache(state.cache, rows)
        length = state.position + 1
        ends = ops.logical_and(tokens == self.end_id, log_probs > LEAST_POSSIBLE)  # (B, K)
        is_longest = ops.expand_dims(length >= state.options.max_lengths, 1)  # (B, 1)
        here = ops.arange(ops.shape(ids)[2]) == state.position  # (L,)
        state = state._replace(
            position=length,
            tokens=tokens,
            ids=ops.where(here, ops.expand_dims(tokens, 2), ids),
            lengths=ops.where(finished, lengths, length),
            log_probs=log_probs,
            finished=ops.logical_or(finished, ops.logical_or(ends, is_longest)),
            cache=cache,
        )
        if self.adjusts:
            adjustments = ops.where(finished, adjustments, self.score_adjustment(cache))
            state = state._replace(adjustments=adjustments)
        return state._replace(done=self.nothing_can_win(state))

    @property
    def adjusts(self) -> bool:
        """Whether a hypothesis that ends adds something to its score."""
        return self.strategy.coverage_penalty != 0 or self.model.score_adjustment is not None

    def score_adjustment(self, cache):
        """What a hypothesis that ends adds to its score: float32 (B, K)."""
        beta, adjust = self.strategy.coverage_penalty, self.model.score_adjustment
        adjustment = 0.0 if adjust is None else adjust(cache)
        if beta == 0:
            return adjustment
        if not isinstance(cache, dict) or "coverage" not in cache:
            raise ValueError(
                f"coverage_penalty={beta} needs a cache that tracks coverage; "
                "make it by init_cache(..., track_coverage=True)."
            )
        return adjustment - coverage_penalty(cache["coverage"], cache["source_padding_mask"], beta)

    def nothing_can_win(self, state: BeamState):
        """Whether no live hypothesis of a sentence can still be among its best: bool (B,).

        Its score cannot exceed its log-probability now, over the penalty of the greatest length.
        """
        best, _ = ops.top_k(state.finished_scores, self.strategy.num_hypotheses)  # (B, N)
        live = ops.where(state.finished, NEVER, state.log_probs)  # (B, K)
        best_live = ops.top_k(live, 1)[0][:, 0]  # (B,)
        bound = best_live / length_penalty(state.options.max_lengths, state.options.length_penalty)
        # Nothing can come any more without a live hypothesis, or if all of them were dropped.
        return ops.logical_or(best[:, -1] >= bound, best_live < LEAST_POSSIBLE)

    def result(self, state: BeamState) -> SearchResult:
        """The finished hypotheses of each sentence, best first."""
        _, best = ops.top_k(state.finished_scores, self.strategy.num_hypotheses)  # (B, N)
        fields = state.ids, state.lengths, state.scores, state.log_probs
        return result_of(*batched_gather(fields, best))  # (B, N, ...)


def coverage_penalty(coverage, source_padding_mask, beta: float):
    """`-beta * sum_i log(min(coverage_i, 1))` over the real source tokens.

    Wu et al. (2016), equation 14, there with the opposite sign: coverage_i is the attention that
    source token i has had from all target tokens. A translation loses this much for source tokens
    that it has not attended to.

    Args:
        coverage: tensor (B, K, S), at least 0.
        source_padding_mask: boolean (B, S), True at real tokens.
        beta: at least 0; 0 is no penalty.

    Returns:
        Tensor (B, K), at least 0.
    """
    seen = ops.clip(coverage, 1e-6, 1.0)  # a token never seen costs as much as one seen very little
    mask = ops.expand_dims(source_padding_mask, 1)  # (B, 1, S)
    return -beta * ops.sum(ops.where(mask, ops.log(seen), 0.0), axis=-1)


def live_rows(state: BeamState):
    """The places of the hypotheses that can still win, among all B * K: int32 (R,)."""
    (rows,) = ops.nonzero(ops.reshape(state.can_win, (-1,)))
    return ops.cast(rows, "int32")


def spread(values, state: BeamState):
    """Puts values (R, k) of the `live_rows` in their places among all: (B * K, k)."""
    is_live = ops.cast(ops.reshape(state.can_win, (-1,)), "int32")  # (B * K,)
    # A place that is not live takes the value of a live neighbour, which nobody reads.
    return take(values, ops.maximum(ops.cumsum(is_live) - 1, 0))


def best_offers(state: BeamState, log_probs, tokens):
    """Chooses K of the K * k continuations; a finished hypothesis stays, once.

    Args:
        state: `BeamState`.
        log_probs: float32 (B, K, k).
        tokens: int32 (B, K, k).

    Returns:
        Log-probabilities, the hypotheses of their sentence that they continue, and tokens: each
        (B, K).
    """
    beam_size, k = log_probs.shape[1:]
    finished = ops.expand_dims(state.finished, 2)  # (B, K, 1)
    stays = ops.arange(k) == 0  # (k,)
    priority = ops.where(finished, ops.where(stays, -IMPOSSIBLE, NEVER), log_probs)  # (B, K, k)
    _, chosen = ops.top_k(ops.reshape(priority, (-1, beam_size * k)), beam_size)  # (B, K)
    chosen = ops.cast(chosen, "int32")
    flat = [ops.reshape(x, (-1, beam_size * k)) for x in (log_probs, tokens)]  # (B, K * k) each
    log_probs, tokens = batched_gather(flat, chosen)  # (B, K) each
    return log_probs, chosen // k, tokens
