"""Everything that a beam search considered, as a tree: for people to look at."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.decoding.beam_search import best_hypotheses, gather_rows, is_done
from keras_transformer.decoding.beam_state import BeamState, next_state, scores_of, start_state
from keras_transformer.decoding.constraints import Rules
from keras_transformer.decoding.continuations import (
    best_continuations,
    continuations,
    rows_of_beams,
)
from keras_transformer.decoding.search_arguments import (
    check_beam,
    check_max_length,
    row_limits,
    row_values,
)
from keras_transformer.decoding.search_result import IMPOSSIBLE

# What became of a hypothesis.
KEPT = "kept"  # it had a place in the beam, and was offered for continuation
DEAD = "dead"  # others of its length were more probable, and took all places
RETURNED = "returned"  # it ended, and is one of the results
ENDED = "ended"  # it ended, but the results are better
UNFINISHED = "unfinished"  # it had a place when the search stopped, since it could not win


class Hypothesis(NamedTuple):
    """A node of the tree: the tokens from the root to it.

    Attributes:
        parent: the index of the hypothesis that it continues by one token, -1 for the root.
        token: its last token; the start token for the root.
        length: the number of its tokens, the start token not counted.
        log_prob: the sum of the tokens' log-probabilities, by which places in the beam are given.
        score: `log_prob / length_penalty(length)`, with a bonus if the search gives one, by which
            those that ended are ranked.
        fate: `KEPT`, `DEAD`, `RETURNED`, `ENDED` or `UNFINISHED`.
    """

    parent: int
    token: int
    length: int
    log_prob: float
    score: float
    fate: str


def beam_history(
    step_fn,
    start_ids,
    cache,
    *,
    end_id,
    max_length,
    beam_size=4,
    num_hypotheses=1,
    length_penalty=0.6,
    suppress_ids=(),
    min_length=0,
    constraints=(),
    prefix_ids=None,
    bonus_fn=None,
    reorder_cache=None,
) -> list[Hypothesis]:
    """Runs `beam_search` for one sentence, step by step, and keeps what each step considered.

    The steps are those of `beam_search`; only the loop is Python's, so that it may look at every
    value. It is for looking at a search, not for speed.

    Args:
        step_fn: as in `beam_search`, and so are all others, with a batch of one sentence.
        start_ids: integers (1,).
        cache: with first axis K, or any other with a `reorder_cache` of its own.
        end_id: the token that ends a hypothesis.
        max_length: L, the most tokens of any hypothesis.
        beam_size: K.
        num_hypotheses: N, how many are returned.
        length_penalty: alpha.
        suppress_ids: tokens that are never chosen.
        min_length: the fewest tokens of a hypothesis.
        constraints: what else must not be chosen.
        prefix_ids: integers (1, P), how every hypothesis begins.
        bonus_fn: added to the score of a hypothesis that ends.
        reorder_cache: gathers every tensor's first axis by default.

    Returns:
        A list of `Hypothesis`, parents before children; the first is the start token alone.

    Raises:
        ValueError: if a size or the penalty is out of range, or there is more than one sentence.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> tree = beam_history(spell, ops.array([0]), (), end_id=3, max_length=5, beam_size=2)
        >>> [(node.token, node.fate) for node in tree[:4]]
        [(0, 'kept'), (1, 'kept'), (0, 'kept'), (2, 'kept')]
    """
    max_length = check_max_length(max_length)
    beam_size, num_hypotheses = check_beam(beam_size, num_hypotheses)
    start_ids = ops.cast(start_ids, "int32")
    if len(start_ids) != 1:
        raise ValueError(
            f"start_ids must be of one sentence, but is of {len(start_ids)}; look at one at a time."
        )
    rules = Rules.of(suppress_ids, min_length, end_id, constraints)
    state = start_state(
        start_ids,
        cache,
        limits=row_limits(start_ids, max_length, None),
        alpha=row_values(start_ids, length_penalty),
        prefix=prefix_ids,
        beam_size=beam_size,
        room=max_length,
    )
    tree = _Tree(int(start_ids[0]), beam_size)
    while not bool(is_done(state, num_hypotheses)[0]):
        flat = ops.reshape(state.tokens, (-1,))
        logits, cache = step_fn(flat, state.cache, state.position)  # (K, V)
        offered = continuations(state, logits, rules)  # (1, K, k)
        log_probs, origins, tokens = best_continuations(state, *offered)
        cache = (reorder_cache or gather_rows)(cache, rows_of_beams(origins))
        bonus = None if bonus_fn is None else bonus_fn(cache)
        after = next_state(state, log_probs, origins, tokens, end_id, bonus)._replace(cache=cache)
        tree.grow(state, offered, origins, after)
        state = after
    return tree.finish(best_hypotheses(state, num_hypotheses))


class _Tree:
    """The nodes so far, and which of them stands at each place of the beam."""

    def __init__(self, start_id: int, beam_size: int):
        self.nodes = [Hypothesis(-1, start_id, 0, 0.0, 0.0, UNFINISHED)]
        self.places = [0] + [None] * (beam_size - 1)  # None at a place that holds no hypothesis

    def grow(self, before: BeamState, offered, origins, after: BeamState) -> None:
        """Adds what was offered at a step, and moves the beam to what was chosen."""
        log_probs, tokens = (_numpy(x)[0] for x in offered)  # (K, k)
        scores, length = self._scores(before, log_probs), int(_numpy(after.position))
        was_finished = _numpy(before.finished)[0]  # (K,)
        children = {}
        for place, parent in enumerate(self.places):
            if parent is None or was_finished[place]:
                continue
            self.nodes[parent] = self.nodes[parent]._replace(fate=KEPT)
            for i in np.flatnonzero(log_probs[place] > IMPOSSIBLE / 2):
                children[place, int(tokens[place, i])] = len(self.nodes)
                values = float(log_probs[place, i]), float(scores[place, i])
                self.nodes.append(Hypothesis(parent, int(tokens[place, i]), length, *values, DEAD))
        self._move(_numpy(origins)[0], children, was_finished, after)

    def _move(self, origins, children, was_finished, after) -> None:
        finished, chosen, scores = (
            _numpy(x)[0] for x in (after.finished, after.tokens, scores_of(after))
        )  # (K,)
        old, self.places = self.places, []
        for place, origin in enumerate(origins):
            if was_finished[origin]:
                self.places.append(old[origin])
                continue
            node = children.get((int(origin), int(chosen[place])))
            self.places.append(node)
            if node is not None:
                fate = ENDED if finished[place] else UNFINISHED
                self.nodes[node] = self.nodes[node]._replace(fate=fate, score=float(scores[place]))

    def _scores(self, before, log_probs):
        """What each continuation would score if it ended: `scores_of` without a bonus."""
        grown = before._replace(
            log_probs=log_probs,
            lengths=ops.zeros_like(log_probs, "int32") + before.position + 1,
            bonus=0.0,
        )
        return _numpy(scores_of(grown))  # (K, k)

    def finish(self, result) -> list[Hypothesis]:
        """The nodes, with those that are results marked."""
        ids, lengths = _numpy(result.ids)[0], _numpy(result.lengths)[0]
        results = {tuple(row[:length]) for row, length in zip(ids, lengths, strict=True)}
        for i, node in enumerate(self.nodes):
            if node.fate == ENDED and tuple(tokens_of(self.nodes, i)) in results:
                self.nodes[i] = node._replace(fate=RETURNED)
        return self.nodes


def tokens_of(tree: list[Hypothesis], i: int) -> list[int]:
    """The tokens of hypothesis `i`, without the start token."""
    tokens = []
    while tree[i].parent >= 0:
        tokens.append(tree[i].token)
        i = tree[i].parent
    return tokens[::-1]


def _numpy(tensor) -> np.ndarray:
    return ops.convert_to_numpy(tensor)
