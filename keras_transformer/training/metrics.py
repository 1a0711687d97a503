"""Accuracy and perplexity over real tokens."""

import keras
from keras import ops

from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.layers.masks import padding_mask
from keras_transformer.training.distribution import replicas
from keras_transformer.training.losses import smoothed_crossentropy


class TokenMean(keras.metrics.Metric):
    """The mean over all real tokens seen of a value that a subclass gives each token."""

    def __init__(self, name, **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def token_values(self, labels, logits):
        """Tensor (B, T) from labels (B, T) and logits (B, T, V)."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.cast(y_true, "int32")  # (B, T)
        weights = ops.cast(padding_mask(labels, PAD_ID), "float32")  # (B, T)
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            if len(sample_weight.shape) == 1:
                sample_weight = ops.expand_dims(sample_weight, 1)  # (B, 1)
            weights = weights * sample_weight
        values = ops.cast(self.token_values(labels, y_pred), "float32")
        self.total.assign_add(ops.sum(values * weights))
        self.count.assign_add(ops.sum(weights))

    def result(self):
        return ops.divide_no_nan(self.total.value, self.count.value)


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

    def __init__(self, name="masked_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

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

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)

    def token_values(self, labels, logits):
        return smoothed_crossentropy(labels, logits)

    def result(self):
        return ops.exp(super().result())


class TokenPerplexity(keras.metrics.Metric):
    """`Perplexity` from sums over tokens that are already known.

    Call arguments:
        nll: scalar, the weighted sum of the cross entropy of real tokens, in nats.
        count: scalar, the sum of their weights.
    """

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, nll, count):
        self.total.assign_add(nll)
        self.count.assign_add(count)

    def result(self):
        return ops.exp(ops.divide_no_nan(self.total.value, self.count.value))


class LatestValue(keras.metrics.Metric):
    """The last value it was given: a number of one step in the logs of an epoch.

    Under a strategy every replica gives the same value.
    """

    def __init__(self, name, **kwargs):
        super().__init__(name=name, **kwargs)
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, value):
        self.value.assign(value / replicas())  # the variable holds the sum over replicas

    def result(self):
        return self.value + 0.0  # a copy: the variable may be reset before it is read
