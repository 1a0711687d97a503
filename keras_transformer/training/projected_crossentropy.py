"""The loss straight from hidden states, without a tensor of all logits."""

import keras
from keras import ops

# Tokens whose logits exist at a time. R-Drop's many passes over them are faster within a cache.
CHUNK_ROWS, R_DROP_CHUNK_ROWS = 1024, 128


def projected_crossentropy(
    hidden_states, lm_head_kernel, labels, token_weights, label_smoothing=0.0, r_drop=0.0
):
    """The weighted sum of `smoothed_crossentropy(labels, hidden_states E^T)` over all tokens.

    Logits are by far the largest tensor of a training step. Here a few rows of them exist at a
    time, and none in the backward pass: the gradient is computed with the loss. The gradient of
    the logits is `P - (1 - e) onehot - e / V` with their softmax P. Only P is multiplied by
    matrices; the other terms add rows of E, sums of rows of X and means to `dX = dZ E` and
    `dE = dZ^T X`.

    With `r_drop`, alpha in Liang et al. (2021), "R-Drop", there are two predictions P and Q of
    each token. Their mean loss grows by `alpha / 4 * (KL(P || Q) + KL(Q || P))`.

    Args:
        hidden_states: X, tensor (B, T, D); (2 B, T, D) with `r_drop`, the second predictions
            after all the first.
        lm_head_kernel: E, tensor (V, D).
        labels: integers (B, T) in [0, V).
        token_weights: float32 (B, T), the weight of each token in the sum.
        label_smoothing: e.
        r_drop: alpha; 0 for one prediction of each token.

    Returns:
        Two scalars, float32, in nats: the sum, and the sum without smoothing and R-Drop, which has
        no gradient. No token adds more than about 85 to it.
    """
    vocab_size, d_model = lm_head_kernel.shape
    copies = 2 if r_drop else 1
    labels = ops.reshape(ops.cast(labels, "int32"), (-1,))  # (N,)
    weights = ops.reshape(token_weights, (-1,)) / copies

    @ops.custom_gradient
    def loss_and_gradient(hidden_states, lm_head_kernel):
        embeddings = ops.cast(lm_head_kernel, "float32")
        kernel = ops.cast(embeddings, hidden_states.dtype)
        x = ops.reshape(hidden_states, (copies, -1, d_model))  # (copies, N, D)
        size = R_DROP_CHUNK_ROWS if r_drop else CHUNK_ROWS
        pieces = [to_chunks(y, size, axis) for y, axis in ((x, 1), (labels, 0), (weights, 0))]
        num_chunks = ops.shape(pieces[1])[0]
        places = ops.arange(num_chunks)[:, None, None]  # (K, 1, 1)

        def add_chunk(i, sums):
            chunk = (ops.take(p, i, axis=axis) for p, axis in zip(pieces, (1, 0, 0), strict=True))
            nll, kl, rows, columns = chunk_products(kernel, *chunk, r_drop)
            rows = ops.where(places == i, rows[:, None], sums[2])
            return sums[0] + nll, sums[1] + kl, rows, sums[3] + columns

        zero, shape = ops.zeros((), "float32"), (vocab_size, d_model)
        zeros = zero, zero, ops.zeros_like(pieces[0]), ops.zeros(shape, "float32")
        nll, kl, p_rows, p_columns = ops.fori_loop(0, num_chunks, add_chunk, zeros)
        p_rows = ops.reshape(p_rows, (copies, -1, d_model))[:, : ops.shape(x)[1]]

        x, p_rows = ops.cast(x, "float32"), ops.cast(p_rows, "float32")
        weighted = ops.sum(x, axis=0) * weights[:, None]  # (N, D)
        total = ops.sum(weighted, axis=0)  # (D,)
        at_labels = ops.take(embeddings, labels, axis=0)  # (N, D)
        mean = ops.mean(embeddings, axis=0)  # (D,)
        # The weighted sum of z[label] - mean(z), which smoothing adds to -log P[label].
        smoothing = ops.sum(weighted * at_labels) - ops.sum(total * mean)
        constant = (1 - label_smoothing) * at_labels + label_smoothing * mean  # (N, D)
        x_gradient = (p_rows - constant) * weights[:, None]  # (copies, N, D)
        e_gradient = (
            p_columns
            - (1 - label_smoothing) * ops.segment_sum(weighted, labels, vocab_size)
            - label_smoothing / vocab_size * total
        )  # (V, D)

        def gradient(*args, upstream=None):
            scale = args[0] if upstream is None else upstream[0]
            x_scaled = ops.reshape(x_gradient * scale, ops.shape(hidden_states))
            e_scaled = ops.cast(e_gradient * scale, lm_head_kernel.dtype)
            return ops.cast(x_scaled, hidden_states.dtype), e_scaled

        return (nll + label_smoothing * smoothing + r_drop / 2 * kl, nll), gradient

    return loss_and_gradient(hidden_states, lm_head_kernel)


