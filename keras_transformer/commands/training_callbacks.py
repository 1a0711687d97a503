"""What `keras-transformer train` measures, shows and keeps."""

from pathlib import Path

from keras_transformer.commands.messages import log
from keras_transformer.commands.pictures import model_figures, sentence_figures, shown_word
from keras_transformer.commands.training_text import refuse_without_validation
from keras_transformer.data.batching import TokenBatches
from keras_transformer.evaluation.scores import score_translations
from keras_transformer.inference.inspection import inspect_translation
from keras_transformer.inference.run_directory import save_run
from keras_transformer.inference.translator import Translator
from keras_transformer.training import callbacks, checkpoints, tensorboard
from keras_transformer.training.shards import default_shards
from keras_transformer.visualization.figures import new_figure
from keras_transformer.visualization.monitor import FigureMonitor

CHECKPOINTS, LOGS = "checkpoints", "logs"
# A token is 16 pixels of a picture.
NUM_ATTENTION_PICTURES, MAX_ATTENTION_TOKENS = 3, 200
PROFILE_STEPS = 10, 15
# A model that has learnt little never stops writing, and its pictures would be too long.
MAX_PICTURED_TOKENS = 40
# The options, besides numbers and switches, that the tab HParams shows.
SHOWN_WORDS = ("preset", "precision", "strategy", "bleu_tokenize")


class Callbacks:
    """The callbacks of a run, and what is done with them before and after `fit`."""

    def __init__(self, model, tokenizer, texts, train, valid, options):
        self.model, self.tokenizer, self.options = model, tokenizer, options
        self.out, self.logs = Path(options.out), Path(options.out) / LOGS
        self.best = callbacks.KeepBest(self._save)
        keep = max(options.keep, options.average or 0)
        self.weights = checkpoints.EpochWeights(self.out / CHECKPOINTS, keep=keep)
        self.checkpoint = checkpoints.TrainingCheckpoint(self.out / CHECKPOINTS)
        self.early = options.early_stopping and callbacks.StopEarly(options.early_stopping)
        delay = options.r_drop_delay and callbacks.DelayRDrop(options.r_drop_delay)
        average = None if options.ema is None else callbacks.UseAverage()
        tokens = callbacks.TokensPerSecond(lambda: train.num_target_tokens)
        limit = options.max_minutes and callbacks.TimeLimit(options.max_minutes)
        profiled = {"profile_steps": PROFILE_STEPS if options.profile else None}
        board = tensorboard.TensorBoardMonitor(self.logs, settings=_settings(options), **profiled)
        before = [delay, callbacks.StopOnNaN(), tokens, callbacks.TokenLogs(), average]
        kept = [self.best, self.weights, average and average.restore]
        after = [self.early, limit, board, self.checkpoint]
        # Each comes after those that write the logs it reads.
        every = [*before, *self._monitors(texts.valid, valid), *kept, *after]
        self.all = [callback for callback in every if callback is not None]

    def restore(self) -> int:
        """Goes back to the last finished epoch; returns the number of finished epochs."""
        first_epoch = self.checkpoint.restore(self.model)
        for epoch, logs in enumerate(self.checkpoint.history):
            for callback in (self.best, self.weights, self.early):
                if callback is not None:
                    callback.replay(epoch, logs)
        return first_epoch

    def has_stopped(self) -> bool:
        """Returns whether a run that is resumed had ended early."""
        return self.early is not None and self.early.waited >= self.early.patience

    def finish(self) -> None:
        """Averages the last epochs, if asked to, and writes what the projector shows."""
        if self.options.average is not None:
            paths = self.weights.last(self.options.average)
            checkpoints.average_weights(self.model, paths)
            self._save()
            log(f"kept the mean of the last {len(paths)} epochs")
        pieces = self.tokenizer.pieces(range(self.tokenizer.vocab_size))
        tensorboard.write_projector(self.logs, self.model.lm_head_kernel(), pieces)

    def _save(self):
        save_run(self.model, self.tokenizer, self.out, dtype="float32")

    def _monitors(self, texts, batches) -> list:
        """Makes the callbacks that show how the model translates the text to validate on."""
        if texts is None:
            refuse_without_validation(self.options)
            return []
        monitors = [self._translation_monitor(texts), self._attention_monitor(texts, batches)]
        if self.options.plots:
            monitors.append(self._figure_monitor(texts.sources[0]))
        return monitors

    def _translator(self, max_length, strategy="beam", **options):
        lengths = {"max_source_length": max_length, "max_length": max_length}
        return Translator(self.model, self.tokenizer, strategy, **lengths, **options)

    def _translation_monitor(self, texts):
        def score(translations, references):
            scores = score_translations(translations, references, self.options.bleu_tokenize)
            return {"bleu": scores.bleu, "chrf": scores.chrf}

        batches = {"batch_size": 128, "num_parallel_batches": default_shards()}
        translator = self._translator(max(256, self.options.max_length), "greedy", **batches)
        return callbacks.TranslationMonitor(translator, score, *texts[:2], log_dir=self.logs)

    def _attention_monitor(self, texts, batches):
        pairs, lengths = [], batches.tokenized.lengths[batches.kept]
        for i in batches.kept[lengths <= MAX_ATTENTION_TOKENS][:NUM_ATTENTION_PICTURES]:
            pair = TokenBatches([texts.sources[i]], [texts.targets[i]], self.tokenizer)
            inputs, _ = next(pair.epoch(0))
            pairs.append(tuple(ids[:1] for ids in inputs))
        return tensorboard.AttentionMonitor(self.model.cross_attention_scores, pairs, self.logs)

    def _figure_monitor(self, sentence):
        new_figure(1, 1)  # fails without matplotlib
        translator = self._translator(MAX_PICTURED_TOKENS)

        def draw():
            inspection = inspect_translation(translator, sentence)
            return _tags(sentence_figures(inspection, shown_word(inspection)))

        return FigureMonitor(self.logs, draw, at_start=lambda: _tags(model_figures(self.model)))


def _tags(figures) -> dict:
    """Names the figures so that TensorBoard groups them."""
    return {f"pictures/{name}": figure for name, figure in figures.items()}


def _settings(options) -> dict:
    """Returns the options that are numbers, words or switches, for the tab HParams."""
    return {
        name: value
        for name, value in vars(options).items()
        if isinstance(value, bool | int | float) or name in SHOWN_WORDS
    }
