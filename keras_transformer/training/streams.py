"""How many parts of a batch are worked on at the same time."""

import os
from contextlib import suppress

import keras

MOST_STREAMS = 8


def default_streams() -> int:
    """One stream for each core, up to 8; one on a GPU and where the backend is not TensorFlow.

    TensorFlow runs the operations of a step one after another and shares each between the cores.
    Most are too short for that: the cores wait for each other. Streams need not.

    Returns:
        The `num_streams` that `TokenTrainer.compile` takes for "auto".

    Example:
        >>> default_streams() >= 1
        True
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return 1 if tf.config.get_visible_devices("GPU") else min(num_cores(), MOST_STREAMS)


def share_cores_between_streams() -> bool:
    """Gives an operation its stream's share of the cores, one thread as a rule, instead of all.

    Has to come before TensorFlow's first operation. `keras-transformer train` does so.

    Returns:
        Whether it came in time; True, too, where there is one stream, which needs nothing.

    Example:
        >>> in_time = share_cores_between_streams()
    """
    streams = default_streams()
    if streams == 1:
        return True
    import tensorflow as tf

    with suppress(RuntimeError):  # TensorFlow runs already, with threads of its own
        tf.config.threading.set_intra_op_parallelism_threads(num_cores() // streams)
        return True
    return False


def num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
