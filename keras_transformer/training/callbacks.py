"""What a training run shows and keeps, as Keras callbacks."""

import math
import time

import keras

from keras_transformer.checks import check_choice


class TokensPerSecond(keras.callbacks.Callback):
    """Adds `tokens_per_second` to an epoch's logs: real target tokens over training time.

    Place it before the callbacks that read the logs. Validation does not count; the compilation of
    the first epoch's graphs does.

    Args:
        num_target_tokens: function to the number of real target tokens of the epoch at hand.
    """

    def __init__(self, num_target_tokens):
        super().__init__()
        self.num_target_tokens = num_target_tokens

    def on_epoch_begin(self, epoch, logs=None):
        self.start = self.end = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.end = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens_per_second"] = self.num_target_tokens() / max(self.end - self.start, 1e-9)


class TokenLogs(keras.callbacks.Callback):
    """Adds to an epoch's logs what `TokenTrainer` has found out on the way.

    `perplexity`, and `val_perplexity` where there is a validation: `exp` of the mean cross entropy
    of real tokens, without label smoothing, in training under dropout. `gradient_norm`: that of the
    last step. Place it before the callbacks that read the logs.

    Raises:
        ValueError: when `fit` begins, if the model takes another step than that of `TokenTrainer`.
    """

    def __init__(self):
        super().__init__()
        self.values = {}

    def on_train_begin(self, logs=None):
        if getattr(self.model, "trackers", None) is None:
            raise ValueError(
                "TokenLogs needs a Transformer or LanguageModel with loss=MaskedCrossentropy(...) "
                "on the TensorFlow backend; leave it out, or give metrics=[Perplexity()] instead."
            )

    def on_epoch_begin(self, epoch, logs=None):
        self.values = {}

    def on_train_batch_end(self, batch, logs=None):
        self.values["gradient_norm"] = _number(self.model.trackers.gradient_norm)

    def on_test_begin(self, logs=None):
        # Keras resets what it tracks before a validation, but after this.
        self.values["perplexity"] = _number(self.model.trackers.perplexity)

    def on_test_end(self, logs=None):
        self.values["val_perplexity"] = _number(self.model.trackers.perplexity)

    def on_epoch_end(self, epoch, logs=None):
        self.values.setdefault("perplexity", _number(self.model.trackers.perplexity))
        logs.update(self.values)


def _number(metric) -> float:
    return float(keras.ops.convert_to_numpy(metric.result()))


class TranslationMonitor(keras.callbacks.Callback):
    """Scores real translations after every epoch, and shows some in TensorBoard.

    Accuracy and loss look at one token after a correct prefix; only a decoded translation shows
    what a user will get. Adds `val_bleu` and `val_chrf` to the epoch's logs, for the callbacks
    after it.

    Args:
        translate: function from a list of strings to a list of strings, such as a `Translator`.
        score: function from translations and references to numbers by name.
        sources: validation sentences.
        references: their translations.
        log_dir: where TensorBoard reads; None shows nothing.
        num_samples: how many translations are shown as text.
    """

    def __init__(self, translate, score, sources, references, *, log_dir=None, num_samples=5):
        super().__init__()
        self.translate = translate
        self.score = score
        self.sources = list(sources)
        self.references = list(references)
        self.log_dir = log_dir
        self.num_samples = num_samples
        self.writer = None

    def on_epoch_end(self, epoch, logs=None):
        translations = self.translate(self.sources)
        scores = self.score(translations, self.references)
        logs.update({f"val_{name}": value for name, value in scores.items()})
        if self.log_dir is not None:
            self._show(epoch, translations)

    def on_train_end(self, logs=None):
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def _show(self, epoch, translations):
        import tensorflow as tf

        if self.writer is None:
            self.writer = tf.summary.create_file_writer(str(self.log_dir))
        rows = zip(self.sources, translations, self.references, strict=True)
        shown = [row for _, row in zip(range(self.num_samples), rows, strict=False)]
        with self.writer.as_default():
            tf.summary.text("translations", samples_table(shown), step=epoch + 1)
        self.writer.flush()


