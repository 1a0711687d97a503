"""Training on several devices: strategies by name, and sums over replicas."""

import functools
from contextlib import AbstractContextManager, nullcontext

import keras

from keras_transformer.backend import STEPS_ARE_PURE, on_tensorflow
from keras_transformer.checks import check_choice
from keras_transformer.training import jax_devices

STRATEGIES = ("none", "mirrored", "data_parallel", "model_parallel=K")


def strategy_scope(name: str = "none") -> AbstractContextManager[object]:
    """Returns a context in which to create a model and its optimizer, and to compile it.

    Args:
        name: "none"; or on TensorFlow "mirrored" for `tf.distribute.MirroredStrategy` over all GPUs
            of the machine (all logical CPU devices where there is no GPU); or on JAX
            "data_parallel", or "model_parallel=2" to cut the weights between groups of 2 devices.
            Those of JAX have all devices of all processes, and `fit` needs their context, too.

    Returns:
        A context manager.

    Raises:
        ValueError: for another name, or for a strategy of another backend.

    Example:
        >>> with strategy_scope("none"):
        ...     model = keras.Sequential([keras.layers.Dense(1)])
    """
    is_jax = jax_devices.is_jax_strategy(name)
    if not is_jax:
        check_choice("strategy", name, STRATEGIES)
    if name == "none":
        return nullcontext()
    needed = "jax" if is_jax else "tensorflow"
    if keras.backend.backend() != needed:
        raise ValueError(
            f'strategy="{name}" needs KERAS_BACKEND={needed}, but the backend is '
            f"{keras.backend.backend()}."
        )
    return jax_devices.scope(name) if is_jax else _mirrored().scope()


@functools.cache  # sums of two such strategies would be taken for those of one
def _mirrored():
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def scope_of(model):
    """Returns the scope in which an existing model's variables were made."""
    return model.distribute_strategy.scope() if on_tensorflow() else nullcontext()


def run_scope(name: str) -> AbstractContextManager[object]:
    """Returns a context for a whole run: `strategy_scope` on JAX, and none elsewhere."""
    return strategy_scope(name) if STEPS_ARE_PURE else nullcontext()


def model_scope(name: str) -> AbstractContextManager[object]:
    """Returns a context in which to create a model inside that of `run_scope`."""
    return nullcontext() if STEPS_ARE_PURE else strategy_scope(name)


def is_chief() -> bool:
    """Returns whether this process is the one of a run that writes files."""
    return not STEPS_ARE_PURE or jax_devices.process()[0] == 0


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
