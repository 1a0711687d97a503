"""Pictures in TensorBoard."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import keras

from keras_transformer.event_file import EventFile
from keras_transformer.type_hints import Figure, StrPath
from keras_transformer.visualization.figures import as_png


class FigureMonitor(keras.callbacks.Callback):
    """Draws figures when `fit` begins and after every epoch, for TensorBoard's tab Images.

    It shows any matplotlib figure. `AttentionMonitor` shows bare maps of attention.

    Args:
        log_dir: the folder that TensorBoard reads.
        every_epoch: a function without arguments that returns a dict of names to figures.
        at_start: a function like it, called once when `fit` begins; None draws nothing then.
        dpi: pixels per inch.

    Example:
        >>> def draw():
        ...     return {"positions": position_map(sinusoidal_positions(50, 64))}
        >>> monitor = FigureMonitor("runs/example/logs", draw)  # for fit(callbacks=[monitor])
    """

    def __init__(
        self,
        log_dir: StrPath,
        every_epoch: Callable[[], dict[str, Figure]],
        *,
        at_start: Callable[[], dict[str, Figure]] | None = None,
        dpi: int = 80,
    ):
        super().__init__()
        self.log_dir = str(log_dir)
        self.every_epoch = every_epoch
        self.at_start = at_start
        self.dpi = dpi
        self.has_warned = False

    def on_train_begin(self, logs=None):
        if self.at_start is not None:
            self._write(self.at_start(), 0)

    def on_epoch_end(self, epoch, logs=None):
        self._write(self.every_epoch(), epoch + 1)

    def _write(self, figures, step):
        with EventFile(self.log_dir) as file:
            for name, figure in figures.items():
                file.picture(name, self._png(figure), step)

    def _png(self, figure):
        """Returns a figure as PNG; says once, not at every epoch, that a font is missing."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            image = as_png(figure, self.dpi)
        for warning in caught[: 0 if self.has_warned else 1]:
            self.has_warned = True
            warnings.warn(warning.message, stacklevel=2)
        return image
