"""The numbered versions of a served model, each of which appears whole or not at all."""

import os
import shutil
import tempfile
from pathlib import Path


def write_version(directory, write, overwrite=False) -> str:
    """Has `write` fill the next version of a model directory.

    The version is written beside `directory` and renamed into it, so that a server that polls
    `directory` never sees half of one.

    Args:
        directory: the model's directory; versions count up from 1. If its name is a number, it is
            the version itself.
        write: function of the path of an empty directory, which it fills and tests. If it raises,
            nothing appears.
        overwrite: whether a version that exists is replaced.

    Returns:
        The path of the new version.

    Raises:
        ValueError: if the version exists and is not to be replaced, or cannot be one.
    """
    directory, version = _place(Path(directory).absolute(), overwrite)
    directory.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        write(temporary)
        temporary.chmod(0o755)
        final = directory / str(next_version(directory) if version is None else version)
        if overwrite and final.exists():
            shutil.rmtree(final)
        os.rename(temporary, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return str(final)


def _place(directory: Path, overwrite: bool):
    """The model's directory, and the version that was asked for or None."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; name a directory to export to.")
    if not directory.name.isdecimal():
        return directory, None
    if directory.exists() and not overwrite:
        raise ValueError(
            f"{directory} exists; name its parent for the next version, or pass overwrite=True "
            "(--overwrite)."
        )
    if directory.exists() and not (directory / "saved_model.pb").is_file():
        raise ValueError(f"{directory} is no SavedModel to replace; name another directory.")
    return directory.parent, int(directory.name)


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
