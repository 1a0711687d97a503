"""Attention in several heads."""

import keras
from keras import ops

from keras_transformer.checks import check_heads, check_rate
from keras_transformer.layers.attention_gradient import attention_in_training
from keras_transformer.layers.decoding_step import (
    heads_of_blocks,
    merge_heads_of_step,
    split_heads_of_step,
    write_cache,
)
from keras_transformer.layers.dot_product_attention import (
    dot_product_attention,
    fused_attention,
)
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.extras import WithExtras
from keras_transformer.layers.linear import Linear, linear, without_spare_columns
from keras_transformer.layers.masks import causal_mask, check_mask, combine_masks
from keras_transformer.layers.rotary import rotate


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(WithExtras, keras.layers.Layer):
    """Attention in `num_heads` subspaces at once.

    `MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O` with
    `head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)` ("Attention Is All You Need", section 3.2.2).
    Every head is `d_model / num_heads` wide, so the cost is that of one full-width head. The
    three input projections are one matrix, a single product in self-attention.

    With `rotary`, self-attention sees how far apart two tokens are: queries and keys are turned by
    their positions, the keys before they are cached.

    Args:
        d_model: D, the width of inputs and output; a multiple of `num_heads`.
        num_heads: H.
        dropout: rate applied to the attention weights.
        rotary: whether positions turn queries and keys; see `rotate`. D/H is then even, and
            `value` and `key` are those of the query.

    Call arguments:
        query: tensor (B, T, D).
        value: tensor (B, S, D); `query` by default (self-attention).
        key: tensor (B, S, D); `value` by default.
        attention_mask: boolean, (B, S) or broadcastable to (B, T, S), True = may attend.
        use_causal_mask: whether a query is kept from keys after it.
        cache: with `position`, from `init_cache` or the last call: keys and values of this call are
            written at `position`, and the mask must hide what is not yet written;
            `use_causal_mask` does. Without `position`, from `compute_cache`: the queries attend to
            it as it is.
        position: the index of the first query among the cached keys.
        positions: integers (T,) or (B, T), the places in the sequence by which `rotary` turns
            queries and keys; from `position`, or 0, on by default.
        step_weights: with `cache` or one argument, what `step_weights` returns, to use instead of
            reading the weights anew. They may be `with_spare_columns`; the kernel of
            "projection" may be in `column_blocks`, of which each is a head.
        return_attention_scores: whether the weights are returned, too.
        training: whether dropout is applied.

    Returns:
        Tensor (B, T, D). With `return_attention_scores` followed by the weights (B, H, T, S),
        float32; with `cache` followed by the new cache.

    Raises:
        ValueError: if `d_model` is not a multiple of `num_heads`, the rate outside [0, 1), or
            `rotary` is asked of heads of odd width or of cross-attention.

    Example:
        >>> layer = MultiHeadAttention(d_model=8, num_heads=2)
        >>> ops.shape(layer(np.ones((1, 3, 8)), use_causal_mask=True))
        (1, 3, 8)
    """

    def __init__(self, d_model, num_heads, *, dropout=0.0, rotary=False, **kwargs):
        super().__init__(**kwargs)
        self.d_model, self.num_heads = check_heads(d_model, num_heads)
        self.head_dim = self.d_model // self.num_heads
        self.dropout = check_rate("dropout", dropout)
        self.rotary = rotary
        if rotary and self.head_dim % 2:
            raise ValueError(
                f"rotary turns pairs of numbers, but d_model={d_model} and num_heads={num_heads} "
                f"make heads of width {self.head_dim}; choose them so that it is even."
            )
        # A layer without weights has no path, by which a `DTypePolicyMap` would find its dtype.
        self.dropout_layer = Dropout(dropout, autocast=False, dtype=self.dtype_policy)
        self.output_projection = Linear(d_model, name="output_projection", dtype=self.dtype_policy)

    def build(self, query_shape, value_shape=None, key_shape=None):
        self._check_width(query_shape, value_shape, key_shape)
        # Glorot over the fused matrix: 1/sqrt(2) of the scale of three separate ones, which keeps
        # the first attention weights of a deep post-norm stack soft.
        self.kernel = self.add_weight(
            name="kernel", shape=(self.d_model, 3 * self.d_model), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(3 * self.d_model,), initializer="zeros")
        self.output_projection.build((None, None, self.d_model))

    def _check_width(self, *shapes):
        for shape in shapes:
            if shape is not None and shape[-1] != self.d_model:
                raise ValueError(
                    f"MultiHeadAttention expects inputs of width d_model={self.d_model}, but "
                    f"received the shape {tuple(shape)}; project the input to that width first."
                )

    def call(
        self,
        query,
        value=None,
        key=None,
        *,
        attention_mask=None,
        use_causal_mask=False,
        cache=None,
        position=None,
        positions=None,
        step_weights=None,
        return_attention_scores=False,
        training=None,
    ):
        self._check_width(*(x.shape for x in (query, value, key) if x is not None))
        is_step = cache is not None
        heads_axis = 0 if is_step else 1  # below (B, H, ...) is (H, B, ...) in a step
        is_cross = value is not None or key is not None or (is_step and position is None)
        if self.rotary and is_cross:
            raise ValueError(
                "rotary attention is self-attention: call it without value and key, and with the "
                "position of a cache; for another use leave out rotary."
            )
        if is_step and position is None:
            step_weights = step_weights or self.step_weights(is_cross=True)
            (query,), (key, value) = self._project_step(query, step_weights["query"]), cache
        elif is_step and not is_cross:
            step_weights = step_weights or self.step_weights()
            query, key, value = self._project_step(query, step_weights["projection"])
        elif step_weights and not is_cross:
            query, key, value = self._split(query, step_weights["projection"], 3)  # (B, H, T, D/H)
        else:
            query, key, value = self._project_all(query, value, key)  # (B, H, T|S, D/H)
        start = 0 if position is None else position  # not `or`: it may be a symbolic tensor
        if self.rotary:
            places = places_of(query, positions, start, heads_axis)
            query, key = rotate(query, places), rotate(key, places)  # (B, H, T, D/H)
        if is_step and position is not None:
            cache = write_cache(cache, key, value, position)
            key, value = cache[:2]  # (H, B, L, D/H)
        lengths = ops.shape(query)[2], ops.shape(key)[2]
        causal = causal_mask(*lengths, start) if use_causal_mask else None
        attention_mask = combine_masks(attention_mask, causal)
        check_mask(attention_mask, query.shape[1 - heads_axis], key.shape[2])
        if attention_mask is not None:
            attention_mask = ops.expand_dims(attention_mask, heads_axis)  # (B, 1, T, S)
        # TensorFlow has no fused kernel, and Keras none that drops weights out.
        drops = bool(self.dropout and training)
        needs_weights = is_step or return_attention_scores or drops
        if keras.backend.backend() == "jax" and not needs_weights:
            heads = fused_attention(query, key, value, attention_mask)  # (B, H, T, D/H)
        elif training and not needs_weights:
            is_causal = use_causal_mask and not is_cross
            heads = attention_in_training(query, key, value, attention_mask, is_causal)
        else:
            heads, weights = dot_product_attention(
                query,
                key,
                value,
                attention_mask,
                dropout=lambda weights: self.dropout_layer(weights, training=training),
            )  # (B, H, T, D/H), (B, H, T, S)
        merge = merge_heads_of_step if is_step else merge_heads
        output_weights = step_weights and step_weights["output"]
        output = self.output_projection(merge(heads), step_weights=output_weights)  # (B, T, D)
        extras = [cache] if is_step else []
        if return_attention_scores:
            extras = [ops.transpose(weights, (1, 0, 2, 3)) if is_step else weights, *extras]
        return (output, *extras) if extras else output

    def init_cache(self, batch_size, length):
        """An empty cache for `length` keys: a pair of zero tensors (H, B, L, D/H)."""
        shape = (self.num_heads, batch_size, length, self.head_dim)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype)

    def compute_cache(self, value, step_weights=None):
        """The projections of `value` (B, S, D), for queries to come.

        `step_weights` is that of a call with what this returns.

        Returns:
            Keys and values, each (H, B, S, D/H).
        """
        weights = step_weights["memory"] if step_weights else self._columns(1, 3)
        key, value = self._split(value, weights, 2)
        return ops.transpose(key, (1, 0, 2, 3)), ops.transpose(value, (1, 0, 2, 3))

    def step_weights(self, is_cross=False):
        """The kernels and the biases that a call multiplies with, in the compute dtype.

        Args:
            is_cross: whether the cache is that of other vectors, so that only queries are new.

        Returns:
            A dict of pairs: "projection", tensors (D, 3 D) and (3 D,), with `is_cross` instead of
            it "query", (D, D) and (D,), and "memory", (D, 2 D) and (2 D,); "output", those of the
            output's projection.
        """
        parts = {"query": (0, 1), "memory": (1, 3)} if is_cross else {"projection": (0, 3)}
        weights = {name: self._columns(*part) for name, part in parts.items()}
        return {**weights, "output": self.output_projection.step_weights()}

    def _columns(self, first, last):
        """Kernel and bias of the projections `first` to `last` of (query, key, value)."""
        kernel, bias = (ops.cast(w, self.compute_dtype) for w in (self.kernel, self.bias))
        if last - first < 3:
            columns = slice(first * self.d_model, last * self.d_model)
            kernel, bias = kernel[:, columns], bias[columns]
        return kernel, bias

    def _project_all(self, query, value, key):
        if value is None and key is None:
            return self._project(query, 0, 3)
        value = query if value is None else value
        if key is None:
            return (*self._project(query, 0, 1), *self._project(value, 1, 3))
        parts = zip((query, key, value), range(3), strict=True)
        return tuple(self._project(x, i, i + 1)[0] for x, i in parts)

    def _project(self, x, first, last):
        """Projections `first` to `last` of (query, key, value): each (B, H, T, D/H)."""
        return self._split(x, self._columns(first, last), last - first)

    def _split(self, x, weights, parts):
        x = linear(ops.cast(x, self.compute_dtype), *weights)  # (B, T, parts * D)
        return split_heads(without_spare_columns(x, parts * self.d_model), parts, self.num_heads)

    def _project_step(self, x, weights):
        """All projections that the weights hold, of a few positions: each (H, B, T, D/H)."""
        kernel, bias = weights
        x = ops.cast(x, self.compute_dtype)
        if len(kernel.shape) == 3:
            return heads_of_blocks(x, kernel, bias, self.num_heads)
        parts = kernel.shape[1] // self.d_model
        x = without_spare_columns(linear(x, kernel, bias), parts * self.d_model)
        return split_heads_of_step(x, parts, self.num_heads)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return tuple(query_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "rotary": self.rotary,
        }


def places_of(query, positions, start, heads_axis):
    """The positions (T,) or (B, T), by default those from `start` on, as `rotate` takes them."""
    if positions is None:
        return ops.arange(ops.shape(query)[2]) + start
    positions = ops.convert_to_tensor(positions)
    return positions if len(positions.shape) == 1 else ops.expand_dims(positions, heads_axis)


def split_heads(x, parts, num_heads):
    """(B, T, parts * D) to a list of `parts` tensors (B, H, T, D/H)."""
    head_dim = x.shape[-1] // (parts * num_heads)
    x = ops.reshape(x, (*ops.shape(x)[:2], parts, num_heads, head_dim))
    return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)


def merge_heads(x):
    """(B, H, T, D/H) to (B, T, D): the "Concat" of the paper's section 3.2.2."""
    batch_size, num_heads, length, head_dim = ops.shape(x)
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch_size, length, num_heads * head_dim))
