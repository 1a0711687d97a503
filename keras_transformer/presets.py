"""Named sizes of `Transformer`: plain dicts of its arguments, unpacked by the caller.

`BASE` and `BIG` are rows "base" and "big" of table 3 in "Attention Is All You Need" (Vaswani et
al., 2017). `TINY` is the text-only model of Wu et al. (2021), sized for tens of thousands of
pairs; `SMALL` lies between the two.

Example:
    >>> from keras_transformer import Transformer, presets
    >>> model = Transformer(**presets.TINY, source_vocab_size=8000)
"""

from typing import TypedDict


class Sizes(TypedDict):
    """The arguments of `Transformer` that a preset has; for type checkers."""

    num_layers: int
    d_model: int
    num_heads: int
    d_ff: int
    dropout: float


TINY: Sizes = {"num_layers": 4, "d_model": 128, "num_heads": 4, "d_ff": 256, "dropout": 0.2}
SMALL: Sizes = {"num_layers": 3, "d_model": 256, "num_heads": 4, "d_ff": 1024, "dropout": 0.1}
BASE: Sizes = {"num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048, "dropout": 0.1}
BIG: Sizes = {"num_layers": 6, "d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3}
