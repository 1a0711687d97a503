"""What makes a loader refuse a SavedModel without its variables, or with those of another."""

import secrets

import tensorflow as tf

from keras_transformer.export.short_graph import shorten_graph


class Seal(tf.saved_model.experimental.TrackableResource):
    """Compares, whenever a SavedModel is loaded, a number in its graph with one in its variables.

    TensorFlow takes a SavedModel without a folder `variables` for one that needs none: it loads, a
    server announces it, and every request fails. A resource is initialized after the variables are
    read, so what its initialization finds missing ends the loading.

    Attributes:
        number: the variable, which must be tracked by what is saved.
    """

    def __init__(self):
        super().__init__()
        self._expected = secrets.randbits(62)
        self.number = tf.Variable(self._expected, dtype=tf.int64, trainable=False)

    def _create_resource(self):
        # Every resource needs a handle; this one holds nothing.
        return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[])

    def _initialize(self):
        message = "The variables of this SavedModel are those of another; copy all of it again."
        tf.debugging.assert_equal(self.number, tf.constant(self._expected, tf.int64), message)


def save_sealed(module: tf.Module, path, signatures) -> None:
    """Saves a module as a SavedModel that does not load without its own variables."""
    module.seal = seal = Seal()
    module.seal_number = seal.number
    tf.saved_model.save(module, str(path), signatures=signatures)
    shorten_graph(path)
