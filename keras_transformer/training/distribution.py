"""Strategies by name, and the two sums that the loss needs under them."""

from contextlib import AbstractContextManager, nullcontext

import keras

from keras_transformer.backend import on_tensorflow
from keras_transformer.checks import check_choice

STRATEGIES = ("none", "mirrored")


def strategy_scope(name: str = "none") -> AbstractContextManager:
    """A context in which to create a model, its optimizer and to compile it.

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
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices]).scope()


def scope_of(model):
    """A context in which to make variables for a model that is there, as its optimizer's are."""
    return model.distribute_strategy.scope() if on_tensorflow() else nullcontext()


def replicas() -> int:
    """The number of replicas this code runs in; 1 outside a strategy."""
    if not on_tensorflow():
        return 1
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def sum_over_replicas(value):
    """The sum of a scalar tensor over the replicas; `value` itself outside a strategy."""
    if replicas() == 1:
        return value
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)
