"""Operations that differ between backends: plain names, each with its formula.

The rest of the package is written with `keras.ops`. A function stands here if TensorFlow has an
operation that is much faster than what `keras.ops` makes, or one that Keras does not offer. Its
docstring says what it computes, and if it does so on TensorFlow only.
"""

import keras
from keras import ops

from keras_transformer import pure_steps

# Whether Keras takes a step of `fit` as a function of all values that returns the new ones.
STEPS_ARE_PURE = keras.backend.backend() == "jax"


def on_tensorflow() -> bool:
    """Returns whether Keras runs on TensorFlow."""
    return keras.backend.backend() == "tensorflow"


def check_tensorflow(what: str) -> None:
    """Raises a ValueError if Keras does not run on TensorFlow, which `what` needs."""
    if not on_tensorflow():
        raise ValueError(
            f"A {what} is a TensorFlow graph, but the Keras backend is "
            f"{keras.backend.backend()}; set KERAS_BACKEND=tensorflow and load the weights there."
        )


def take(x, indices, axis=0):
    """Takes `x[indices]`, or `x[:, indices]` with `axis=1`, from each tensor of `x`.

    `ops.take` supports negative indices, at the cost of many small operations. Here they are not
    allowed.

    Args:
        x: tensor (N, ...) or (M, N, ...), or a nested structure of such tensors.
        indices: integers of any shape, in [0, N).
        axis: the axis of N, 0 or 1.

    Returns:
        The structure of `x`, with the shape of `indices` in place of N.
    """

    def take_one(x):
        if on_tensorflow():
            import tensorflow as tf

            return tf.gather(x, indices, axis=axis)
        return ops.take(x, indices, axis=axis)

    return keras.tree.map_structure(take_one, x)


def batched_gather(x, indices):
    """Takes `x[r, indices[r]]` for each row r, from each tensor of `x`.

    Args:
        x: tensor (R, N, ...), or a nested structure of such tensors.
        indices: integers (R, k), in [0, N).

    Returns:
        The structure of `x`, with tensors (R, k, ...).
    """

    def gather_one(x):
        if on_tensorflow():
            import tensorflow as tf

            return tf.gather(x, indices, axis=1, batch_dims=1)
        rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32"), 1)  # (R, 1)
        return take(ops.reshape(x, (-1, *x.shape[2:])), indices + rows * ops.shape(x)[1])

    return keras.tree.map_structure(gather_one, x)


def write_slice(x, new, index):
    """Returns a copy of `x` with `x[:, :, index:index + T] = new`.

    On TensorFlow, `ops.slice_update` is an XLA operation, and TensorFlow Serving refuses it.

    Args:
        x: tensor (B, H, L, D/H).
        new: tensor (B, H, T, D/H).
        index: integer scalar, at most L - T.

    Returns:
        Tensor (B, H, L, D/H).
    """
    length = ops.shape(new)[2]
    offset = ops.arange(ops.shape(x)[2]) - index  # (L,)
    is_new = ops.expand_dims(ops.logical_and(offset >= 0, offset < length), 1)  # (L, 1)
    return ops.where(is_new, ops.take(new, ops.clip(offset, 0, length - 1), axis=2), x)


def write_slice_in_place(x, new, index, rows=None, length=None):
    """Does what `write_slice` does, in the memory of `x`, which must not be used afterwards.

    So TensorFlow writes T positions instead of copying L; other backends call `write_slice`. In a
    graph, `x` must not be zeros that were made there: equal tensors may share their memory.

    Args:
        x: tensor (B, H, L, D/H), L a multiple of T.
        new: tensor (B, H, T, D/H), T known.
        index: integer scalar, a multiple of T, at most L - T.
        rows: what `slice_rows` returns, to be computed once per step; None computes it here.
        length: L, if it is known without looking at `x`.

    Returns:
        Tensor (B, H, L, D/H).
    """
    if not on_tensorflow():
        return write_slice(x, new, index)
    import tensorflow as tf

    rows = slice_rows(x, new.shape[2], index) if rows is None else rows
    flat, new = (tf.reshape(y, [-1, new.shape[2] * new.shape[3]]) for y in (x, new))
    length = tf.shape(x)[2] if length is None else length
    shape = [-1, x.shape[1], length, x.shape[3]]
    return tf.reshape(tf.raw_ops.InplaceUpdate(x=flat, i=rows, v=new), shape)


