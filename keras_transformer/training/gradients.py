"""Gradients on TensorFlow: of a batch in parts, clipped as a whole."""

from keras import ops


def accumulate(part_loss, tensors, parts: int, variables, num_values: int = 2):
    """The gradient of a sum over parts of a batch, one part after another.

    The memory is that of one part: its activations are gone before the next one begins.

    Args:
        part_loss: function of a part's tensors to a scalar and further values, all of them sums
            over the part, float32 scalars.
        tensors: tensors (B, ...).
        parts: the number of parts, which need not divide B.
        variables: Keras variables, of the gradient.
        num_values: the number of further values.

    Returns:
        The gradients, a list of dense tensors, and the sums of the further values, a list.
    """
    import tensorflow as tf

    def step(part):
        with tf.GradientTape() as tape:
            loss, values = part_loss(*part)
        values_of = [variable.value for variable in variables]
        gradients = tape.gradient(loss, values_of, unconnected_gradients="zero")
        return [tf.convert_to_tensor(x) for x in (*gradients, *values)]

    if parts == 1:
        sums = step(tensors)
    else:
        pieces = [split(x, parts) for x in tensors]

        def add_part(i, sums):
            new = step([ops.take(piece, i, axis=0) for piece in pieces])
            return [a + b for a, b in zip(sums, new, strict=True)]

        zeros = [ops.zeros(v.shape, v.dtype) for v in variables]
        sums = ops.fori_loop(0, parts, add_part, [*zeros, *[ops.zeros(())] * num_values])
    return sums[: len(variables)], sums[len(variables) :]


def split(x, parts):
    """(B, ...) to (parts, B / parts, ...), rows of zeros at the end where it does not divide B."""
    rows = -(-ops.shape(x)[0] // parts)
    padding = [(0, parts * rows - ops.shape(x)[0])] + [(0, 0)] * (len(x.shape) - 1)
    return ops.reshape(ops.pad(x, padding), (parts, rows, *ops.shape(x)[1:]))


def clipped(gradients, norm, optimizer):
    """Gradients clipped as the optimizer would.

    Args:
        gradients: a list of tensors, of the loss as `optimizer.scale_loss` scales it.
        norm: their global norm, of the unscaled loss.
        optimizer: a Keras optimizer with `clipnorm`, `global_clipnorm`, `clipvalue`, or none.
    """
    scale = optimizer.scale_loss(1.0)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    if optimizer.clipvalue is not None:
        limit = optimizer.clipvalue * scale
        return [ops.clip(x, -limit, limit) for x in gradients]
    if optimizer.clipnorm is not None:
        limit = optimizer.clipnorm * scale
        return [x * shrinking(global_norm([x]), limit) for x in gradients]
    if optimizer.global_clipnorm is not None:
        factor = shrinking(norm, optimizer.global_clipnorm)
        return [x * factor for x in gradients]
    return gradients


def global_norm(tensors):
    """The Euclidean norm of all numbers of a list of tensors, float32."""
    return ops.sqrt(sum(ops.sum(ops.square(ops.cast(x, "float32"))) for x in tensors))


def shrinking(norm, limit):
    """What brings a norm down to a limit; 1 if it is below."""
    return ops.minimum(1.0, ops.divide_no_nan(limit, norm))
