"""What a search multiplies with, laid out for it, once a search or once for all."""

import keras
from keras import ops

from keras_transformer.gather import rows_of
from keras_transformer.layers.linear import (
    BLOCK_WIDTH,
    column_blocks,
    product,
    with_spare_columns,
    without_spare_columns,
)

# Of narrower heads, a product of blocks is slower than that of the whole matrix. A smaller matrix
# stays in the cache, and one kernel multiplies by it, adds the bias and applies ReLU.
NARROWEST_HEAD, SMALLEST_MATRIX = 32, 2**17


def decoding_weights(decoder, output_kernel, encoder=None):
    """The matrices and biases that a search multiplies with, in the compute dtype.

    Args:
        decoder: a `Decoder`.
        output_kernel: tensor (D, V), whose product with the decoder's output are the logits.
        encoder: an `Encoder`, if there is one.

    Returns:
        A dict: "output_kernel" (D, V), "decoder" and, with one, "encoder", lists of the
        `step_weights` of each layer.
    """
    stacks = {"decoder": decoder, "encoder": encoder} if encoder else {"decoder": decoder}
    return {
        "output_kernel": ops.cast(output_kernel, decoder.compute_dtype),
        **{name: [x.step_weights() for x in stack.layers] for name, stack in stacks.items()},
    }


def in_spaced_rows(weights):
    """`decoding_weights` with matrices `with_spare_columns`, where their sizes need it.

    Args:
        weights: from `decoding_weights`.

    Returns:
        A dict like `weights`.
    """
    return keras.tree.map_structure(with_spare_columns, weights)


def in_blocks(weights, head_dim):
    """`decoding_weights` with matrices in `column_blocks`, where their sizes allow it.

    To lay them out takes longer than one search wins: it is for those who keep them.

    Args:
        weights: from `decoding_weights`.
        head_dim: D/H of the decoder.

    Returns:
        A dict like `weights`, also with "output_blocks" and without "encoder", which multiplies
        many rows and so reads its own.
    """

    def is_large(kernel):
        return kernel.shape[0] * kernel.shape[1] >= SMALLEST_MATRIX

    def dense(kernel, *bias):
        has_blocks = is_large(kernel) and kernel.shape[1] % BLOCK_WIDTH == 0
        return (column_blocks(kernel) if has_blocks else kernel, *bias)

    def layer(weights):
        kernel, _ = weights["self_attention"]["projection"]
        has_heads = head_dim >= NARROWEST_HEAD and is_large(kernel)

        def of_heads(attention, name):
            kernel, bias = attention[name]
            kernel = column_blocks(kernel, head_dim) if has_heads else kernel  # a head a block
            return {**attention, name: (kernel, bias)}

        laid_out = {"self_attention": of_heads(weights["self_attention"], "projection")}
        if "cross_attention" in weights:
            laid_out["cross_attention"] = of_heads(weights["cross_attention"], "query")
        laid_out["feed_forward"] = [dense(*pair) for pair in weights["feed_forward"]]
        return laid_out

    blocks = column_blocks(weights["output_kernel"])
    layers = [layer(x) for x in weights["decoder"]]
    kernel = weights["output_kernel"]
    return {"output_kernel": kernel, "output_blocks": blocks, "decoder": layers}


def rows_of_step(x, rows=None):
    """The decoder's output (B, K, D) as (B * K, D), or of it the rows (R,) alone."""
    x = ops.reshape(x, (-1, x.shape[-1]))  # (B * K, D)
    return x if rows is None else rows_of(x, rows)  # (R, D)


def logits_of_step(x, weights, vocab_size):
    """The scores of all tokens after each hypothesis.

    Args:
        x: tensor (R, D), from `rows_of_step`.
        weights: from `decoding_weights`, `in_blocks` or `in_spaced_rows`.
        vocab_size: V.

    Returns:
        Tensor (R, V), float32.
    """
    logits = product(x, weights["output_kernel"], weights.get("output_blocks"))
    return ops.cast(without_spare_columns(logits, vocab_size), "float32")
