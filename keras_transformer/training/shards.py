"""How many shards of a batch are computed at the same time."""

from contextlib import suppress

from keras_transformer.backend import on_tensorflow
from keras_transformer.data.processes import num_cores

MOST_SHARDS = 8


def default_shards() -> int:
    """Returns a shard for each core, up to 8; one shard on a GPU and on other backends.

    TensorFlow runs the operations of a step one after another and splits each between the cores.
    Most are too short for that, so cores wait for each other. Shards run side by side instead.

    Returns:
        The `num_shards` that `TokenModel.compile` takes for "auto".

    Example:
        >>> default_shards() >= 1
        True
    """
    if not on_tensorflow():
        return 1
    import tensorflow as tf

    return 1 if tf.config.get_visible_devices("GPU") else min(num_cores(), MOST_SHARDS)


def share_cores_between_shards() -> bool:
    """Limits each operation to its shard's threads, usually one.

    Call it before TensorFlow's first operation, as `keras-transformer train` does.

    Returns:
        Whether it was called in time; also True if there is only one shard.

    Example:
        >>> in_time = share_cores_between_shards()
    """
    shards = default_shards()
    if shards == 1:
        return True
    import tensorflow as tf

    with suppress(RuntimeError):  # TensorFlow has already made its threads
        tf.config.threading.set_intra_op_parallelism_threads(num_cores() // shards)
        return True
    return False
