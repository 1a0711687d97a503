"""Training on several devices: strategies by name, and sums over replicas."""

import functools
from contextlib import AbstractContextManager, nullcontext

import keras

from keras_transformer.backend import STEPS_ARE_PURE, on_tensorflow
from keras_transformer.checks import check_choice
from keras_transformer.training import jax_devices, workers

STRATEGIES = ("none", "mirrored", "multi_worker", "data_parallel", "model_parallel=K")


def strategy_scope(name: str = "none") -> AbstractContextManager[object]:
    """Returns a context in which to create a model and its optimizer, and to compile it.

    Args:
        name: "none"; or on TensorFlow "mirrored" for `tf.distribute.MirroredStrategy` over all GPUs
            of the machine (all logical CPU devices where there is no GPU), or "multi_worker" for
            `tf.distribute.MultiWorkerMirroredStrategy` over the processes that `TF_CONFIG` names,
            to be called before the first operation of TensorFlow; or on JAX "data_parallel", or
            "model_parallel=2" to cut the weights between groups of 2 devices. Those of JAX have all
            devices of all processes, and `fit` needs their context, too.

    Returns:
        A context manager.

    Raises:
        ValueError: for another name, for a strategy of another backend, or without a `TF_CONFIG`
            that "multi_worker" needs.

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
    if is_jax:
        return jax_devices.scope(name)
    return workers.strategy().scope() if name == "multi_worker" else _mirrored().scope()


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
    scope = strategy_scope(name)  # on TensorFlow before its first operation
    return scope if STEPS_ARE_PURE else nullcontext()


def model_scope(name: str) -> AbstractContextManager[object]:
    """Returns a context in which to create a model inside that of `run_scope`."""
    return nullcontext() if STEPS_ARE_PURE else strategy_scope(name)


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


# What Keras 3.15 needs for several workers. Its `fit` takes two means over the workers that
# TensorFlow cannot take: of a batch, a tuple, and of logs, which have no axis.


class WorkerModel(keras.Model):
    """A model that `fit` can build under a strategy of several workers.

    If its weights exist, no batch is read to build it: a data set that has a new order at each
    reading would then be an epoch ahead. Otherwise it is built from one batch of this worker. Keras
    would take the mean of all replicas' batches.
    """

    def builds_from_data(self) -> bool:
        """Whether something is built that depends on the data."""
        return not self.built

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras has no public method that chooses what a model is built from.
        if on_tensorflow() and self._distribute_strategy is not None and iterator is not None:
            if not self.builds_from_data():
                with scope_of(self):
                    self.optimizer.build(self.trainable_variables)
                return
            _, _, batches = next(iter(iterator))
            local_values = self.distribute_strategy.experimental_local_results
            data_batch = keras.tree.map_structure(lambda x: local_values(x)[0], next(batches))
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)


def logs_for_fit(logs: dict) -> dict:
    """Gives the logs of a step an axis, over which `fit` takes their mean over workers."""
    if replicas() == 1:
        return logs
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return logs
    return {name: keras.ops.reshape(value, (1,)) for name, value in logs.items()}
