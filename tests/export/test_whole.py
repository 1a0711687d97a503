"""A version that was copied in part does not load, and our own commands name what is wrong."""

import random
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformer.cli import main
from keras_transformer.export.seal import save_sealed
from keras_transformer.files import FileError
from keras_transformer.version_directory import (
    MANIFEST,
    check_version,
    saved_model_path,
    write_version,
)


def write(path):
    """An instant export of nothing but a weight."""
    module = tf.Module()
    module.weight = tf.Variable(tf.range(1000.0))
    spec = tf.TensorSpec([None], tf.string, name="text")
    module.answer = tf.function(
        lambda text: {
            "translation": text,
            "score": tf.zeros(tf.shape(text)) + module.weight[0],
        },
        input_signature=[spec],
    )
    save_sealed(module, path, {"serving_default": module.answer})


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    return Path(write_version(tmp_path_factory.mktemp("whole") / "model", write))


@pytest.fixture
def copy(version, tmp_path):
    return Path(shutil.copytree(version, tmp_path / "model" / "1"))


def files_of(version):
    return sorted(p.relative_to(version).as_posix() for p in version.rglob("*") if p.is_file())


def test_a_whole_version_loads_and_is_checked(version, copy):
    assert check_version(version) and check_version(copy)
    answer = tf.saved_model.load(str(copy)).signatures["serving_default"]
    assert answer(text=tf.constant(["a"]))["translation"].numpy().tolist() == [b"a"]


@pytest.mark.parametrize("missing", ["variables", "variables/variables.index", "saved_model.pb"])
def test_a_half_copied_version_does_not_load(copy, missing):
    path = copy / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises((tf.errors.OpError, OSError)):
        tf.saved_model.load(str(copy))
    with pytest.raises(FileError, match="is missing: the copy is not whole, copy it again"):
        check_version(copy)


def test_variables_of_another_export_do_not_load(copy, tmp_path):
    other = Path(write_version(tmp_path / "other", write))
    shutil.rmtree(copy / "variables")
    shutil.copytree(other / "variables", copy / "variables")
    with pytest.raises(tf.errors.InvalidArgumentError, match="those of another; copy all of it"):
        tf.saved_model.load(str(copy))


def test_every_damaged_file_is_named(version, tmp_path):
    rng = random.Random(0)
    for name in files_of(version):
        if name == MANIFEST:
            continue
        for damage in ("cut", "flip", "grow", "remove"):
            copy = Path(shutil.copytree(version, tmp_path / "copy", dirs_exist_ok=True))
            data = bytearray((copy / name).read_bytes())
            if damage == "cut":
                data = data[: rng.randrange(len(data))]
            elif damage == "flip":
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            else:
                data += b"\x00"
            (copy / name).write_bytes(data)
            if damage == "remove":
                (copy / name).unlink()
            with pytest.raises(FileError, match=f"{name} is (missing|not the file)"):
                check_version(copy)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000])
def test_a_damaged_manifest_is_named(copy, data):
    (copy / MANIFEST).write_bytes(data)
    with pytest.raises(FileError, match="manifest.json (is damaged|was altered)"):
        check_version(copy)


def test_a_version_without_a_manifest_is_read_with_a_note(copy, capsys, monkeypatch):
    shutil.rmtree(copy / "assets.extra")
    assert not check_version(copy)


def test_a_half_of_the_newest_version_is_not_passed_over(version, copy):
    newer = copy.with_name("2")
    for name in ("assets.extra", "variables"):
        shutil.copytree(version / name, newer / name)
    assert saved_model_path(copy.parent) == newer
    with pytest.raises(FileError, match="is missing: the copy is not whole"):
        check_version(newer)


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_the_commands_refuse_a_damaged_version_in_one_line(copy, command, tmp_path, capsys):
    (copy / "variables" / "variables.index").write_bytes(b"")
    (tmp_path / "text").write_text("a text of four words\n")
    texts = ["--source", str(tmp_path / "text"), "--target", str(tmp_path / "text")]
    assert main([command, str(copy.parent), *(texts if command == "evaluate" else [])]) == 1
    *stages, error = capsys.readouterr().err.splitlines()
    assert stages in ([], [f"loading {copy.parent}"])
    assert "variables.index is not the file that was exported: the copy is not whole" in error


def test_nobody_sees_half_of_a_version_that_is_replaced(copy, monkeypatch):
    """Deleting takes time; the old version is whole until the new one has its place."""
    before, seen = files_of(copy), []
    rmtree = shutil.rmtree

    def watch(path, *arguments, **keywords):
        seen.append(files_of(copy))
        rmtree(path, *arguments, **keywords)

    monkeypatch.setattr(shutil, "rmtree", watch)
    write_version(copy, write, overwrite=True)
    assert seen and all(files == before for files in seen)
    assert [path.name for path in copy.parent.iterdir()] == ["1"]
