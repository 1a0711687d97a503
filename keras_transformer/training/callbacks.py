"""What a training measures of each epoch, and which weights it keeps, as Keras callbacks."""

import math
import time
from collections.abc import Callable

import keras

from keras_transformer.checks import check_choice, check_positive_int


class TokensPerSecond(keras.callbacks.Callback):
    """Adds `tokens_per_second` to an epoch's logs: real target tokens over training time.

    Place it before the callbacks that read the logs. Training time includes the compilation of
    graphs, but not validation. Of an epoch that is cut short or resumed, it counts the steps
    of this `fit`, each with the mean number of tokens.

    Args:
        num_target_tokens: function without arguments that returns the number of real target tokens
            of a whole epoch.

    Example:
        >>> speed = TokensPerSecond(lambda: batches.num_target_tokens)  # of a `TokenBatches`
    """

    def __init__(self, num_target_tokens: Callable[[], float]):
        super().__init__()
        self.num_target_tokens = num_target_tokens

    def on_epoch_begin(self, epoch, logs=None):
        self.start = self.end = time.perf_counter()
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        # The last execution of several steps may have fewer than `batch` says.
        self.end = time.perf_counter()
        self.steps = min(batch + 1, self.params["steps"] or batch + 1)

    def on_epoch_end(self, epoch, logs=None):
        tokens = self.num_target_tokens() * self.steps / (self.params["steps"] or self.steps)
        logs["tokens_per_second"] = tokens / max(self.end - self.start, 1e-9)


class TokenLogs(keras.callbacks.Callback):
    """Adds to an epoch's logs what the step of a `TokenModel` knows without logits.

    `perplexity`, and with validation `val_perplexity`, is `exp` of the mean cross entropy of real
    tokens, without label smoothing; in training, with dropout. `gradient_norm` is the norm in the
    last step. Place it before the callbacks that read the logs.

    Raises:
        ValueError: when `fit` or `evaluate` begins, if the model takes Keras's training step.

    Example:
        >>> model = LanguageModel(num_layers=1, d_model=8, num_heads=2, d_ff=8, vocab_size=9)
        >>> model.compile("adam", MaskedCrossentropy())
        >>> ids = np.array([[2, 4, 5, 6], [2, 7, 8, 4]])
        >>> history = model.fit(ids[:, :-1], ids[:, 1:], callbacks=[TokenLogs()], verbose=0)
        >>> sorted(history.history)
        ['gradient_norm', 'loss', 'perplexity']
    """

    def __init__(self):
        super().__init__()
        self.values = {}

    def on_train_begin(self, logs=None):
        self._check_step()

    def _check_step(self):
        if getattr(self.model, "step_metrics", None) is None:
            raise ValueError(
                "TokenLogs needs a Transformer or LanguageModel with loss=MaskedCrossentropy(...) "
                "on TensorFlow or JAX; leave it out, or give metrics=[Perplexity()] instead."
            )

    def on_epoch_begin(self, epoch, logs=None):
        self.values = {}

    def on_train_batch_end(self, batch, logs=None):
        self.values["gradient_norm"] = number(self.model.step_metrics.gradient_norm.result())

    def on_test_begin(self, logs=None):
        self._check_step()
        # After this, Keras resets all metrics for the validation.
        self.values["perplexity"] = number(self.model.step_metrics.perplexity.result())

    def on_test_end(self, logs=None):
        self.values["val_perplexity"] = number(self.model.step_metrics.perplexity.result())

    def on_epoch_end(self, epoch, logs=None):
        self.values.setdefault("perplexity", number(self.model.step_metrics.perplexity.result()))
        logs.update(self.values)


def number(tensor) -> float:
    """Converts a scalar tensor or variable to a Python number."""
    return float(keras.ops.convert_to_numpy(tensor))


