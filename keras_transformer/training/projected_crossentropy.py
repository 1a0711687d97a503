"""The loss straight from hidden states, without a tensor of all logits."""

import keras
from keras import ops

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.training.jax_devices import num_batch_shards

# How many tokens' logits exist at once. R-Drop passes over them often, so they should fit a cache.
CHUNK_ROWS, R_DROP_CHUNK_ROWS = 1024, 128
# On JAX, for each device: a GPU has no use for a chunk that fits the cache of a core.
DEVICE_CHUNK_ROWS = 4096


def projected_crossentropy(
    hidden_states, lm_head_kernel, labels, token_weights, label_smoothing=0.0, r_drop=0.0
):
    """Sums `weight * smoothed_crossentropy(label, hidden_state E^T)` over all tokens.

    Logits are by far the largest tensor of a training step. Here only a few rows of them exist at
    once, and none in the backward pass: the gradient is computed with the loss. With P the softmax
    of the logits Z, the gradient of Z is `dZ = P - (1 - e) onehot - e / V`. So `dX = dZ E` and
    `dE = dZ^T X` need only the products `P E` and `P^T X`. The other two terms add rows of E, sums
    of rows of X, and means.

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
        no gradient. The cross entropy of a token counts as 85 at most.
    """
    vocab_size, d_model = lm_head_kernel.shape
    copies = 2 if r_drop else 1
    # On JAX the rows of a batch lie on several devices.
    groups = max(labels.shape[0], 1) if STEPS_ARE_PURE else 1
    labels = ops.reshape(ops.cast(labels, "int32"), (-1,))  # (N,)
    weights = ops.reshape(token_weights, (-1,)) / copies  # (N,)

    @ops.custom_gradient
    def loss_and_gradient(hidden_states, lm_head_kernel):
        embeddings = ops.cast(lm_head_kernel, "float32")
        kernel = ops.cast(embeddings, hidden_states.dtype)
        x = ops.reshape(hidden_states, (copies, -1, d_model))  # (copies, N, D)
        nll, kl, p_e, pt_x = products(kernel, x, labels, weights, groups, r_drop)

        x, p_e = ops.cast(x, "float32"), ops.cast(p_e, "float32")
        weighted = ops.sum(x, axis=0) * weights[:, None]  # (N, D)
        total = ops.sum(weighted, axis=0)  # (D,)
        at_labels = ops.take(embeddings, labels, axis=0)  # (N, D)
        mean = ops.mean(embeddings, axis=0)  # (D,)
        # The weighted sum of z[label] - mean(z), which smoothing adds to -log P[label].
        smoothing = ops.sum(weighted * at_labels) - ops.sum(total * mean)
        constant = (1 - label_smoothing) * at_labels + label_smoothing * mean  # (N, D)
        x_gradient = (p_e - constant) * weights[:, None]  # (copies, N, D)
        e_gradient = (
            pt_x
            - (1 - label_smoothing) * ops.segment_sum(weighted, labels, vocab_size)
            - label_smoothing / vocab_size * total
        )  # (V, D)

        def gradient(*args, upstream=None):
            # There are two gradients, one per result. The second result has none to pass on.
            scale = keras.tree.flatten(args if upstream is None else upstream)[0]
            x_scaled = ops.reshape(x_gradient * scale, ops.shape(hidden_states))
            e_scaled = ops.cast(e_gradient * scale, lm_head_kernel.dtype)
            return ops.cast(x_scaled, hidden_states.dtype), e_scaled

        return (nll + label_smoothing * smoothing + r_drop / 2 * kl, nll), gradient

    return loss_and_gradient(hidden_states, lm_head_kernel)


