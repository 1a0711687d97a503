"""The loss of forecasts of a mean and quantiles, and checks of what it compares."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.checks import check_choice, check_quantiles
from keras_transformer.training.distribution import replicas, sum_over_replicas
from keras_transformer.type_hints import Tensor, TensorLike


def pinball_loss(targets: TensorLike, forecasts: TensorLike, quantiles: Sequence[float]) -> Tensor:
    """Computes `max(q (y - f), (q - 1) (y - f))`, the error that quantiles minimize.

    Its mean is least if f is the q-quantile of y (Koenker and Bassett, 1978, "Regression
    Quantiles"). At q = 0.5 it is half the absolute error.

    Args:
        targets: y, tensor (...).
        forecasts: f, tensor (..., Q).
        quantiles: the Q levels q, in (0, 1).

    Returns:
        Tensor (..., Q), float32.

    Example:
        >>> losses = pinball_loss(np.array([10.0]), np.array([[8.0, 12.0]]), (0.25, 0.75))
        >>> print(ops.convert_to_numpy(losses))
        [[0.5 0.5]]
    """
    levels = ops.convert_to_tensor(quantiles, dtype="float32")  # (Q,)
    errors = ops.expand_dims(ops.cast(targets, "float32"), -1) - ops.cast(forecasts, "float32")
    return ops.maximum(levels * errors, (levels - 1.0) * errors)


@keras.saving.register_keras_serializable(package="keras_transformer")
class ForecastLoss(keras.losses.Loss):
    """The squared error of the mean plus twice the mean pinball loss of the quantiles.

    Compile a `Forecaster` with it. A step of the targets is missing if a feature of it is NaN or
    infinite, as in the history. Missing steps count neither in the sum nor in its divisor.

    The second term approximates the continuous ranked probability score, the integral of twice the
    pinball loss over all levels (Gneiting and Raftery, 2007, "Strictly Proper Scoring Rules,
    Prediction, and Estimation", section 4.2).

    Args:
        quantiles: the Q levels; give those of the `Forecaster`.
        reduction: "sum_over_batch_size" for the mean over known steps; None for one value per
            step and feature, such that their plain mean is that mean.
        name: the loss's name.

    Call arguments:
        y_true: tensor (B, horizon, F).
        y_pred: tensor (B, horizon, F, 1 + Q): the mean, then the quantiles.
        sample_weight: optional weights, (B,), (B, horizon) or (B, horizon, F).

    Returns:
        Scalar, float32: the mean over windows, known steps and features; 0 if no step is known.

    Raises:
        ValueError: if the levels do not rise within (0, 1), for another `reduction`, if `y_pred`
            has another number of quantiles, or if `y_true` does not have one axis less than it.

    Example:
        >>> loss = ForecastLoss(quantiles=(0.5,))
        >>> float(loss(np.array([[[10.0]]]), np.array([[[[8.0, 9.0]]]])))
        5.0
    """

    def __init__(
        self,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9),
        reduction: str | None = "sum_over_batch_size",
        name: str = "forecast_loss",
    ):
        check_choice("reduction", reduction, ("sum_over_batch_size", None))
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.quantiles = check_quantiles(quantiles)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras would broadcast one weight per window over the features.
        if sample_weight is not None:
            shape = (*ops.shape(sample_weight), 1, 1)[:3]
            sample_weight = ops.reshape(sample_weight, shape)  # (B, 1, 1), (B, horizon, 1), ...
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        if len(y_true.shape) != len(y_pred.shape) - 1:
            raise ValueError(
                f"y_true must have one value per mean of y_pred {tuple(y_pred.shape)}, for example "
                f"(B, horizon, F), but its shape is {tuple(y_true.shape)}."
            )
        if y_pred.shape[-1] != 1 + len(self.quantiles):
            raise ValueError(
                f"y_pred must end in the mean and {len(self.quantiles)} quantiles, but its shape "
                f"is {tuple(y_pred.shape)}; give ForecastLoss the quantiles of the Forecaster."
            )
        known = ops.all(ops.isfinite(y_true), axis=-1, keepdims=True)  # (B, horizon, 1)
        y_true = ops.where(known, y_true, 0.0)
        losses = ops.square(y_true - y_pred[..., 0])  # (B, horizon, F)
        if self.quantiles:
            pinball = pinball_loss(y_true, y_pred[..., 1:], self.quantiles)
            losses = losses + 2.0 * ops.mean(pinball, axis=-1)
        # Keras divides by all steps and the number of replicas. Undo that; divide by known steps.
        known = ops.cast(known, "float32")
        steps = ops.cast(ops.size(known), "float32") * replicas()
        num_known = ops.maximum(sum_over_replicas(ops.sum(known)), 1.0)
        return losses * known * (steps / num_known)

    def get_config(self):
        return {**super().get_config(), "quantiles": list(self.quantiles)}


def check_targets(targets: TensorLike, horizon: int, num_features: int) -> None:
    """Refuses targets that the loss would broadcast over the forecasts without a word.

    Raises:
        ValueError: if the shape is not (B, horizon, F).
    """
    shape = tuple(targets.shape)
    if len(shape) != 3 or shape[1] not in (None, horizon) or shape[2] not in (None, num_features):
        raise ValueError(
            f"targets must have the shape (B, {horizon}, {num_features}), one value per step of "
            f"the horizon and feature, but have {shape}."
        )


def check_loss(loss, quantiles: Sequence[float]) -> None:
    """Refuses a loss of Keras for quantiles: it would compare every target with mean and quantiles.

    Raises:
        ValueError: if the forecast has quantiles and the loss is one of `keras.losses`.
    """
    of_keras = vars(keras.losses).values()

    def is_of_keras(x):
        return isinstance(x, str) or x in of_keras or type(x) in of_keras

    if quantiles and any(map(is_of_keras, keras.tree.flatten(loss))):
        raise ValueError(
            f"loss={loss!r} compares a target with one number, but the forecast is a mean and "
            f"{len(quantiles)} quantiles; use ForecastLoss(quantiles={quantiles}), or make the "
            "Forecaster with quantiles=()."
        )