def slice_rows(x, length, index):
    """Finds the rows of `x[:, :, index:index + T]` in `x` reshaped to (B * H * L / T, T * D/H).

    Args:
        x: tensor (B, H, L, D/H), L a multiple of T.
        length: T.
        index: integer scalar, a multiple of T.

    Returns:
        The numbers of the rows, int32 (B * H,).
    """
    batch_size, num_heads, places = ops.shape(x)[:3]
    heads = ops.arange(batch_size * num_heads, dtype="int32")  # (B * H,)
    return heads * (places // length) + index // length


# Whether `ops.dot_product_attention` has a kernel that never writes the scores to memory.
HAS_FUSED_ATTENTION = keras.backend.backend() == "jax"


def fused_attention(query, key, value, mask=None):
    """Computes `softmax(Q K^T / sqrt(d_k)) V` without the scores (B, H, T, S) in memory.

    Dao et al. (2022), "FlashAttention". Keras takes such a kernel where device, dtype and shapes
    allow, and the formula elsewhere.

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        value: tensor (B, H, S, d_v).
        mask: boolean, broadcastable to (B, 1, T, S), True = may attend.

    Returns:
        Tensor (B, H, T, d_v).
    """
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if mask is not None:
        # cuDNN's kernel refuses a mask of one row for all queries.
        mask = ops.broadcast_to(mask, (mask.shape[0], 1, query.shape[1], key.shape[1]))
    output = ops.dot_product_attention(query, key, value, mask=mask)  # (B, T, H, d_v)
    return ops.transpose(output, (0, 2, 1, 3))  # (B, H, T, d_v)


def matmul_by_head(x, y, transpose_y=False):
    """Computes `x y`, or `x y^T`, for each head.

    For a single query in float32, TensorFlow's own `BatchMatMulV3` is faster than oneDNN's kernel,
    which `ops.matmul` uses.

    Args:
        x: tensor (B, H, T, M).
        y: tensor (B, H, M, N), or (B, H, N, M) with `transpose_y`.
        transpose_y: whether to swap the last two axes of `y`.

    Returns:
        Tensor (B, H, T, N).
    """
    dtypes = {keras.backend.standardize_dtype(tensor.dtype) for tensor in (x, y)}
    if on_tensorflow() and x.shape[2] == 1 and dtypes == {"float32"}:
        import tensorflow as tf

        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_y=transpose_y)
    return ops.matmul(x, ops.transpose(y, (0, 1, 3, 2)) if transpose_y else y)


