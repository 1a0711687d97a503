"""What `keras-transformer train` measures, shows and keeps."""

from pathlib import Path

from keras_transformer.commands.pictures import model_figures, sentence_figures, shown_word
from keras_transformer.commands.training_text import say
from keras_transformer.data.batching import TokenBatches
from keras_transformer.evaluation.scores import score_translations
from keras_transformer.export.inspection import inspect_translation
from keras_transformer.export.run_directory import save_run
from keras_transformer.export.translator import Translator
from keras_transformer.training.callbacks import (
    KeepBest,
    StopEarly,
    StopOnNaN,
    TimeLimit,
    TokenLogs,
    TokensPerSecond,
    TranslationMonitor,
    UseAverage,
)
from keras_transformer.training.checkpoints import (
    EpochWeights,
    TrainingCheckpoint,
    average_weights,
)
from keras_transformer.training.delay_r_drop import DelayRDrop
from keras_transformer.training.streams import default_streams
from keras_transformer.training.tensorboard import (
    AttentionMonitor,
    TensorBoardMonitor,
    write_projector,
)
from keras_transformer.visualization.figures import new_figure
from keras_transformer.visualization.monitor import FigureMonitor

CHECKPOINTS, LOGS = "checkpoints", "logs"
# A token is 16 pixels of a picture.
NUM_ATTENTION_PICTURES, LONGEST_ATTENTION = 3, 200
PROFILE_STEPS = 10, 15
# A model that knows little yet writes without end, and its pictures would be as long.
LONGEST_PICTURED = 40
NO_BLEU = (
    "--early-stopping needs a BLEU to watch; name text with --valid-source and --valid-target."
)


class Callbacks:
    """The callbacks of a run, and what is done with them before and after `fit`."""

    def __init__(self, model, tokenizer, texts, train, valid, options):
        self.model, self.tokenizer, self.options = model, tokenizer, options
        self.out = Path(options.out)
        self.logs = self.out / LOGS
        self.monitor = None if texts.valid is None else self._translation_monitor(texts.valid)
        self.attention = (
            None if texts.valid is None else self._attention_monitor(texts.valid, valid)
        )
        self.figures = self._figure_monitor(texts.valid) if options.plots else None
        self.tokens = TokensPerSecond(lambda: train.num_target_tokens)
        self.best = KeepBest(self._save)
        self.weights = EpochWeights(
            self.out / CHECKPOINTS, keep=max(options.keep, options.average or 0)
        )
        self.checkpoint = TrainingCheckpoint(self.out / CHECKPOINTS)
        self.early = None
        if options.early_stopping is not None:
            if texts.valid is None:
                raise ValueError(NO_BLEU)
            self.early = StopEarly(options.early_stopping)

    def all(self) -> list:
        """The callbacks, in the order in which each needs the others' logs."""
        options = self.options
        average = None if options.ema is None else UseAverage()
        limit = None if options.max_minutes is None else TimeLimit(options.max_minutes)
        delay = None if options.r_drop_delay is None else DelayRDrop(options.r_drop_delay)
        board = TensorBoardMonitor(
            self.logs,
            settings=_settings(options),
            profile_steps=PROFILE_STEPS if options.profile else None,
        )
        callbacks = [
            delay,
            StopOnNaN(),
            self.tokens,
            TokenLogs(),
            average,
            self.monitor,
            self.attention,
            self.figures,
            self.best,
            self.weights,
            average and average.restore,
            self.early,
            limit,
            board,
            self.checkpoint,
        ]
        return [callback for callback in callbacks if callback is not None]

    def restore(self) -> int:
        """Goes back to the last finished epoch; returns the number of finished epochs."""
        first_epoch = self.checkpoint.restore(self.model)
        for epoch, logs in enumerate(self.checkpoint.history):
            for callback in (self.best, self.weights, self.early):
                if callback is not None:
                    callback.replay(epoch, logs)
        return first_epoch

    def has_stopped(self) -> bool:
        """Whether a run that goes on had ended early."""
        return self.early is not None and self.early.waited >= self.early.patience

    def finish(self) -> None:
        """Averages the last epochs, if asked to, and writes what the projector shows."""
        if self.options.average is not None:
            paths = self.weights.last(self.options.average)
            average_weights(self.model, paths)
            self._save()
            say(f"kept the mean of the last {len(paths)} epochs")
        vectors = self.model.output_embeddings()
        pieces = self.tokenizer.pieces(range(self.tokenizer.vocab_size))
        write_projector(self.logs, vectors, pieces)

    def _save(self):
        save_run(self.model, self.tokenizer, self.out, dtype="float32")

    def _translation_monitor(self, valid):
        def score(translations, references):
            scores = score_translations(translations, references, self.options.bleu_tokenize)
            return {"bleu": scores.bleu, "chrf": scores.chrf}

        longest = max(256, self.options.max_length)
        settings = {"batch_size": 128, "num_streams": default_streams()}
        settings |= {"max_source_length": longest, "max_length": longest}
        translator = Translator(self.model, self.tokenizer, search="greedy", **settings)
        return TranslationMonitor(
            translator, score, valid.sources, valid.targets, log_dir=self.logs
        )

    def _attention_monitor(self, texts, batches):
        pairs, lengths = [], batches.plain.lengths[batches.rows]
        for i in batches.rows[lengths <= LONGEST_ATTENTION][:NUM_ATTENTION_PICTURES]:
            pair = TokenBatches([texts.sources[i]], [texts.targets[i]], self.tokenizer)
            inputs, _ = next(pair.epoch(0))
            pairs.append(tuple(ids[:1] for ids in inputs))
        return AttentionMonitor(self.model.cross_attention_weights, pairs, self.logs)

    def _figure_monitor(self, valid):
        if valid is None:
            raise ValueError(
                "--plots needs a sentence to draw; name text with --valid-source and "
                "--valid-target."
            )
        new_figure(1, 1)  # fails without matplotlib
        longest = {"max_source_length": LONGEST_PICTURED, "max_length": LONGEST_PICTURED}
        translator = Translator(self.model, self.tokenizer, **longest)

        def draw():
            inspection = inspect_translation(translator, valid.sources[0])
            return _tags(sentence_figures(inspection, shown_word(inspection)))

        return FigureMonitor(self.logs, draw, at_start=lambda: _tags(model_figures(self.model)))


def _tags(figures) -> dict:
    """The figures by names that TensorBoard groups."""
    return {f"pictures/{name}": figure for name, figure in figures.items()}


def _settings(options) -> dict:
    """The options that are numbers, words or switches, for the tab HParams."""
    values = {name: value for name, value in vars(options).items() if value is not None}
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int | float)}
    words = {name: values[name] for name in ("preset", "precision", "strategy", "bleu_tokenize")}
    return {**plain, **words}
