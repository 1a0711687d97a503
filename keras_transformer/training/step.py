"""The parts of a training step, as functions: loss, gradients of a batch in parts, clipping."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.training.distribution import replicas, sum_over_replicas
from keras_transformer.training.losses import (
    check_labels,
    ids_of_labels,
    num_real_tokens,
    token_weights,
)
from keras_transformer.training.projected_crossentropy import projected_crossentropy


class AddedLossError(ValueError):
    """Raised if layers add losses to a batch that is cut into parts."""


class Batch(NamedTuple):
    """The data that `fit` gives a step, checked, with the weight of each token."""

    inputs: Any  # integers (B, T), or a tuple of such tensors
    labels: Any  # int32 (B, T), 0 at padding
    sample_weight: Any
    token_weights: Any  # float32 (B, T), 0 at padding
    num_tokens: Any  # float32 scalar, the real tokens of all replicas


class Loss(NamedTuple):
    """The loss of a batch or of a part of it: float32 scalars."""

    total: Any  # sum over tokens of the cross entropy, with label smoothing and R-Drop
    nll: Any  # sum over tokens of the cross entropy alone
    added: Any  # what layers add; it is not a sum over tokens, so a batch in parts has none


def unpack(*args) -> Batch:
    """Makes a `Batch` from the arguments of a step."""
    inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
    if labels is None:
        raise ValueError(
            "The model learns from labels (B, T), but the batch has none; give those of each "
            "position, the next id: fit(ids[:, :-1], ids[:, 1:]), or of a Transformer "
            "fit((source_ids, target_ids[:, :-1]), target_ids[:, 1:])."
        )
    labels = ids_of_labels(labels)
    weights = token_weights(labels, sample_weight)
    return Batch(inputs, labels, sample_weight, weights, num_real_tokens(labels))


class HiddenStates(keras.layers.Layer):
    """A model's `hidden_states` as a layer, so that `losses` are those of a single call."""

    def __init__(self, model):
        super().__init__(autocast=False, dtype="float32", name="hidden_states")
        self.model = model

    def call(self, inputs, training=None):
        return self.model.hidden_states(inputs, training=training)


def forward(model, inputs, training, parts):
    """Computes a model's hidden states, and the sum of the losses that its layers add.

    Raises:
        AddedLossError: if layers add a loss and the batch is cut into several parts.
    """
    layer = HiddenStates(model)
    states, losses = layer(inputs, training=training), layer.losses
    # `losses` ends with one entry for each weight that has a regularizer.
    added = losses[: len(losses) - len(_regularized(model))]
    if added and parts > 1:
        raise AddedLossError(
            "Layers of this model add losses (add_loss or activity_regularizer), which cannot be "
            "summed over parts of a batch; compile with micro_batches=1 and num_shards=1."
        )
    return states, sum((ops.sum(ops.cast(x, "float32")) for x in added), ops.zeros((), "float32"))


def run_batch(model, batch, *, training, parts=1, at_once=1, r_drop=0.0, with_states=False):
    """Computes the loss of a batch, summed over its parts, and in training its gradients.

    Args:
        model: a compiled `TokenModel`.
        batch: a `Batch`.
        training: whether to compute gradients and apply dropout.
        parts: the number of parts that the batch is cut into; see `TokenModel.compile`.
        at_once: the number of parts that are computed at the same time.
        r_drop: alpha of R-Drop.
        with_states: whether to return the hidden states; with R-Drop, the first of the two.

    Returns:
        The gradients, multiplied by the loss scale of the optimizer, in the order of
        `model.trainable_variables`; an empty list without training. Then the `Loss`, and the hidden
        states (B, T, D), or None.
    """
    variables = model.trainable_variables if training else []
    changed = model.non_trainable_variables
    states_dtype = model.compute_dtype if with_states else None

    def run_part(labels, weights, *ids):
        if r_drop:
            ids = [ops.concatenate([x, x]) for x in ids]

        def loss_and_states():
            inputs = keras.tree.pack_sequence_as(batch.inputs, ids)
            states, added = forward(model, inputs, training, parts)
            check_labels(labels, states.shape[1])
            smoothing = model.loss.label_smoothing
            sums = projected_crossentropy(
                states, model.lm_head_kernel(), labels, weights, smoothing, r_drop
            )
            loss = Loss(*sums, added)
            mean = loss.total / batch.num_tokens + added / replicas()
            return model.optimizer.scale_loss(mean) if training else mean, loss, states

        (_, loss, states), gradients = backend.value_and_gradients(
            loss_and_states, variables, changed
        )
        states = states[: ops.shape(labels)[0]]  # with R-Drop, the first of the two
        return [*gradients, *loss], ops.cast(states, states_dtype) if with_states else None

    # One list of sums: the gradients, then the three numbers of a `Loss`.
    zeros = [ops.zeros(v.shape, v.dtype) for v in variables] + [ops.zeros((), "float32")] * 3
    tensors = batch.labels, batch.token_weights, *keras.tree.flatten(batch.inputs)
    ways = {"parts": parts, "at_once": at_once, "rows_dtype": states_dtype, "changed": changed}
    (*gradients, total, nll, added), states = backend.sum_over_parts(
        run_part, tensors, zeros, **ways
    )
    return gradients, Loss(total, nll, added), states


