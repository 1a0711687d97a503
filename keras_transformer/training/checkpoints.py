"""The states from which a stopped run resumes, and the weights to average."""

import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np

from keras_transformer.files import (
    FileError,
    fingerprint,
    make_directory,
    read_json,
    replacing,
    write_json,
)
from keras_transformer.training.distribution import scope_of
from keras_transformer.training.state_file import STATE, State, read_state, write_state
from keras_transformer.training.weights import load_weights, weights_as_bytes
from keras_transformer.type_hints import KerasModel, StrPath

WEIGHTS = "epoch-{:05d}.weights.h5"
# The sizes and hashes of the weights of epochs, in the same directory.
EPOCHS = "epochs.json"


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing, damaged or of another model.

    Example:
        >>> try:
        ...     average_weights(keras.Sequential(), paths=[])
        ... except CheckpointError as error:
        ...     print(error)
        There are no weights to average; train with --keep first.
    """


class TrainingCheckpoint(keras.callbacks.Callback):
    """Keeps after each epoch what a run needs to resume as if it had never stopped.

    Weights alone are not enough: the state also holds the optimizer's moments and step, the seeds
    of dropout and the logs of all epochs so far. It is copied when the epoch ends, and a thread
    writes it while training goes on; what goes wrong there is raised by the next save, or at the
    end of `fit`. It is one file with a hash of its bytes that appears whole or not at all, and the
    file before it stays, so there is always one to resume from. Place the callback after all
    callbacks that add to the logs or read them.

    Args:
        directory: where to write the files; created if it is missing.
        keep: the number of states to keep.

    Example:
        >>> checkpoint = TrainingCheckpoint("runs/example/checkpoints")
        >>> checkpoint.epoch  # after `checkpoint.restore(model)`, the `initial_epoch` for `fit`
        0
    """

    def __init__(self, directory: StrPath, *, keep: int = 2):
        super().__init__()
        self.directory = Path(directory)
        self.keep = keep
        self.history = []
        self._writing = None

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return len(self.history)

    def on_train_begin(self, logs=None):
        if self.paths() and not self.history:
            raise CheckpointError(
                f"{self.directory} holds states of another run, such as {self.paths()[-1].name}; "
                "call restore() to go on with that run, or name an empty directory."
            )

    def on_epoch_end(self, epoch, logs=None):
        self.wait()
        self.history.append({name: float(value) for name, value in (logs or {}).items()})
        arrays = [_as_array(variable) for variable in _variables(self.model)]
        state = State(arrays, epoch=self.epoch, history=list(self.history))
        make_directory(self.directory)
        thread = ThreadPoolExecutor(1)  # for which Python waits before it exits
        self._writing = thread.submit(self._write, self.directory / STATE.format(epoch + 1), state)
        thread.shutdown(wait=False)

    def on_train_end(self, logs=None):
        self.wait()

    def wait(self) -> None:
        """Waits until the last state is on the disk.

        Raises:
            OSError: if it could not be written.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, path, state):
        write_state(path, state)
        for old in self.paths()[: -self.keep]:
            old.unlink()

    def paths(self) -> list[Path]:
        """Lists the states, oldest first."""
        return sorted(self.directory.glob(STATE.replace("{:05d}", "*")))

    def restore(self, model) -> int:
        """Restores a compiled model from the newest state that can be read.

        Returns:
            The number of finished epochs, the `initial_epoch` for `fit`.

        Raises:
            CheckpointError: if no state can be read, or it belongs to another model.
        """
        self.wait()
        state, path = _newest(self.paths(), self.directory)
        if state.step:
            raise CheckpointError(
                f"{path} stands after step {state.step} of an epoch, but this version goes on only "
                "after whole epochs; install the version that wrote it."
            )
        _assign(model, state.arrays, path)
        self.history = state.history
        return self.epoch


def read_history(directory) -> list[dict]:
    """Reads the logs of each finished epoch of a run; errors as in `TrainingCheckpoint.restore`."""
    return _newest(TrainingCheckpoint(directory).paths(), directory)[0].history


def _newest(paths, directory) -> tuple[State, Path]:
    """Reads the newest state that can be read; warns of those that cannot."""
    reasons = []
    for path in reversed(paths):
        try:
            state = read_state(path)
        except FileError as error:
            reasons.append(str(error))
            continue
        if reasons:
            warnings.warn(f"going on from {path}, since {'; '.join(reasons)}", stacklevel=3)
        return state, path
    reasons = "; ".join(reasons) or "there is none"
    raise CheckpointError(
        f"{directory} holds no state of a run to go on from ({reasons}); train it again."
    )


