"""Training on JAX with several devices, of one process or of several: who has what."""

import os
import re
import sys
from contextlib import AbstractContextManager

import keras

from keras_transformer.backend import STEPS_ARE_PURE

# How the matrices of a layer are cut between the devices of a model. Keras compares the whole path.
LAYOUTS = {
    # Heads, and neurons of the network, are divided; the second product of each adds them up.
    ".*/(query|memory)_projection/kernel": (None, "model"),
    ".*/(query|memory)_projection/bias": ("model",),
    ".*attention/output_projection/kernel": ("model", None),
    ".*/feed_forward/inner/kernel": (None, "model"),
    ".*/feed_forward/inner/bias": ("model",),
    ".*/feed_forward/outer/kernel": ("model", None),
    # The vocabulary is divided.
    ".*_embedding/embeddings": ("model", None),
    "[^/]*/output_projection/kernel": (None, "model"),
}
# Keras's variables for the addresses of processes; `keras.distribution.initialize` reads them.
PROCESSES = tuple(
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)


class ModelParallel(keras.distribution.ModelParallel):
    """Keras's, but a weight whose axis the devices do not divide evenly is whole on each."""

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        sizes = dict(zip(self.device_mesh.axis_names, self.device_mesh.shape, strict=True))
        cuts = zip(variable.shape, layout.axes, strict=True)
        if all(size % sizes.get(axis, 1) == 0 for size, axis in cuts):
            return layout
        whole = [None] * len(variable.shape)
        return keras.distribution.TensorLayout(whole, self.device_mesh)


def distribution_of(strategy: str) -> keras.distribution.DataParallel | ModelParallel:
    """Makes what Keras calls a distribution, over all devices of all processes.

    Args:
        strategy: "data_parallel", or "model_parallel=K": the weights are cut between K devices, and
            batches between groups of K.

    Raises:
        ValueError: if the devices are no multiple of K.
    """
    if strategy == "data_parallel":
        return keras.distribution.DataParallel(auto_shard_dataset=False)
    size, devices = int(strategy.removeprefix("model_parallel=")), keras.distribution.list_devices()
    if len(devices) % size:
        raise ValueError(
            f"strategy {strategy} needs a multiple of {size} devices, but there are "
            f"{len(devices)}; give a number that divides them."
        )
    shape = len(devices) // size, size
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    for path, axes in LAYOUTS.items():
        layouts[path] = axes
    return ModelParallel(layout_map=layouts, auto_shard_dataset=False)


def is_jax_strategy(name: object) -> bool:
    """Returns whether a strategy is one of those that run on JAX."""
    return isinstance(name, str) and bool(
        re.fullmatch(r"data_parallel|model_parallel=[1-9]\d*", name)
    )


def start_devices() -> None:
    """On JAX, joins the processes that the environment names, and leaves the GPUs to JAX."""
    if not STEPS_ARE_PURE:
        return
    if any(name in os.environ for name in PROCESSES):
        keras.distribution.initialize()
    if sys.modules.get("tensorflow"):
        leave_gpus_to_jax()


def leave_gpus_to_jax() -> None:
    """Hides the GPUs from TensorFlow, which would take all of their memory."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")


def scope(strategy: str) -> AbstractContextManager[object]:
    """Returns the scope of `distribution_of`, in which to make a model and to call `fit`."""
    return distribution_of(strategy).scope()


def process() -> tuple[int, int]:
    """Returns the number of this process, from 0, and the number of processes, on JAX."""
    if not STEPS_ARE_PURE:
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()


def num_batch_shards() -> int:
    """Returns into how many parts a batch is cut; 1 without a distribution."""
    distribution = keras.distribution.distribution()  # None outside of every scope
    return 1 if distribution is None else distribution.num_model_replicas


def broadcast(array):
    """Returns the array of the first process; all must call it with one of the same shape."""
    from jax.experimental import multihost_utils

    return multihost_utils.broadcast_one_to_all(array)
