"""The steps that a forecast is made from, wherever in a batch's rows they stand."""

from keras import ops


def real_length(padding_mask):
    """The number of steps up to the last real one.

    Args:
        padding_mask: boolean (B, T), True at real steps.

    Returns:
        int32 (B,), 0 without real steps.
    """
    numbers = ops.arange(1, ops.shape(padding_mask)[1] + 1, dtype="int32")  # (T,)
    return ops.max(ops.where(padding_mask, numbers, 0), axis=1, initial=0)


def steps_around(values, origin, before: int, after: int = 0):
    """The steps before and after each row's origin, which thereby all rows have at one place.

    Args:
        values: tensor (B, T, ...).
        origin: int32 (B,) in [0, T - after]: the number of steps of a row that are before.
        before: the number of steps before the origin that are taken; those before the first are 0.
        after: the number of steps from the origin on.

    Returns:
        Tensor (B, before + after, ...).
    """
    rest = [(0, 0)] * (len(values.shape) - 2)
    values = ops.pad(values, ((0, 0), (before, 0), *rest))  # step t is now at before + t
    steps = ops.expand_dims(origin, 1) + ops.arange(before + after, dtype="int32")
    steps = ops.reshape(steps, (-1, before + after, *[1] * len(rest)))
    return ops.take_along_axis(values, steps, axis=1)
