"""How a model translates while it is trained: scores, samples and pictures for TensorBoard."""

import numpy as np

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.data.batching import TokenBatches
from keras_transformer.evaluation.scores import score_translations
from keras_transformer.inference.training_translator import TrainingTranslator
from keras_transformer.pure_steps import compiled
from keras_transformer.training.shards import default_shards
from keras_transformer.training.translation_monitor import TranslationMonitor
from keras_transformer.visualization.attention import mean_attention
from keras_transformer.visualization.figures import new_figure
from keras_transformer.visualization.monitor import FigureMonitor
from keras_transformer.visualization.samples import samples_figure

# The first screen of TensorBoard: its name there, which stands before others; how many cards of
# how many translations, and maps of attention of about how many tokens, which leave labels legible.
FIRST, NUM_CARDS, NUM_READ, LEGIBLE = "at_a_glance", 2, 2, 11
FIRST_DPI = 160
# A model that has learnt little never stops writing, and its pictures would be too long.
MAX_PICTURED_TOKENS = 40


def translation_monitor(model, tokenizer, texts, logs, options) -> TranslationMonitor:
    """Makes the callback that translates the text to validate on, and scores that."""

    def score(translations, references):
        scores = score_translations(translations, references, options.bleu_tokenize)
        return {"bleu": scores.bleu, "chrf": scores.chrf}

    length, batches = max(256, options.max_length), {"batch_size": 128}
    if STEPS_ARE_PURE:
        translator = TrainingTranslator(model, tokenizer, max_length=length, **batches)
    else:
        batches["num_parallel_batches"] = default_shards()
        translator = _translator(model, tokenizer, length, "greedy", **batches)
    return TranslationMonitor(translator, score, *texts[:2], log_dir=logs)


def glance_monitor(model, tokenizer, texts, batches, translations, logs) -> FigureMonitor:
    """Makes the callback that draws what people look at first.

    That is some translations, and what the tokens of two pairs look at.

    Args:
        model, tokenizer, logs: of the run.
        texts: to validate on.
        batches: of these texts.
        translations: the `TranslationMonitor` of the run.
    """
    new_figure(1, 1)  # fails without matplotlib
    pairs = legible_pairs(texts, batches, tokenizer)

    def attention(source, target):
        return model.cross_attention_scores((source, target))

    if STEPS_ARE_PURE:
        attention = compiled(attention, model.variables)

    def draw():
        starts = range(0, NUM_READ * NUM_CARDS, NUM_READ)
        parts = filter(None, (translations.samples[i : i + NUM_READ] for i in starts))
        figures = {
            f"{FIRST}/translations_{number}": samples_figure(part)
            for number, part in enumerate(parts, start=1)
        }
        for number, (source, target, labels) in enumerate(pairs, start=1):
            scores = attention(source, target)
            pieces = tokenizer.pieces(labels[0]), tokenizer.pieces(source[0])
            figures[f"{FIRST}/attention_{number}"] = mean_attention(scores, *pieces)
        return figures

    return FigureMonitor(logs, draw, dpi=FIRST_DPI)


def legible_pairs(texts, batches, tokenizer) -> list:
    """Returns ids (1, S), (1, T) and labels (1, T) of the pairs that are nearest to `LEGIBLE`."""
    lengths, pairs = batches.tokenized.lengths[batches.kept], []
    nearest = np.argsort(abs(lengths.astype(int) - LEGIBLE), kind="stable")[:NUM_CARDS]
    for i in batches.kept[nearest]:
        pair = TokenBatches(
            [texts.sources[i]],
            [texts.targets[i]],
            tokenizer,
            max_pair_length=batches.max_pair_length,
        )
        (source, target), labels = next(pair.epoch(0))
        pairs.append([ids[:1, : np.count_nonzero(ids[0])] for ids in (source, target, labels)])
    return pairs


def figure_monitor(model, tokenizer, sentence, logs) -> FigureMonitor:
    """Makes the callback that draws what `inspect` shows of a sentence."""
    from keras_transformer.commands.pictures import model_figures, sentence_figures, shown_word
    from keras_transformer.inference.inspection import inspect_translation

    new_figure(1, 1)  # fails without matplotlib
    translator = _translator(model, tokenizer, MAX_PICTURED_TOKENS)

    def draw():
        inspection = inspect_translation(translator, sentence)
        return _tags(sentence_figures(inspection, shown_word(inspection)))

    return FigureMonitor(logs, draw, at_start=lambda: _tags(model_figures(model)))


def _translator(model, tokenizer, max_length, strategy="beam", **options):
    from keras_transformer.inference.translator import Translator  # it needs TensorFlow

    lengths = {"max_source_length": max_length, "max_length": max_length}
    return Translator(model, tokenizer, strategy, **lengths, **options)


def _tags(figures) -> dict:
    """Names the figures so that TensorBoard groups them."""
    return {f"pictures/{name}": figure for name, figure in figures.items()}
