"""What every search returns."""

from typing import NamedTuple

from keras_transformer.type_hints import Tensor

# Stands for minus infinity, so that all numbers stay finite. What is possible is above
# LEAST_POSSIBLE, sums with IMPOSSIBLE are below it, and all of them above NEVER.
IMPOSSIBLE = -1e9
LEAST_POSSIBLE, NEVER = IMPOSSIBLE / 2, 4 * IMPOSSIBLE


class SearchResult(NamedTuple):
    """The N best hypotheses of each sentence, best first.

    Padding follows a hypothesis of fewer than L tokens. Where a sentence has fewer than N
    hypotheses (a tiny vocabulary), the missing ones have length 0 and a score of -1e9.

    Attributes:
        ids: int32 (B, N, L), the tokens after the start token, the end token included unless
            `max_length` cut the hypothesis off.
        lengths: int32 (B, N), the number of those tokens, the end token counted.
        scores: float32 (B, N), `log_probs / length_penalty(lengths)`, plus what the model or a
            coverage penalty adds; higher is better.
        log_probs: float32 (B, N), the sum of the tokens' log-probabilities under the model.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> result = greedy_search(spell, ops.array([0, 1]), (), end_id=3, max_length=5)
        >>> np.array(result.lengths).tolist()
        [[3], [2]]
    """

    ids: Tensor
    lengths: Tensor
    scores: Tensor
    log_probs: Tensor
