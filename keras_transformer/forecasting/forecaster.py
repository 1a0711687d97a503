"""The encoder as a forecaster of series."""

from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.backend import all_finite
from keras_transformer.checks import (
    check_count,
    check_heads,
    check_positive_int,
    check_quantiles,
    check_rate,
)
from keras_transformer.forecasting.inputs import Window, checked_inputs, read_window
from keras_transformer.forecasting.instance_normalization import normalize_windows
from keras_transformer.forecasting.loss import ForecastLoss, check_loss, check_targets
from keras_transformer.layers.arguments import keep_arguments, layer_options
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.positional_embedding import sinusoidal_positions
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.sequence_model import SequenceModel
from keras_transformer.training.losses import check_weights
from keras_transformer.type_hints import Elementwise, KerasOptions, Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class Forecaster(SequenceModel):
    """Reads the history of a series and forecasts the mean and quantiles of its next steps.

    The history and the horizon are one sequence; the horizon has no values yet. The encoder reads
    both, and a linear map turns its output at the horizon's steps into the forecast (the masked
    encoder of Woo et al., 2024, "Unified Training of Universal Time Series Forecasting
    Transformers", section 3). `patch_length` steps are one token (Nie et al., 2023, "A Time Series
    is Worth 64 Words"), which makes attention to a long history cheap. A linear forecast from all
    values of the history is added (Lai et al., 2018, "Modeling Long- and Short-Term Temporal
    Patterns with Deep Neural Networks", section 3.6).

    The model works on windows of level 0 and scale 1 (`normalize_windows`), so
    `f(a x + b) = a f(x) + b` for a > 0, and a history of one repeated value is its own forecast.
    `fit` minimizes the loss in the same units: it does not matter whether a series counts sunspots
    or millions. Metrics compare targets and means in the units of the series. A missing target (see
    `ForecastLoss`) does not count in the loss, but makes such metrics NaN. The weights exist
    from the start; you need not call `build`.

    Args:
        history_length: L, the steps that the model reads. It reads the last L steps of a longer
            history and pads a shorter one.
        horizon: the steps to forecast.
        num_features: F, the values per step.
        num_covariates: C, the values per step that you know in advance, such as the month. The
            model does not normalize them: give them a scale of about 1.
        quantiles: Q rising levels in (0, 1); () forecasts the mean alone.
        patch_length: the steps per token.
        num_layers: the layers of the encoder.
        d_model, num_heads, d_ff: the sizes of each layer; see `EncoderLayer`.
        dropout: rate applied to the output of each sub-layer and to the encoder's input.
        attention_dropout, feed_forward_dropout, activation, norm_first, norm, use_bias: see
            `EncoderLayer`; by default the paper's.

    Call arguments:
        inputs: the history, a tensor (B, T, F), or a dict of "history" and, optionally,
            "padding_mask", boolean (B, T), True at real steps, and "covariates"
            (B, T + horizon, C), one row per step of history and horizon. Padding may stand before,
            after and, where values are missing, between real steps. It may hold anything. A step
            with a NaN or an infinite value is padding, too. The forecast begins after the last real
            step. Fill the gaps of covariates: beside real steps and in the horizon they must be
            finite, or the forecast is NaN.
        training: whether dropout is applied.
        mask: boolean (B, T), which Keras carries from `keras.layers.Masking`; it hides steps, too.

    Returns:
        float32 tensor (B, horizon, F, 1 + Q): the mean, then the quantiles in rising order. A
        row's forecast does not depend on its padding.

    Raises:
        ValueError: for a size, a rate or a level out of range, and for inputs of another shape.

    Example:
        >>> model = Forecaster(
        ...     history_length=8, horizon=3, num_layers=1, d_model=8, num_heads=2, d_ff=16
        ... )
        >>> model.compile("adam", loss=ForecastLoss(model.quantiles))
        >>> ops.shape(model(np.ones((1, 20, 1))))
        (1, 3, 1, 4)
    """

    def __init__(
        self,
        *,
        history_length: int,
        horizon: int,
        num_features: int = 1,
        num_covariates: int = 0,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9),
        patch_length: int = 1,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str | Elementwise = "relu",
        norm_first: bool = False,
        norm: str = "layer_norm",
        use_bias: bool = True,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(**kwargs)
        quantiles = check_quantiles(quantiles)
        options = layer_options(keep_arguments(self, locals()))
        check_heads(d_model, num_heads)
        self.history_length = check_positive_int("history_length", history_length)
        self.horizon = check_positive_int("horizon", horizon)
        self.num_features = check_positive_int("num_features", num_features)
        self.num_covariates = check_count("num_covariates", num_covariates)
        self.quantiles = quantiles
        self.patch_length = check_positive_int("patch_length", patch_length)
        policy = self.dtype_policy
        self.patch_projection = Dense(
            d_model, kernel_initializer="lecun_normal", name="patch_projection", dtype=policy
        )
        self.dropout_layer = Dropout(check_rate("dropout", dropout), name="dropout", dtype=policy)
        self.encoder = Encoder(
            num_layers, d_model, num_heads, d_ff, name="encoder", dtype=policy, **options
        )
        outputs = self.patch_length * self.num_features * (1 + len(self.quantiles))
        self.output_projection = Dense(outputs, name="output_projection", dtype=policy)
        linear = {"use_bias": False, "kernel_initializer": "zeros", "dtype": "float32"}
        self.autoregression = Dense(horizon, **linear, name="autoregression")
        # The last patch has position 0: a position says how far it is from the end of the horizon.
        self.positions = sinusoidal_positions(sum(self.num_patches), d_model)[::-1]  # (N + M, D)
        self.build()

    reads_ids = False

    @property
    def num_patches(self) -> tuple[int, int]:
        """The numbers of patches of the history, N, and of the horizon, M."""
        return -(-self.history_length // self.patch_length), -(-self.horizon // self.patch_length)

    def build_layers(self):
        d_model = self.positions.shape[1]
        values = self.num_features + 1 + self.num_covariates
        self.patch_projection.build((None, None, self.patch_length * values))
        self.encoder.build((None, None, d_model))
        self.output_projection.build((None, None, d_model))
        self.autoregression.build((None, None, self.history_length))

    def input_signature(self):
        sizes = {"history": self.num_features, "covariates": self.num_covariates}
        shapes = {name: (None, None, size) for name, size in sizes.items() if size}
        specs = {name: keras.InputSpec("float32", x, name=name) for name, x in shapes.items()}
        return [specs if self.num_covariates else specs["history"]]

    def call(self, inputs, training: bool | None = None, mask=None) -> Tensor:
        window = self._read(inputs, mask)
        if training and self.num_covariates:
            message = "A covariate is NaN or infinite; fill the gaps of covariates."
            window = window._replace(covariates=all_finite(window.covariates, message))
        history, level, scale = normalize_windows(window.history, window.padding_mask)
        x, token_mask = self._tokens(window._replace(history=history))  # (B, N + M, D)
        x = self.dropout_layer(x, training=training)
        x = self.encoder(x, padding_mask=token_mask, training=training)  # (B, N + M, D)
        forecast = self._outputs_of_horizon(x) + self._linear_forecast(history)
        if self.quantiles:
            mean, quantiles = forecast[..., :1], ops.sort(forecast[..., 1:], axis=-1)
            forecast = ops.concatenate([mean, quantiles], axis=-1)  # (B, horizon, F, 1 + Q)
        return level[..., None] + scale[..., None] * forecast

    def _read(self, inputs, mask=None) -> Window:
        mask = mask.get("history") if isinstance(mask, dict) else mask  # Keras carries it
        sizes = self.history_length, self.horizon, self.num_features, self.num_covariates
        return read_window(inputs, *sizes, mask)

    def _tokens(self, window):
        """Projects the patches of history and horizon, and adds their positions.

        A step holds its values, 1 if they are known and 0 if not, and its covariates. Padding is 0.

        Returns:
            Tensor (B, N + M, D), and a mask (B, N + M), True where a patch holds a real step or
            one to forecast.
        """
        known = ops.expand_dims(ops.cast(window.padding_mask, "float32"), -1)  # (B, L, 1)
        steps = ops.concatenate([window.history, known], axis=-1)  # (B, L, F + 1)
        steps = ops.pad(steps, ((0, 0), (0, self.horizon), (0, 0)))  # (B, L + horizon, F + 1)
        read = ops.pad(window.padding_mask, ((0, 0), (0, self.horizon)), constant_values=True)
        steps = ops.concatenate([steps, window.covariates], axis=-1)  # (B, L + horizon, F + 1 + C)
        sizes = zip(self.num_patches, (self.history_length, self.horizon), strict=True)
        # The horizon begins with a patch of its own, so padding fills the first and the last patch.
        front, back = (count * self.patch_length - size for count, size in sizes)
        steps = ops.pad(steps, ((0, 0), (front, back), (0, 0)))  # (B, (N + M) * P, F + 1 + C)
        read = ops.pad(read, ((0, 0), (front, back)))  # (B, (N + M) * P)
        count = sum(self.num_patches)
        width = self.patch_length * steps.shape[-1]
        patches = ops.reshape(steps, (-1, count, width))  # (B, N + M, P * (F + 1 + C))
        read = ops.reshape(read, (-1, count, self.patch_length))  # (B, N + M, P)
        token_mask = ops.any(read, axis=-1)  # (B, N + M)
        x = self.patch_projection(ops.cast(patches, self.compute_dtype))  # (B, N + M, D)
        return x + ops.cast(self.positions, x.dtype), token_mask

    def _outputs_of_horizon(self, x):
        """Maps the encoder's output (B, N + M, D) to forecasts (B, horizon, F, 1 + Q)."""
        num_history, num_horizon = self.num_patches
        y = ops.cast(self.output_projection(x[:, num_history:]), "float32")  # (B, M, P F (1 + Q))
        steps = num_horizon * self.patch_length
        y = ops.reshape(y, (-1, steps, self.num_features, 1 + len(self.quantiles)))
        return y[:, : self.horizon]  # (B, horizon, F, 1 + Q)

    def _linear_forecast(self, history):
        """Maps each feature's normalized history (B, L, F) to (B, horizon, F, 1)."""
        y = self.autoregression(ops.transpose(history, (0, 2, 1)))  # (B, F, horizon)
        return ops.expand_dims(ops.transpose(y, (0, 2, 1)), -1)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Computes the compiled loss, in units of each window's scale."""
        check_loss(self.loss, self.quantiles)
        window = self._read(x)
        scale = normalize_windows(window.history, window.padding_mask).scale  # (B, 1, F)
        y = ops.cast(y, "float32")
        check_targets(y, self.horizon, self.num_features)
        if not isinstance(self.loss, ForecastLoss):
            y = all_finite(y, "A target is missing, which only ForecastLoss leaves out.")
        # The quotient of NaN and 0 would be 0, and so a step that is known.
        y = ops.where(ops.isfinite(y), ops.divide_no_nan(y, scale), y)
        y_pred = ops.divide_no_nan(y_pred, scale[..., None])
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_mask(self, inputs, mask=None):
        """Returns None: the forecast has no padding, whatever mask the history carries."""

    def check_batch(self, inputs, labels=None, sample_weight=None):
        super().check_batch(inputs, labels, sample_weight)
        if inputs is not None:
            checked_inputs(inputs, self.horizon, self.num_features, self.num_covariates)
        if labels is not None:
            check_targets(labels, self.horizon, self.num_features)
        if labels is not None and sample_weight is not None:
            check_weights(sample_weight, labels.shape)

    def check_class_weight(self, class_weight):
        """Refuses it: Keras would read the targets as classes."""
        raise ValueError(
            "class_weight has no meaning for forecasts, which have no classes; give sample_weight "
            "of shape (B,) or (B, horizon)."
        )

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Computes the compiled metrics of targets and means, in the units of the series."""
        return super().compute_metrics(x, y, y_pred[..., 0], sample_weight)

    def compute_output_shape(self, input_shape):
        shape = input_shape["history"] if isinstance(input_shape, dict) else input_shape
        return (shape[0], self.horizon, self.num_features, 1 + len(self.quantiles))
