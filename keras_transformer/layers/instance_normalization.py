"""Each window of a series by its own level and scale, and back."""

from keras import ops


def window_statistics(values, padding_mask):
    """The mean and the standard deviation of each feature over the real steps of each window.

    The deviations are taken from the last step first, so that a window of one repeated value has a
    scale of exactly 0, however large the value.

    Args:
        values: tensor (B, T, F), finite at real steps.
        padding_mask: boolean (B, T), True at real steps.

    Returns:
        The level and the scale, two tensors (B, 1, F), float32; 0 without real steps.
    """
    real = ops.expand_dims(ops.cast(padding_mask, "bool"), -1)  # (B, T, 1)
    count = ops.maximum(ops.sum(ops.cast(real, "float32"), axis=1, keepdims=True), 1.0)
    values = ops.where(real, ops.cast(values, "float32"), 0.0)
    origin = values[:, -1:]  # (B, 1, F)
    centred = ops.where(real, values - origin, 0.0)
    mean = ops.sum(centred, axis=1, keepdims=True) / count
    centred = ops.where(real, centred - mean, 0.0)
    # By the largest, so that no square is too large or too small for float32.
    largest = ops.max(ops.abs(centred), axis=1, keepdims=True, initial=0.0)
    squares = ops.square(ops.divide_no_nan(centred, largest))
    scale = largest * ops.sqrt(ops.sum(squares, axis=1, keepdims=True) / count)
    return ops.where(ops.any(real, axis=1, keepdims=True), origin + mean, 0.0), scale


def normalize(values, padding_mask, level, scale):
    """`(x - level) / scale` at real steps, 0 at others and where the scale is 0.

    Reversible instance normalization (Kim et al., 2022, "Reversible Instance Normalization for
    Accurate Time-Series Forecasting against Distribution Shift", equation 2) without its learned
    affine map, which the projection after it would repeat.

    Args:
        values: tensor (B, T, F); what stands at other than real steps may be anything.
        padding_mask: boolean (B, T), True at real steps.
        level: tensor (B, 1, F).
        scale: tensor (B, 1, F).

    Returns:
        Tensor (B, T, F), float32.
    """
    real = ops.expand_dims(ops.cast(padding_mask, "bool"), -1)  # (B, T, 1)
    values = ops.where(real, ops.cast(values, "float32") - level, 0.0)
    return ops.divide_no_nan(values, scale)


def denormalize(values, level, scale):
    """`scale * x + level`: the way back (Kim et al., 2022, equation 3), float32."""
    return ops.cast(values, "float32") * scale + level