class DelayRDrop(keras.callbacks.Callback):
    """Leaves R-Drop out of the first epochs.

    There it helps little, and its steps take twice as long. Compile the model with the `r_drop` of
    the later epochs. The step is traced again when R-Drop begins.

    Args:
        epochs: the number of epochs without R-Drop. In a `fit` with an `initial_epoch`, the epochs
            before it count, too.

    Raises:
        ValueError: if `epochs` is not a positive integer, or, when `fit` begins, if the model was
            compiled without R-Drop.

    Example:
        >>> model = LanguageModel(
        ...     num_layers=1, d_model=8, num_heads=2, d_ff=8, vocab_size=9, dropout=0.1
        ... )
        >>> model.compile("adam", MaskedCrossentropy(), r_drop=3.0)
        >>> ids = np.array([[2, 4, 5, 6], [2, 7, 8, 4]])
        >>> callbacks = [DelayRDrop(2)]
        >>> _ = model.fit(ids[:, :-1], ids[:, 1:], epochs=3, callbacks=callbacks, verbose=0)
    """

    def __init__(self, epochs: int):
        super().__init__()
        self.epochs = check_positive_int("epochs", epochs)

    def on_train_begin(self, logs=None):
        if not getattr(self.model, "r_drop", 0):
            raise ValueError(
                f"DelayRDrop({self.epochs}) has nothing to delay: the model was compiled without "
                "R-Drop; add r_drop=5 to compile, or leave the callback out."
            )

    def on_epoch_begin(self, epoch, logs=None):
        self._pause(epoch < self.epochs)

    def on_train_end(self, logs=None):
        self._pause(False)

    def _pause(self, paused):
        if paused != self.model.r_drop_paused:
            self.model.r_drop_paused = paused
            self.model.make_train_function(force=True)


class KeepBest(keras.callbacks.Callback):
    """Saves the model whenever an epoch is the best so far, or as good.

    Args:
        save: function without arguments that writes the model.
        monitor: the entry of the epoch's logs to compare. Until an epoch has this entry, every
            epoch is saved.
        mode: "max" if larger is better, "min" if smaller is.

    Example:
        >>> keep = KeepBest(lambda: model.save("best.keras"), monitor="val_loss", mode="min")
    """

    def __init__(self, save: Callable[[], object], *, monitor: str = "val_bleu", mode: str = "max"):
        super().__init__()
        self.save = save
        self.monitor = monitor
        self.sign = 1 if check_choice("mode", mode, ("max", "min")) == "max" else -1
        self.best, self.epoch = None, 0  # the best value, and its epoch, counted from 1

    def on_epoch_end(self, epoch, logs=None):
        if self.replay(epoch, logs or {}):
            self.save()

    def replay(self, epoch, logs) -> bool:
        """Remembers an epoch, also of a resumed run; returns whether no epoch before was better."""
        value = logs.get(self.monitor)
        is_number = value is not None and not math.isnan(value)  # a number is better than NaN
        is_best = self.best is None or is_number and self.sign * (value - self.best) >= 0
        if is_best:
            self.epoch = epoch + 1
            self.best = value if is_number else None
        return is_best


class UseAverage(keras.callbacks.Callback):
    """Puts the optimizer's moving average of the weights into the model at the end of an epoch.

    Give the optimizer `use_ema=True`. The attribute `restore` is another callback: place it after
    the callbacks that should see the average. It puts the trained weights back.

    Raises:
        ValueError: when `fit` begins, if the optimizer has no average.

    Example:
        >>> optimizer = keras.optimizers.Adam(1e-3, use_ema=True)
        >>> average = UseAverage()
        >>> callbacks = [average, KeepBest(lambda: model.save("best.keras")), average.restore]
    """

    def __init__(self):
        super().__init__()
        self.trained = None
        self.restore = keras.callbacks.LambdaCallback(on_epoch_end=self._restore)

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        if not getattr(optimizer, "inner_optimizer", optimizer).use_ema:  # of a LossScaleOptimizer
            raise ValueError(
                "UseAverage needs the average of the weights that an optimizer with use_ema=True "
                "keeps, but this one has none; add use_ema=True, or leave the callback out."
            )

    def on_epoch_end(self, epoch, logs=None):
        self.trained = [keras.ops.copy(x.value) for x in self.model.trainable_variables]
        self.model.optimizer.finalize_variable_values(self.model.trainable_variables)

    def _restore(self, epoch, logs=None):
        for variable, value in zip(self.model.trainable_variables, self.trained, strict=True):
            variable.assign(value)
