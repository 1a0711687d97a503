"""Trains a small model for some steps, the same ones on each backend and any number of devices.

    KERAS_BACKEND=jax python tests/training/steps_of_fit.py FILE [STRATEGY] [NAME=VALUE ...]

A `NAME=VALUE` is an option of `trained_weights`. FILE gets its arrays, `.npz`.
"""

import sys

import keras
import numpy as np

from keras_transformer import MaskedCrossentropy, Transformer
from keras_transformer.data.shares import EpochSequence, Share
from keras_transformer.training import jax_devices
from keras_transformer.training.callbacks import TokenLogs
from keras_transformer.training.distribution import strategy_scope

VOCAB_SIZE, ROWS, NUM_BATCHES = 24, 8, 3


class Batches:
    """Batches whose rows have 1 token or 12, so that devices have unequal numbers of tokens."""

    num_batches = NUM_BATCHES

    def plan(self, index):
        """Returns the plan of any epoch, which is always the same."""
        return self

    def batch(self, step):
        labels = np.random.default_rng(step).integers(4, VOCAB_SIZE, (ROWS, 12)).astype("int32")
        labels[: ROWS // 2, 1:] = 0
        first = np.full((ROWS, 1), 2, "int32")
        return (labels[:, ::-1], np.concatenate([first, labels[:, :-1]], axis=1)), labels


def trained_weights(strategy="none", micro_batches=1, r_drop=0.0, clip=None, epochs=2):
    """Returns the weights, and last the loss, the gradient's norm and the perplexity."""
    with strategy_scope(strategy):
        model = Transformer(
            num_layers=1,
            d_model=8,
            num_heads=2,
            d_ff=16,
            source_vocab_size=VOCAB_SIZE,
            dropout=0.0,
            # That of `relu` jumps, and may do so at a number that is 0 but for rounding.
            activation="gelu",
        )
        random = np.random.default_rng(0)
        model.set_weights([random.normal(0, 0.3, w.shape) for w in model.get_weights()])
        # The steps of Adam are as large for a gradient that is 0 but for rounding as for another.
        optimizer = keras.optimizers.SGD(0.3, global_clipnorm=clip)
        options = {"micro_batches": int(micro_batches), "r_drop": float(r_drop)}
        model.compile(optimizer, MaskedCrossentropy(0.1), **options)
        share = Share(*jax_devices.process(), jax_devices.num_batch_shards())
        epoch = {"epochs": int(epochs), "shuffle": False, "verbose": 0}
        batches = EpochSequence(Batches(), share=share)
        logs = model.fit(batches, callbacks=[TokenLogs()], **epoch).history
    names = "loss", "gradient_norm", "perplexity"
    return [*model.get_weights(), np.array([logs[name][-1] for name in names])], model


def main(file, strategy="none", *options):
    jax_devices.start_devices()
    options = dict(option.split("=") for option in options)
    options = {name: float(value) for name, value in options.items()}
    arrays, model = trained_weights(strategy, **options)
    for variable in model.variables:
        if strategy.startswith("model"):
            print(
                variable.path.split("/", 1)[1], *variable.value.sharding.shard_shape(variable.shape)
            )
    np.savez(file, *arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