def products(kernel, x, labels, weights, groups, r_drop):
    """Computes the terms of all tokens that need logits, a chunk at a time.

    Args:
        kernel: E, tensor (V, D), in the dtype of `x`.
        x: tensor (copies, N, D).
        labels: integers (N,).
        weights: w, float32 (N,).
        groups: G. A chunk has as many tokens of each of so many parts of N, so that a device that
            holds some parts has its share of every chunk.
        r_drop: alpha.

    Returns:
        As `chunk_products`, for N tokens.
    """
    copies, _, d_model = x.shape
    size = rows_of_chunk(groups, r_drop)
    grouped = ops.reshape(x, (copies, groups, -1, d_model))  # (copies, G, N/G, D)
    chunks = [to_chunks(ops.reshape(y, (groups, -1)), size, 1) for y in (labels, weights)]
    chunks = [to_chunks(grouped, size, 2), *chunks]  # (copies, G, K, C, D), (G, K, C)
    num_chunks = ops.shape(chunks[1])[1]
    places = ops.arange(num_chunks)[:, None, None]  # (K, 1, 1)

    def add_chunk(i, sums):
        rows, *others = (ops.take(y, i, axis=k) for y, k in zip(chunks, (2, 1, 1), strict=True))
        rows, others = ops.reshape(rows, (copies, -1, d_model)), map(ops.ravel, others)
        nll, kl, p_e, pt_x = chunk_products(kernel, rows, *others, r_drop)
        p_e = ops.reshape(p_e, (copies, groups, 1, -1, d_model))
        p_e = ops.where(places == i, p_e, sums[2])  # (copies, G, K, C, D)
        return sums[0] + nll, sums[1] + kl, p_e, sums[3] + pt_x

    zero, pt_x = ops.zeros((), "float32"), ops.zeros(kernel.shape, "float32")
    zeros = zero, zero, ops.zeros_like(chunks[0]), pt_x
    nll, kl, p_e, pt_x = ops.fori_loop(0, num_chunks, add_chunk, zeros)
    p_e = ops.reshape(p_e, (copies, groups, -1, d_model))[:, :, : ops.shape(grouped)[2]]
    return nll, kl, ops.reshape(p_e, (copies, -1, d_model)), pt_x


def chunk_products(kernel, x, labels, weights, r_drop):
    """Computes the terms of a chunk that need its logits.

    Args:
        kernel: E, tensor (V, D), in the dtype of `x`.
        x: tensor (copies, C, D).
        labels: integers (C,).
        weights: w, float32 (C,).
        r_drop: alpha.

    Returns:
        The weighted sums of `-log P[label]` and of the symmetric KL divergence; `P E`, like `x`;
        and `P^T (w x)`, float32 (V, D). In the two products, P includes the gradient of R-Drop.
    """
    weighted = ops.unstack(x * ops.cast(weights[:, None], x.dtype))  # (C, D) for each copy
    logits = [ops.matmul(copy, ops.transpose(kernel)) for copy in ops.unstack(x)]  # (C, V)
    # float16 has no number between 0 and 6e-8, where the probability of an unlikely label may lie.
    exact = "float32" if keras.backend.standardize_dtype(x.dtype) == "float16" else x.dtype
    probabilities = [ops.softmax(ops.cast(z, exact), axis=-1) for z in logits]
    at_labels = [ops.take_along_axis(p, labels[:, None], axis=1)[:, 0] for p in probabilities]
    p_label = ops.cast(ops.stack(at_labels), "float32")  # (copies, C)
    nll = -ops.sum(weights * ops.log(ops.maximum(p_label, 1e-37)))
    kl, gradients = ops.zeros((), "float32"), probabilities
    if r_drop:
        divergence, gradients = with_divergence(probabilities, logits, r_drop / 2)
        kl = ops.sum(weights * divergence)
    gradients = [ops.cast(g, x.dtype) for g in gradients]
    p_e = ops.stack([ops.matmul(g, kernel) for g in gradients])  # (copies, C, D)
    pt_x = sum(ops.matmul(ops.transpose(g), y) for g, y in zip(gradients, weighted, strict=True))
    return nll, kl, p_e, ops.cast(pt_x, "float32")


def with_divergence(probabilities, logits, scale):
    """Computes `J = KL(P || Q) + KL(Q || P)`, and adds `scale` times J's gradients to P and Q.

    `J = sum (P - Q) d` with `d = z_P - z_Q`, since the logarithms of the softmax's denominators
    cancel. Its gradient for `z_P` is `P d + P (1 - sum P d) - Q`. This form makes few passes over
    the vocabulary. A pass takes as long as reading it from memory.

    Args:
        probabilities: P and Q, two tensors (C, V).
        logits: z_P and z_Q, two tensors (C, V).
        scale: float.

    Returns:
        J, float32 (C,), and P and Q with the gradients added, like `probabilities`.
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


def rows_of_chunk(groups, r_drop):
    """Returns how many tokens of each group a chunk has at most."""
    if not STEPS_ARE_PURE:
        return R_DROP_CHUNK_ROWS if r_drop else CHUNK_ROWS
    return max(1, DEVICE_CHUNK_ROWS * num_batch_shards() // groups)


def to_chunks(x, most, axis):
    """Cuts an axis of N into (K, C), with `C <= most` and zeros at the end."""
    rows = ops.shape(x)[axis]
    chunks = (rows + most - 1) // most
    # A replica may have no rows.
    chunks = max(chunks, 1) if isinstance(chunks, int) else ops.maximum(chunks, 1)
    size = (rows + chunks - 1) // chunks
    padding = [(0, 0)] * len(x.shape)
    padding[axis] = (0, chunks * size - rows)
    return ops.reshape(ops.pad(x, padding), (*x.shape[:axis], chunks, size, *x.shape[axis + 1 :]))
