"""The weights of epochs on the disk, and their mean."""

import math
import warnings
from collections.abc import Iterable
from pathlib import Path

import keras
import numpy as np

from keras_transformer.checks import check_positive_int
from keras_transformer.files import (
    FileError,
    fingerprint,
    make_directory,
    read_json,
    replacing,
    write_json,
)
from keras_transformer.training.checkpoints import CheckpointError
from keras_transformer.training.weights import load_weights, weights_as_bytes
from keras_transformer.type_hints import KerasModel, StrPath

WEIGHTS, ANY_WEIGHTS = "epoch-{:05d}.weights.h5", "epoch-*.weights.h5"
# Their sizes and hashes, in the same directory.
EPOCHS = "epochs.json"


class EpochWeights(keras.callbacks.Callback):
    """Keeps the weights of the last and of the best epochs, for `average_weights`.

    Args:
        directory: where to write the files; created if it is missing.
        keep: how many of the last epochs to keep, and how many of the best.
        monitor: the entry of the logs that compares epochs; larger is better. Epochs where it is
            missing or NaN come last.

    Example:
        >>> weights = EpochWeights("runs/example/checkpoints", keep=3)
        >>> weights.replay(0, {"val_bleu": 21.5})  # an epoch of a resumed run
        >>> [path.name for path in weights.best(1)]
        ['epoch-00001.weights.h5']
    """

    def __init__(self, directory: StrPath, *, keep: int = 10, monitor: str = "val_bleu"):
        super().__init__()
        self.directory = Path(directory)
        self.keep = check_positive_int("keep", keep)
        self.monitor = monitor
        self.scores, self.fingerprints = {}, {}

    def on_train_begin(self, logs=None):
        found = sorted(self.directory.glob(ANY_WEIGHTS))
        if found and not self.scores:
            raise CheckpointError(
                f"{self.directory} holds weights of another run, such as {found[-1].name}; "
                "call replay() with its epochs to go on with that run, or name an empty directory."
            )
        if found and (self.directory / EPOCHS).is_file():
            try:
                self.fingerprints = read_json(self.directory / EPOCHS)
            except FileError as error:
                warnings.warn(f"the epochs so far cannot be averaged: {error}", stacklevel=2)

    def on_epoch_end(self, epoch, logs=None):
        self.replay(epoch, logs or {})
        make_directory(self.directory)
        path, weights = self.path(epoch + 1), weights_as_bytes(self.model)
        with replacing(path) as new:
            new.write_bytes(weights)
        kept = {*self.last(self.keep), *self.best(self.keep)}
        self.fingerprints[path.name] = fingerprint(weights)
        names = self.fingerprints.keys() & {path.name for path in kept}
        self.fingerprints = {name: self.fingerprints[name] for name in sorted(names)}
        write_json(self.directory / EPOCHS, self.fingerprints)
        for old in self.directory.glob(ANY_WEIGHTS):
            if old not in kept:
                old.unlink()

    def replay(self, epoch, logs):
        """Remembers an epoch of a resumed run."""
        score = logs.get(self.monitor, math.nan)
        self.scores[epoch + 1] = -math.inf if math.isnan(score) else score

    def forget_after(self, epoch: int) -> None:
        """Removes the weights of later epochs, which a resumed run has no state of."""
        for path in self.directory.glob(ANY_WEIGHTS):
            if path > self.path(epoch):
                path.unlink()

    def path(self, epoch: int) -> Path:
        """Returns the path of the weights of an epoch, counted from 1."""
        return self.directory / WEIGHTS.format(epoch)

    def last(self, number: int) -> list[Path]:
        """Lists the weights of the last epochs."""
        return self._paths(sorted(self.scores)[-number:])

    def best(self, number: int) -> list[Path]:
        """Lists the weights of the best epochs, best first, and of equal ones the later first."""
        order = sorted(self.scores, key=lambda epoch: (self.scores[epoch], epoch), reverse=True)
        return self._paths(order[:number])

    def _paths(self, epochs):
        return list(map(self.path, epochs))


def average_weights(model: KerasModel, paths: Iterable[StrPath]) -> None:
    """Gives a model the mean of weights on disk ("Attention Is All You Need", section 6.1).

    Args:
        model: a Keras model.
        paths: the files that `save_weights` or `EpochWeights` wrote.

    Raises:
        CheckpointError: if there are no files, or one is missing, was altered, or belongs to
            another model. The model's weights are then as before.

    Example:
        >>> import tempfile
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> path = tempfile.mkdtemp() + "/epoch-00001.weights.h5"
        >>> model.save_weights(path)
        >>> average_weights(model, [path])
    """
    paths = list(paths)
    if not paths:
        raise CheckpointError("There are no weights to average; name the files of some epochs.")
    before, sums = model.get_weights(), None
    try:
        for path in map(Path, paths):
            _load(model, path)
            values = [np.asarray(value, "float64") for value in model.get_weights()]
            sums = values if sums is None else [a + b for a, b in zip(sums, values, strict=True)]
    except CheckpointError:
        model.set_weights(before)
        raise
    model.set_weights([total / len(paths) for total in sums])


def _load(model, path):
    data = _saved_bytes(path)
    try:
        load_weights(model, data)
    except ValueError as error:
        raise CheckpointError(f"{path} holds no weights of this model: {error}") from error


def _saved_bytes(path) -> bytes:
    """Reads the weights of an epoch, and compares them with what `EpochWeights` noted of them."""
    if not path.is_file():
        raise CheckpointError(
            f"{path} is not there; average fewer epochs, or train with a larger --keep."
        )
    data, notes = path.read_bytes(), path.with_name(EPOCHS)
    try:
        if notes.is_file() and read_json(notes).get(path.name) != fingerprint(data):
            raise FileError(f"{path} is not the file that was saved; average others.")
    except FileError as error:
        raise CheckpointError(str(error)) from error
    return data
