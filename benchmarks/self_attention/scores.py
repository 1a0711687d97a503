"""How queries are compared with keys: by a product, scaled or not, or by a small network."""

import numpy as np
import tensorflow as tf

SCALED, PLAIN, ADDITIVE = "dot product / sqrt(d_k)", "dot product", "additive"
NAMES = (SCALED, PLAIN, ADDITIVE)


def scores(name, query, key, v):
    """What softmax makes attention weights of: (B, T, S).

    Args:
        name: one of `NAMES`.
        query: tensor (B, T, d_k), projected already, `W q`.
        key: tensor (B, S, d_k), projected already, `U k`.
        v: tensor (d_k,), of the additive score `v tanh(W q + U k)` (Bahdanau et al., 2015).
    """
    if name == ADDITIVE:
        hidden = tf.tanh(query[:, :, None] + key[:, None])  # (B, T, S, d_k)
        return tf.linalg.matvec(hidden, v)
    product = tf.matmul(query, key, transpose_b=True)
    return product * query.shape[-1] ** -0.5 if name == SCALED else product


def attention(name, query, key, value, v):
    """The values (B, S, d_v), weighted for each query: (B, T, d_v)."""
    return tf.matmul(tf.nn.softmax(scores(name, query, key, v)), value)


def unit_inputs(d_k, batch_size, num_queries, num_keys, seed=0):
    """Queries and keys of variance 1, and v of norm 1, as the layers before would give them."""
    random = np.random.default_rng(seed)
    shapes = (batch_size, num_queries, d_k), (batch_size, num_keys, d_k), (d_k,)
    query, key, v = (random.normal(size=shape).astype("float32") for shape in shapes)
    return tf.constant(query), tf.constant(key), tf.constant(v / np.linalg.norm(v))
