"""Accuracy and perplexity over real tokens."""

import keras
from keras import ops

from keras_transformer.training.distribution import replicas
from keras_transformer.training.losses import smoothed_crossentropy, token_weights


class TokenMean(keras.metrics.Mean):
    """The mean over all real tokens of a value per token, which a subclass computes."""

    def token_values(self, labels, logits):
        """Computes values (B, T) from labels (B, T) and logits (B, T, V)."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.cast(y_true, "int32")  # (B, T)
        pair = self.token_values(labels, y_pred), token_weights(labels, sample_weight)
        # Keras's mean gives all rows the same weight, so each token becomes a row.
        super().update_state(*(ops.reshape(x, (-1,)) for x in pair))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskedAccuracy(TokenMean):
    """The share of real tokens whose label has the highest logit.

    Call arguments:
        y_true: integers (B, T), 0 at padding.
        y_pred: logits (B, T, V).
        sample_weight: optional weights, (B,) or (B, T).

    Returns:
        Scalar in [0, 1]; 0 before any token.

    Example:
        >>> metric = MaskedAccuracy()
        >>> float(metric(np.array([[1, 0]]), np.array([[[0.0, 1.0], [0.0, 1.0]]])))
        1.0
    """

    def __init__(self, name: str = "masked_accuracy", dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)

    def token_values(self, labels, logits):
        return ops.equal(labels, ops.cast(ops.argmax(logits, axis=-1), "int32"))


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(TokenMean):
    """`exp` of the mean cross entropy over real tokens, without label smoothing.

    Call arguments:
        y_true: integers (B, T), 0 at padding.
        y_pred: logits (B, T, V).
        sample_weight: optional weights, (B,) or (B, T).

    Returns:
        Scalar of at least 1: the number of tokens the model hesitates between.

    Example:
        >>> metric = Perplexity()
        >>> round(float(metric(np.array([[1, 0]]), np.zeros((1, 2, 4)))), 3)
        4.0
    """

    def __init__(self, name: str = "perplexity", dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)

    def token_values(self, labels, logits):
        return smoothed_crossentropy(labels, logits)

    def result(self):
        return ops.exp(super().result())


class TokenPerplexity(keras.metrics.Mean):
    """`Perplexity` from sums over tokens that the step has already computed.

    Call arguments:
        nll: scalar, the weighted sum of the cross entropy of real tokens, in nats.
        count: scalar, the sum of their weights.
    """

    def update_state(self, nll, count):
        super().update_state(ops.divide_no_nan(nll, count), count)

    def result(self):
        return ops.exp(super().result())


class LatestValue(keras.metrics.Metric):
    """The last value: in the logs of an epoch, a number of its last step.

    Under a strategy, every replica must give the same value.
    """

    def __init__(self, name, **kwargs):
        super().__init__(name=name, **kwargs)
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, value):
        self.value.assign(value / replicas())  # Keras sums over replicas when it is read

    def result(self):
        return self.value + 0.0  # a copy: the variable may be reset before it is read


class StepMetrics:
    """Metrics of a `TokenModel` that need no logits; `TokenLogs` shows them.

    `model.metrics` leaves them out, so `fit` and `train_on_batch` report only what was compiled.
    """

    def __init__(self):
        self.perplexity = TokenPerplexity(name="perplexity")
        self.tokens = keras.metrics.Sum(name="tokens")
        self.gradient_norm = LatestValue(name="gradient_norm")
        self.step_loss = LatestValue(name="step_loss")

    @property
    def variables(self):
        """The variables of all of them."""
        return [variable for metric in vars(self).values() for variable in metric.variables]

    def reset(self):
        for metric in vars(self).values():
            metric.reset_state()
