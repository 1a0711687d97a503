"""The files of a run change together, whatever moment a process fails or dies in."""

import os
import threading

import numpy as np
import pytest

from keras_transformer.files import FileError, write_json
from keras_transformer.inference.run_files import read_files, write_files

NAMES = ("config.json", "tokenizer.model", "model.weights.h5")


def contents(number):
    """The files of one save, some kilobytes each."""
    return {name: f"{name} {number} ".encode() * (100 + number) for name in NAMES}


@pytest.mark.parametrize("dies", [False, True])
def test_the_old_or_the_new_files_are_read_whatever_call_fails(
    tmp_path, monkeypatch, dies, break_at
):
    number, ended = 0, False
    while not ended:
        number += 1
        directory = tmp_path / str(number)
        write_files(directory, contents(1))
        break_at(number, dies)
        try:
            write_files(directory, contents(2))
            ended = True
        except OSError as failure:
            assert str(directory) in str(failure) and "No space left" in str(failure)
        except SystemExit:  # it died
            pass
        monkeypatch.undo()
        found = read_files(directory, NAMES)
        assert found in (contents(1), contents(2)), number
        if not dies and found == contents(1):
            assert not [path for path in directory.iterdir() if path.name.startswith(".new-")]
        write_files(directory, contents(3))
        assert read_files(directory, NAMES) == contents(3)
        assert sorted(os.listdir(directory)) == sorted((*NAMES, "manifest.json"))
    assert number > 20  # there were so many calls


def test_a_save_after_a_killed_one_keeps_the_files_that_count(tmp_path, monkeypatch, break_at):
    """The second save dies while it renames; the third fails before its manifest is there."""
    write_files(tmp_path, contents(1))
    manifest = tmp_path / "manifest.json"
    number = 0
    while True:
        number += 1
        before = manifest.read_bytes()
        break_at(number, dies=True)
        with pytest.raises(SystemExit):
            write_files(tmp_path, contents(2))
        monkeypatch.undo()
        if manifest.read_bytes() != before:
            break
    break_at(12)
    with pytest.raises(OSError, match="No space left"):
        write_files(tmp_path, contents(3))
    monkeypatch.undo()
    assert read_files(tmp_path, NAMES) == contents(2)


def test_a_reader_never_sees_a_mixture_while_another_writes(tmp_path):
    write_files(tmp_path, contents(0))
    saved = [contents(number) for number in range(60)]

    def write():
        for files in saved:
            write_files(tmp_path, files)

    writer, reads = threading.Thread(target=write), 0
    writer.start()
    while writer.is_alive() or not reads:
        assert read_files(tmp_path, NAMES) in saved
        reads += 1
    writer.join()
    assert read_files(tmp_path, NAMES) == saved[-1]


def test_every_damage_of_a_file_is_found(tmp_path):
    write_files(tmp_path, contents(1))
    random = np.random.default_rng(0)
    for _ in range(300):
        path = tmp_path / random.choice([*NAMES, "manifest.json"])
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[random.integers(len(content))] ^= random.integers(1, 256)
        path.write_bytes(damaged if random.random() < 0.8 else damaged[: len(damaged) // 3])
        try:
            assert read_files(tmp_path, NAMES) == contents(1)
        except FileError as error:
            assert path.name in str(error) and "\n" not in str(error)
        path.write_bytes(content)


def test_a_run_over_a_damaged_manifest_is_written_anew(tmp_path):
    write_files(tmp_path, contents(1))
    (tmp_path / "manifest.json").write_text('{"files": NaN, "sha256": "0"}')
    (tmp_path / ".new-config.json").write_text("a leftover")
    with pytest.raises(FileError, match=r"manifest\.json was altered"):
        read_files(tmp_path, NAMES)
    write_files(tmp_path, contents(2))
    assert read_files(tmp_path, NAMES) == contents(2)


@pytest.mark.parametrize("entry", [5, None, [], {}, {"size": 3}, {"sha256": 1}, "0" * 64])
def test_a_manifest_of_anything_else_is_refused(tmp_path, entry):
    write_files(tmp_path, contents(1))
    write_json(tmp_path / "manifest.json", {"files": dict.fromkeys(NAMES, entry)})
    with pytest.raises(FileError, match=r"config\.json is not the file that was saved"):
        read_files(tmp_path, NAMES)
