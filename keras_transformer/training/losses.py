"""Cross entropy over real tokens, with label smoothing (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.backend import add_at, non_negative
from keras_transformer.checks import check_choice, check_rate
from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.keras_names import KerasNames
from keras_transformer.layers.masks import padding_mask
from keras_transformer.training.distribution import replicas, sum_over_replicas
from keras_transformer.type_hints import Tensor, TensorLike

# Keras's losses that read probabilities by default.
CROSS_ENTROPIES = (
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.binary_crossentropy,
    keras.losses.binary_focal_crossentropy,
)


def smoothed_crossentropy(
    labels: TensorLike, logits: TensorLike, label_smoothing: float = 0.0
) -> Tensor:
    """Computes the cross entropy between each label, smoothed over the vocabulary, and a softmax.

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

    Example:
        >>> losses = smoothed_crossentropy(np.array([1, 2]), np.zeros((2, 4)))
        >>> print(np.round(losses, 4))
        [1.3863 1.3863]
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
        label_logits = ops.squeeze(ops.take_along_axis(z, labels[:, None], axis=1), 1)  # (N,)
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


def token_weights(labels, sample_weight=None):
    """Computes the weight of each token in a sum over real tokens.

    Args:
        labels: integers (B, T), 0 at padding.
        sample_weight: optional weights, (B,) or broadcastable to (B, T).

    Returns:
        Tensor (B, T), float32, 0 at padding, NaN at negative labels.
    """
    weights = ops.cast(padding_mask(labels, PAD_ID), "float32")  # (B, T)
    weights = ops.where(labels < 0, float("nan"), weights)  # which a compiled check lets through
    return weights if sample_weight is None else weights * per_token(sample_weight, labels)


def per_token(sample_weight, labels):
    """Turns weights (B,) into (B, 1), and all to float32; checks that they fit the labels."""
    sample_weight = ops.cast(sample_weight, "float32")
    check_weights(sample_weight, ops.shape(labels))
    return sample_weight[:, None] if len(sample_weight.shape) == 1 else sample_weight


def num_real_tokens(labels):
    """Counts the real tokens in labels (B, T) of all replicas: float32, at least 1."""
    return ops.maximum(sum_over_replicas(ops.sum(token_weights(labels))), 1.0)


def ids_of_labels(labels):
    """Casts labels to int32.

    On TensorFlow, negative ones, such as -100, are an error. On JAX and with `jit_compile`, which
    leave the check out, their loss is NaN.
    """
    message = f"labels must be ids of at least 0; {PAD_ID} marks what does not count."
    return non_negative(ops.cast(labels, "int32"), message)


def check_labels(labels, length) -> None:
    """Refuses labels that are not (B, `length`), as far as the sizes are known."""
    shape = tuple(labels.shape)
    if len(shape) != 2 or None not in (shape[1], length) and shape[1] != length:
        raise ValueError(
            f"labels must be ids (B, T), one for each of T={length} predictions, but their rows "
            f"have the shape {shape[1:]}."
        )


def check_weights(sample_weight, shape) -> None:
    """Refuses weights that do not fit labels of a shape, as far as the sizes are known.

    Args:
        sample_weight: tensor (B,), or with more of the axes of `shape`.
        shape: sizes (B, ...), some of them None or tensors.
    """
    sizes = tuple(sample_weight.shape)
    pairs = zip(sizes, shape, strict=False)
    fits = (a == 1 or a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    if not 1 <= len(sizes) <= len(shape) or not all(fits):
        known = tuple(x if isinstance(x, int) else None for x in shape)
        raise ValueError(
            f"sample_weight must have one weight per row of the labels {known}, or one per label, "
            f"but has the shape {sizes}."
        )


def check_reads_logits(loss, model: str) -> None:
    """Refuses a cross entropy of Keras that would read a model's logits as probabilities.

    Args:
        loss: what was given to `compile`.
        model: the name of the model's class.
    """
    function = keras.losses.get(loss) if isinstance(loss, str | type) else loss
    if function in CROSS_ENTROPIES or getattr(function, "from_logits", None) is False:
        raise ValueError(
            f"loss={loss!r} reads probabilities, but {model} returns logits; give an object with "
            "from_logits=True, such as "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskedCrossentropy(KerasNames, keras.losses.Loss):
    """The mean cross entropy over the real tokens of the global batch.

    Padding counts neither in the sum nor in its divisor. Under a `tf.distribute` strategy the
    divisor is the number of real tokens in all replicas. So the gradient is the same as on one
    device, even if replicas have unequal numbers of tokens. A batch of only padding has the loss 0.

    Args:
        label_smoothing: the share of probability spread over the vocabulary, 0.1 in the paper.
        reduction: "sum_over_batch_size" for the mean over real tokens; None for one value per
            token, scaled so that the plain mean of all values is the mean over real tokens.
        name: the loss's name.

    Call arguments:
        y_true: integers (B, T), 0 at padding.
        y_pred: logits (B, T, V).
        sample_weight: optional weights, (B,) or broadcastable to (B, T).

    Returns:
        Scalar, float32, in nats per token.

    Raises:
        ValueError: if `label_smoothing` is outside [0, 1), or for another `reduction`.

    Example:
        >>> loss = MaskedCrossentropy()
        >>> round(float(loss(np.array([[3, 0]]), np.zeros((1, 2, 4)))), 4)
        1.3863
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "masked_crossentropy",
    ):
        check_choice("reduction", reduction, ("sum_over_batch_size", None))
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = check_rate("label_smoothing", label_smoothing)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras's own divides by positions, reads one weight per sentence as one per position, and
        # leaves out padding a second time if `y_pred` carries a mask.
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        losses = self.call(y_true, y_pred)  # (B, T)
        if sample_weight is not None:
            losses = losses * per_token(sample_weight, y_true)
        if self.reduction is not None:
            return ops.sum(losses)
        return losses * (ops.cast(ops.size(losses), "float32") * replicas())

    def call(self, y_true, y_pred):
        """Computes what each token adds to the mean over the real tokens, (B, T)."""
        labels = ids_of_labels(y_true)  # (B, T)
        check_labels(labels, y_pred.shape[1])
        losses = smoothed_crossentropy(labels, y_pred, self.label_smoothing)
        return losses * token_weights(labels) / num_real_tokens(labels)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