def random_bytes(shape, seed_generator):
    """Draws independent uniform bytes, four from each random word where the backend allows it.

    Args:
        shape: the shape of the result.
        seed_generator: a `keras.random.SeedGenerator`.

    Returns:
        uint8 tensor of that shape.
    """
    if keras.backend.backend() == "jax":
        import jax

        # `jax.random.bits` computes 32 bits for each byte.
        key = ops.tile(seed_generator.next(), 2)  # (4,)
        return jax.lax.rng_bit_generator(key, shape, "uint8")[1]
    if not on_tensorflow():
        return ops.cast(keras.random.randint(shape, 0, 256, seed=seed_generator), "uint8")
    import tensorflow as tf

    seed = tf.cast(seed_generator.next() % (2**31 - 1), "int32")
    count = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform([(count + 3) // 4], seed, None, None, tf.uint32)
    flat = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
    return tf.reshape(flat[:count], shape)


def add_at(x, columns, numbers):
    """Adds a number to each row of `x`, in the row's column: `x + numbers[:, None] * one_hot`.

    Args:
        x: tensor (N, V).
        columns: integers (N,) in [0, V).
        numbers: tensor (N,).

    Returns:
        Tensor (N, V).
    """
    if keras.backend.backend() == "jax":
        # XLA makes this part of the pass that computes `x`; a scatter would come after it.
        is_column = ops.arange(x.shape[1], dtype="int32") == columns[:, None]
        return x + ops.where(is_column, numbers[:, None], 0.0)
    places = ops.stack([ops.arange(ops.shape(columns)[0], dtype="int32"), columns], axis=1)
    return ops.scatter_update(x, places, numbers, reduction="add")


def non_negative(x, message):
    """Returns `x`. On TensorFlow, a negative number in it raises an error with `message`."""
    if not on_tensorflow():
        return x
    import tensorflow as tf

    # Otherwise a graph may change weights before the check raises its error.
    with tf.control_dependencies([tf.debugging.assert_non_negative(x, message)]):
        return tf.identity(x)


def all_finite(x, message):
    """Returns `x`. On TensorFlow, a number in it that is not finite raises `message`."""
    if not on_tensorflow():
        return x
    import tensorflow as tf

    with tf.control_dependencies([tf.debugging.Assert(ops.all(ops.isfinite(x)), [message])]):
        return tf.identity(x)


def value_and_gradients(function, variables, changed=()):
    """Calls a function and computes the gradients of its first value, on TensorFlow and JAX.

    Args:
        function: function without arguments that returns a tuple; its first value is a scalar.
        variables: Keras variables.
        changed: other Keras variables that the function may change, such as seeds of dropout.

    Returns:
        The tuple, and a list of dense gradients, 0 where the value does not depend on a variable.
    """
    if not variables:
        return function(), []
    if STEPS_ARE_PURE:
        return pure_steps.value_and_gradients(function, variables, changed)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        values = function()
    tensors = [variable.value for variable in variables]
    gradients = tape.gradient(values[0], tensors, unconnected_gradients="zero")
    return values, [tf.convert_to_tensor(gradient) for gradient in gradients]


def apply_gradients(optimizer, gradients, variables):
    """Lets a Keras optimizer change variables by their gradients."""
    if STEPS_ARE_PURE:
        pure_steps.apply_gradients(optimizer, gradients, variables)
    else:
        optimizer.apply_gradients(zip(gradients, variables, strict=True))


def sum_over_parts(function, tensors, zeros, *, parts=1, at_once=1, rows_dtype=None, changed=()):
    """Computes `function(*tensors)`, but for rounding, in parts of a batch, on TensorFlow and JAX.

    Args:
        function: from a part's tensors to a list of sums over the part, like `zeros`, and a tensor
            with one entry for each row of the part, or None.
        tensors: tensors (B, ...).
        zeros: a list of zeros.
        parts: the number of parts; see `TokenModel.compile`. If it does not divide B, rows of zeros
            are added at the end.
        at_once: the number of parts that a graph of TensorFlow computes at the same time. With one,
            a part's activations are freed before the next part begins.
        rows_dtype: the dtype of the second result; None if it is None.
        changed: Keras variables that the function may change, such as seeds of dropout.

    Returns:
        The list of sums over all parts, and a tensor (B, ...) or None.
    """
    if parts == 1:
        return function(*tensors)
    if STEPS_ARE_PURE:
        return pure_steps.sum_over_parts(function, tensors, zeros, parts, changed)
    import tensorflow as tf

    size = ops.shape(tensors[0])[0]
    pieces = [_split(x, parts) for x in tensors]
    rows = [] if rows_dtype is None else [tf.TensorArray(rows_dtype, parts)]

    def add_part(i, sums, rows):
        new, new_rows = function(*[piece[i] for piece in pieces])
        sums = [a + b for a, b in zip(sums, new, strict=True)]
        return i + 1, sums, [array.write(i, new_rows) for array in rows]

    start = tf.constant(0), list(zeros), rows
    _, sums, rows = tf.while_loop(
        lambda i, *_: i < parts, add_part, start, parallel_iterations=at_once
    )
    return list(sums), rows[0].concat()[:size] if rows else None


def _split(x, parts):
    """Reshapes (B, ...) to (parts, ceil(B / parts), ...), with rows of zeros at the end."""
    rows = -(-ops.shape(x)[0] // parts)
    padding = [(0, parts * rows - ops.shape(x)[0])] + [(0, 0)] * (len(x.shape) - 1)
    return ops.reshape(ops.pad(x, padding), (parts, rows, *ops.shape(x)[1:]))


def checked_function(make_function, check):
    """Makes a step of `fit`, `evaluate` or `predict` that checks the shapes of every batch.

    Keras traces a step for the shapes of a batch. When others come, TensorFlow traces it again for
    sizes, and even ranks, that it does not know, and there a check of shapes finds nothing. So here
    the check sees what the batch itself knows, and ranks that differ have traces of their own.
    Other backends trace again for every shape.

    Args:
        make_function: function without arguments that makes a Keras step.
        check: function of the inputs, the labels and the sample weights of a batch, where
            `KerasTensor` stands for a tensor; it raises an error.

    Returns:
        A function to use in place of the Keras step.
    """
    if not on_tensorflow():
        return make_function()
    functions = {}

    def step(data):
        batch, data = _first_batch(data)
        batch = keras.tree.map_structure(_shape_only, batch)
        check(*keras.utils.unpack_x_y_sample_weight(batch))
        tensors = keras.tree.flatten(batch)
        ranks = tuple(None if x is None else len(x.shape) for x in tensors)
        if ranks not in functions:
            functions[ranks] = make_function()
        return functions[ranks](data)

    return step


def _first_batch(data):
    """Returns the first batch of what a Keras step is given, or its specs, and the data itself."""
    if isinstance(data, list):  # of `predict`
        return data[0], data
    if hasattr(data, "element_spec"):
        return data.element_spec, data
    batch = next(data)  # of `train_on_batch`
    return batch, iter([batch, *data])


def _shape_only(x):
    """Turns a tensor, an array or a spec into a `KerasTensor`; None where the rank is unknown."""
    import tensorflow as tf

    if isinstance(x, tf.TypeSpec):  # of all replicas
        x = tf.nest.flatten(x, expand_composites=True)[0]
    shape = getattr(x, "shape", None)
    if shape is None or isinstance(shape, tf.TensorShape) and shape.rank is None:
        return None
    return keras.KerasTensor(tuple(shape), keras.backend.standardize_dtype(x.dtype))
