"""Gradients on TensorFlow: of a batch in parts, clipped as a whole."""

from keras import ops


def accumulate(part_loss, tensors, parts: int, variables, num_values: int = 2, at_once: int = 1):
    """The gradient of a sum over parts of a batch.

    Args:
        part_loss: function of a part's tensors to a scalar and further values, all of them sums
            over the part, float32 scalars.
        tensors: tensors (B, ...).
        parts: the number of parts, which need not divide B.
        variables: Keras variables, of the gradient.
        num_values: the number of further values.
        at_once: as `sum_over_parts`.

    Returns:
        The gradients, a list of dense tensors, and the sums of the further values, a list.
    """
    import tensorflow as tf

    def step(*part):
        with tf.GradientTape() as tape:
            loss, values = part_loss(*part)
        values_of = [variable.value for variable in variables]
        gradients = tape.gradient(loss, values_of, unconnected_gradients="zero")
        return [tf.convert_to_tensor(x) for x in (*gradients, *values)]

    zeros = [*(tf.zeros(v.shape, v.dtype) for v in variables), *[tf.zeros(())] * num_values]
    sums = sum_over_parts(step, tensors, parts, zeros, at_once)
    return sums[: len(variables)], sums[len(variables) :]


def sum_over_parts(function, tensors, parts: int, zeros, at_once: int = 1):
    """The sums over parts of a batch of what a function makes of each.

    Args:
        function: from a part's tensors to a list of tensors like `zeros`.
        tensors: tensors (B, ...).
        parts: the number of parts, which need not divide B.
        zeros: a list of zeros.
        at_once: parts that are worked on at the same time, in a graph. With one, a part's
            activations are gone before the next part begins.

    Returns:
        The sums, a list.
    """
    import tensorflow as tf

    if parts == 1:
        return function(*tensors)
    pieces = [split(x, parts) for x in tensors]

    def add_part(i, *sums):
        new = function(*[piece[i] for piece in pieces])
        return i + 1, *[a + b for a, b in zip(sums, new, strict=True)]

    loop = (lambda i, *_: i < parts), add_part, (tf.constant(0), *zeros)
    return list(tf.while_loop(*loop, parallel_iterations=at_once)[1:])


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
