"""Attention in several heads (paper, section 3.2.2)."""

import math
from functools import partial
from typing import Unpack

import keras
from keras import ops

from keras_transformer.checks import check_heads, check_rate
from keras_transformer.keras_names import KerasNames
from keras_transformer.layers.arguments import config_of, keep_arguments
from keras_transformer.layers.attention import attention
from keras_transformer.layers.attention_memory import Memory
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.low_rank import LowRankAdaptation
from keras_transformer.layers.masks import full_mask, takes_carried_masks
from keras_transformer.layers.rotary import rotate
from keras_transformer.type_hints import KerasOptions


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(KerasNames, LowRankAdaptation, keras.layers.Layer):
    """Attention in `num_heads` subspaces at once.

    `MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O` with
    `head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)` ("Attention Is All You Need", section 3.2.2).
    Every head is `d_model / num_heads` wide, so all heads together cost as much as one of full
    width. W^K and W^V are one matrix, since keys and values read the same vectors.

    Args:
        d_model: D, the width of inputs and output; a multiple of `num_heads`.
        num_heads: H.
        dropout: rate applied to the attention scores.
        rotary: whether positions turn queries and keys, so that self-attention sees how far apart
            two tokens are; see `rotate`. D/H must then be even.
        use_bias: whether the projections have biases.

    Call arguments:
        query: tensor (B, T, D).
        value: tensor (B, S, D), or a `Memory` from `project_memory`; `query` by default
            (self-attention).
        key: tensor (B, S, D); `value` by default.
        attention_mask: boolean, (B, S) or broadcastable to (B, T, S), True = may attend. A mask
            that Keras carries with the keys hides them as well.
        use_causal_mask: whether the keys after a query are hidden from it.
        position_ids: integers (T,) or (B, T), the positions for `rotary`; by default they continue
            after the cache.
        cache: a `KVCache` of earlier keys and values, to which those of this call are added. S is
            then its L. The mask must hide the places that are still free; `use_causal_mask` does.
        return_attention_scores: whether to return the scores as well.
        training: whether dropout is applied.

    Returns:
        Tensor (B, T, D). With `return_attention_scores`, a pair of it and the scores (B, H, T, S),
        float32, before dropout.

    Raises:
        ValueError: if `d_model` is not a multiple of `num_heads`, the rate is outside [0, 1), or
            `rotary` is used with heads of odd width or for cross-attention, or for a mask of
            floats.

    Example:
        >>> layer = MultiHeadAttention(d_model=8, num_heads=2)
        >>> ops.shape(layer(np.ones((1, 3, 8)), use_causal_mask=True))
        (1, 3, 8)
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        rotary: bool = False,
        use_bias: bool = True,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        keep_arguments(self, locals())
        self.d_model, self.num_heads = check_heads(d_model, num_heads)
        self.dropout = check_rate("dropout", dropout)
        self.rotary = rotary
        head_dim = self.d_model // self.num_heads
        if rotary and head_dim % 2:
            raise ValueError(
                f"rotary turns pairs of numbers, but d_model={d_model} and num_heads={num_heads} "
                f"make heads of width {head_dim}; choose them so that it is even."
            )
        # Glorot's limit for one matrix (D, 3 D) of all three input projections. It is 1/sqrt(2) of
        # the limit for (D, D), and keeps the first scores of a deep post-norm stack soft.
        limit = math.sqrt(6 / (4 * self.d_model))
        options = {"use_bias": use_bias, "dtype": self.dtype_policy}
        inputs = {**options, "kernel_initializer": keras.initializers.RandomUniform(-limit, limit)}
        self.query_projection = Dense(self.d_model, name="query_projection", **inputs)
        self.memory_projection = Dense(2 * self.d_model, name="memory_projection", **inputs)
        self.output_projection = Dense(self.d_model, name="output_projection", **options)
        # In a bfloat16 export, a `DTypePolicyMap` looks layers up by path. Dropout has no path, so
        # autocast would give it the map's default, float32.
        self.dropout_layer = Dropout(dropout, autocast=False, dtype=self.dtype_policy)

    def build(self, query_shape, value_shape=None, key_shape=None):
        for shape in (query_shape, value_shape, key_shape):
            if isinstance(shape, tuple) and isinstance(shape[-1], int):
                self._check_shape(shape)
        vectors = (None, None, self.d_model)
        self.query_projection.build(vectors)
        self.memory_projection.build(vectors)
        self.output_projection.build(vectors)

    @takes_carried_masks("query", "value", "key")
    def call(
        self,
        query,
        value=None,
        key=None,
        *,
        attention_mask=None,
        use_causal_mask=False,
        position_ids=None,
        cache=None,
        return_attention_scores=False,
        training=None,
        **carried,
    ):
        self._check_call(query, value, key)
        if value is not None:  # the query's own mask hides no keys
            carried = [carried.get(name) for name in ("value_mask", "key_mask")]
        query, keys, values = self.project(query, value, key)  # (B, H, T or S, D/H) each
        first = 0 if cache is None else cache.index
        if self.rotary:
            query, keys = (rotate(x, position_ids, first) for x in (query, keys))
        if cache is not None:
            keys, values = cache.update(keys, values)  # (B, H, S, D/H) each
        mask = full_mask(attention_mask, carried, use_causal_mask, query, keys, first)
        drops = training and self.dropout
        heads, scores = attention(
            query,
            keys,
            values,
            mask,  # broadcasts to (B, H, T, S), or None
            needs_scores=return_attention_scores,
            dropout=partial(self.dropout_layer, training=True) if drops else None,
        )  # (B, H, T, D/H), (B, H, T, S)
        output = self.output_projection(merge_heads(heads))  # (B, T, D)
        return (output, scores) if return_attention_scores else output

    def project(self, query, value=None, key=None):
        """Computes the inputs of every head: `Q W^Q`, `K W^K`, `V W^V` (paper, section 3.2.2).

        Args:
            query, value, key: as in the call.

        Returns:
            Queries (B, H, T, D/H), keys and values (B, H, S, D/H).
        """
        keys, values = self.project_memory(query if value is None else value, key)
        return split_heads(self.query_projection(query), self.num_heads), keys, values

    def project_memory(self, value, key=None) -> Memory:
        """Projects `value` to keys and values that many calls can read.

        Args:
            value: tensor (B, S, D); a `Memory` is returned as it is.
            key: tensor (B, S, D) to make the keys from; `value` by default.
        """
        if isinstance(value, Memory):
            return value
        keys, values = ops.split(self.memory_projection(value), 2, axis=-1)  # (B, S, D) each
        if key is not None:
            keys, _ = ops.split(self.memory_projection(key), 2, axis=-1)
        keys, values = (split_heads(x, self.num_heads) for x in (keys, values))
        return Memory(keys, values)  # (B, H, S, D/H) each

    def _check_shape(self, shape):
        if len(shape) != 3:
            raise ValueError(
                f"MultiHeadAttention reads tensors (B, T, D), but received the shape "
                f"{tuple(shape)}; add an axis, or wrap the layer in keras.layers.TimeDistributed."
            )
        if shape[-1] != self.d_model:
            raise ValueError(
                f"MultiHeadAttention expects inputs of width d_model={self.d_model}, but "
                f"received the shape {tuple(shape)}; project the input to that width first."
            )

    def _check_call(self, query, value, key):
        for x in (query, value, key):
            if x is not None and not isinstance(x, Memory):
                self._check_shape(x.shape)
        if self.rotary and (value is not None or key is not None):
            raise ValueError(
                "rotary attention is self-attention: call it with the query alone, or make the "
                "layer with rotary=False."
            )
        if key is not None and (value is None or isinstance(value, Memory)):
            what = "a Memory, which has keys" if value is not None else "no value"
            raise ValueError(
                f"key stands beside a value (B, S, D), but there is {what}; leave key out."
            )

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return tuple(query_shape)

    def compute_output_spec(self, query, value=None, key=None, **options):
        self._check_call(query, value, key)
        output = keras.KerasTensor(query.shape, self.compute_dtype)
        if not options.get("return_attention_scores"):
            return output
        value = query if value is None else value
        keys = value.keys.shape[2] if isinstance(value, Memory) else value.shape[1]
        shape = (query.shape[0], self.num_heads, query.shape[1], keys)
        return output, keras.KerasTensor(shape, "float32")

    def get_config(self):
        return {**super().get_config(), **config_of(self)}


def split_heads(x, num_heads):
    """Splits vectors into heads, (B, T, D) to (B, H, T, D/H)."""
    x = ops.reshape(x, (*first_sizes(x), num_heads, x.shape[-1] // num_heads))  # (B, T, H, D/H)
    return ops.transpose(x, (0, 2, 1, 3))  # (B, H, T, D/H)


def merge_heads(x):
    """Joins the heads, (B, H, T, D/H) to (B, T, D): the "Concat" of the paper's section 3.2.2."""
    x = ops.transpose(x, (0, 2, 1, 3))  # (B, T, H, D/H)
    return ops.reshape(x, (*first_sizes(x), x.shape[2] * x.shape[3]))


def first_sizes(x):
    """Returns the sizes (B, T) of `x`, for a reshape: with -1 for B if that alone is unknown.

    A step of a search knows T, so it computes no shapes.
    """
    batch_size, length = ops.shape(x)[:2]
    return (-1 if x.shape[0] is None and isinstance(length, int) else batch_size), length
