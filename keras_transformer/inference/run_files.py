"""The files of a run, which change together: a reader finds all of the old or all of the new.

The new files are written beside the old ones. When all are on the disk, the manifest with their
hashes is replaced: from that moment the new ones count, whichever of their two names they have.
Then each is renamed. So a run is whole at every moment, also if a process dies.
"""

import os
from contextlib import ExitStack, suppress
from pathlib import Path

from keras_transformer.files import (
    MAX_JSON_BYTES,
    SELF,
    FileError,
    checked_object,
    fingerprint,
    make_directory,
    naming,
    new_path,
    parse_object,
    put_in_place,
    read_bytes,
    remove,
    sync,
    write_json,
    writing_new,
)

MANIFEST = "manifest.json"
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.weights.h5", "tokenizer.model"


def is_run(directory: str | os.PathLike) -> bool:
    """Whether `directory` looks like one that `save_run` wrote."""
    return (Path(directory) / MANIFEST).is_file()


def write_files(directory: Path, contents: dict[str, bytes]) -> None:
    """Writes all files of a run, or none.

    Args:
        directory: created where it is missing.
        contents: the bytes of each file by name.

    Raises:
        OSError: if one cannot be written; the message names it.
    """
    make_directory(directory)
    _tidy(directory, contents)
    try:
        for name, data in contents.items():
            with writing_new(directory / name) as new:
                new.write_bytes(data)
        fingerprints = {name: fingerprint(data) for name, data in contents.items()}
        with naming(directory):
            sync(directory)
        write_json(directory / MANIFEST, {"files": fingerprints})
        for name in contents:
            put_in_place(directory / name)
    except BaseException:
        with suppress(OSError, FileError):
            _tidy(directory, contents)
        raise


def _tidy(directory, names) -> None:
    """Ends what a save left undone: renames the new files that count, and removes others."""
    if not any(new_path(directory / name).exists() for name in (*names, MANIFEST)):
        return
    try:
        known = _known(_manifest(directory), directory)
    except FileError:  # the first save has not come so far, or the manifest is damaged
        known = {}
    for path in (directory / name for name in names):
        if new_path(path).is_file() and _matches(known.get(path.name), fingerprint(new_path(path))):
            put_in_place(path)
    for name in (*names, MANIFEST):
        remove(new_path(directory / name))


def read_files(directory: Path, names) -> dict[str, bytes]:
    """Reads files of a run, also while another process writes it.

    Returns:
        The bytes of each by name, those that the manifest has the hashes of.

    Raises:
        FileError: if one is missing or is not what was saved.
    """
    while True:
        manifest = _manifest(directory)
        try:
            return _matching_files(directory, names, _known(manifest, directory))
        except (FileError, OSError) as error:
            if _manifest(directory) != manifest:
                continue  # another process has saved a newer model
            if isinstance(error, FileError):
                raise
            raise FileError(f"{directory} cannot be read: {error}.") from error


def _matching_files(directory, names, known) -> dict[str, bytes]:
    with ExitStack() as stack:
        # All are opened before any is read: an open file stays what it is when it is replaced. And
        # the new name comes first, for a file that is renamed meanwhile is found at the other.
        opened = {name: [] for name in names}
        for name in names:
            for path in (new_path(directory / name), directory / name):
                with suppress(FileNotFoundError):
                    if path.is_file():  # to open a pipe would wait for its writer
                        opened[name].append(stack.enter_context(open(path, "rb")))
        return {name: _matching(opened[name], known.get(name), directory / name) for name in names}


def _matching(files, entry, path) -> bytes:
    """Reads the file that a manifest's entry describes."""
    for file in files:
        size = os.fstat(file.fileno()).st_size
        if isinstance(entry, dict) and entry.get("size", size) == size:
            data = file.read()
            if _matches(entry, fingerprint(data)):
                return data
    what = "is not the file that was saved" if files else "is missing"
    raise FileError(f"{path} {what}; restore it or train again.")


def _matches(entry, found) -> bool:
    named = isinstance(entry, dict) and "sha256" in entry
    return named and all(found.get(name) == value for name, value in entry.items())


def _manifest(directory) -> bytes:
    return read_bytes(directory / MANIFEST, MAX_JSON_BYTES)


def _known(manifest: bytes, directory) -> dict:
    """Returns what a manifest knows of each file; that of format 2 has the hashes alone."""
    path = directory / MANIFEST
    entries = parse_object(manifest, path)
    if SELF not in entries and all(isinstance(entry, str) for entry in entries.values()):
        return {name: {"sha256": entry} for name, entry in entries.items()}
    files = checked_object(entries, path).get("files")
    return files if isinstance(files, dict) else {}
