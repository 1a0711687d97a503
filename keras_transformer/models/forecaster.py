"""The encoder as a forecaster of series."""

import keras
from keras import ops

from keras_transformer.checks import check_count, check_positive_int, check_quantiles
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.history_window import real_length, steps_around
from keras_transformer.layers.instance_normalization import (
    denormalize,
    normalize,
    window_statistics,
)
from keras_transformer.layers.linear import Linear
from keras_transformer.layers.positional_embedding import sinusoidal_positions
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.exportable import Exportable
from keras_transformer.models.forecast_inputs import check_inputs, check_loss, check_targets


@keras.saving.register_keras_serializable(package="keras_transformer")
class Forecaster(Exportable, keras.Model):
    """Reads the history of a series and forecasts the mean and quantiles of its next steps.

    History and horizon are one sequence, whose last steps have no value yet: the encoder reads
    both and a linear map makes the forecast of what stands at the horizon's places (the masked
    encoder of Woo et al., 2024, "Unified Training of Universal Time Series Forecasting
    Transformers", section 3). `patch_length` steps are one token (Nie et al., 2023, "A Time Series
    is Worth 64 Words"), so that attention to a long history costs little. To the forecast of the
    encoder a linear one is added, of all values of the history (Lai et al., 2018, "Modeling Long-
    and Short-Term Temporal Patterns with Deep Neural Networks", section 3.6).

    Inside the model each window has level 0 and scale 1 (Kim et al., 2022, reversible instance
    normalization), so `f(a x + b) = a f(x) + b` for a > 0, and a history of one repeated value is
    its own forecast. The loss that `fit` minimizes is in the same units: whether a series counts
    sunspots or millions does not matter. Metrics compare targets and means in the units of the
    series. Weights exist from the start, so no `build` is needed.

    Args:
        history_length: L, the steps that are read; of a longer history the last ones, a shorter
            one is padded.
        horizon: the steps that are forecast.
        num_features: F, the values of a step.
        num_covariates: C, the values of a step that are known in advance, such as the month. They
            are read as they are: give them about the scale 1.
        quantiles: Q rising levels in (0, 1); () for the mean alone.
        patch_length: the steps of a token.
        num_layers: N.
        d_model: D, the width; a multiple of `num_heads`.
        num_heads: H.
        d_ff: the width inside the feed-forward networks.
        dropout: rate applied to each sub-layer's output and to the sums of patches and positions.
        attention_dropout: rate applied to the attention weights.
        feed_forward_dropout: rate applied inside the feed-forward networks.
        activation: activation of the feed-forward networks.
        norm_first: pre-norm instead of the paper's post-norm.

    Call arguments:
        inputs: "history", a tensor (B, T, F), or a dict of it and, optionally, "padding_mask",
            boolean (B, T), True at real steps, and "covariates" (B, T + horizon, C), whose rows t
            belong to the steps t, without gaps. Padding may stand before, after and, where values
            are missing, between real steps, and hold anything; a step with a NaN is padding, too.
            The forecast begins after the last real step.
        training: whether dropout is applied.

    Returns:
        Tensor (B, horizon, F, 1 + Q), float32: the mean, then the quantiles in rising order. That
        of a row does not depend on its padding.

    Raises:
        ValueError: for a size, a rate or a level out of range, and for inputs of another shape.

    Example:
        >>> model = Forecaster(
        ...     history_length=8, horizon=3, num_layers=1, d_model=8, num_heads=2, d_ff=16
        ... )
        >>> ops.shape(model(np.ones((1, 20, 1))))
        (1, 3, 1, 4)
    """

    def __init__(
        self,
        *,
        history_length,
        horizon,
        num_features=1,
        num_covariates=0,
        quantiles=(0.1, 0.5, 0.9),
        patch_length=1,
        num_layers,
        d_model,
        num_heads,
        d_ff,
        dropout=0.1,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        activation="relu",
        norm_first=False,
        **kwargs,
    ):
        # In a lower precision the inputs would lose the digits in which they differ.
        super().__init__(autocast=False, **kwargs)
        self.history_length = check_positive_int("history_length", history_length)
        self.horizon = check_positive_int("horizon", horizon)
        self.num_features = check_positive_int("num_features", num_features)
        self.num_covariates = check_count("num_covariates", num_covariates)
        self.quantiles = check_quantiles(quantiles)
        self.patch_length = check_positive_int("patch_length", patch_length)
        policy = self.dtype_policy
        self.patch_projection = Linear(
            d_model, kernel_initializer="lecun_normal", name="patch_projection", dtype=policy
        )
        self.dropout_layer = Dropout(dropout, name="dropout", dtype=policy)
        self.encoder = Encoder(
            num_layers,
            d_model,
            num_heads,
            d_ff,
            dropout=dropout,
            attention_dropout=attention_dropout,
            feed_forward_dropout=feed_forward_dropout,
            activation=activation,
            norm_first=norm_first,
            name="encoder",
            dtype=policy,
        )
        outputs = patch_length * num_features * (1 + len(self.quantiles))
        self.output_projection = Linear(outputs, name="output_projection", dtype=policy)
        self.autoregression = Linear(
            horizon,
            use_bias=False,
            kernel_initializer="zeros",
            name="autoregression",
            dtype="float32",
        )
        # Of the last patch 0, so that a position says how far it is before the end of the horizon.
        patches = sum(self.num_patches)
        self.positions = sinusoidal_positions(patches, d_model)[::-1]  # (N + M, D)
        self.build()

    @property
    def num_patches(self):
        """The patches of the history and of the horizon."""
        return -(-self.history_length // self.patch_length), -(-self.horizon // self.patch_length)

    def build(self, input_shape=None):
        if self.built:
            return
        d_model = self.positions.shape[1]
        values = self.num_features + 1 + self.num_covariates
        self.patch_projection.build((None, None, self.patch_length * values))
        self.encoder.build((None, None, d_model))
        self.output_projection.build((None, None, d_model))
        self.autoregression.build((None, None, self.history_length))
        self.built = True

    def input_signature(self):
        sizes = {"history": self.num_features, "covariates": self.num_covariates}
        specs = {
            name: keras.InputSpec("float32", (None, None, size), name=name)
            for name, size in sizes.items()
            if size
        }
        return [specs if self.num_covariates else specs["history"]]

    def call(self, inputs, training=None):
        history, padding_mask, covariates = self.window(inputs)
        level, scale = window_statistics(history, padding_mask)  # (B, 1, F) each
        history = normalize(history, padding_mask, level, scale)
        x, token_mask = self.tokens(history, padding_mask, covariates)
        x = self.encoder(
            self.dropout_layer(x, training=training), padding_mask=token_mask, training=training
        )  # (B, N + M, D)
        forecast = self.outputs_of_horizon(x) + self.linear_forecast(history)
        if self.quantiles:
            mean, quantiles = forecast[..., :1], ops.sort(forecast[..., 1:], axis=-1)
            forecast = ops.concatenate([mean, quantiles], axis=-1)  # (B, horizon, F, 1 + Q)
        return denormalize(forecast, level[..., None], scale[..., None])

    def window(self, inputs):
        """The last L steps of the history, at one place in all rows.

        Args:
            inputs: as in the call.

        Returns:
            The history (B, L, F) and its mask (B, L), and the covariates of it and the horizon,
            (B, L + horizon, C).
        """
        inputs = inputs if isinstance(inputs, dict) else {"history": inputs}
        inputs = {name: value for name, value in inputs.items() if value is not None}
        check_inputs(inputs, self.num_features, self.num_covariates, self.horizon)
        history = ops.cast(inputs["history"], "float32")
        mask = ops.all(ops.isfinite(history), axis=-1)  # (B, T)
        if "padding_mask" in inputs:
            mask = ops.logical_and(mask, ops.cast(inputs["padding_mask"], "bool"))
        origin, steps = real_length(mask), self.history_length
        covariates = ops.zeros((ops.shape(history)[0], steps + self.horizon, 0), "float32")
        if "covariates" in inputs:
            covariates = ops.cast(inputs["covariates"], "float32")
            covariates = steps_around(covariates, origin, steps, self.horizon)
        return steps_around(history, origin, steps), steps_around(mask, origin, steps), covariates

    def tokens(self, history, padding_mask, covariates):
        """The patches of history and horizon, projected, with their positions.

        A step is its values, a 1 if they are known and 0 if not, and its covariates; padding is 0.

        Returns:
            Tensor (B, N + M, D), and a mask (B, N + M), True where a patch has a step that is real
            or to be forecast.
        """
        known = ops.expand_dims(ops.cast(padding_mask, "float32"), -1)  # (B, L, 1)
        steps = ops.concatenate([history, known], axis=-1)  # (B, L, F + 1)
        steps = ops.pad(steps, ((0, 0), (0, self.horizon), (0, 0)))
        read = ops.pad(padding_mask, ((0, 0), (0, self.horizon)), constant_values=True)
        covariates = ops.where(ops.expand_dims(read, -1), covariates, 0.0)
        steps = ops.concatenate([steps, covariates], axis=-1)  # (B, L + horizon, F + 1 + C)
        sizes = zip(self.num_patches, (self.history_length, self.horizon), strict=True)
        # The origin lies between two patches; what is missing of a patch is padding.
        front, back = (count * self.patch_length - size for count, size in sizes)
        steps = ops.pad(steps, ((0, 0), (front, back), (0, 0)))
        read = ops.pad(read, ((0, 0), (front, back)))
        count = sum(self.num_patches)
        patches = ops.reshape(steps, (-1, count, self.patch_length * steps.shape[-1]))
        token_mask = ops.any(ops.reshape(read, (-1, count, self.patch_length)), axis=-1)
        x = self.patch_projection(ops.cast(patches, self.compute_dtype))  # (B, N + M, D)
        return x + ops.cast(self.positions, x.dtype), token_mask

    def outputs_of_horizon(self, x):
        """The encoder's output (B, N + M, D) to normalized forecasts (B, horizon, F, 1 + Q)."""
        num_history, num_horizon = self.num_patches
        y = ops.cast(self.output_projection(x[:, num_history:]), "float32")  # (B, M, P * F * ...)
        steps = num_horizon * self.patch_length
        y = ops.reshape(y, (-1, steps, self.num_features, 1 + len(self.quantiles)))
        return y[:, : self.horizon]

    def linear_forecast(self, history):
        """A linear map of each feature's normalized history: (B, horizon, F, 1), float32."""
        y = self.autoregression(ops.transpose(history, (0, 2, 1)))  # (B, F, horizon)
        return ops.expand_dims(ops.transpose(y, (0, 2, 1)), -1)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The compiled loss of targets and forecasts in units of their window's scale."""
        check_loss(self.loss, self.quantiles)
        history, padding_mask, _ = self.window(x)
        _, scale = window_statistics(history, padding_mask)  # (B, 1, F)
        y = ops.cast(y, "float32")
        check_targets(y, self.horizon, self.num_features)
        y = ops.divide_no_nan(y, scale)
        y_pred = ops.divide_no_nan(y_pred, scale[..., None])
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """The compiled metrics of targets and means, in the units of the series."""
        return super().compute_metrics(x, y, y_pred[..., 0], sample_weight)

    def compute_output_shape(self, input_shape):
        shape = input_shape["history"] if isinstance(input_shape, dict) else input_shape
        return (shape[0], self.horizon, self.num_features, 1 + len(self.quantiles))

    def get_config(self):
        stack = self.encoder.get_config()
        del stack["norm"], stack["rotary"]
        own = {
            "history_length": self.history_length,
            "horizon": self.horizon,
            "num_features": self.num_features,
            "num_covariates": self.num_covariates,
            "quantiles": list(self.quantiles),
            "patch_length": self.patch_length,
        }
        return {**stack, **own, **super().get_config()}
