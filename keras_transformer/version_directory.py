"""The numbered versions of a served model, each written as a whole or not at all."""

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from keras_transformer.checks import check_directory, check_local
from keras_transformer.files import (
    FileError,
    fingerprint,
    make_directory,
    naming,
    read_json,
    sync,
    write_json,
)

# TensorFlow leaves these, as all of this folder, to others.
MANIFEST, EXPORT_CARD = "assets.extra/manifest.json", "assets.extra/card.json"
# For the owner to complete, so the manifest leaves it out.
README = "README.md"
FORMAT = 1
# TensorFlow Serving reads versions as int64.
LARGEST_VERSION = 2**63 - 1


def write_version(directory, write, overwrite=False) -> str:
    """Lets `write` fill the next version of a model directory.

    The version is written to a directory whose name is not a number, and then renamed. So a server
    that polls `directory` never sees half of one. A manifest of its files shows what becomes of it
    later; see `check_version`.

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
    check_local("The place to export to", directory)
    if not str(directory):
        raise ValueError("The place to export to must not be empty; name a directory.")
    directory, version = _place(Path(directory).absolute(), overwrite)
    is_new = not directory.is_dir()
    make_directory(directory)

    def write_with_manifest(path):
        write(path)
        write_manifest(path)

    try:
        make_name = partial(next_version, directory) if version is None else lambda: version
        # The temporary directory is inside, since `directory` may be a volume of its own.
        return write_whole(directory, make_name, write_with_manifest, overwrite)
    finally:
        if is_new:
            with suppress(OSError):  # it holds a version
                directory.rmdir()


def write_whole(parent, make_name, write, overwrite=False) -> str:
    """Lets `write` fill a temporary directory, then renames it to `make_name()`.

    All of it is on the disk before it gets its name.
    """
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        with naming_full_disk(parent):
            write(temporary)
        temporary.chmod(0o755)
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        path = parent / str(make_name())
        if overwrite and path.exists():
            _replace(path, temporary)
        else:
            temporary.rename(path)
        sync(parent)
        return str(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def naming_full_disk(path):
    """Makes an error of TensorFlow that a disk is full an `OSError` that names `path`."""
    try:
        yield
    except Exception as error:
        if os.strerror(errno.ENOSPC) in str(error) and not isinstance(error, OSError):
            with naming(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def _replace(path: Path, new: Path) -> None:
    """Puts the directory `new` in the place of another; nobody sees half of either."""
    old = Path(tempfile.mkdtemp(prefix=".old-", dir=path.parent))
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_manifest(version: Path) -> None:
    """Writes sizes and hashes of all files of a version into a file of its own."""
    files = {
        path.relative_to(version).as_posix(): fingerprint(path)
        for path in sorted(version.rglob("*"))
        if path.is_file() and path != version / README
    }
    (version / MANIFEST).parent.mkdir(exist_ok=True)
    write_json(version / MANIFEST, {"format": FORMAT, "files": files})


def check_version(version) -> bool:
    """Compares the files of a version with its manifest.

    Args:
        version: its path.

    Returns:
        Whether it has a manifest; without one nothing is compared.

    Raises:
        FileError: if a file is missing or is not what was written, or the manifest is of another
            format.
    """
    version = Path(version)
    if not (version / MANIFEST).exists():
        return False
    manifest = read_json(version / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise FileError(
            f"{version / MANIFEST} has format {manifest.get('format')!r}, but this version of the "
            f"library reads only {FORMAT}; export again."
        )
    for name, saved in manifest["files"].items():
        path, remedy = version / name, "the copy is not whole, copy it again or export again"
        if not path.is_file():
            raise FileError(f"{path} is missing: {remedy}.")
        if path.stat().st_size != saved["size"] or fingerprint(path) != saved:
            raise FileError(f"{path} is not the file that was exported: {remedy}.")
    return True


def _place(directory: Path, overwrite: bool):
    """Returns the model's directory, and the version that was asked for, or None."""
    check_directory("The place to export to", directory)
    if not directory.name.isdecimal():
        return directory, None
    version = int(directory.name)
    if version > LARGEST_VERSION:
        raise ValueError(
            f"A version must be at most {LARGEST_VERSION}, but is {version}; a server would ignore "
            "it, so give a smaller number."
        )
    directory = directory.with_name(str(version))  # "02" is version 2
    if directory.exists() and not overwrite:
        raise ValueError(
            f"{directory} exists; name its parent for the next version, or pass overwrite=True "
            "(--overwrite)."
        )
    if directory.exists() and not (directory / "saved_model.pb").is_file():
        raise ValueError(f"{directory} is not a SavedModel; name another directory.")
    return directory.parent, version


def model_directory(directory) -> Path:
    """Returns the directory of a model: the path itself, or its parent if it names a version."""
    directory = Path(directory).absolute()
    return directory.parent if directory.name.isdecimal() else directory


def next_version(directory) -> int:
    """Returns one more than the largest numeric name in `directory`, or 1."""
    return 1 + max(versions(directory), default=0)


def versions(directory) -> list[int]:
    """Lists the numeric names in `directory`, which TensorFlow Serving reads as versions."""
    return [int(entry.name) for entry in Path(directory).iterdir() if entry.name.isdecimal()]


def saved_model_path(directory):
    """Returns the SavedModel in `directory`: itself, its newest version, or None."""
    directory = Path(directory)
    if _is_saved_model(directory):
        return directory
    if not directory.is_dir():
        return None
    for version in sorted(versions(directory), reverse=True):
        if _is_saved_model(directory / str(version)):
            return directory / str(version)
    return None


def _is_saved_model(directory: Path) -> bool:
    """Whether some of a SavedModel is there; half of one must not be passed over."""
    return any((directory / name).exists() for name in ("saved_model.pb", "variables", MANIFEST))
