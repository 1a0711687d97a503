"""The file of a state: all that a stopped training goes on from, sealed by its SHA-256."""

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from keras_transformer.checks import check_count, check_int
from keras_transformer.files import FileError, replacing

FORMAT = 4
# After an epoch, and within the epoch of that number, after so many of its steps. In the order of
# their names, `-` before `.`, states are in the order of time.
STATE, STATE_WITHIN = "state-{:05d}.npz", "state-{:05d}-{:09d}.npz"
ANY_STATE = "state-*.npz"
# The seal is the comment at the end of the file: the SHA-256 of all bytes before it.
SEAL_BYTES = 64
# The members of the file by the first part of their names, and the fields that are no arrays.
KINDS = "variable_", "metric_"
HEADER = ("epoch", "history", "step", "total_steps", "seconds")


@dataclass(frozen=True)
class State:
    """Where a training stands, between two steps.

    Attributes:
        arrays: all variables that it changes, in the order of the model and its optimizer.
        epoch: the number of finished epochs, as `fit` counts them.
        history: the logs of each finished epoch.
        step: the number of finished steps of the epoch after them.
        total_steps: the number of finished steps of all epochs; None if an earlier version, which
            did not count them, wrote the state.
        seconds: how long that epoch has taken so far.
        metrics: the variables of its metrics.
    """

    arrays: list[np.ndarray]
    epoch: int
    history: list[dict[str, float]] = field(default_factory=list)
    step: int = 0
    total_steps: int | None = None
    seconds: float = 0.0
    metrics: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self):
        for name in ("epoch", "step"):
            check_count(name, getattr(self, name))
        if self.total_steps is not None:
            check_int("total_steps", self.total_steps, self.step, 2**63 - 1)
        if not isinstance(self.seconds, float):
            raise ValueError(f"seconds must be a float, but is {self.seconds!r}.")
        for logs in self.history:
            if not all(isinstance(value, float) for value in dict(logs).values()):
                raise ValueError(f"history must hold numbers by name, but holds {logs!r}.")
        if len(self.history) != self.epoch:
            raise ValueError(f"epoch is {self.epoch}, but history has {len(self.history)} epochs.")


def write_state(path, state: State) -> None:
    """Writes a state whole or not at all: an `.npz` file of arrays and a header in JSON."""
    header = {name: getattr(state, name) for name in HEADER}
    text = json.dumps({"format": FORMAT, **header}).encode()
    members = {"header": np.frombuffer(text, "uint8")}
    for kind, arrays in zip(KINDS, (state.arrays, state.metrics), strict=True):
        members |= {f"{kind}{i}": array for i, array in enumerate(arrays)}
    with replacing(path) as new:
        with zipfile.ZipFile(new, "w") as archive:
            archive.comment = b"0" * SEAL_BYTES
            for name, array in members.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        with open(new, "r+b") as file:
            seal = _seal_of(file)
            file.seek(-SEAL_BYTES, os.SEEK_END)
            file.write(seal)


def read_state(path) -> State:
    """Reads what `write_state` wrote, or an earlier version, which knew no seal.

    Raises:
        FileError: if the file is missing, altered, or of a later format.
    """
    try:
        with open(path, "rb") as file:
            is_sealed = _seal_of(file) == file.read()
            file.seek(0)
            with np.load(file) as members:
                return _state_of(members, is_sealed)
    except Exception as error:  # zipfile and NumPy have no list of what they raise
        raise FileError(f"{Path(path).name}: {error}") from error


def _state_of(members, is_sealed) -> State:
    if not is_sealed and "history" not in members:
        raise ValueError("it was altered or cut short")
    if not is_sealed:  # format 2
        history = json.loads(members["history"].tobytes())
        header = {"history": history, "epoch": len(history)}
    else:
        header = json.loads(members["header"].tobytes())
        if (number := header.pop("format")) not in (3, FORMAT):
            raise ValueError(f"it has format {number!r}; install the version that wrote it")
        if number == 3:
            header.pop("position")  # always 0
    counts = {kind: sum(name.startswith(kind) for name in members.files) for kind in KINDS}
    arrays, metrics = ([members[f"{kind}{i}"] for i in range(n)] for kind, n in counts.items())
    return State(arrays, **header, metrics=metrics)


def _seal_of(file) -> bytes:
    """Returns the SHA-256 of an open file up to its seal, where the file stands afterwards."""
    left, digest = os.fstat(file.fileno()).st_size - SEAL_BYTES, hashlib.sha256()
    while left > 0 and (block := file.read(min(left, 2**20))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest().encode()
