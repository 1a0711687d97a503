"""Attention in several heads."""

import keras
from keras import ops

from keras_transformer.checks import check_heads, check_rate
from keras_transformer.layers.attention_cache import write_cache
from keras_transformer.layers.attention_gradient import attention_in_training
from keras_transformer.layers.dot_product_attention import (
    dot_product_attention,
    fused_attention,
)
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.extras import WithExtras
from keras_transformer.layers.heads import (
    heads_of_blocks,
    merge_heads,
    merge_heads_of_step,
    split_heads,
    split_heads_of_step,
)
from keras_transformer.layers.linear import Linear, linear, without_spare_columns
from keras_transformer.layers.masks import causal_mask, check_mask, combine_masks
from keras_transformer.layers.rotary import places_of, rotate


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
            reading the weights anew. They may be `with_spare_columns`; in a step the kernels of
            "projection" and "query" may be in `column_blocks`, of which each is a head.
        return_attention_scores: whether the weights are returned, too.
        training: whether dropout is applied.

    Returns:
        Tensor (B, T, D). With `return_attention_scores` followed by the weights (B, H, T, S),
        float32; with `cache` followed by the new cache.

    Raises:
        ValueError: if `d_model` is not a multiple of `num_heads`, the rate outside [0, 1), `rotary`
            asked of heads of odd width or of cross-attention, or a `cache` given besides keys.

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

    def _check_call(self, value, key, cache, is_cross):
        if cache is not None and (value is not None or key is not None):
            raise ValueError(
                "MultiHeadAttention takes keys and values from cache or from value and key, but "
                "received both; call it with the query and the cache alone."
            )
        if self.rotary and is_cross:
            raise ValueError(
                "rotary attention is self-attention: call it without value and key, and with the "
                "position of a cache; for another use leave out rotary."
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
        is_cross = value is not None or key is not None or (is_step and position is None)
        self._check_call(value, key, cache, is_cross)
        heads_axis = 0 if is_step else 1  # below (B, H, ...) is (H, B, ...) in a step
        if is_step:
            query, key, value = self._project_step(query, cache, position, step_weights)
        else:
            query, key, value = self._project(query, value, key, step_weights)  # (B, H, T|S, D/H)
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
        heads, weights = self._attend(
            (query, key, value),
            attention_mask,
            is_causal=use_causal_mask and not is_cross,
            needs_weights=is_step or return_attention_scores,
            training=training,
        )  # (B, H, T, D/H), (B, H, T, S)
        merge = merge_heads_of_step if is_step else merge_heads
        output_weights = step_weights and step_weights["output"]
        output = self.output_projection(merge(heads), step_weights=output_weights)  # (B, T, D)
        extras = [cache] if is_step else []
        if return_attention_scores:
            extras = [ops.transpose(weights, (1, 0, 2, 3)) if is_step else weights, *extras]
        return (output, *extras) if extras else output

    def _attend(self, heads, attention_mask, *, is_causal, needs_weights, training):
        """The output of each head and, if they are needed, the weights: else None."""
        drops = bool(self.dropout and training)
        # TensorFlow has no fused kernel, and Keras none that drops weights out.
        if keras.backend.backend() == "jax" and not (needs_weights or drops):
            return fused_attention(*heads, attention_mask), None
        if training and not (needs_weights or drops):
            return attention_in_training(*heads, attention_mask, is_causal), None
        return dot_product_attention(
            *heads,
            attention_mask,
            dropout=lambda weights: self.dropout_layer(weights, training=training),
        )

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
        key, value = self._split(value, weights)
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

    def _project(self, query, value, key, step_weights):
        """Queries, keys and values, each (B, H, T|S, D/H), by as few products as can be."""
        if value is None and key is None:
            weights = step_weights["projection"] if step_weights else self._columns(0, 3)
            return self._split(query, weights)
        value = query if value is None else value
        if key is None:
            memory = self._split(value, self._columns(1, 3))
            return (*self._split(query, self._columns(0, 1)), *memory)
        inputs = enumerate((query, key, value))
        return tuple(self._split(x, self._columns(i, i + 1))[0] for i, x in inputs)

    def _project_step(self, query, cache, position, step_weights):
        """Queries, keys and values of a step, each (H, B, T|S, D/H)."""
        weights = step_weights or self.step_weights(is_cross=position is None)
        if position is None:
            return (*self._split_step(query, weights["query"]), *cache)
        return self._split_step(query, weights["projection"])

    def _split(self, x, weights):
        """All projections that the weights hold: each (B, H, T, D/H)."""
        x, parts = self._projections(x, weights)
        return split_heads(x, parts, self.num_heads)

    def _split_step(self, x, weights):
        """All projections that the weights hold, of a few positions: each (H, B, T, D/H)."""
        kernel, bias = weights
        if len(kernel.shape) == 3:
            return heads_of_blocks(ops.cast(x, self.compute_dtype), kernel, bias, self.num_heads)
        x, parts = self._projections(x, weights)
        return split_heads_of_step(x, parts, self.num_heads)

    def _projections(self, x, weights):
        parts = weights[0].shape[1] // self.d_model
        x = linear(ops.cast(x, self.compute_dtype), *weights)  # (B, T, parts * D)
        return without_spare_columns(x, parts * self.d_model), parts

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
