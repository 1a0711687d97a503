"""A stack of layers: what `Encoder` and `Decoder` share."""

from typing import Unpack

import keras

from keras_transformer.checks import check_positive_int
from keras_transformer.keras_names import KerasNames
from keras_transformer.layers.arguments import LayerOptions, config_of, keep_arguments
from keras_transformer.layers.low_rank import LowRankAdaptation
from keras_transformer.layers.norms import make_norm
from keras_transformer.type_hints import DTypePolicy


class Stack(KerasNames, LowRankAdaptation, keras.layers.Layer):
    """A stack of `num_layers` layers, with one more norm at the end if they are pre-norm.

    A subclass defines `layer_class`, and calls its `layers` and `final_norm`.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff: the sizes of each layer; see `EncoderLayer`.
        name, dtype, trainable: see `keras.layers.Layer`.
        **options: `LayerOptions`, further arguments of each layer.
    """

    layer_class: type[keras.layers.Layer]

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        name: str | None = None,
        dtype: str | DTypePolicy | None = None,
        trainable: bool = True,
        **options: Unpack[LayerOptions],
    ):
        # Otherwise Keras would cast a `Memory` in every step, if sub-layers have another dtype.
        super().__init__(autocast=False, name=name, dtype=dtype, trainable=trainable)
        self.supports_masking = True
        keep_arguments(self, {**locals(), **options})
        self.num_layers = check_positive_int("num_layers", num_layers)
        policy = self.dtype_policy
        self.layers = [
            self.layer_class(d_model, num_heads, d_ff, name=f"layer_{i}", dtype=policy, **options)
            for i in range(self.num_layers)
        ]
        layer = self.layers[0].arguments
        self.final_norm = make_norm(layer.norm, "final_norm", policy) if layer.norm_first else None

    def build(self, x_shape, *other_shapes):
        for layer in self.layers:
            layer.build(x_shape, *other_shapes)
        if self.final_norm is not None:
            self.final_norm.build(x_shape)

    def compute_output_shape(self, x_shape, *other_shapes):
        return tuple(x_shape)

    def get_config(self):
        return {**super().get_config(), **config_of(self)}
