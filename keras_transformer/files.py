"""Files that appear whole or not at all, and that show when they were altered."""

import errno
import hashlib
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path

from keras_transformer.checks import check_local

# What a file of JSON data may hold at most, so that reading one never fills the memory.
MAX_JSON_BYTES = 2**23
SELF = "sha256"  # the entry of a JSON file that holds the SHA-256 of all others
# What file systems answer that cannot sync a directory, such as some of networks.
NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}


class FileError(ValueError):
    """Raised if a file is missing, or not what was written."""


@contextmanager
def replacing(path):
    """Yields a new path to write to; at the end of the context, that file replaces `path`.

    The file is on the disk before it gets its name, and the name is at the end. If anything fails,
    `path` is what it was.

    Raises:
        OSError: if it cannot be written; the message names `path`.
    """
    with writing_new(path) as new:
        yield new
    try:
        put_in_place(path)
    except OSError:
        remove(new)
        raise


@contextmanager
def writing_new(path):
    """Yields `new_path(path)` to write to; at the end it is on the disk, or gone if this failed."""
    new = new_path(path)
    try:
        with naming(path):
            yield new
            sync(new)
    except BaseException:
        remove(new)
        raise


def put_in_place(path) -> None:
    """Renames `new_path(path)` to `path`, and waits until the disk has the name."""
    with naming(path):
        os.replace(new_path(path), path)
        sync(Path(path).parent)


def new_path(path) -> Path:
    """Returns the path beside `path` at which its successor is written."""
    return Path(path).with_name(f".new-{Path(path).name}")


def remove(path) -> None:
    """Removes a file that is of no more use, if that is possible."""
    with suppress(OSError):
        os.unlink(path)


def make_directory(path) -> None:
    """Makes a directory and those above it, where they are missing, and waits for the disk."""
    check_local("A directory", path)
    path = Path(path)
    if path.is_dir():
        return
    with naming(path):
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


@contextmanager
def naming(path, remedy="make room or name another place. Nothing that was there is lost."):
    """Makes a failure to write say in one line which file it was; its `errno` is kept.

    That a reader has closed a pipe is no failure of this kind.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, (WriteError, BrokenPipeError)):
            raise
        failure = WriteError(f"{path} could not be written ({error.strerror or error}); {remedy}")
        failure.errno = error.errno
        raise failure from error


class WriteError(OSError):
    """Raised if a file cannot be written; the message is one line that names it."""


def sync(path) -> None:
    """Waits until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def sha256(path) -> str:
    """Returns the SHA-256 of a file, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(source) -> dict:
    """Returns the size and the SHA-256 of a file, or of bytes, as a manifest has them."""
    if isinstance(source, bytes):
        return {"size": len(source), "sha256": hashlib.sha256(source).hexdigest()}
    return {"size": os.path.getsize(source), "sha256": sha256(source)}


def write_text(path, text: str) -> None:
    """Writes a text file, whole or not at all; a pipe or a device gets the text as it is."""
    data = text.encode("utf-8")
    if os.path.exists(path) and not os.path.isfile(path):
        with naming(path):
            Path(path).write_bytes(data)
        return
    with replacing(path) as new:
        new.write_bytes(data)


def write_json(path, value: dict) -> None:
    """Writes a JSON object together with its own SHA-256, whole or not at all."""
    text = json.dumps({**value, SELF: _content_hash(value)}, indent=2)
    with replacing(path) as new:
        new.write_text(text + "\n", "utf-8")


def read_json(path) -> dict:
    """Reads what `write_json` wrote, without the hash.

    Raises:
        FileError: if the file is missing, no JSON object, or was altered.
    """
    return checked_object(parse_object(read_bytes(path, MAX_JSON_BYTES), path), path)


def checked_object(value: dict, path) -> dict:
    """Returns the object of a JSON file without its hash; raises a `FileError` if it differs."""
    value = dict(value)
    if value.pop(SELF, None) != _content_hash(value):
        raise FileError(f"{path} was altered or damaged; restore it.")
    return value


def parse_object(data: bytes, path) -> dict:
    """Returns the JSON object in `data`, the content of the file `path`; raises a `FileError`."""
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged: {error}; restore it.") from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise FileError(f"{path} is damaged: it holds a {kind}, not an object; restore it.")
    return value


def read_bytes(path, most: int) -> bytes:
    """Reads a file of at most `most` bytes; raises a `FileError` if it is larger or missing."""
    if not os.path.isfile(path):  # to open a pipe would wait for its writer
        raise FileError(f"{path} is missing; restore it.")
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > most:
        raise FileError(f"{path} is damaged: it has over {most} bytes; restore it.")
    return data


def _content_hash(value) -> str:
    """Returns the SHA-256 of a JSON value, whatever the order of its names and its spaces."""
    value = json.loads(json.dumps(value))  # turns every name into a string
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
