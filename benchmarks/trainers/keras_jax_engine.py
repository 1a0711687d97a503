"""This library on JAX: `fit` on padded arrays of one shape, without TensorFlow."""

import time

import jax
import keras
import numpy as np

from keras_transformer import MaskedCrossentropy, Transformer, TransformerSchedule


class Engine:
    def __init__(self, case, directory):
        keras.utils.set_random_seed(0)
        with np.load(directory / "ids.npz") as arrays:
            self.source, self.target = arrays["source"], arrays["target"]
        length = case["max_length"]
        self.inputs = self.source[:, :length], self.target[:, :length]
        self.labels = self.target[:, 1 : length + 1]
        self.batch_size = case["batch_tokens"] // length
        sizes = ("num_layers", "d_model", "num_heads", "d_ff", "dropout")
        self.model = Transformer(
            **{name: case[name] for name in sizes},
            source_vocab_size=case["vocab_size"],
            dtype="float32" if case["precision"] == "float32" else f"mixed_{case['precision']}",
        )
        schedule = TransformerSchedule(case["d_model"], warmup_steps=case["warmup_steps"])
        self.model.compile(
            keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
            loss=MaskedCrossentropy(label_smoothing=0.1),
        )

    def epoch(self):
        settings = {"batch_size": self.batch_size, "shuffle": False, "verbose": 0}
        return self.model.fit(self.inputs, self.labels, **settings).history["loss"][0]

    def products(self, size=8192, repeats=10):
        """FLOP/s of matrix products in the model's precision, the best of a few."""
        size = size if jax.default_backend() != "cpu" else 1024
        # Of equal numbers a GPU makes products faster.
        a = jax.random.normal(jax.random.key(0), (size, size), self.model.compute_dtype)
        product = jax.jit(jax.numpy.matmul)
        product(a, a).block_until_ready()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            product(a, a).block_until_ready()
            times.append(time.perf_counter() - start)
        return 2 * size**3 / min(times)

    def device_mib(self):
        """The most memory that this process has had on the accelerator; 0 without one."""
        statistics = jax.local_devices()[0].memory_stats() or {}
        return statistics.get("peak_bytes_in_use", 0) / 2**20
