"""What a training writes down of itself: each epoch, and which one was kept and why."""

import json
import math
from pathlib import Path

import keras

from keras_transformer.commands.messages import counted
from keras_transformer.evaluation.scores import score_translations
from keras_transformer.files import write_text
from keras_transformer.training.callbacks import number
from keras_transformer.training.card import HISTORY, METRICS

# Translations with a lower score have hardly a word of the reference.
LEAST_SCORES = {"bleu": 2.0, "chrf": 15.0}


class EpochFacts(keras.callbacks.Callback):
    """Adds `step`, `seconds` and `learning_rate` to an epoch's logs.

    Args:
        checkpoint: the `TrainingCheckpoint` of the training, which counts over its stops.
    """

    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint = checkpoint

    def on_epoch_end(self, epoch, logs=None):
        logs["step"] = self.checkpoint.total_steps
        logs["seconds"] = self.checkpoint.seconds
        logs["learning_rate"] = number(self.model.optimizer.learning_rate)


class WriteHistory(keras.callbacks.Callback):
    """Writes the logs of all epochs, a JSON object in a line, after each epoch.

    Args:
        out: the run directory.
        history: function that returns the logs of all epochs so far.
    """

    def __init__(self, out, history):
        super().__init__()
        self.path, self.history = Path(out) / HISTORY, history

    def on_epoch_end(self, epoch, logs=None):
        self.write()

    def write(self) -> None:
        """Writes the whole file, since what stopped may have written an epoch too many."""
        lines = []
        for epoch, logs in enumerate(self.history(), start=1):
            known = {k: v if math.isfinite(v) else None for k, v in logs.items()}
            if "step" in logs:
                known["step"] = int(logs["step"])
            lines.append(json.dumps({"epoch": epoch, **known}) + "\n")
        write_text(self.path, "".join(lines))


def signature(metric: str, tokenize: str) -> str:
    """Returns sacreBLEU's signature of a metric."""
    return getattr(score_translations(["a"], ["a"], tokenize), f"{metric}_signature")


def kept_epoch(best, num_epochs, options) -> dict:
    """Describes the epoch that a run has kept, from its callback `KeepBest`."""
    if best.best is None:
        why = "the last epoch, since there is no score to compare epochs by"
        facts = {"metric": None, "value": None, "signature": None}
    else:
        epochs = counted(num_epochs, "epoch")
        why = f"the best {METRICS[options.metric]} of {epochs} on the validation text"
        facts = {"metric": options.metric, "value": float(best.best)}
        facts["signature"] = signature(options.metric, options.bleu_tokenize)
    return {"epoch": best.epoch, **facts, "why": why}


def kept_mean(first, last, scores, options) -> dict:
    """Describes the mean of the epochs `first` to `last`, with its own score, if there is one."""
    value = scores.get(options.metric)
    is_known = value is not None
    return {
        "epoch": last,
        "metric": options.metric if is_known else None,
        "value": value,
        "signature": signature(options.metric, options.bleu_tokenize) if is_known else None,
        "mean_of": last - first + 1,
        "why": f"the mean of epochs {first} to {last}, by --average {last - first + 1}",
    }


def sentence(kept: dict) -> str:
    """Says in words what was kept."""
    if "mean_of" in kept:
        first = kept["epoch"] - kept["mean_of"] + 1
        text = f"kept the mean of epochs {first} to {kept['epoch']}"
    else:
        text = f"kept epoch {kept['epoch']}, {kept['why']}"
    if kept["value"] is None:
        return text
    return f"{text}: {METRICS[kept['metric']]} {kept['value']:.1f}"


def is_useless(kept: dict) -> bool:
    """Returns whether the model that was kept is known to translate next to nothing.

    >>> is_useless({"metric": "bleu", "value": 0.2}), is_useless({"metric": None, "value": None})
    (True, False)
    """
    return kept["value"] is not None and kept["value"] < LEAST_SCORES[kept["metric"]]
