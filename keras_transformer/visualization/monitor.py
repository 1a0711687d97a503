"""Pictures in TensorBoard."""

import keras
import numpy as np

from keras_transformer.visualization.figures import as_png


class FigureMonitor(keras.callbacks.Callback):
    """Draws pictures before training and after every epoch, for TensorBoard's tab Images.

    `AttentionMonitor` in `training.tensorboard` shows one map without matplotlib; this one shows
    whatever draws a figure.

    Args:
        log_dir: where TensorBoard reads.
        every_epoch: function without arguments that returns a dict of names to matplotlib figures.
        at_start: the same, called once when `fit` begins; None for nothing.
        dpi: pixels of an inch.

    Example:
        >>> def draw():
        ...     return {"positions": position_map(model.source_embedding.table[:50])}
        >>> monitor = FigureMonitor("runs/example/logs", draw)
    """

    def __init__(self, log_dir, every_epoch, *, at_start=None, dpi=80):
        super().__init__()
        self.log_dir = str(log_dir)
        self.every_epoch = every_epoch
        self.at_start = at_start
        self.dpi = dpi

    def on_train_begin(self, logs=None):
        if self.at_start is not None:
            self._write(self.at_start(), 0)

    def on_epoch_end(self, epoch, logs=None):
        self._write(self.every_epoch(), epoch + 1)

    def _write(self, figures, step):
        import tensorflow as tf

        writer = tf.summary.create_file_writer(self.log_dir)
        with writer.as_default(step=step):
            for name, figure in figures.items():
                pixels = tf.io.decode_png(as_png(figure, self.dpi), channels=3)  # (y, x, 3)
                tf.summary.image(name, np.asarray(pixels)[None])
        writer.close()
