"""Low-rank adaptation, LoRA: training a few new weights beside frozen ones; and quantization."""

from collections.abc import Sequence

import keras

from keras_transformer.checks import check_positive_int
from keras_transformer.layers.dense import Dense

PROJECTIONS = ("query_projection", "memory_projection")


class LowRankAdaptation:
    """What changes the `Dense` layers inside a layer or a model: LoRA and quantization."""

    def get_config(self):
        config = super().get_config()
        quantized = [layer for layer in dense_layers(self) if layer.quantization_mode]
        if quantized:  # so that a loaded layer has the same ones quantized
            policies = keras.dtype_policies.DTypePolicyMap(default_policy=self.dtype_policy)
            for layer in quantized:
                policies[layer.path] = layer.dtype_policy
            config["dtype"] = keras.dtype_policies.serialize(policies)
        return config

    def enable_lora(
        self,
        rank: int,
        *,
        lora_alpha: float | None = None,
        targets: Sequence[str] | str = PROJECTIONS,
    ) -> None:
        """Freezes weights, and gives some kernels a product of two small matrices to train.

        Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1. All
        weights are frozen but the biases of these layers. The matrices are those of
        `keras.layers.Dense.enable_lora`. A file of weights, a `.keras` file and a run hold the sum
        of a kernel and its product. Compile a model after this call.

        Args:
            rank: the number of columns of the first matrix and of rows of the second.
            lora_alpha: the product counts `lora_alpha / rank` times; `rank` by default.
            targets: names of dense layers, or one name: by default those that make queries, keys
                and values. Others are "output_projection", and "inner" and "outer" of
                `FeedForward`.

        Raises:
            ValueError: if `rank` is not a positive integer, or if no layer has one of these names,
                has no weights yet or has LoRA already.
        """
        check_positive_int("rank", rank)
        targets = [targets] if isinstance(targets, str) else targets
        found = [layer for layer in dense_layers(self) if layer.name in targets]
        missing = set(targets) - {layer.name for layer in found}
        if missing:
            names = sorted({layer.name for layer in dense_layers(self)})
            raise ValueError(
                f"targets must be names of dense layers, but {', '.join(sorted(missing))} is none; "
                f"there are {', '.join(names)}."
            )
        self.trainable = True
        for layer in sublayers(self):
            layer.trainable = False
        for layer in found:
            layer.trainable = True
            layer.enable_lora(rank, lora_alpha)


def sublayers(layer):
    """Lists the layers that are attributes of a layer, alone or in lists, in order."""
    public = [value for name, value in vars(layer).items() if not name.startswith("_")]
    values = keras.tree.flatten([list(x) if isinstance(x, list) else x for x in public])
    return [value for value in values if isinstance(value, keras.layers.Layer)]


def dense_layers(layer):
    """Lists the `Dense` layers inside a layer, each once."""
    found = {id(x): x for x in sublayers(layer) if isinstance(x, Dense)}
    for inner in sublayers(layer):
        found |= {id(x): x for x in dense_layers(inner)}
    return list(found.values())
