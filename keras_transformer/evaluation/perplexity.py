"""How well a language model predicts a text, in units that models can be compared by."""

import math
from typing import NamedTuple


class TextPerplexity(NamedTuple):
    """How many tokens, or bytes, a model hesitates between, and the bits it needs for a byte.

    Perplexity per token depends on the tokenizer; that per byte compares models of different ones.
    """

    per_token: float
    per_byte: float
    bits_per_byte: float


def text_perplexity(log_prob: float, num_tokens: int, num_bytes: int) -> TextPerplexity:
    """`exp(-log P / n)` of text with probability P and n tokens or bytes.

    Args:
        log_prob: the sum of the log-probabilities of all tokens, in nats.
        num_tokens: how many tokens were predicted, those that end a text included.
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
        raise ValueError("perplexity is that of a text, but there is none; give at least one byte.")
    per_byte = -log_prob / num_bytes  # in nats
    return TextPerplexity(
        per_token=math.exp(-log_prob / num_tokens),
        per_byte=math.exp(per_byte),
        bits_per_byte=per_byte / math.log(2),
    )
