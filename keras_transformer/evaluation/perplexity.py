"""How well a language model predicts a text, in units that compare models."""

import math
from typing import NamedTuple


class TextPerplexity(NamedTuple):
    """Perplexity per token and per byte, and the bits that a model needs per byte.

    A perplexity of 8 is the uncertainty of a choice between 8 equally likely tokens. It depends on
    the tokenizer; to compare models with different tokenizers, take the numbers per byte.

    Example:
        >>> text_perplexity(-6 * math.log(2), num_tokens=2, num_bytes=6).per_byte
        2.0
    """

    per_token: float
    per_byte: float
    bits_per_byte: float


def text_perplexity(log_prob: float, num_tokens: int, num_bytes: int) -> TextPerplexity:
    """Computes `exp(-log P / n)` for text with probability P and n tokens or bytes.

    Args:
        log_prob: the sum of the natural log-probabilities of all tokens.
        num_tokens: how many tokens were predicted, including those that end a text.
        num_bytes: the size of the text in UTF-8.

    Returns:
        A `TextPerplexity`.

    Raises:
        ValueError: if there is no text.

    Example:
        >>> round(text_perplexity(-8 * math.log(2), num_tokens=2, num_bytes=4).bits_per_byte, 3)
        2.0
    """
    if num_tokens < 1 or num_bytes < 1:
        raise ValueError(
            f"num_tokens and num_bytes must be at least 1, but are {num_tokens} and {num_bytes}; "
            "give some text."
        )
    per_byte = -log_prob / num_bytes  # in nats
    return TextPerplexity(
        per_token=_exp(-log_prob / num_tokens),
        per_byte=_exp(per_byte),
        bits_per_byte=per_byte / math.log(2),
    )


def _exp(x: float) -> float:
    """Computes `e^x`; infinity if it is too large for a float."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
