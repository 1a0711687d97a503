"""What a translation loses for source tokens that it has not attended to."""

from numbers import Real

from keras import ops


def coverage_penalty(coverage, source_padding_mask, beta: float):
    """`-beta * sum_i log(min(coverage_i, 1))` over the real source tokens.

    Wu et al. (2016), "Google's Neural Machine Translation System", equation 14, there with the
    opposite sign: coverage_i is the attention that source token i has had from all target tokens.

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


def check_coverage_penalty(beta) -> float:
    if isinstance(beta, bool) or not isinstance(beta, Real) or not 0 <= beta < 100:
        raise ValueError(f"coverage_penalty must be a number in [0, 100), but is {beta!r}.")
    return beta
