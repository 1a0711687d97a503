"""The record of a run: what made it, in one file of data that checks itself."""

import os
import platform
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import keras_transformer
from keras_transformer.checks import TRAINING_PRECISIONS
from keras_transformer.files import FileError, fingerprint, read_json, write_json

RECORD, FORMAT = "record.json", 3
# Format 1 has no `kept`, and one file for each option; format 2 has no `chosen`.
FORMATS = (1, 2, 3)
PACKAGES = ("keras", "tensorflow", "tensorflow-text")
VALUES = (str, int, float, bool, type(None))  # what an option can be


def present_versions() -> dict[str, str]:
    """Returns the versions of this package, of those it computes with, and of Python."""
    versions = {"keras-transformer-layers": keras_transformer.__version__}
    versions["python"] = platform.python_version()
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # another distribution, such as tensorflow-cpu, has it
            versions[package] = "unknown"
    return versions


def present_time() -> str:
    """Returns the time in UTC as ISO 8601 has it, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def present_machine() -> dict[str, str | int]:
    """Returns the processor, the number of its cores and, where the kernel knows them, GPUs."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass  # not Linux
    machine = {"processor": name, "cores": os.cpu_count() or 1}
    gpus = [
        line.partition(":")[2].strip()
        for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in path.read_text("utf-8", "replace").splitlines()
        if line.startswith("Model:")
    ]
    return machine | ({"gpus": ", ".join(gpus)} if gpus else {})


@dataclass(frozen=True)
class TextRecord:
    """One text of a run: a file, or a data set by the lines that were read of it.

    Args:
        name: the absolute path of the file, or the name of the data set.
        size: bytes of the file, pairs of a data set; None if it cannot be read again, as a pipe.
        sha256: of the file or of the lines, as hexadecimal digits; None as `size`.
    """

    name: str
    size: int | None
    sha256: str | None

    @classmethod
    def of_file(cls, path) -> "TextRecord":
        """Describes a file; of a pipe only its name is known."""
        known = fingerprint(path) if os.path.isfile(path) else {"size": None, "sha256": None}
        return cls(os.path.abspath(path), **known)


@dataclass(frozen=True)
class RunRecord:
    """What made a run, to go on with it, to compare it, or to make it again.

    Args:
        options: what the run was trained with, by the names of the options.
        texts: each text that was read, by the option that named it.
        tokenizer: the `fingerprint` of the tokenizer's file, with its "vocab_size".
        precision: "float32", "bfloat16" or "float16", in which the run computes.
        versions: of the packages and of Python when the run began.
        machine: "processor", "cores" and, if any, "gpus" when the run began.
        began, ended: the time in UTC; None if that is not known, or still to come.
        has_begun: whether what an earlier run left in the directory has been cleared away.
        is_finished: whether there is no epoch left to train.
        kept: which epoch the run has kept: its "epoch", "metric", "value", the metric's
            "signature", and "why". None before the first epoch ends, and in a run of format 1.
        chosen: the names of those options that were not given, but chosen by the size of the text.
        format: the number of this schema. A reader knows all formats up to its own.
    """

    options: dict[str, str | int | float | bool | list[str] | None]
    texts: dict[str, TextRecord]
    tokenizer: dict[str, str | int]
    precision: str
    versions: dict[str, str] = field(default_factory=present_versions)
    machine: dict[str, str | int] = field(default_factory=present_machine)
    began: str | None = field(default_factory=present_time)
    ended: str | None = None
    has_begun: bool = False
    is_finished: bool = False
    kept: dict[str, str | int | float | None] | None = None
    chosen: list[str] = field(default_factory=list)
    format: int = FORMAT

    @classmethod
    def read(cls, directory) -> "RunRecord":
        """Reads the record of a run; raises a `FileError` if it is missing or damaged."""
        path = Path(directory) / RECORD
        values = read_json(path)
        if (found := values.pop("format", None)) not in FORMATS:
            raise FileError(
                f"{path} has format {found!r}, but this version reads only {FORMATS}; install the "
                "version that wrote it."
            )
        try:
            texts = {name: TextRecord(**text) for name, text in values.pop("texts").items()}
            values.setdefault("began", None)  # earlier versions did not note it
            return cls(texts=texts, **values)._checked()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is damaged: {error}; restore it.") from error

    def write(self, directory) -> None:
        """Writes the record, whole or not at all."""
        write_json(Path(directory) / RECORD, asdict(self._checked()))

    def _checked(self) -> "RunRecord":
        for name in ("options", "tokenizer", "versions", "machine"):
            _check_values(name, getattr(self, name))
        for name, text in self.texts.items():
            _check_values(f"texts[{name!r}]", asdict(text))
        if self.precision not in TRAINING_PRECISIONS or self.precision == "auto":
            raise ValueError(f"precision is {self.precision!r}")
        if self.kept is not None:
            _check_values("kept", self.kept)
        if not (isinstance(self.chosen, list) and set(self.chosen) <= set(self.options)):
            raise TypeError(f"chosen is {self.chosen!r}, not a list of names of options")
        for name in ("began", "ended"):
            if not isinstance(getattr(self, name), str | None):
                raise TypeError(f"{name} is {getattr(self, name)!r}")
        for name in ("has_begun", "is_finished"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is {getattr(self, name)!r}")
        return self

    def changed(self, **values) -> "RunRecord":
        """Returns a record with other values; one that is finished notes the time."""
        if "is_finished" in values:
            values["ended"] = present_time() if values["is_finished"] else None
        return replace(self, **values)


def _check_values(name, values) -> None:
    if not isinstance(values, dict):
        raise TypeError(f"{name} is {values!r}, not an object")
    for key, value in values.items():
        is_list = isinstance(value, list) and all(isinstance(part, str) for part in value)
        if not isinstance(value, VALUES) and not (name == "options" and is_list):
            raise TypeError(f"{name} has {value!r} for {key}")
