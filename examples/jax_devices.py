"""Trains a Transformer on JAX, each batch shared out over all devices by `keras.distribution`.

    KERAS_BACKEND=jax python examples/jax_devices.py

It needs no TensorFlow. XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two devices of a
processor. The task is to write a row of tokens backwards.
"""

import argparse

import keras
import numpy as np

from keras_transformer import MaskedAccuracy, MaskedCrossentropy, Transformer

parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--pairs", type=int, default=4096)
options = parser.parse_args()
if keras.backend.backend() != "jax":
    parser.error("keras.distribution needs JAX; set KERAS_BACKEND=jax")

devices = keras.distribution.list_devices()
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
keras.utils.set_random_seed(0)

START, END = 2, 3
rng = np.random.default_rng(0)
words = rng.integers(4, 20, (options.pairs, 6))
labels = np.pad(words[:, ::-1], ((0, 0), (0, 1)), constant_values=END)
inputs = {
    "source_ids": np.pad(words, ((0, 0), (0, 1)), constant_values=END),
    "target_ids": np.pad(words[:, ::-1], ((0, 0), (1, 0)), constant_values=START),
}

model = Transformer(
    num_layers=1, d_model=32, num_heads=4, d_ff=64, source_vocab_size=20, dropout=0.0
)
model.compile(keras.optimizers.Adam(3e-3), loss=MaskedCrossentropy(), metrics=[MaskedAccuracy()])
history = model.fit(inputs, labels, batch_size=64, epochs=options.epochs, verbose=0).history
print(f"{len(devices)} devices, accuracy {history['masked_accuracy'][-1]:.3f}")
print(model.translate([[5, 6, 7, 8, 9, 10, END]], "greedy", max_length=8))