def regularization(model):
    """Adds up what the regularizers of the trainable weights cost: a float32 scalar."""
    costs = [ops.cast(v.regularizer(v), "float32") for v in _regularized(model)]
    return add_in_order(costs)


def add_regularization(model, gradients):
    """Adds the gradients of `regularization`, which the parts leave out, to `gradients`."""
    variables = _regularized(model)
    if not variables:
        return gradients

    def loss():
        return (model.optimizer.scale_loss(regularization(model) / replicas()),)

    _, more = backend.value_and_gradients(loss, variables)
    by_id = {id(v): gradient for v, gradient in zip(variables, more, strict=True)}
    pairs = zip(model.trainable_variables, gradients, strict=True)
    return [gradient + by_id.get(id(v), 0) for v, gradient in pairs]


def _regularized(model):
    return [v for v in model.trainable_variables if v.regularizer is not None]


def reduce_gradients(gradients, optimizer):
    """Returns gradients for `optimizer.apply_gradients`, and their norm before clipping.

    Keras would clip the gradient of each replica and then sum over replicas. Here the sum is
    clipped. The optimizer sums over replicas again, so it is divided by their number.
    """
    gradients = [sum_over_replicas(gradient) for gradient in gradients]
    norm = global_norm(gradients) / optimizer.scale_loss(1.0)
    if replicas() > 1:  # else the optimizer clips, after it has accumulated gradients
        gradients = [x / replicas() for x in clipped(gradients, norm, optimizer)]
    return gradients, norm


def clipped(gradients, norm, optimizer):
    """Clips gradients as the optimizer would.

    Args:
        gradients: a list of tensors, multiplied by the loss scale of the optimizer.
        norm: their global norm, without the loss scale.
        optimizer: a Keras optimizer, with or without `clipvalue`, `clipnorm` or `global_clipnorm`.
    """
    scale = optimizer.scale_loss(1.0)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    if optimizer.clipvalue is not None:
        limit = optimizer.clipvalue * scale
        return [ops.clip(x, -limit, limit) for x in gradients]
    if optimizer.clipnorm is not None:
        limit = optimizer.clipnorm * scale
        return [x * shrink_factor(global_norm([x]), limit) for x in gradients]
    if optimizer.global_clipnorm is not None:
        factor = shrink_factor(norm, optimizer.global_clipnorm)
        return [x * factor for x in gradients]
    return gradients


def global_norm(tensors):
    """Computes the Euclidean norm of all numbers in a list of tensors, float32."""
    return ops.sqrt(add_in_order([ops.sum(ops.square(ops.cast(x, "float32"))) for x in tensors]))


def add_in_order(numbers):
    """Adds up scalars, to the same bits in every run; 0 if there are none.

    TensorFlow makes one operation of a chain of sums. It adds in the order in which memory is free.
    """
    return ops.sum(ops.stack(numbers)) if numbers else ops.zeros((), "float32")


def shrink_factor(norm, limit):
    """Returns the factor that brings a norm down to a limit; 1 if it is below."""
    return ops.minimum(1.0, ops.divide_no_nan(limit, norm))
