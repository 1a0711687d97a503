"""What a `Forecaster` can be given: errors that name the input, its shape and the right one."""

import keras

NAMES = ("history", "padding_mask", "covariates")


def check_inputs(inputs: dict, num_features: int, num_covariates: int, horizon: int) -> None:
    """Compares the names and shapes of inputs, as far as they are known, with what a model reads.

    Raises:
        ValueError: if an input is missing, unknown or of another shape.
    """
    if "history" not in inputs or not set(inputs) <= set(NAMES):
        raise ValueError(
            'inputs must be a history, or a dict of "history" and, optionally, "padding_mask" and '
            f'"covariates", but have the keys {sorted(inputs)}.'
        )
    for name, size, field in (
        ("history", num_features, "num_features"),
        ("covariates", num_covariates, "num_covariates"),
    ):
        shape = tuple(inputs[name].shape) if name in inputs else None
        if (shape or size) and (shape is None or len(shape) != 3 or shape[2] != size):
            raise ValueError(
                f"{name} must have the shape (B, T, {size}), as {field}={size}, but "
                + (f"has {shape}." if shape else "there are none.")
            )
    steps = inputs["history"].shape[1]
    mask_shape = tuple(inputs["padding_mask"].shape) if "padding_mask" in inputs else (None, steps)
    if len(mask_shape) != 2 or None not in (steps, mask_shape[1]) and mask_shape[1] != steps:
        raise ValueError(
            "padding_mask must have the shape (B, T), a value for each step of a history of shape "
            f"{tuple(inputs['history'].shape)}, but has {mask_shape}."
        )
    covered = inputs["covariates"].shape[1] if "covariates" in inputs else None
    if steps is not None and covered is not None and covered < steps + horizon:
        raise ValueError(
            f"covariates must cover the {steps} steps of the history and the {horizon} of the "
            f"horizon, but have {covered}; those of the horizon must be known, too."
        )


def check_targets(targets, horizon: int, num_features: int) -> None:
    """Targets of another shape would be spread over the forecasts in silence.

    Raises:
        ValueError: if targets are not (B, horizon, F).
    """
    shape = tuple(targets.shape)
    if len(shape) != 3 or shape[1] not in (None, horizon) or shape[2] not in (None, num_features):
        raise ValueError(
            f"targets must have the shape (B, {horizon}, {num_features}), a value for each step of "
            f"the horizon and each feature, but have {shape}."
        )


def check_loss(loss, quantiles) -> None:
    """A loss of Keras would spread the targets over mean and quantiles in silence.

    Raises:
        ValueError: for a forecast with quantiles and a loss of Keras.
    """
    of_keras = vars(keras.losses).values()
    if quantiles and (isinstance(loss, str) or loss in of_keras or type(loss) in of_keras):
        raise ValueError(
            f"loss={loss!r} compares a target with one number, but the forecast is a mean and "
            f"{len(quantiles)} quantiles; use ForecastLoss(quantiles={quantiles}), or make the "
            "Forecaster with quantiles=()."
        )
