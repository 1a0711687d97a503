"""What a training run shows and keeps, as Keras callbacks."""

import time

import keras

from keras_transformer.layers.checks import check_choice


class TokensPerSecond(keras.callbacks.Callback):
    """Adds `tokens_per_second` to an epoch's logs: real target tokens over training time.

    Place it before the callbacks that read the logs. Validation does not count; the compilation of
    the first epoch's graphs does.

    Args:
        num_target_tokens: the number of real target tokens in an epoch.
    """

    def __init__(self, num_target_tokens):
        super().__init__()
        self.num_target_tokens = num_target_tokens

    def on_epoch_begin(self, epoch, logs=None):
        self.start = self.end = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.end = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens_per_second"] = self.num_target_tokens / max(self.end - self.start, 1e-9)


class TranslationMonitor(keras.callbacks.Callback):
    """Scores real translations after every epoch, and shows some in TensorBoard.

    Accuracy and loss look at one token after a correct prefix; only a decoded translation shows
    what a user will get. Adds `val_bleu` to the epoch's logs, for the callbacks after it.

    Args:
        translate: function from a list of strings to a list of strings, such as a `Translator`.
        bleu: function from translations and references to a number.
        sources: validation sentences.
        references: their translations.
        log_dir: where TensorBoard reads; None shows nothing.
        num_samples: how many translations are shown as text.
    """

    def __init__(self, translate, bleu, sources, references, *, log_dir=None, num_samples=5):
        super().__init__()
        self.translate = translate
        self.bleu = bleu
        self.sources = list(sources)
        self.references = list(references)
        self.log_dir = log_dir
        self.num_samples = num_samples
        self.writer = None

    def on_epoch_end(self, epoch, logs=None):
        translations = self.translate(self.sources)
        logs["val_bleu"] = self.bleu(translations, self.references)
        if self.log_dir is not None:
            self._show(epoch, translations)

    def on_train_end(self, logs=None):
        if self.writer is not None:
            self.writer.close()

    def _show(self, epoch, translations):
        import tensorflow as tf

        if self.writer is None:
            self.writer = tf.summary.create_file_writer(str(self.log_dir))
        rows = zip(self.sources, translations, self.references, strict=True)
        shown = [row for _, row in zip(range(self.num_samples), rows, strict=False)]
        with self.writer.as_default():
            tf.summary.text("translations", samples_table(shown), step=epoch)
        self.writer.flush()


def samples_table(rows) -> str:
    """Rows of (source, translation, reference) as a Markdown table."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    header = ["| source | translation | reference |", "| --- | --- | --- |"]
    return "\n".join(header + [f"| {' | '.join(row)} |" for row in cells])


class KeepBest(keras.callbacks.Callback):
    """Saves the model whenever an epoch is the best so far.

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
        value = (logs or {}).get(self.monitor)
        if value is None or self.best is None or self.sign * (value - self.best) > 0:
            self.best = value
            self.save()


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
