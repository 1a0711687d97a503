"""Three layers that read a sequence (B, T, D) from left to right, at the same width."""

import keras

from keras_transformer import MultiHeadAttention

KERNEL_SIZE = 3
LAYERS = ("self-attention", "LSTM", "convolution")
PRODUCTS = {"MatMul", "BatchMatMulV2", "Conv2D"}


def make(name, d_model, num_heads=4, unroll=False):
    """A causal layer from (B, T, D) to (B, T, D)."""
    if name == "self-attention":
        return CausalAttention(d_model, num_heads)
    if name == "LSTM":
        return keras.layers.LSTM(d_model, return_sequences=True, unroll=unroll)
    if name == "convolution":
        return keras.layers.Conv1D(d_model, KERNEL_SIZE, padding="causal", activation="relu")
    raise ValueError(f"the layer must be one of {LAYERS}, but is {name!r}.")


class CausalAttention(keras.layers.Layer):
    """`MultiHeadAttention` of a sequence to itself, each position to those before it."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, num_heads)

    def build(self, shape):
        self.attention.build(shape)

    def call(self, x):
        return self.attention(x, use_causal_mask=True)


def sequential_products(name, length, d_model=8):
    """How many matrix products of a layer wait for one another: the longest chain in its graph."""
    import tensorflow as tf

    layer = make(name, d_model, unroll=True)
    shape = (1, length, d_model)
    layer.build(shape)
    function = tf.function(lambda x: layer(x), autograph=False)
    chain = {}
    for op in function.get_concrete_function(tf.TensorSpec(shape)).graph.get_operations():
        if "While" in op.type or "Call" in op.type:
            raise ValueError(f"{name} hides products in {op.type!r}, where they cannot be counted.")
        before = max((chain[x.op.name] for x in op.inputs), default=0)
        chain[op.name] = before + (op.type in PRODUCTS)
    return max(chain.values())
