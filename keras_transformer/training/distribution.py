"""Training on several devices: strategies by name, and sums over replicas."""

import functools
from contextlib import AbstractContextManager, nullcontext

import keras

from keras_transformer.backend import on_tensorflow
from keras_transformer.checks import check_choice

STRATEGIES = ("none", "mirrored")


def strategy_scope(name: str = "none") -> AbstractContextManager[object]:
    """Returns a context in which to create a model and its optimizer, and to compile it.

    Args:
        name: "none", or "mirrored" for `tf.distribute.MirroredStrategy` over all GPUs of the
            machine (all logical CPU devices where there is no GPU).

    Returns:
        A context manager.

    Raises:
        ValueError: for another name, or for a strategy off the TensorFlow backend.

    Example:
        >>> with strategy_scope("none"):
        ...     model = keras.Sequential([keras.layers.Dense(1)])
    """
    check_choice("strategy", name, STRATEGIES)
    if name == "none":
        return nullcontext()
    if not on_tensorflow():
        raise ValueError(
            f'strategy="{name}" needs KERAS_BACKEND=tensorflow, but the backend is '
            f"{keras.backend.backend()}; use keras.distribution there."
        )
    return _mirrored().scope()


@functools.cache  # sums of two such strategies would be taken for those of one
def _mirrored():
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def scope_of(model):
    """Returns the scope in which an existing model's variables were made."""
    return model.distribute_strategy.scope() if on_tensorflow() else nullcontext()


def replicas() -> int:
    """Returns the number of replicas that run this code; 1 outside a strategy."""
    if not on_tensorflow():
        return 1
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def sum_over_replicas(value):
    """Sums a tensor over the replicas; returns `value` itself outside a strategy."""
    if replicas() == 1:
        return value
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)
