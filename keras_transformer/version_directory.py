"""The numbered versions of a served model, written whole or not at all."""

import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from keras_transformer.checks import check_directory


def write_version(directory, write, overwrite=False) -> str:
    """Has `write` fill the next version of a model directory.

    The version is written to a directory whose name is no number, and then renamed, so that a
    server that polls `directory` never sees half of one.

    Args:
        directory: the model's directory; versions count up from 1. A directory whose name is a
            number is the version itself.
        write: function of the path of an empty directory, which it fills and tests. If it raises,
            nothing appears.
        overwrite: whether a version that exists is replaced.

    Returns:
        The path of the new version.

    Raises:
        ValueError: if the version exists and `overwrite` is false, or no version fits there.
    """
    directory, version = _place(Path(directory).absolute(), overwrite)
    is_new = not directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        # Inside, since the directory itself may be a volume of its own.
        number = partial(next_version, directory) if version is None else lambda: version
        return write_whole(directory, number, write, overwrite)
    finally:
        if is_new:
            with suppress(OSError):  # it holds a version
                directory.rmdir()


def write_whole(parent, name, write, overwrite=False) -> str:
    """Has `write` fill a new directory, which gets its name, of the function `name`, when full."""
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        write(temporary)
        temporary.chmod(0o755)
        final = parent / str(name())
        if overwrite and final.exists():
            shutil.rmtree(final)
        return str(temporary.rename(final))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _place(directory: Path, overwrite: bool):
    """The model's directory, and the version that was asked for or None."""
    check_directory("The place to export to", directory)
    if not directory.name.isdecimal():
        return directory, None
    version = int(directory.name)
    directory = directory.with_name(str(version))  # "02" is version 2
    if directory.exists() and not overwrite:
        raise ValueError(
            f"{directory} exists; name its parent for the next version, or pass overwrite=True "
            "(--overwrite)."
        )
    if directory.exists() and not (directory / "saved_model.pb").is_file():
        raise ValueError(f"{directory} is no SavedModel to replace; name another directory.")
    return directory.parent, version


def next_version(directory) -> int:
    """One more than the largest numeric name in `directory`, from 1."""
    return 1 + max(versions(directory), default=0)


def versions(directory) -> list[int]:
    """The numeric names in `directory`, those that TensorFlow Serving reads as versions."""
    return [int(entry.name) for entry in Path(directory).iterdir() if entry.name.isdecimal()]


def saved_model_path(directory):
    """The SavedModel in `directory`: itself, or its newest version; None if there is none."""
    directory = Path(directory)
    if (directory / "saved_model.pb").is_file():
        return directory
    if not directory.is_dir():
        return None
    for version in sorted(versions(directory), reverse=True):
        if (directory / str(version) / "saved_model.pb").is_file():
            return directory / str(version)
    return None
