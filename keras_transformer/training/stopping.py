"""What ends a training before its last epoch, as Keras callbacks."""

import math
import time

import keras

from keras_transformer.checks import check_positive_int


class StopEarly(keras.callbacks.Callback):
    """Ends training after too many epochs without a new best.

    Args:
        patience: how many epochs in a row may pass without a new best.
        monitor: the entry of the epoch's logs to watch; larger is better.

    Example:
        >>> stop = StopEarly(patience=3, monitor="val_bleu")
    """

    def __init__(self, patience: int, *, monitor: str = "val_bleu"):
        super().__init__()
        self.patience = check_positive_int("patience", patience)
        self.monitor = monitor
        self.best, self.waited = float("-inf"), 0

    def on_epoch_end(self, epoch, logs=None):
        if self.monitor not in (logs or {}):
            raise ValueError(
                f"StopEarly watches {self.monitor!r}, but the logs have {', '.join(logs or {})}; "
                "give monitor=, or place it after the callback that adds it."
            )
        self.replay(epoch, logs)
        if self.waited >= self.patience:
            self.model.stop_training = True

    def replay(self, epoch, logs) -> None:
        """Remembers an epoch, also of a resumed run."""
        value = logs.get(self.monitor, float("-inf"))
        self.waited = 0 if value > self.best else self.waited + 1
        self.best = max(self.best, value)  # in this order, NaN is never the best


class StopOnNaN(keras.callbacks.Callback):
    """Ends training with an error at the first loss that is not finite.

    Files stay as they are, because only an epoch that ends is saved.

    Example:
        >>> callbacks = [StopOnNaN(), TokenLogs()]
    """

    def __init__(self) -> None:  # Keras's own has no types
        super().__init__()

    def on_train_batch_end(self, batch, logs=None):
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
            raise FloatingPointError(
                f"The loss is {loss} at step {step}, so training has stopped; what was saved "
                "before is untouched. Lower the learning rate, clip the gradient, train in "
                "float32 or bfloat16, or look for NaN in the data."
            )


class TimeLimit(keras.callbacks.Callback):
    """Ends training before an epoch that would exceed a number of minutes.

    It assumes that an epoch takes as long as the one before it. The first epoch is always trained.

    Args:
        minutes: the limit, in wall-clock time of training.

    Attributes:
        in_epoch: the seconds that a resumed run has spent on the epoch that it stopped in.

    Example:
        >>> limit = TimeLimit(minutes=30)
        >>> limit.replay(0, {"seconds": 1000.0})  # an epoch of a resumed run
        >>> limit.is_reached  # another epoch like it would be too much
        True
    """

    def __init__(self, minutes: float):
        super().__init__()
        self.minutes = minutes
        self.spent, self.last, self.in_epoch = 0.0, 0.0, 0.0

    @property
    def is_reached(self) -> bool:
        """Whether the next epoch would exceed the limit."""
        is_between = self.last > 0 and not self.in_epoch
        return is_between and self.spent + self.last > 60 * self.minutes

    def on_train_begin(self, logs=None):
        self.start = time.monotonic() - self.spent - self.in_epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch_start, self.in_epoch = time.monotonic() - self.in_epoch, 0.0

    def on_epoch_end(self, epoch, logs=None):
        now = time.monotonic()
        next_end = now + (now - self.epoch_start)
        if next_end - self.start > 60 * self.minutes:
            self.model.stop_training = True

    def replay(self, epoch, logs) -> None:
        """Remembers an epoch of a resumed run."""
        self.last = logs.get("seconds", 0.0)
        self.spent += self.last
