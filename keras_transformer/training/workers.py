"""What the processes of one training, its workers, tell one another: the first one decides."""

import json
import time
from contextlib import contextmanager
from functools import cache

import keras
import numpy as np

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.training import jax_devices
from keras_transformer.training.worker_task import this_worker

# Bytes are broadcast as int32, at most this many at a time.
CHUNK = 1 << 24
# Workers ask one another whether to save after about so many seconds, and at most so many steps.
ASK_SECONDS, MOST_STEPS = 1.0, 1000
# What TensorFlow raises after a worker is lost.
LOST = (
    "UnavailableError",
    "InternalError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
)


class WorkerLost(RuntimeError):
    """Raised if another worker has gone, without which none can go on."""


@cache
def strategy():
    """Returns the strategy over all workers; the first call waits until all are there.

    Make it before the first operation of TensorFlow, which wants to know all workers at its start.
    """
    import tensorflow as tf

    this_worker()
    return tf.distribute.MultiWorkerMirroredStrategy()


def rank() -> int:
    """Returns the number of this worker, from 0."""
    return jax_devices.process()[0] if STEPS_ARE_PURE else this_worker().rank


def broadcast_json(value):
    """Returns the JSON value that the first worker gives; all workers must call it.

    Args:
        value: of the first worker; that of others is not used.
    """
    return json.loads(broadcast_bytes(json.dumps(value).encode()))


def broadcast_bytes(data: bytes) -> bytes:
    """Returns the bytes that the first worker gives; all workers must call it."""
    (size,) = _broadcast(np.array([len(data)], "int32"))
    numbers = np.zeros(-(-size // 4), "<i4")
    if rank() == 0:
        numbers = np.frombuffer(data.ljust(4 * len(numbers), b"\0"), "<i4")
    chunks = [_broadcast(numbers[i : i + CHUNK]) for i in range(0, len(numbers), CHUNK)]
    return b"".join(chunk.astype("<i4").tobytes() for chunk in chunks)[:size]


def _broadcast(numbers):
    """Returns the int32 array of the first worker."""
    if STEPS_ARE_PURE:
        return np.asarray(jax_devices.broadcast(numbers))
    return _all_reduce_sum(np.where(rank() == 0, numbers, 0))


def all_gather(numbers: list[int]) -> np.ndarray:
    """Returns the int32 numbers (n,) of each worker of TensorFlow, (W, n); all must call it."""
    worker = this_worker()
    rows = np.zeros((worker.count, len(numbers)), "int32")
    rows[worker.rank] = numbers
    return _all_reduce_sum(rows.ravel()).reshape(rows.shape)


def _all_reduce_sum(numbers):
    """Returns the sum of the int32 arrays of all workers."""
    summed = _sum_over_workers()(numbers)
    return strategy().experimental_local_results(summed)[0].numpy()


@cache
def _sum_over_workers():
    """Makes the function that sums an int32 array over workers."""
    import tensorflow as tf

    def add(numbers):
        context = tf.distribute.get_replica_context()
        # A worker may have several replicas, numbered one after another; its first one counts.
        replicas = context.num_replicas_in_sync // this_worker().count
        mine = tf.where(context.replica_id_in_sync_group % replicas == 0, numbers, 0)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, mine)

    array = tf.TensorSpec((None,), tf.int32)
    return tf.function(lambda numbers: strategy().run(add, (numbers,)), input_signature=[array])


class StopTogether(keras.callbacks.Callback):
    """Ends the training of all workers when the first one ends its own.

    Otherwise the others would wait for it in the next step. Place it after all that may stop a
    training.
    """

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = broadcast_json(bool(self.model.stop_training))


class SaveTogether:
    """Decides for all workers of TensorFlow at which step they save a state.

    All of them must take part to read a metric, and must save the same step. But their clocks
    differ, and a signal comes to each at another time, or to one alone. So they tell one
    another what they want: not after each step, where each would wait for the slowest once more,
    but after as many as the first one does in about a second. That number is told as well.

    Call arguments:
        wanted: 0 to go on, -1 to save a state, or the number of a signal, which saves a state and
            ends the training. Without a signal, the first worker decides.
        at_once: whether all ask now, as at the end of an epoch.

    Returns:
        What all do, a number like `wanted`.
    """

    def __init__(self):
        self.steps, self.next, self.asked = 0, 1, time.monotonic()

    def __call__(self, wanted: int, at_once: bool) -> int:
        self.steps += not at_once
        if self.steps < self.next and not at_once:
            return 0
        seconds = max(time.monotonic() - self.asked, 1e-3)
        steps = int(min(max(ASK_SECONDS * self.steps / seconds, 1), MOST_STEPS))
        (first, steps), *others = all_gather([wanted, steps]).tolist()
        self.steps, self.next, self.asked = 0, steps, time.monotonic()
        return max(0, first, *(wanted for wanted, _ in others)) or first


@contextmanager
def naming_lost_workers():
    """Makes the error of TensorFlow that follows the loss of a worker say what to do."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ not in LOST:
            raise
        raise WorkerLost(
            f"another worker has gone ({type(error).__name__}); start all workers again with "
            "--resume."
        ) from error
