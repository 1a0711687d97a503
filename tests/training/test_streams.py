"""Parts of a batch at the same time: in a process that has threads for them."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training import streams
from keras_transformer.training.gradients import sum_over_parts

# Two parts wait for each other: they get on only if both have begun.
MEET = """
import threading
from keras_transformer.training.gradients import sum_over_parts

meeting = threading.Barrier(2)

def wait(part):
    try:
        meeting.wait(timeout)
        return np.float32(1)
    except threading.BrokenBarrierError:
        return np.float32(0)

def function(part):
    met = tf.numpy_function(wait, [part], tf.float32, stateful=False)
    return [tf.reshape(met, ())]

def met(at_once):
    run = tf.function(lambda x: sum_over_parts(function, [x], 2, [tf.zeros(())], at_once))
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
    model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy(0.1), num_streams=4)
    ids = np.random.default_rng(0).integers(4, 50, (32, 9))
    model.fit((ids, ids), ids, batch_size=32, epochs=20, shuffle=False, verbose=0)
    return model.get_weights()
"""


SHARE = """
from keras_transformer.training import streams

for cores in (24, 16):
    streams.num_cores = lambda: cores
    print(streams.share_cores_between_streams())
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
def test_streams_of_the_same_seed_train_the_same_weights(printed):
    assert printed[6:] == ["True"]


def test_sums_over_parts_are_those_of_the_whole():
    x = tf.constant(np.random.default_rng(0).normal(size=(7, 3)), tf.float32)

    def function(part):
        return [tf.reduce_sum(part, 0), tf.reduce_sum(part**2)]

    zeros = [tf.zeros((3,)), tf.zeros(())]
    for parts in (1, 2, 7, 9):
        for run in (sum_over_parts, tf.function(sum_over_parts)):
            sums = run(function, [x], parts, zeros, at_once=2)
            for value, whole in zip(sums, function(x), strict=True):
                np.testing.assert_allclose(value, whole, atol=1e-5)


@pytest.mark.parametrize("cores, expected", [(1, 1), (2, 2), (64, 8)])
def test_a_stream_for_each_core_up_to_eight(monkeypatch, cores, expected):
    monkeypatch.setattr(streams, "num_cores", lambda: cores)
    assert streams.default_streams() == expected


def test_one_stream_on_a_gpu_and_off_tensorflow(monkeypatch):
    monkeypatch.setattr(streams, "num_cores", lambda: 4)
    with monkeypatch.context() as patch:
        patch.setattr(tf.config, "get_visible_devices", lambda kind: ["a GPU"])
        assert streams.default_streams() == 1
    monkeypatch.setattr(streams.keras.backend, "backend", lambda: "jax")
    assert streams.default_streams() == 1
    assert streams.share_cores_between_streams()
