"""KerasHub's layers as the translation example of keras.io puts them together.

Pairs are padded to one fixed length, in batches of 64; one embedding for each side.
"""

import keras
import keras_hub
import numpy as np
import tensorflow as tf

BATCH_SIZE = 64


class Engine:
    def __init__(self, case, directory):
        keras.utils.set_random_seed(0)
        with np.load(directory / "ids.npz") as arrays:
            length = min(40, arrays["source"].shape[1])
            source, target = (arrays[name][:, : length + 1] for name in ("source", "target"))
        self.data = (
            tf.data.Dataset.from_tensor_slices(
                ({"source": source[:, :length], "target": target[:, :-1]}, target[:, 1:])
            )
            .shuffle(len(source))
            .batch(BATCH_SIZE)
            .prefetch(4)
        )
        self.model = self._model(case, length)
        self.model.compile(
            "rmsprop",
            loss=keras.losses.SparseCategoricalCrossentropy(ignore_class=0, from_logits=True),
        )

    def epoch(self):
        return self.model.fit(self.data, verbose=0).history["loss"][0]

    def _model(self, case, length):
        sizes = {"vocabulary_size": case["vocab_size"], "sequence_length": length}
        sizes |= {"embedding_dim": case["d_model"], "mask_zero": True}
        layer = {"intermediate_dim": case["d_ff"], "num_heads": case["num_heads"]}
        layer["dropout"] = case["dropout"]
        source = keras.Input((None,), dtype="int32", name="source")
        x = keras_hub.layers.TokenAndPositionEmbedding(**sizes)(source)
        for _ in range(case["num_layers"]):
            x = keras_hub.layers.TransformerEncoder(**layer)(x)
        target = keras.Input((None,), dtype="int32", name="target")
        y = keras_hub.layers.TokenAndPositionEmbedding(**sizes)(target)
        for _ in range(case["num_layers"]):
            y = keras_hub.layers.TransformerDecoder(**layer)(y, x)
        return keras.Model([source, target], keras.layers.Dense(case["vocab_size"])(y))
