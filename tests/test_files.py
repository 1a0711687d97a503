"""A file appears whole or not at all, and JSON shows that it was altered."""

import errno
import json
import os
import resource
from contextlib import contextmanager

import numpy as np
import pytest

from keras_transformer.files import (
    FileError,
    WriteError,
    fingerprint,
    make_directory,
    read_json,
    replacing,
    sha256,
    write_json,
)


@contextmanager
def no_file_larger_than(size):
    """As on a full disk: no file grows over `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_replaces_another_as_a_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as new:
        new.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file"]
    assert fingerprint(path) == fingerprint(b"new") == {"size": 3, "sha256": sha256(path)}


@pytest.mark.parametrize("size", [0, 1, 4000, 9999])
def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path, size):
    path = tmp_path / "file"
    path.write_text("old")
    with no_file_larger_than(size), pytest.raises(WriteError) as caught, replacing(path) as new:
        new.write_bytes(b"x" * 10_000)
    assert str(caught.value).startswith(f"{path} could not be written (File too large); make room")
    assert caught.value.errno == errno.EFBIG
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_sync_or_rename_leaves_what_was_there(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    path.write_text("old")

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match=r"file could not be written \(Input/output error\)"):
        write_json(path, {})
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_directory_is_made_with_those_above_it(tmp_path):
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file could not be written"):
        make_directory(tmp_path / "file" / "b")


def test_a_file_system_that_cannot_sync_is_written_to_all_the_same(tmp_path, monkeypatch):
    def fails(_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fails)
    write_json(tmp_path / "file", {"a": 1})
    assert read_json(tmp_path / "file") == {"a": 1}


def test_json_comes_back_and_any_damage_of_it_is_found(tmp_path):
    path, value = tmp_path / "file.json", {"ü": [1, 2.5, None, "\ud800"], "b": {"c": True}}
    write_json(path, value)
    assert read_json(path) == value
    content, random = path.read_bytes(), np.random.default_rng(0)
    for _ in range(1000):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] = random.integers(256)
        path.write_bytes(damaged if random.random() < 0.9 else content[: len(damaged) // 2])
        try:
            assert read_json(path) == value  # a space in place of another
        except FileError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)


@pytest.mark.parametrize(
    "content, fault",
    [
        (None, "is missing"),
        (b"", "is damaged: Expecting value"),
        (b"[1]", "is damaged: it holds a list, not an object"),
        (b"{}", "was altered or damaged"),
        (b"\xff\xfe{\x00}\x00", "is damaged: 'utf-8' codec"),
        (b"[" * 100_000, "is damaged: maximum recursion depth"),
        (b'{"a": ' * 100_000, "is damaged: maximum recursion depth"),
        (b'{"a": 1' + b"0" * 10_000 + b"}", "is damaged: Exceeds the limit"),
        (json.dumps({"sha256": "0" * 64}).encode(), "was altered or damaged"),
        (b" " * (2**23 + 1), "is damaged: it has over 8388608 bytes"),
    ],
)
def test_what_is_no_json_object_is_named(tmp_path, content, fault):
    path = tmp_path / "file.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match=fault) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="pipe is missing"):
        read_json(tmp_path / "pipe")
