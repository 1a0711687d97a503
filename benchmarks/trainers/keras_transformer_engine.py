"""This library, as `keras-transformer train` calls it."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the command line does

import keras
import tensorflow as tf

from keras_transformer import MaskedCrossentropy, Transformer, TransformerSchedule
from keras_transformer.data.batching import TokenBatches
from keras_transformer.training.precision import policy
from keras_transformer.training.shards import default_shards, share_cores_between_shards


class Engine:
    def __init__(self, case, directory):
        shares_cores = case.get("shares_cores", True) and share_cores_between_shards()
        keras.utils.set_random_seed(0)
        self.batches = TokenBatches(
            (directory / "source.txt").read_text("utf-8").splitlines(),
            (directory / "target.txt").read_text("utf-8").splitlines(),
            PieceTokenizer(directory / "vocabulary.txt"),
            batch_tokens=case["batch_tokens"],
            max_pair_length=case.get("max_length", 200),
        )
        self.model = Transformer(
            num_layers=case["num_layers"],
            d_model=case["d_model"],
            num_heads=case["num_heads"],
            d_ff=case["d_ff"],
            dropout=case["dropout"],
            source_vocab_size=case["vocab_size"],
            dtype=policy(case.get("precision", "auto"), case["d_model"], case["d_ff"]),
        )
        schedule = TransformerSchedule(case["d_model"], warmup_steps=case["warmup_steps"])
        self.model.compile(
            keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
            loss=MaskedCrossentropy(label_smoothing=0.1),
            num_shards="auto" if shares_cores else 1,
        )
        self.dataset = self.batches.dataset()

    def epoch(self):
        history = self.model.fit(self.dataset, shuffle=False, verbose=0).history
        return history["loss"][0]

    def pipeline(self):
        """Prepares an epoch's batches for nobody; returns their number."""
        return sum(1 for _ in self.dataset.take(len(self.dataset)))

    def products(self, size=2048, repeats=5):
        """FLOP/s of matrix products in the model's precision, one per shard; the best of a few."""
        a = tf.ones((size, size), self.model.compute_dtype)
        shards, times = default_shards(), []
        with ThreadPoolExecutor(shards) as threads:
            for _ in range(repeats):
                start = time.perf_counter()
                list(threads.map(lambda _: tf.linalg.matmul(a, a)[0, 0].numpy(), range(shards)))
                times.append(time.perf_counter() - start)
        return shards * 2 * size**3 / min(times)


class PieceTokenizer:
    """Ids of text that is cut into pieces already, with a space between two."""

    def __init__(self, path):
        pieces = path.read_text("utf-8").splitlines()
        ids = tf.range(4, 4 + len(pieces) - 3)  # three special pieces stand first in the file
        table = tf.lookup.KeyValueTensorInitializer(pieces[3:], tf.cast(ids, tf.int64))
        self.table = tf.lookup.StaticHashTable(table, 1)

    def tokenize(self, texts):
        ids = tf.ragged.map_flat_values(self.table.lookup, tf.strings.split(tf.constant(texts)))
        return tf.cast(ids, tf.int32)
