"""Files that appear whole or not at all, and that show when they were altered."""

import errno
import hashlib
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path

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
        with suppress(OSError):
            new_path(path).unlink()
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
        with suppress(OSError):
            new.unlink()
        raise


def put_in_place(path) -> None:
    """Renames `new_path(path)` to `path`, and waits until the disk has the name."""
    with naming(path):
        os.replace(new_path(path), path)
        sync(Path(path).parent)


def new_path(path) -> Path:
    """Returns the path beside `path` at which its successor is written."""
    return Path(path).with_name(f".new-{Path(path).name}")


@contextmanager
def naming(path):
    """Makes a failure to write say in one line which file it was; its `errno` is kept."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        failure = OSError(f"{path} could not be written ({reason}); what was there before stays.")
        failure.errno = error.errno
        raise failure from error


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


def fingerprint(path) -> dict:
    """Returns the size and the SHA-256 of a file, as a manifest has them."""
    return {"size": os.path.getsize(path), "sha256": sha256(path)}


def write_json(path, value: dict) -> None:
    """Writes a JSON object together with its own SHA-256, whole or not at all."""
    with replacing(path) as new:
        write_new_json(new, value)


def write_new_json(path, value: dict) -> None:
    """Writes a JSON object together with its own SHA-256."""
    text = json.dumps({**value, SELF: _content_hash(value)}, indent=2)
    Path(path).write_text(text + "\n", "utf-8")


def read_json(path) -> dict:
    """Reads what `write_json` wrote, without the hash.

    Raises:
        FileError: if the file is missing, no JSON object, or was altered.
    """
    value = parse_object(read_bytes(path, MAX_JSON_BYTES), path)
    if value.pop(SELF, None) != _content_hash(value):
        raise FileError(f"{path} was altered or damaged; restore it.")
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


def _content_hash(value) -> str:
    """Returns the SHA-256 of a JSON value, whatever the order of its names and its spaces."""
    value = json.loads(json.dumps(value))  # whose names are all strings
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
