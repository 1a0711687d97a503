"""What a search is given: checked, and as one value for each sentence."""

from numbers import Number

import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_int
from keras_transformer.decoding.length_penalty import check_length_penalty


def check_max_length(max_length):
    """`max_length`, as an `int` or the tensor that it is; a tensor's value is not known here."""
    return max_length if _is_tensor(max_length) else check_positive_int("max_length", max_length)


def check_beam(beam_size, num_hypotheses) -> tuple[int, int]:
    beam_size = check_positive_int("beam_size", beam_size)
    num_hypotheses = check_positive_int("num_hypotheses", num_hypotheses)
    if num_hypotheses > beam_size:
        raise ValueError(
            f"num_hypotheses must be an integer in [1, beam_size={beam_size}], but is "
            f"{num_hypotheses}; widen the beam."
        )
    return beam_size, num_hypotheses


def row_limits(start_ids, max_length, max_lengths):
    """The most tokens of each hypothesis: int32 (B,)."""
    limits = ops.zeros_like(start_ids) + max_length
    if max_lengths is None:
        return limits
    max_lengths = _rows("max_lengths", start_ids, max_lengths, _check_limit)
    return ops.minimum(limits, ops.cast(max_lengths, "int32"))


def row_values(start_ids, alpha):
    """The length penalty's exponent of each sentence: float32 (B,)."""
    if len(_shape(alpha)):
        alpha = _rows("length_penalty", start_ids, alpha, check_length_penalty)
    elif not _is_tensor(alpha):
        alpha = check_length_penalty(alpha)
    return ops.zeros_like(start_ids, "float32") + ops.cast(alpha, "float32")


def _check_limit(value):
    return check_positive_int("max_lengths", value)


def _rows(name, start_ids, values, check):
    """A tensor (B,); its values are checked, unless it is one already."""
    shape, size = tuple(_shape(values)), start_ids.shape[0]
    if len(shape) != 1 or None not in (size, shape[0]) and shape[0] != size:
        raise ValueError(
            f"{name} must have one value for each of {size or 'the'} sentences, but its shape is "
            f"{shape}."
        )
    return values if _is_tensor(values) else ops.convert_to_tensor([check(x) for x in values])


def _shape(values):
    return values.shape if hasattr(values, "shape") else np.shape(values)


def _is_tensor(value):
    """Whether it is a tensor of the backend, whose value is not looked at: it may have none yet."""
    return hasattr(value, "shape") and not isinstance(value, (Number, np.ndarray))
