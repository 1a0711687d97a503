"""What every step of a search multiplies with, laid out for it, once a search or once for all."""

from keras import ops

from keras_transformer.layers.linear import BLOCK_WIDTH, column_blocks, product

# Of narrower heads, a product of blocks is slower than that of the whole matrix. A smaller matrix
# stays in the cache, and one kernel multiplies by it, adds the bias and applies ReLU.
NARROWEST_HEAD, SMALLEST_MATRIX = 32, 2**17


def decoding_weights(decoder, output_kernel):
    """The matrices and biases that a step of a search multiplies with, in the compute dtype.

    Args:
        decoder: a `Decoder`.
        output_kernel: tensor (D, V), whose product with the decoder's output are the logits.

    Returns:
        A dict: "output_kernel" (D, V), and "layers", the `DecoderLayer.step_weights` of each layer.
    """
    return {
        "output_kernel": ops.cast(output_kernel, decoder.compute_dtype),
        "layers": [layer.step_weights() for layer in decoder.layers],
    }


def in_blocks(weights, head_dim):
    """`decoding_weights` with matrices in `column_blocks`, where their sizes allow it.

    To lay them out takes longer than one search wins: it is for those who keep them.

    Args:
        weights: from `decoding_weights`.
        head_dim: D/H of the decoder.

    Returns:
        A dict like `weights`, also with "output_blocks".
    """

    def is_large(kernel):
        return kernel.shape[0] * kernel.shape[1] >= SMALLEST_MATRIX

    def dense(kernel, *bias):
        has_blocks = is_large(kernel) and kernel.shape[1] % BLOCK_WIDTH == 0
        return (column_blocks(kernel) if has_blocks else kernel, *bias)

    def layer(weights):
        kernel, bias = weights["self_attention"]
        if head_dim >= NARROWEST_HEAD and is_large(kernel):
            kernel = column_blocks(kernel, head_dim)  # (3 H, D, D/H), a head a block
        feed_forward = [dense(*pair) for pair in weights["feed_forward"]]
        return {**weights, "self_attention": (kernel, bias), "feed_forward": feed_forward}

    blocks = column_blocks(weights["output_kernel"])
    layers = [layer(x) for x in weights["layers"]]
    return {**weights, "output_blocks": blocks, "layers": layers}


def logits_of_step(x, weights, rows=None):
    """The scores of all tokens after each hypothesis.

    Args:
        x: tensor (B, K, D), the decoder's output.
        weights: from `decoding_weights` or `in_blocks`.
        rows: int32 (R,), the hypotheses whose scores are wanted; all by default.

    Returns:
        Tensor (R, V), by default (B * K, V), float32.
    """
    kernel = weights["output_kernel"]
    x = ops.reshape(x, (-1, kernel.shape[0]))  # (B * K, D)
    x = x if rows is None else ops.take(x, rows, axis=0)  # (R, D)
    return ops.cast(product(x, kernel, weights.get("output_blocks")), "float32")
