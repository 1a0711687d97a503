"""Shows a training while it runs: each stage, a bar for each epoch, and the time left in all."""

import time
from typing import NamedTuple

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
# A loss rises if after so many epochs it is this share above the lowest.
RISING_EPOCHS, LEAST_RISE = 3, 0.01


class Plan(NamedTuple):
    """How long a training is, in steps of the optimizer.

    Args:
        epoch_steps: after how many steps it validates and keeps what it has.
        total_steps: after how many it ends.
        is_by_steps: whether it is told in steps, since an epoch is not a pass over the text.
    """

    epoch_steps: int
    total_steps: int
    is_by_steps: bool = False

    @classmethod
    def of(cls, options, num_batches: int) -> "Plan":
        """Makes the plan that the options ask for, of a text with so many batches."""
        total_steps = options.max_steps or options.epochs * num_batches
        return cls(options.valid_steps or num_batches, total_steps, bool(options.valid_steps))

    def epochs_left(self, steps: int) -> int:
        """Returns how many epochs follow these steps; the last of them may be shorter."""
        return max(0, -(-(self.total_steps - steps) // self.epoch_steps))


class NoteOverfitting(keras.callbacks.Callback):
    """Says once if the loss on the text to validate on rises, epoch after epoch.

    Place it after the callback that shows the epoch.
    """

    def __init__(self):
        super().__init__()
        self.losses, self.is_noted = [], False

    def on_epoch_end(self, epoch, logs=None):
        if not self.replay(epoch, logs or {}):
            return
        best = min(self.losses)
        log(
            f"note: the validation loss has risen since epoch {self.losses.index(best) + 1}, from "
            f"{best:.3f} to {self.losses[-1]:.3f}: the model learns its text by heart. A higher "
            "--dropout, --bpe-dropout 0.1 or --r-drop 5 is against that, and so is more text"
        )

    def replay(self, epoch, logs) -> bool:
        """Remembers an epoch, also of a resumed run; returns whether the rise is to be noted."""
        if "val_loss" not in logs or self.is_noted:
            return False
        self.losses.append(logs["val_loss"])
        best = min(self.losses)
        waited = len(self.losses) - 1 - self.losses.index(best)
        self.is_noted = waited >= RISING_EPOCHS and self.losses[-1] > best * (1 + LEAST_RISE)
        return self.is_noted


class ShowTraining(keras.callbacks.Callback):
    """Prints a line for each epoch, and shows between them what is being done.

    Place it after all callbacks, so that its line knows their logs and what they kept.

    Args:
        plan: the `Plan` of the training.
        checkpoint: the `TrainingCheckpoint` of the training, which counts its steps.
        best: the `KeepBest` of the training, for a mark at a new best epoch.
        num_texts: how many sentences are translated after each epoch.
    """

    def __init__(self, plan, checkpoint, best, num_texts: int = 0):
        super().__init__()
        self.plan, self.checkpoint = plan, checkpoint
        self.best, self.num_texts = best, num_texts
        self.progress = None
        self.num_steps, self.in_steps, self.between = 0, 0.0, 0.0
        self.first_step = self.value_before = None

    def on_train_begin(self, logs=None):
        self._show("first step: compiling")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch, self.epoch_start = epoch, time.monotonic()
        self.value_before = self.best.best
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
        done = self.checkpoint.step - self.progress.done
        self.progress.advance(done, f"loss {loss:.3f}{self._left()}")

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
        name = self._name(self.checkpoint.total_steps)
        line = f"{name}: {', '.join(facts)}, {duration(now - self.epoch_start)}"
        if self.best.monitor in logs and self.best.epoch == epoch + 1:
            is_new = logs[self.best.monitor] != self.value_before
            line += " * new best" if is_new else " * as good as the best"
        is_last = (
            getattr(self.model, "stop_training", False)
            or self.checkpoint.total_steps >= self.plan.total_steps
        )
        log(line if is_last else line + self._left())

    def on_train_end(self, logs=None):
        self.stop()

    def _left(self) -> str:
        """Says how long the rest of all epochs will take."""
        if not self.num_steps:
            return ""
        steps = self.plan.total_steps - self.checkpoint.total_steps
        seconds = steps * self.in_steps / self.num_steps
        seconds += self.between * self.plan.epochs_left(self._begun())
        return f", {duration(seconds)} left in all"

    def _show_epoch(self):
        self.previous = time.monotonic()
        steps = min(self.plan.epoch_steps, self.plan.total_steps - self._begun())
        self._show(self._name(self._begun() + steps), steps, self.checkpoint.step)

    def _begun(self) -> int:
        """Returns the number of steps before the epoch that runs."""
        return self.checkpoint.total_steps - self.checkpoint.step

    def _name(self, last_step) -> str:
        """Names an epoch by its number, or by its last step."""
        if self.plan.is_by_steps:
            return f"step {last_step:,}/{self.plan.total_steps:,}"
        return f"epoch {self.epoch + 1}/{self.params['epochs']}"

    def _show(self, what, total=None, done=0):
        self.stop()
        self.progress = Progress(what, total, "steps", done=done).__enter__()

    def stop(self) -> None:
        """Takes the bar away."""
        if self.progress is not None:
            self.progress.__exit__(None)
            self.progress = None
