"""The inputs of a `Forecaster`: checked, and cut to the same steps in every row."""

from typing import NamedTuple

from keras import ops

from keras_transformer.layers.masks import as_mask
from keras_transformer.type_hints import Tensor, TensorLike

NAMES = ("history", "padding_mask", "covariates")


class Window(NamedTuple):
    """What the model reads. The forecast of a row begins after the last step of its history."""

    history: Tensor  # (B, L, F), float32
    padding_mask: Tensor  # (B, L), True at real steps
    covariates: Tensor  # (B, L + horizon, C), float32, 0 beside padding


def read_window(
    inputs,
    history_length: int,
    horizon: int,
    num_features: int,
    num_covariates: int,
    carried_mask: TensorLike | None = None,
) -> Window:
    """Cuts the last `history_length` steps, up to the last real one, from every row.

    Args:
        inputs: the call argument of a `Forecaster`.
        history_length: L.
        horizon: the steps after the history that covariates cover.
        num_features: F.
        num_covariates: C.
        carried_mask: the mask (B, T) that Keras carries with the history, or None.

    Returns:
        A `Window`; a step with a NaN or an infinite value counts as padding.

    Raises:
        ValueError: if an input is missing, unknown or has another shape.
    """
    inputs = checked_inputs(inputs, horizon, num_features, num_covariates)
    history = ops.cast(inputs["history"], "float32")
    mask = ops.all(ops.isfinite(history), axis=-1)  # (B, T)
    if "padding_mask" in inputs:
        mask = ops.logical_and(mask, as_mask("padding_mask", inputs["padding_mask"]))
    if carried_mask is not None:
        mask = ops.logical_and(mask, carried_mask)
    origin = real_lengths(mask)  # (B,)
    covariates = ops.zeros((ops.shape(history)[0], history_length + horizon, 0), "float32")
    if "covariates" in inputs:
        covariates = ops.cast(inputs["covariates"], "float32")
        covariates = steps_around(covariates, origin, history_length, horizon)
    history, mask = (steps_around(x, origin, history_length) for x in (history, mask))
    read = ops.pad(mask, ((0, 0), (0, horizon)), constant_values=True)  # (B, L + horizon)
    return Window(history, mask, ops.where(ops.expand_dims(read, -1), covariates, 0.0))


def real_lengths(padding_mask: TensorLike) -> Tensor:
    """Counts each row's steps up to its last real one.

    Args:
        padding_mask: boolean (B, T), True at real steps.

    Returns:
        int32 (B,); 0 if a row has no real step.
    """
    numbers = ops.arange(1, ops.shape(padding_mask)[1] + 1, dtype="int32")  # (T,)
    return ops.max(ops.where(padding_mask, numbers, 0), axis=1, initial=0)


def steps_around(values: TensorLike, origin: TensorLike, before: int, after: int = 0) -> Tensor:
    """Cuts the steps around each row's origin, so that the origin has the same index in all rows.

    Args:
        values: tensor (B, T, ...).
        origin: int32 (B,) in [0, T - after], the index of the first step after the history.
        before: how many steps to take before the origin; 0 where the row begins later.
        after: how many steps to take from the origin on.

    Returns:
        Tensor (B, before + after, ...).
    """
    rest = [(0, 0)] * (len(values.shape) - 2)
    values = ops.pad(values, ((0, 0), (before, 0), *rest))  # step t has the index before + t
    steps = ops.expand_dims(origin, 1) + ops.arange(before + after, dtype="int32")
    steps = ops.reshape(steps, (-1, before + after, *[1] * len(rest)))
    return ops.take_along_axis(values, steps, axis=1)


def checked_inputs(inputs, horizon: int, num_features: int, num_covariates: int) -> dict:
    """Returns the inputs of a `Forecaster` as a dict; raises if their shapes do not fit."""
    inputs = inputs if isinstance(inputs, dict) else {"history": inputs}
    inputs = {name: value for name, value in inputs.items() if value is not None}
    _check_inputs(inputs, num_features, num_covariates)
    _check_steps(inputs, horizon)
    return inputs


def _check_inputs(inputs: dict, num_features: int, num_covariates: int) -> None:
    if "history" not in inputs or not set(inputs) <= set(NAMES):
        raise ValueError(
            'inputs must be a history, or a dict of "history" and, optionally, "padding_mask" and '
            f'"covariates", but the keys are {sorted(inputs)}.'
        )
    for name, size, field in (
        ("history", num_features, "num_features"),
        ("covariates", num_covariates, "num_covariates"),
    ):
        shape = tuple(inputs[name].shape) if name in inputs else None
        if (shape or size) and (shape is None or len(shape) != 3 or shape[2] != size):
            found = f"has {shape}" if shape else "is missing"
            if name == "history" and shape and len(shape) == 3:
                found += "; give rolling_windows series in the rows of a matrix as list(matrix)"
            raise ValueError(
                f"{name} must have the shape (B, T, {size}), because {field}={size}, but {found}."
            )


def _check_steps(inputs: dict, horizon: int) -> None:
    """Checks the numbers of steps, as far as the shapes are known."""
    steps = inputs["history"].shape[1]
    mask_shape = tuple(inputs["padding_mask"].shape) if "padding_mask" in inputs else (None, steps)
    if len(mask_shape) != 2 or None not in (steps, mask_shape[1]) and mask_shape[1] != steps:
        raise ValueError(
            "padding_mask must have the shape (B, T), one value per step of the history "
            f"{tuple(inputs['history'].shape)}, but has {mask_shape}."
        )
    covered = inputs["covariates"].shape[1] if "covariates" in inputs else None
    if steps is not None and covered is not None and covered < steps + horizon:
        raise ValueError(
            f"covariates must cover the {steps} steps of the history and the {horizon} steps of "
            f"the horizon, but have {covered} steps; give those of the horizon, too."
        )
