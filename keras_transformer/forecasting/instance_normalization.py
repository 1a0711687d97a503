"""Instance normalization: every window in units of its own level and scale."""

from typing import NamedTuple

from keras import ops

from keras_transformer.layers.masks import as_mask
from keras_transformer.type_hints import Tensor, TensorLike


class NormalizedWindows(NamedTuple):
    """Windows with mean 0 and standard deviation 1, and the way back: `level + scale * values`.

    Example:
        >>> windows = normalize_windows(np.array([[[2.0], [4.0]]]))
        >>> np.squeeze(windows.level + windows.scale * windows.values).tolist()
        [2.0, 4.0]
    """

    values: Tensor  # (B, T, F), float32
    level: Tensor  # (B, 1, F), float32
    scale: Tensor  # (B, 1, F), float32


def normalize_windows(
    values: TensorLike, padding_mask: TensorLike | None = None
) -> NormalizedWindows:
    """Subtracts each window's mean and divides by its standard deviation, per feature.

    If a model reads such windows and you map its outputs back, it treats series in millions and in
    millionths alike. This is reversible instance normalization (Kim et al., 2022, "Reversible
    Instance Normalization for Accurate Time-Series Forecasting against Distribution Shift",
    equations 1 and 2), without its learned affine map: a projection that follows can learn it.

    Args:
        values: tensor (B, T, F). Steps of padding may hold anything.
        padding_mask: boolean (B, T), True at real steps; None if all are.

    Returns:
        `NormalizedWindows`. Values are 0 at padding. If all real steps of a window have one value,
        its values are 0 and its scale is exactly 0, however large that value. A window without real
        steps has level 0 and scale 0.

    Raises:
        ValueError: for a mask of floats.

    Example:
        >>> windows = normalize_windows(np.array([[[10.0], [30.0], [20.0], [0.0]]]))
        >>> float(np.squeeze(windows.level))
        15.0
        >>> print(np.round(np.squeeze(windows.values), 2))
        [-0.45  1.34  0.45 -1.34]
    """
    if padding_mask is None:
        padding_mask = ops.ones(ops.shape(values)[:2], "bool")
    real = ops.expand_dims(as_mask("padding_mask", padding_mask), -1)  # (B, T, 1)
    count = ops.maximum(ops.sum(ops.cast(real, "float32"), axis=1, keepdims=True), 1.0)  # (B, 1, 1)
    values = ops.where(real, ops.cast(values, "float32"), 0.0)
    # Subtract the last value first: a window of one repeated value then has a scale of exactly 0.
    steps = ops.arange(ops.shape(values)[1])[None, :, None]  # (1, T, 1)
    last_step = ops.max(ops.where(real, steps, -1), axis=1, keepdims=True, initial=-1)  # (B, 1, 1)
    is_last = ops.equal(steps, last_step)  # (B, T, 1)
    last = ops.sum(ops.where(is_last, values, 0.0), axis=1, keepdims=True)  # (B, 1, F)
    centred = ops.where(real, values - last, 0.0)
    mean = ops.sum(centred, axis=1, keepdims=True) / count  # (B, 1, F)
    centred = ops.where(real, centred - mean, 0.0)
    # Divide by the largest, so that no square is too large or too small for float32.
    largest = ops.max(ops.abs(centred), axis=1, keepdims=True, initial=0.0)  # (B, 1, F)
    squares = ops.square(ops.divide_no_nan(centred, largest))
    scale = largest * ops.sqrt(ops.sum(squares, axis=1, keepdims=True) / count)
    level = ops.where(ops.any(real, axis=1, keepdims=True), last + mean, 0.0)
    normalized = ops.divide_no_nan(ops.where(real, values - level, 0.0), scale)
    return NormalizedWindows(normalized, level, scale)
