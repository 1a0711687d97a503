"""Shows a training while it runs: each stage, a bar for each epoch, and the time left in all."""

import time

import keras

from keras_transformer.commands.messages import log
from keras_transformer.commands.progress import Progress, duration

# What an epoch's line shows of its logs: the name, how it is called, and its digits.
SHOWN = (
    ("loss", "loss", "{:.3f}"),
    ("perplexity", "perplexity", "{:.1f}"),
    ("val_loss", "validation loss", "{:.3f}"),
    ("val_perplexity", "validation perplexity", "{:.1f}"),
    ("val_bleu", "BLEU", "{:.1f}"),
    ("val_chrf", "chrF", "{:.1f}"),
)


class ShowTraining(keras.callbacks.Callback):
    """Prints a line for each epoch, and shows between them what is being done.

    Place it after all callbacks, so that its line knows their logs and what they kept.

    Args:
        num_batches: the number of batches of an epoch.
        best: the `KeepBest` of the training, for a mark at a new best epoch.
        num_texts: how many sentences are translated after each epoch.
    """

    def __init__(self, num_batches: int, best, num_texts: int = 0):
        super().__init__()
        self.num_batches, self.best, self.num_texts = num_batches, best, num_texts
        self.progress = None
        self.num_steps, self.in_steps, self.between = 0, 0.0, 0.0
        self.first_step = None

    def on_train_begin(self, logs=None):
        self._show("first step: compiling")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch, self.epoch_start = epoch, time.monotonic()
        if self.first_step is not None:
            self._show_epoch()

    def on_train_batch_end(self, batch, logs=None):
        self.last_step = time.monotonic()
        if self.first_step is None:
            self.first_step = self.last_step
            log(f"first step done ({duration(self.last_step - self.epoch_start)})")
            self._show_epoch()
        else:
            self.num_steps += 1
            self.in_steps += self.last_step - self.previous
        self.previous = self.last_step
        loss = float((logs or {}).get("loss", 0.0))
        self.progress.advance(1, f"loss {loss:.3f}{self._left(batch + 1)}")

    def on_test_begin(self, logs=None):
        self._show("validating")

    def on_test_end(self, logs=None):
        if self.num_texts:
            self._show(f"translating {self.num_texts:,} sentences to validate on, and saving")

    def on_epoch_end(self, epoch, logs=None):
        self.stop()
        now = time.monotonic()
        self.between = now - self.last_step
        facts = [f"{name} {form.format(logs[key])}" for key, name, form in SHOWN if key in logs]
        facts.append(f"{logs.get('tokens_per_second', 0.0):,.0f} tokens/s")
        total = self.params["epochs"]
        line = f"epoch {epoch + 1}/{total}: {', '.join(facts)}, {duration(now - self.epoch_start)}"
        if self.best.monitor in logs and self.best.epoch == epoch + 1:
            line += " * new best"
        log(line + (self._left(self.num_batches) if epoch + 1 < total else ""))

    def on_train_end(self, logs=None):
        self.stop()

    def _left(self, step) -> str:
        """Says how long the rest of all epochs will take."""
        if not self.num_steps:
            return ""
        epochs = self.params["epochs"] - self.epoch - 1
        steps = self.num_batches - step + epochs * self.num_batches
        seconds = steps * self.in_steps / self.num_steps
        seconds += self.between * (epochs + (step < self.num_batches))
        return f", {duration(seconds)} left in all"

    def _show_epoch(self):
        self.previous = time.monotonic()
        self._show(f"epoch {self.epoch + 1}/{self.params['epochs']}", self.num_batches)

    def _show(self, what, total=None):
        self.stop()
        self.progress = Progress(what, total, "steps").__enter__()

    def stop(self) -> None:
        """Takes the bar away."""
        if self.progress is not None:
            self.progress.__exit__(None)
            self.progress = None
