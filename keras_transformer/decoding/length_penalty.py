"""How scores of hypotheses of different lengths become comparable."""

from keras import ops


def length_penalty(length, alpha: float):
    """What a log-probability is divided by: `((5 + n) / 6) ** alpha`.

    Wu et al. (2016), "Google's Neural Machine Translation System", equation 14. Every token lowers
    a log-probability, so without it short hypotheses win. 0 turns it off; the paper uses 0.6.

    Args:
        length: n, the number of tokens with the end token; a number or a tensor.
        alpha: the exponent, at least 0.

    Returns:
        Tensor like `length`, float32.

    Example:
        >>> float(length_penalty(1, 0.6))
        1.0
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def check_length_penalty(alpha) -> float:
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 <= alpha < 100:
        raise ValueError(f"length_penalty must be a number of at least 0, but is {alpha!r}.")
    return alpha
