"""What `keras-transformer train` measures, shows and keeps."""

import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from keras_transformer.commands.early_checks import refuse_without_validation
from keras_transformer.commands.messages import counted, log
from keras_transformer.commands.progress import stage
from keras_transformer.commands.training_run import monitors, recipe, workers
from keras_transformer.commands.training_run.disk_space import default_keep, report_disk
from keras_transformer.commands.training_run.progress import NoteOverfitting, ShowTraining
from keras_transformer.commands.training_run.resume import CHECKPOINTS, LOGS
from keras_transformer.commands.training_run.run_history import (
    EpochFacts,
    WriteHistory,
    kept_epoch,
    kept_mean,
)
from keras_transformer.inference.run_directory import save_run
from keras_transformer.training import (
    callbacks,
    checkpoints,
    epoch_weights,
    stopping,
    tensorboard,
)
from keras_transformer.training.card import METRICS
from keras_transformer.visualization.monitor import FigureMonitor

PROFILE_STEPS = 10, 15
# The options, besides numbers and switches, that the tab HParams shows.
SHOWN_WORDS = ("preset", "precision", "strategy", "bleu_tokenize", "metric", "norm", "activation")
# About what the best score of many epochs owes to chance. A mean that is behind by less translates
# other text better.
LUCK_OF_BEST = 0.5