def samples_table(rows) -> str:
    """Rows of (source, translation, reference) as a Markdown table."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    header = ["| source | translation | reference |", "| --- | --- | --- |"]
    return "\n".join(header + [f"| {' | '.join(row)} |" for row in cells])


class KeepBest(keras.callbacks.Callback):
    """Saves the model whenever an epoch is the best so far, or as good.

    Args:
        save: function without arguments that writes the model.
        monitor: the entry of the epoch's logs; where it is missing, every epoch is saved.
        mode: "max" or "min", which direction is better.
    """

    def __init__(self, save, *, monitor="val_bleu", mode="max"):
        super().__init__()
        self.save = save
        self.monitor = monitor
        self.sign = 1 if check_choice("mode", mode, ("max", "min")) == "max" else -1
        self.best = None

    def on_epoch_end(self, epoch, logs=None):
        if self.replay(epoch, logs or {}):
            self.save()

    def replay(self, epoch, logs) -> bool:
        """Remembers an epoch, also one of a run that goes on; whether none before it is better."""
        value = logs.get(self.monitor)
        if value is not None and math.isnan(value):
            return self.best is None  # and the next number is better
        is_best = value is None or self.best is None or self.sign * (value - self.best) >= 0
        self.best = value if is_best else self.best
        return is_best


class StopEarly(keras.callbacks.Callback):
    """Ends training when the best epoch lies too far behind.

    Args:
        patience: the number of epochs in a row without a new best that are borne.
        monitor: the entry of the epoch's logs, larger the better.
    """

    def __init__(self, patience, *, monitor="val_bleu"):
        super().__init__()
        self.patience = patience
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
        """Remembers an epoch, also one of a run that goes on."""
        value = logs.get(self.monitor, float("-inf"))
        self.waited = 0 if value > self.best else self.waited + 1
        self.best = max(self.best, value)  # in this order a NaN is no best


class StopOnNaN(keras.callbacks.Callback):
    """Ends training by an error at the first step whose loss is no finite number.

    What is on disk stays: an epoch that does not end is saved nowhere.
    """

    def on_train_batch_end(self, batch, logs=None):
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
            raise FloatingPointError(
                f"The loss is {loss} at step {step}, so training has stopped; what was saved "
                "before is untouched. Lower the learning rate, clip the gradient, train in "
                "float32 or bfloat16, or look for NaN in the data."
            )


class UseAverage(keras.callbacks.Callback):
    """Puts the optimizer's moving average of the weights into the model at the end of an epoch.

    The optimizer has `use_ema=True`. Place `restore`, a callback too, after those that are to see
    the average: it brings the trained weights back, for the next epoch to go on with.
    """

    def __init__(self):
        super().__init__()
        self.trained = None
        self.restore = keras.callbacks.LambdaCallback(on_epoch_end=self._restore)

    def on_epoch_end(self, epoch, logs=None):
        self.trained = [keras.ops.copy(x.value) for x in self.model.trainable_variables]
        self.model.optimizer.finalize_variable_values(self.model.trainable_variables)

    def _restore(self, epoch, logs=None):
        for variable, value in zip(self.model.trainable_variables, self.trained, strict=True):
            variable.assign(value)


class TimeLimit(keras.callbacks.Callback):
    """Ends training before the epoch that would pass a number of minutes.

    An epoch is taken to last as long as the one before it, and the first is always trained.

    Args:
        minutes: of wall-clock time since training began.
    """

    def __init__(self, minutes):
        super().__init__()
        self.minutes = minutes

    def on_train_begin(self, logs=None):
        self.start = self.epoch_start = time.monotonic()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch_start = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        now = time.monotonic()
        next_end = now + (now - self.epoch_start)
        if next_end - self.start > 60 * self.minutes:
            self.model.stop_training = True