def _variables(model):
    """Lists all that training changes: weights, seeds of dropout, the optimizer's variables."""
    # Some optimizers, such as float16's, make new variables each time they are built.
    if not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def _as_array(variable):
    """Copies a variable to an array for an `.npz` file, which cannot hold bfloat16."""
    array = keras.ops.convert_to_numpy(variable)
    return array.astype("float32") if array.dtype.name == "bfloat16" else np.array(array)


def _assign(model, values, path):
    variables = _variables(model)
    shapes = [tuple(variable.shape) for variable in variables]
    if shapes != [value.shape for value in values]:
        raise CheckpointError(
            f"{path} belongs to another model or optimizer; use that run's options."
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


class EpochWeights(keras.callbacks.Callback):
    """Keeps the weights of the last and of the best epochs, for `average_weights`.

    Args:
        directory: where to write the files; created if it is missing.
        keep: how many of the last epochs to keep, and how many of the best.
        monitor: the entry of the logs that compares epochs; larger is better. If it is missing,
            only the last epochs are kept.

    Example:
        >>> weights = EpochWeights("runs/example/checkpoints", keep=3)
        >>> weights.replay(0, {"val_bleu": 21.5})  # an epoch of a resumed run
        >>> [path.name for path in weights.best(1)]
        ['epoch-00001.weights.h5']
    """

    def __init__(self, directory: StrPath, *, keep: int = 10, monitor: str = "val_bleu"):
        super().__init__()
        self.directory = Path(directory)
        self.keep = keep
        self.monitor = monitor
        self.scores, self.fingerprints = {}, {}

    def on_train_begin(self, logs=None):
        found = sorted(self.directory.glob(WEIGHTS.replace("{:05d}", "*")))
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
        path, weights = self.directory / WEIGHTS.format(epoch + 1), weights_as_bytes(self.model)
        with replacing(path) as new:
            new.write_bytes(weights)
        kept = {*self.last(self.keep), *self.best(self.keep)}
        self.fingerprints[path.name] = fingerprint(weights)
        names = self.fingerprints.keys() & {path.name for path in kept}
        self.fingerprints = {name: self.fingerprints[name] for name in sorted(names)}
        write_json(self.directory / EPOCHS, self.fingerprints)
        for old in self.directory.glob(WEIGHTS.replace("{:05d}", "*")):
            if old not in kept:
                old.unlink()

    def replay(self, epoch, logs):
        """Remembers an epoch of a resumed run."""
        self.scores[epoch + 1] = logs.get(self.monitor, float("-inf"))

    def last(self, number: int) -> list[Path]:
        """Lists the weights of the last epochs."""
        return self._paths(sorted(self.scores)[-number:])

    def best(self, number: int) -> list[Path]:
        """Lists the weights of the best epochs, best first, and of equal ones the later first."""
        order = sorted(self.scores, key=lambda epoch: (self.scores[epoch], epoch), reverse=True)
        return self._paths(order[:number])

    def _paths(self, epochs):
        return [self.directory / WEIGHTS.format(epoch) for epoch in epochs]


def average_weights(model: KerasModel, paths: Iterable[StrPath]) -> None:
    """Gives a model the mean of weights on disk ("Attention Is All You Need", section 6.1).

    Args:
        model: a Keras model.
        paths: the files that `save_weights` or `EpochWeights` wrote.

    Raises:
        CheckpointError: if there are no files, or one is missing, was altered, or belongs to
            another model.

    Example:
        >>> import tempfile
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> path = tempfile.mkdtemp() + "/epoch-00001.weights.h5"
        >>> model.save_weights(path)
        >>> average_weights(model, [path])
    """
    paths = list(paths)
    if not paths:
        raise CheckpointError("There are no weights to average; train with --keep first.")
    sums = None
    for path in map(Path, paths):
        data = _saved_bytes(path)
        try:
            load_weights(model, data)
        except ValueError as error:
            raise CheckpointError(f"{path} holds no weights of this model: {error}") from error
        values = [np.asarray(value, "float64") for value in model.get_weights()]
        sums = values if sums is None else [a + b for a, b in zip(sums, values, strict=True)]
    model.set_weights([total / len(paths) for total in sums])


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
