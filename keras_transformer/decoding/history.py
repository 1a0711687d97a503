"""Everything that a beam search considered, as a tree: for people to look at."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.decoding.beam import BeamSearch, BeamState, best_offers
from keras_transformer.decoding.result import LEAST_POSSIBLE
from keras_transformer.decoding.row_options import RowOptions, check_max_length
from keras_transformer.decoding.strategies import Beam, length_penalty
from keras_transformer.type_hints import TensorLike

# What became of a hypothesis.
KEPT = "kept"  # it had a place in the beam, and was offered for continuation
DEAD = "dead"  # others of its length were more probable, and took all places
RETURNED = "returned"  # it ended, and is one of the results
ENDED = "ended"  # it ended, but the results are better
UNFINISHED = "unfinished"  # it was in the beam when the search stopped, since it could not win


class Hypothesis(NamedTuple):
    """A node of the tree: the tokens from the root to it.

    Attributes:
        parent: the index of the hypothesis that it continues by one token, -1 for the root.
        token: its last token; the start token for the root.
        length: the number of its tokens, the start token not counted.
        log_prob: the sum of the tokens' log-probabilities, by which places in the beam are given.
        score: `log_prob / length_penalty(length)`, of those that ended with the search's score
            adjustment; they are ranked by it.
        fate: `KEPT`, `DEAD`, `RETURNED`, `ENDED` or `UNFINISHED`.

    Example:
        >>> node = Hypothesis(0, 7, length=1, log_prob=-0.5, score=-0.5, fate=KEPT)
        >>> node._replace(fate=ENDED).fate
        'ended'
    """

    parent: int
    token: int
    length: int
    log_prob: float
    score: float
    fate: str


def beam_history(
    model: object,
    start_ids: TensorLike,
    cache: object,
    strategy: Beam | None = None,
    *,
    rows: RowOptions | None = None,
    end_id: int,
    max_length: int,
) -> list[Hypothesis]:
    """Runs `beam_search` for one sentence, step by step, and keeps what each step considered.

    The steps are those of `beam_search`; only the loop is Python's, so that it can look at every
    value. It is for looking at a search, not for speed.

    Args:
        model, cache, strategy, rows, end_id, max_length: as in `beam_search`, but without
            compaction.
        start_ids: integers (1,).

    Returns:
        A list of `Hypothesis`, parents before children; the first is the start token alone.

    Raises:
        ValueError: if an argument is out of range, or there is more than one sentence.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> tree = beam_history(spell, ops.array([0]), (), Beam(size=2), end_id=3, max_length=5)
        >>> [(node.token, node.fate) for node in tree[:4]]
        [(0, 'kept'), (1, 'kept'), (0, 'kept'), (2, 'kept')]
    """
    search = BeamSearch.of(model, strategy, end_id)
    search = replace(search, model=search.model._replace(compact_cache=None))
    if len(start_ids) != 1:
        raise ValueError(
            f"start_ids must be of one sentence, but is of {len(start_ids)}; look at one at a time."
        )
    state = search.start(start_ids, cache, rows, check_max_length(max_length))
    tree = _Tree(int(start_ids[0]), search.strategy.size)
    while not bool(state.done[0]):
        state, outputs = search.read(state)
        offered = search.offers(state, outputs)  # (1, K, k) each
        log_probs, origins, tokens = best_offers(state, *offered)  # (1, K) each
        after = search.next_state(state, log_probs, origins, tokens)
        tree.grow(state, offered, origins, after)
        state = after
    return tree.finish(search.result(state))


class _Tree:
    """The nodes so far, and which of them stands at each place of the beam."""

    def __init__(self, start_id: int, beam_size: int):
        self.nodes = [Hypothesis(-1, start_id, 0, 0.0, 0.0, UNFINISHED)]
        self.places = [0] + [None] * (beam_size - 1)  # None at a place that holds no hypothesis

    def grow(self, before: BeamState, offered, origins, after: BeamState) -> None:
        """Adds what was offered at a step, and moves the beam to what was chosen."""
        log_probs, tokens = (_numpy(x)[0] for x in offered)  # (K, k)
        length = int(_numpy(after.position))
        penalty = float(length_penalty(length, before.options.length_penalty[0]))
        was_finished = _numpy(before.finished)[0]  # (K,)
        children = {}
        for place, parent in enumerate(self.places):
            if parent is None or was_finished[place]:
                continue
            self.nodes[parent] = self.nodes[parent]._replace(fate=KEPT)
            for i in np.flatnonzero(log_probs[place] > LEAST_POSSIBLE):
                children[place, int(tokens[place, i])] = len(self.nodes)
                log_prob = float(log_probs[place, i])
                values = length, log_prob, log_prob / penalty, DEAD  # without an adjustment
                self.nodes.append(Hypothesis(parent, int(tokens[place, i]), *values))
        self._move(_numpy(origins)[0], children, was_finished, after)

    def _move(self, origins, children, was_finished, after) -> None:
        finished, chosen, scores = (
            _numpy(x)[0] for x in (after.finished, after.tokens, after.scores)
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
                self.nodes[node] = self.nodes[node]._replace(fate=fate)
                if finished[place]:
                    self.nodes[node] = self.nodes[node]._replace(score=float(scores[place]))

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
