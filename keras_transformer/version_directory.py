"""The numbered versions of a served model, each written as a whole or not at all."""

import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from keras_transformer.checks import check_directory


def write_version(directory, write, overwrite=False) -> str:
    """Lets `write` fill the next version of a model directory.

    The version is written to a directory whose name is not a number, and then renamed. So a server
    that polls `directory` never sees half of one.

    Args:
        directory: the model's directory; versions count up from 1. If its name is a number, it is
            the version itself.
        write: function that fills and tests an empty directory, given its path. If it raises,
            nothing appears.
        overwrite: whether to replace a version that exists.

    Returns:
        The path of the new version.

    Raises:
        ValueError: if the version exists and `overwrite` is false, or no version fits there.
    """
    directory, version = _place(Path(directory).absolute(), overwrite)
    is_new = not directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        make_name = partial(next_version, directory) if version is None else lambda: version
        # The temporary directory is inside, since `directory` may be a volume of its own.
        return write_whole(directory, make_name, write, overwrite)
    finally:
        if is_new:
            with suppress(OSError):  # it holds a version
                directory.rmdir()


def write_whole(parent, make_name, write, overwrite=False) -> str:
    """Lets `write` fill a temporary directory, then renames it to `make_name()`."""
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        write(temporary)
        temporary.chmod(0o755)
        path = parent / str(make_name())
        if overwrite and path.exists():
            shutil.rmtree(path)
        return str(temporary.rename(path))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _place(directory: Path, overwrite: bool):
    """Returns the model's directory, and the version that was asked for, or None."""
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
        raise ValueError(f"{directory} is not a SavedModel; name another directory.")
    return directory.parent, version


def next_version(directory) -> int:
    """Returns one more than the largest numeric name in `directory`, or 1."""
    return 1 + max(versions(directory), default=0)


def versions(directory) -> list[int]:
    """Lists the numeric names in `directory`, which TensorFlow Serving reads as versions."""
    return [int(entry.name) for entry in Path(directory).iterdir() if entry.name.isdecimal()]


def saved_model_path(directory):
    """Returns the SavedModel in `directory`: itself, its newest version, or None."""
    directory = Path(directory)
    if (directory / "saved_model.pb").is_file():
        return directory
    if not directory.is_dir():
        return None
    for version in sorted(versions(directory), reverse=True):
        if (directory / str(version) / "saved_model.pb").is_file():
            return directory / str(version)
    return None
