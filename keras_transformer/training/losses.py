"""Cross entropy over real tokens, with label smoothing (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.checks import check_choice, check_rate
from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.layers.masks import padding_mask
from keras_transformer.training.distribution import replicas, sum_over_replicas


def smoothed_crossentropy(labels, logits, label_smoothing=0.0):
    """Cross entropy of each label against a softmax, the labels smoothed over the vocabulary.

    With `q = (1 - e) * onehot(label) + e / V` it is
    `-sum(q * log_softmax(z)) = logsumexp(z) - (1 - e) * z[label] - e * mean(z)`
    (Szegedy et al., 2016, section 7), and its gradient is `softmax(z) - q`. The gradient is
    written out because the softmax is then the only copy of the logits that is kept.

    Args:
        labels: integers (...) in [0, V).
        logits: tensor (..., V).
        label_smoothing: e.

    Returns:
        Tensor (...), float32, in nats.
    """
    vocab_size = logits.shape[-1]
    shape = ops.shape(labels)
    labels = ops.reshape(ops.cast(labels, "int32"), (-1,))  # (N,)

    @ops.custom_gradient
    def loss_and_gradient(z):
        probabilities = ops.softmax(z, axis=-1)  # (N, V)
        # The largest probability is at least 1 / V, so its logarithm is exact.
        largest = ops.max(z, axis=-1), ops.max(probabilities, axis=-1)
        logsumexp = largest[0] - ops.log(largest[1])  # (N,)
        label_logits = ops.squeeze(ops.take_along_axis(z, labels[:, None], axis=1), 1)
        loss = logsumexp - (1.0 - label_smoothing) * label_logits
        if label_smoothing:
            loss = loss - label_smoothing * ops.mean(z, axis=-1)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream  # (N,)
            z_gradient = (probabilities - label_smoothing / vocab_size) * upstream[:, None]
            return add_at(z_gradient, labels, (label_smoothing - 1.0) * upstream)

        return loss, gradient

    flat = ops.reshape(ops.cast(logits, "float32"), (-1, vocab_size))  # (N, V)
    return ops.reshape(loss_and_gradient(flat), shape)


def add_at(x, columns, numbers):
    """Adds a number to each row of `x`, in the row's column.

    Args:
        x: tensor (N, V).
        columns: integers (N,) in [0, V).
        numbers: tensor (N,).

    Returns:
        Tensor (N, V).
    """
    if keras.backend.backend() == "jax":
        # XLA makes this part of the pass that computes `x`, a scatter it would put behind it.
        is_column = ops.arange(x.shape[1], dtype="int32") == columns[:, None]
        return x + ops.where(is_column, numbers[:, None], 0.0)
    places = ops.stack([ops.arange(ops.shape(columns)[0], dtype="int32"), columns], axis=1)
    return ops.scatter_update(x, places, numbers, reduction="add")


def token_weights(labels, sample_weight=None):
    """What each token counts in the mean over the real tokens of all replicas.

    Args:
        labels: integers (B, T), 0 at padding.
        sample_weight: optional weights, (B,) or broadcastable to (B, T).

    Returns:
        Weights (B, T), 0 at padding, and the number of real tokens of all replicas, at least 1;
        float32. The mean is the weighted sum of all replicas, divided by the number.
    """
    weights = ops.cast(padding_mask(labels, PAD_ID), "float32")  # (B, T)
    count = ops.maximum(sum_over_replicas(ops.sum(weights)), 1.0)
    if sample_weight is not None:
        sample_weight = ops.cast(sample_weight, "float32")
        if len(sample_weight.shape) == 1:
            sample_weight = ops.expand_dims(sample_weight, 1)  # (B, 1)
        weights = weights * sample_weight
    return weights, count


def ids_of_labels(labels):
    """Labels as int32; on TensorFlow those like -1 or -100 are an error, for V + label is an id."""
    labels = ops.cast(labels, "int32")
    if keras.backend.backend() != "tensorflow":
        return labels
    import tensorflow as tf

    message = f"labels must be ids of at least 0; {PAD_ID} marks what does not count."
    # A graph may change weights before it sees the error, unless the labels wait for it.
    with tf.control_dependencies([tf.debugging.assert_non_negative(labels, message)]):
        return tf.identity(labels)


def check_labels(labels, length) -> None:
    """Refuses labels that are not one id for each of the `length` positions, as far as known."""
    shape = tuple(labels.shape)
    if len(shape) != 2 or None not in (shape[1], length) and shape[1] != length:
        raise ValueError(
            f"labels must be ids (B, T), here of T={length} for as many tokens that are predicted, "
            f"but their rows have the shape {shape[1:]}."
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskedCrossentropy(keras.losses.Loss):
    """The mean cross entropy over the real tokens of the global batch.

    Padding counts neither above nor below the fraction line. Under a `tf.distribute` strategy the
    divisor is the number of real tokens in all replicas, so that the gradient is that of one
    device however unequal the replicas' shares are. A batch of nothing but padding costs 0.

    Args:
        label_smoothing: the share of probability spread over the vocabulary, 0.1 in the paper.
        reduction: "sum_over_batch_size" for the mean over real tokens; None for one value a
            token, scaled so that its plain mean is that mean.
        name: of the loss.

    Call arguments:
        y_true: integers (B, T), 0 at padding.
        y_pred: logits (B, T, V).
        sample_weight: optional weights, (B,) or broadcastable to (B, T).

    Returns:
        Scalar, float32, in nats per token.

    Raises:
        ValueError: if `label_smoothing` is outside [0, 1), or for another reduction.

    Example:
        >>> loss = MaskedCrossentropy()
        >>> round(float(loss(np.array([[3, 0]]), np.zeros((1, 2, 4)))), 4)
        1.3863
    """

    def __init__(
        self,
        label_smoothing=0.0,
        reduction="sum_over_batch_size",
        name="masked_crossentropy",
    ):
        check_choice("reduction", reduction, ("sum_over_batch_size", None))
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = check_rate("label_smoothing", label_smoothing)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras would read one weight a sentence as one a position.
        if sample_weight is not None and len(ops.shape(sample_weight)) == 1:
            sample_weight = ops.expand_dims(sample_weight, 1)  # (B, 1)
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        labels = ids_of_labels(y_true)  # (B, T)
        check_labels(labels, y_pred.shape[1])
        mask = ops.cast(padding_mask(labels, PAD_ID), "float32")  # (B, T)
        losses = smoothed_crossentropy(labels, y_pred, self.label_smoothing) * mask
        # Keras will average over B * T and the replicas; undone here, so that what remains is the
        # division by the real tokens of all replicas.
        positions = ops.cast(ops.size(mask), "float32") * replicas()
        return losses * ops.divide_no_nan(positions, sum_over_replicas(ops.sum(mask)))

    def get_config(self):
        return {
            "label_smoothing": self.label_smoothing,
            "reduction": self.reduction,
            "name": self.name,
        }