class Callbacks:
    """The callbacks of a run, and what is done with them before and after `fit`."""

    def __init__(self, model, data, plan, options):
        self.model, self.tokenizer, self.options = model, data.tokenizer, options
        self.plan = plan
        self.out, self.logs = Path(options.out), Path(options.out) / LOGS
        watched = {"monitor": f"val_{options.metric}"}
        self.best, self.mean = callbacks.KeepBest(self._save, **watched), None
        self.on_kept = lambda kept: None  # is told of each new model in the run directory
        keep = options.keep or default_keep(model.count_params())
        if "average" not in options.chosen:  # which asks for no more room
            keep = max(keep, options.average or 0)
        self.weights = epoch_weights.EpochWeights(self.out / CHECKPOINTS, keep=keep, **watched)
        patience = options.early_stopping
        self.early = stopping.StopEarly(patience, **watched) if patience else None
        self.history = WriteHistory(self.out, lambda: self.checkpoint.history)
        self.translations = None
        delay = options.r_drop_delay and callbacks.DelayRDrop(options.r_drop_delay)
        average = None if options.ema is None else callbacks.UseAverage()
        tokens = callbacks.TokensPerSecond(
            lambda: data.train.num_target_tokens * plan.epoch_steps / data.train.num_batches
        )
        self.limit = options.max_minutes and stopping.TimeLimit(options.max_minutes)
        profiled = {"profile_steps": PROFILE_STEPS if options.profile else None}
        settings = {"settings": _settings(options)}
        self.board = tensorboard.TensorBoardMonitor(self.logs, **settings, **profiled)
        self.checkpoint = checkpoints.TrainingCheckpoint(
            self.out / CHECKPOINTS,
            save_minutes=options.save_minutes,
            max_steps=plan.total_steps,
            before_save=self.board.flush,
            together=workers.together(options),
        )
        before = [delay, stopping.StopOnNaN(), tokens, callbacks.TokenLogs(), average]
        kept = [self.best, self.weights, average and average.restore]
        facts = EpochFacts(self.checkpoint)
        after = [self.early, self.limit, self.board, facts, self.checkpoint, self.history]
        # Each comes after those that write the logs it reads.
        every = [*before, *self._monitors(data.texts.valid, data.valid), *kept, *after]
        self.shown = None
        if not options.quiet:
            num_texts = 0 if data.valid is None else len(data.texts.valid.sources)
            self.shown = ShowTraining(plan, self.checkpoint, self.best, num_texts)
            every.append(self.shown)
        self.overfitting = NoteOverfitting()
        every.append(self.overfitting)
        self.all = [callback for callback in every if callback is not None]
        sizes = model.count_params(), keep, plan.epochs_left(0), data.valid is not None
        report_disk(self.out, *sizes)

    def restore(self) -> None:
        """Goes back to the newest state, and has all callbacks go on from there."""
        checkpoint = self.checkpoint
        checkpoint.restore(self.model)
        if checkpoint.total_steps is None:  # of an earlier version, which saved only after epochs
            checkpoint.total_steps = checkpoint.epoch * self.plan.epoch_steps
        for epoch, logs in enumerate(checkpoint.history):
            for callback in (self.best, self.weights, self.early, self.limit, self.overfitting):
                if callback is not None:
                    callback.replay(epoch, logs)
        self.weights.forget_after(checkpoint.epoch)
        if self.limit is not None:
            self.limit.in_epoch = checkpoint.seconds_before
        for callback in self.all:
            if isinstance(callback, FigureMonitor):
                callback.at_start = None  # drawn when the run began
        self.board.forget_after(checkpoint.total_steps, checkpoint.epoch)
        self.history.write()

    def has_stopped(self) -> bool:
        """Returns whether a run that is resumed had ended early."""
        return self.early is not None and self.early.waited >= self.early.patience

    def steps_left(self) -> int:
        """Returns how many steps are still to be trained."""
        return max(0, self.plan.total_steps - self.checkpoint.total_steps)

    def has_no_time(self) -> bool:
        """Returns whether a run that is resumed has steps left, but no time for another epoch."""
        return self.limit is not None and self.limit.is_reached and bool(self.steps_left())

    def report_stop(self) -> None:
        """Says why a training has ended before its last step."""
        if not self.steps_left():
            return
        if self.has_stopped():
            epochs = counted(self.early.patience, "epoch")
            log(
                f"stopped: no better {METRICS[self.options.metric]} for {epochs}, "
                "--early-stopping; to go on, give --resume and more, or 0 for never"
            )
        elif self.limit is not None:
            log(
                "stopped: there is no time for another epoch in --max-minutes "
                f"{self.options.max_minutes:g}; to go on, give --resume and more"
            )

    @contextmanager
    def stopping(self):
        """Ends what runs beside `fit` in its context, in whatever way that ends.

        SIGTERM saves a state. The bar is removed, so that it does not stay on the terminal. An
        error of the last state's copy is said even if another one has ended the training.
        """
        with on_sigterm(self.checkpoint.save_and_exit):
            try:
                yield
            except BaseException as error:
                self._end(error)
                raise

    def _end(self, error):
        if self.shown is not None:
            self.shown.stop()
        self.board.close()
        try:
            self.checkpoint.wait()
        except OSError as fault:
            log(f"note: {fault}")
        if not workers.is_first(self.options):
            return
        go_on = f"go on with: keras-transformer train --out {quote(str(self.out))} --resume"
        if isinstance(error, SystemExit):
            log(f"stopped after step {self.checkpoint.total_steps:,}; {go_on}")
        elif isinstance(error, KeyboardInterrupt):
            log(f"stopped; the steps since the last saved state are lost; {go_on}")

    def finish(self) -> None:
        """Averages the last epochs, if asked to, and writes what the projector shows."""
        number = self.options.average or 0
        if "average" in self.options.chosen:  # of a training that has ended early, too
            number = recipe.epochs_of_mean(self.checkpoint.epoch)
        if number:
            # Epochs of a run that kept fewer before are not there.
            paths = self._shared(self.weights.last(min(number, self.weights.keep)))
            with stage(f"averaging {counted(len(paths), 'epoch')}", quiet=self.options.quiet):
                epoch_weights.average_weights(self.model, paths)
                self._save_mean(len(paths))
        pieces = self.tokenizer.pieces(range(self.tokenizer.vocab_size))
        tensorboard.write_projector(self.logs, self.model.lm_head_kernel(), pieces)

    def kept(self) -> dict:
        """Describes the weights that the run directory has."""
        return self.mean or kept_epoch(self.best, self.checkpoint.epoch, self.options)

    def _save(self):
        save_run(self.model, self.tokenizer, self.out, dtype="float32")
        # The checkpoint does not know this epoch yet.
        self.on_kept(kept_epoch(self.best, self.best.epoch, self.options))

    def _save_mean(self, number):
        """Saves the mean; one that nobody asked for only if no epoch is clearly better."""
        scores, monitor, last = {}, self.translations, self.checkpoint.epoch
        if monitor is not None:
            scores = monitor.score(monitor.translate(monitor.sources), monitor.references)
        value, best = scores.get(self.options.metric), self.best.best
        if "average" in self.options.chosen and best is not None and value < best - LUCK_OF_BEST:
            name = METRICS[self.options.metric]
            log(f"their mean has {name} {value:.1f}, less than the best epoch, which is kept")
            # An earlier start of the run may have saved its mean.
            paths = self._shared([self.weights.path(self.best.epoch)])
            epoch_weights.average_weights(self.model, paths)
            self._save()
            return
        save_run(self.model, self.tokenizer, self.out, dtype="float32")
        self.mean = kept_mean(last - number + 1, last, scores, self.options)
        self.on_kept(self.mean)

    def _shared(self, paths):
        """Returns those of some weights that are there; of all workers, the first one's."""
        names = [path.name for path in paths if path.is_file()]
        workers.share_files(self.options, [f"{CHECKPOINTS}/{epoch_weights.EPOCHS}"])
        return workers.share_files(self.options, [f"{CHECKPOINTS}/{name}" for name in names])

    def _monitors(self, texts, batches) -> list:
        """Makes the callbacks that show how the model translates the text to validate on."""
        if texts is None:
            refuse_without_validation(self.options)
            return []
        parts = self.model, self.tokenizer
        self.translations = monitors.translation_monitor(*parts, texts, self.logs, self.options)
        found = [
            self.translations,
            monitors.glance_monitor(*parts, texts, batches, self.translations, self.logs),
        ]
        if self.options.plots:
            found.append(monitors.figure_monitor(*parts, texts.sources[0], self.logs))
        return found


@contextmanager
def on_sigterm(handler):
    """Has a handler called at the first SIGTERM in its context; the next one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)

    def handle(*arguments):
        signal.signal(signal.SIGTERM, before)
        handler(*arguments)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _settings(options) -> dict:
    """Returns the options that are numbers, words or switches, for the tab HParams."""
    return {
        name: value
        for name, value in vars(options).items()
        if isinstance(value, bool | int | float) or name in SHOWN_WORDS and value is not None
    }