def chunk_products(kernel, x, labels, weights, r_drop):
    """The terms of a chunk that need its logits.

    Args:
        kernel: tensor (V, D), in the dtype of `x`.
        x: tensor (copies, C, D).
        labels: integers (C,).
        weights: float32 (C,).
        r_drop: alpha.

    Returns:
        The weighted sums of `-log P[label]` and of the symmetric KL divergence; `G kernel`, of the
        shape of `x`, and `G^T (w x)`, (V, D) and float32, where G is P and what R-Drop adds to it.
    """
    weighted = ops.unstack(x * ops.cast(weights[:, None], x.dtype))  # (C, D) for each copy
    logits = [ops.matmul(copy, ops.transpose(kernel)) for copy in ops.unstack(x)]  # (C, V)
    # float16 has no number between 0 and 6e-8, where the label of a surprising token may lie.
    exact = "float32" if keras.backend.standardize_dtype(x.dtype) == "float16" else x.dtype
    g = [ops.softmax(ops.cast(z, exact), axis=-1) for z in logits]
    at_labels = [ops.take_along_axis(p, labels[:, None], axis=1)[:, 0] for p in g]
    p_label = ops.cast(ops.stack(at_labels), "float32")  # (copies, C)
    nll = -ops.sum(weights * ops.log(ops.maximum(p_label, 1e-37)))
    kl = ops.zeros((), "float32")
    if r_drop:
        divergence, g = with_divergence(g, logits, r_drop / 2)
        kl = ops.sum(weights * divergence)
    g = [ops.cast(p, x.dtype) for p in g]
    rows = ops.stack([ops.matmul(p, kernel) for p in g])  # (copies, C, D)
    columns = [ops.matmul(ops.transpose(p), y) for p, y in zip(g, weighted, strict=True)]
    return nll, kl, rows, ops.cast(sum(columns), "float32")


def with_divergence(probabilities, logits, scale):
    """`J = KL(P || Q) + KL(Q || P)`, and P and Q with `scale` times J's gradients added.

    `J = sum (P - Q) d` with `d = z_P - z_Q`, since the logarithms of the softmax's denominators
    cancel. Its gradient for `z_P` is `P d + P (1 - sum P d) - Q`. These are few passes over
    the vocabulary, since each is as slow as memory.

    Args:
        probabilities: P and Q, two tensors (C, V).
        logits: z_P and z_Q, two tensors (C, V).
        scale: float.

    Returns:
        J, float32 (C,), and two tensors like `probabilities`.
    """
    p, q = (ops.cast(x, "float32") for x in probabilities)
    z_p, z_q = (ops.cast(x, "float32") for x in logits)
    difference = z_p - z_q  # (C, V)
    p_terms, q_terms = p * difference, q * difference
    p_sum = ops.sum(p_terms, axis=-1, keepdims=True)  # (C, 1)
    q_sum = ops.sum(q_terms, axis=-1, keepdims=True)
    p_gradient = p * (1 + scale * (1 - p_sum)) + scale * (p_terms - q)
    q_gradient = q * (1 + scale * (1 + q_sum)) - scale * (q_terms + p)
    dtype = probabilities[0].dtype
    return (p_sum - q_sum)[:, 0], [ops.cast(p_gradient, dtype), ops.cast(q_gradient, dtype)]


def to_chunks(x, most, axis):
    """Cuts an axis of N into (K, C) with C of at most `most`, zeros at the end."""
    rows = ops.shape(x)[axis]
    chunks = (rows + most - 1) // most
    # A replica may have been left without a row.
    chunks = max(chunks, 1) if isinstance(chunks, int) else ops.maximum(chunks, 1)
    size = (rows + chunks - 1) // chunks
    padding = [(0, 0)] * len(x.shape)
    padding[axis] = (0, chunks * size - rows)
    return ops.reshape(ops.pad(x, padding), (*x.shape[:axis], chunks, size, *x.shape[axis + 1 :]))
