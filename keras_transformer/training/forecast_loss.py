"""What a forecast of a mean and quantiles costs."""

import keras
from keras import ops

from keras_transformer.checks import check_quantiles


def pinball_loss(targets, forecasts, quantiles):
    """`max(q (y - f), (q - 1) (y - f))`, whose mean is least where `f` is the q-quantile of `y`.

    Koenker and Bassett (1978), "Regression Quantiles". At q = 0.5 it is half the absolute error.

    Args:
        targets: y, tensor (...).
        forecasts: f, tensor (..., Q).
        quantiles: the Q levels q, numbers in (0, 1).

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

    The second term approximates the continuous ranked probability score, the integral of twice the
    pinball loss over all levels (Gneiting and Raftery, 2007, "Strictly Proper Scoring Rules,
    Prediction, and Estimation", section 4.2).

    Args:
        quantiles: the Q levels of the forecasts, those of the `Forecaster`.
        reduction: as in `keras.losses.Loss`.
        name: of the loss.

    Call arguments:
        y_true: tensor (B, horizon, F).
        y_pred: tensor (B, horizon, F, 1 + Q): the mean, then the quantiles.
        sample_weight: optional weights, (B,), (B, horizon) or (B, horizon, F).

    Returns:
        Scalar, float32: the mean over windows, steps and features.

    Raises:
        ValueError: if a level is outside (0, 1) or not above the one before, if `y_pred` has
            another number of quantiles, or if `y_true` lacks an axis.

    Example:
        >>> loss = ForecastLoss(quantiles=(0.5,))
        >>> float(loss(np.array([[[10.0]]]), np.array([[[[8.0, 9.0]]]])))
        5.0
    """

    def __init__(
        self,
        quantiles=(0.1, 0.5, 0.9),
        reduction="sum_over_batch_size",
        name="forecast_loss",
    ):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.quantiles = check_quantiles(quantiles)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras would read one weight a window as one a feature.
        if sample_weight is not None:
            sample_weight = ops.convert_to_tensor(sample_weight)
            while len(sample_weight.shape) < 3:
                sample_weight = ops.expand_dims(sample_weight, -1)  # at last (B, 1, 1)
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        if len(y_true.shape) != len(y_pred.shape) - 1:
            raise ValueError(
                f"y_true must have a value for each mean of y_pred {tuple(y_pred.shape)}, such as "
                f"(B, horizon, F), but its shape is {tuple(y_true.shape)}."
            )
        if y_pred.shape[-1] != 1 + len(self.quantiles):
            raise ValueError(
                f"y_pred must end in the mean and {len(self.quantiles)} quantiles, but its shape "
                f"is {tuple(y_pred.shape)}; give ForecastLoss the quantiles of the Forecaster."
            )
        losses = ops.square(y_true - y_pred[..., 0])  # (B, horizon, F)
        if self.quantiles:
            pinball = pinball_loss(y_true, y_pred[..., 1:], self.quantiles)
            losses = losses + 2.0 * ops.mean(pinball, axis=-1)
        return losses

    def get_config(self):
        return {
            "quantiles": list(self.quantiles),
            "reduction": self.reduction,
            "name": self.name,
        }
