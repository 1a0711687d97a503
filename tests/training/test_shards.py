"""Parts of a batch at the same time: in a process that has threads for them."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_transformer.training import shards

# Two parts wait for each other: they get on only if both have begun.
MEET = """
import threading
from keras_transformer.backend import sum_over_parts

meeting = threading.Barrier(2)

def wait(part):
    try:
        meeting.wait(timeout)
        return np.float32(1)
    except threading.BrokenBarrierError:
        return np.float32(0)

def function(part):
    met = tf.numpy_function(wait, [part], tf.float32, stateful=False)
    return [tf.reshape(met, ())], None

def met(at_once):
    options = {"parts": 2, "at_once": at_once}
    run = tf.function(lambda x: sum_over_parts(function, [x], [tf.zeros(())], **options)[0])
    return float(run(tf.ones((2, 1)))[0])
"""

TRAIN_TWICE = """
import keras
from keras_transformer import MaskedCrossentropy, Transformer

def train():
    keras.utils.set_random_seed(1)
    model = Transformer(
        num_layers=1, d_model=16, num_heads=2, d_ff=16, dropout=0.3, source_vocab_size=50
    )
    model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy(0.1), num_shards=4)
    ids = np.random.default_rng(0).integers(4, 50, (32, 9))
    model.fit((ids, ids), ids, batch_size=32, epochs=20, shuffle=False, verbose=0)
    return model.get_weights()
"""


SHARE = """
from keras_transformer.training import shards

for cores in (24, 16):
    shards.num_cores = lambda: cores
    print(shards.share_cores_between_shards())
    print(tf.config.threading.get_intra_op_parallelism_threads())
    tf.zeros(())
"""


@pytest.fixture(scope="module")
def printed():
    """What one program prints, in words, with three threads for operations."""
    calls = [
        SHARE,
        MEET,
        "timeout = 60; print(met(2)); timeout = 0.5; print(met(1))",
        TRAIN_TWICE,
        "print(all(np.array_equal(a, b) for a, b in zip(train(), train(), strict=True)))",
    ]
    source = "\n".join(("import numpy as np", "import tensorflow as tf", *calls))
    others = {name: value for name, value in os.environ.items() if not name.startswith("TF_NUM")}
    environment = {**others, "TF_NUM_INTEROP_THREADS": "3"}
    return subprocess.check_output(
        [sys.executable, "-c", source], env=environment, text=True
    ).split()


@pytest.mark.slow
def test_cores_are_shared_before_the_first_operation_only(printed):
    assert printed[:4] == ["True", "3", "False", "3"]


@pytest.mark.slow
def test_parts_run_at_the_same_time_if_asked_to(printed):
    assert printed[4:6] == ["2.0", "0.0"]


@pytest.mark.slow
def test_shards_of_the_same_seed_train_the_same_weights(printed):
    assert printed[6:] == ["True"]


@pytest.mark.parametrize("cores, expected", [(1, 1), (2, 2), (64, 8)])
def test_one_shard_per_core_up_to_eight(monkeypatch, cores, expected):
    monkeypatch.setattr(shards, "num_cores", lambda: cores)
    assert shards.default_shards() == expected


def test_one_shard_on_a_gpu_and_off_tensorflow(monkeypatch):
    monkeypatch.setattr(shards, "num_cores", lambda: 4)
    with monkeypatch.context() as patch:
        patch.setattr(tf.config, "get_visible_devices", lambda kind: ["a GPU"])
        assert shards.default_shards() == 1
    monkeypatch.setattr(shards, "on_tensorflow", lambda: False)
    assert shards.default_shards() == 1
    assert shards.share_cores_between_shards()
