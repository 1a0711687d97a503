"""The file of a state: all that a stopped training goes on from, sealed by its SHA-256."""

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from keras_transformer.checks import check_count
from keras_transformer.files import FileError, replacing

FORMAT = 3
STATE = "state-{:05d}.npz"
# The seal is the comment at the end of the file: the SHA-256 of all bytes before it.
SEAL_BYTES = 64


@dataclass(frozen=True)
class State:
    """Where a training stands, between two steps.

    Attributes:
        arrays: all variables that it changes, in the order of the model and its optimizer.
        epoch: the number of finished epochs.
        history: the logs of each finished epoch.
        step: the number of finished steps of the epoch after them.
        position: how many pairs of that epoch's text these steps have read.
    """

    arrays: list[np.ndarray]
    epoch: int
    history: list[dict[str, float]] = field(default_factory=list)
    step: int = 0
    position: int = 0

    def __post_init__(self):
        for name in ("epoch", "step", "position"):
            check_count(name, getattr(self, name))
        for logs in self.history:
            if not all(isinstance(value, float) for value in dict(logs).values()):
                raise ValueError(f"history must hold numbers by name, but holds {logs!r}.")
        if len(self.history) != self.epoch:
            raise ValueError(f"epoch is {self.epoch}, but history has {len(self.history)} epochs.")


def write_state(path, state: State) -> None:
    """Writes a state whole or not at all: an `.npz` file of arrays and a header in JSON."""
    header = {name: value for name, value in vars(state).items() if name != "arrays"}
    text = json.dumps({"format": FORMAT, **header}).encode()
    members = {"header": np.frombuffer(text, "uint8")}
    members |= {f"variable_{i}": array for i, array in enumerate(state.arrays)}
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
        if (number := header.pop("format")) != FORMAT:
            raise ValueError(f"it has format {number!r}; install the version that wrote it")
    arrays = [members[f"variable_{i}"] for i in range(len(members.files) - 1)]
    return State(arrays, **header)


def _seal_of(file) -> bytes:
    """Returns the SHA-256 of an open file up to its seal, where the file stands afterwards."""
    left, digest = os.fstat(file.fileno()).st_size - SEAL_BYTES, hashlib.sha256()
    while left > 0 and (block := file.read(min(left, 2**20))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest().encode()
