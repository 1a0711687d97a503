"""What each sentence of a batch has for itself in a search."""

from collections.abc import Sequence
from numbers import Number
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_int
from keras_transformer.decoding.beginning import Beginning
from keras_transformer.decoding.strategies import check_settings
from keras_transformer.type_hints import TensorLike


class RowOptions(NamedTuple):
    """What each sentence of a batch may have for itself; None for what the search says.

    Attributes:
        length_penalty: floats (B,), alpha of each sentence.
        max_lengths: integers (B,) of at least 1, the most tokens of each. A hypothesis that reaches
            it competes as it is.
        prefix_ids: integers (B, P), padded with 0: every hypothesis begins so.
        prefix_text: integers (B, W, 2), text that follows these; see `decoding.beginning`. The
            `SearchModel` must have a `spelling`.
        seeds: integers (B,), of a `Sample`: rows with different ones draw independently. A
            `Translator`, and all that takes texts or ids, gives each sentence one of its own.

    Example:
        >>> RowOptions(max_lengths=[5, 9]).max_lengths
        [5, 9]
    """

    length_penalty: TensorLike | Sequence[float] | None = None
    max_lengths: TensorLike | Sequence[int] | None = None
    prefix_ids: TensorLike | None = None
    prefix_text: TensorLike | None = None
    seeds: TensorLike | Sequence[int] | None = None

    @property
    def beginning(self) -> Beginning:
        """How the hypotheses of each sentence begin."""
        return Beginning(self.prefix_ids, self.prefix_text)


def row_options(rows, start_ids, strategy, max_length) -> RowOptions:
    """`rows` (None for no options) with every option as a tensor of the whole batch.

    Args:
        rows: `RowOptions` or None.
        start_ids: int32 (B,).
        strategy: `Strategy`, for its `length_penalty`.
        max_length: integer, or integer scalar.

    Returns:
        `RowOptions` of float32 (B,), int32 (B,), int32 (B, P), int32 (B, W, 2), and int32 (B, 1);
        the last is (B, 0) without seeds.
    """
    rows = RowOptions() if rows is None else rows
    if not isinstance(rows, RowOptions):
        raise ValueError(f"rows must be RowOptions(...) or None, but is {rows!r}.")
    alpha, max_lengths, prefix_ids, prefix_text, seeds = rows
    alpha = (
        strategy.length_penalty if alpha is None else _values("length_penalty", start_ids, alpha)
    )
    own = max_length if max_lengths is None else _values("max_lengths", start_ids, max_lengths)
    max_lengths = ops.zeros_like(start_ids) + max_length  # (B,)
    if prefix_ids is None:
        prefix_ids = ops.zeros((ops.shape(start_ids)[0], 0), "int32")
    if prefix_text is None:
        prefix_text = ops.zeros((ops.shape(start_ids)[0], 0, 2), "int32")
    if seeds is None:
        seeds = ops.zeros((ops.shape(start_ids)[0], 0), "int32")
    else:
        seeds = ops.expand_dims(_values("seeds", start_ids, seeds), 1)
    return RowOptions(
        ops.zeros_like(start_ids, "float32") + ops.cast(alpha, "float32"),
        ops.minimum(max_lengths, ops.cast(own, "int32")),
        ops.cast(prefix_ids, "int32"),
        ops.cast(prefix_text, "int32"),
        ops.cast(seeds, "int32"),
    )


def check_max_length(max_length):
    """Checks a number; a tensor is returned as it is, since a graph does not know its value."""
    return max_length if _is_tensor(max_length) else check_positive_int("max_length", max_length)


def _values(name, start_ids, values):
    """A tensor (B,); its values are checked unless it is a tensor already."""
    shape = tuple(values.shape if hasattr(values, "shape") else np.shape(values))
    size = start_ids.shape[0]
    if len(shape) != 1 or None not in (size, shape[0]) and shape[0] != size:
        raise ValueError(
            f"{name} must have one value for each of {size or 'the'} sentences, but its shape is "
            f"{shape}."
        )
    return (
        values
        if _is_tensor(values)
        else ops.convert_to_tensor([check_settings(**{name: x})[name] for x in values])
    )


def _is_tensor(value):
    return hasattr(value, "shape") and not isinstance(value, (Number, np.ndarray))
