"""What every search returns."""

from typing import Any, NamedTuple

# Stands for "impossible" where a finite number must.
IMPOSSIBLE = -1e9


class SearchResult(NamedTuple):
    """The N best hypotheses of each sentence, best first.

    A hypothesis of fewer tokens than L is followed by padding. Where a sentence has fewer than N
    hypotheses (a tiny vocabulary), the missing ones have length 0 and a score of -1e9.

    Attributes:
        ids: int32 (B, N, L), the tokens after the start token, the end token included unless
            `max_length` cut the hypothesis off.
        lengths: int32 (B, N), the number of those tokens, the end token counted.
        scores: float32 (B, N), `log_probs / length_penalty(lengths)`; higher is better.
        log_probs: float32 (B, N), the sum of the tokens' log-probabilities under the model.
    """

    ids: Any
    lengths: Any
    scores: Any
    log_probs: Any
