"""How scores of hypotheses of different lengths become comparable."""

from numbers import Real

from keras import ops

# With more, scores of long hypotheses are all too near 0 to tell one from another.
LARGEST_ALPHA = 10


def length_penalty(length, alpha: float):
    """What a log-probability is divided by: `((5 + n) / 6) ** alpha`.

    Wu et al. (2016), "Google's Neural Machine Translation System", equation 14. Every token lowers
    a log-probability, so without it short hypotheses win. 0 turns it off; the paper uses 0.6.

    Args:
        length: n, the number of tokens with the end token; a number or a tensor.
        alpha: the exponent, in [0, 10].

    Returns:
        Tensor like `length`, float32.

    Example:
        >>> float(length_penalty(1, 0.6))
        1.0
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def check_length_penalty(alpha) -> float:
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 <= alpha <= LARGEST_ALPHA:
        raise ValueError(
            f"length_penalty must be a number in [0, {LARGEST_ALPHA}], but is {alpha!r}."
        )
    return alpha
