"""The record of a run: it is read back as it was written, or refused in one line."""

import json

import pytest

from keras_transformer.files import FileError, read_json, write_json
from keras_transformer.training.run_record import FORMAT, RECORD, RunRecord, TextRecord


@pytest.fixture
def record():
    options = {"source": "/text.en", "epochs": 3, "dropout": 0.1, "plots": False, "ema": None}
    texts = {"source": TextRecord("/text.en", 7, "ab" * 32), "tsv": TextRecord("/pipe", None, None)}
    return RunRecord(options, texts, {"size": 5, "sha256": "cd" * 32, "vocab_size": 9}, "float32")


def test_a_record_is_read_back_as_it_was_written(record, tmp_path):
    record.write(tmp_path)
    assert RunRecord.read(tmp_path) == record
    changed = record.changed(is_finished=True, has_begun=True)
    changed.write(tmp_path)
    assert RunRecord.read(tmp_path) == changed != record


def test_a_record_says_what_computed_and_where(record):
    assert record.format == FORMAT
    assert {"keras-transformer-layers", "keras", "tensorflow", "tensorflow-text", "python"} == set(
        record.versions
    )
    assert record.versions["keras"][0].isdigit() and record.machine["cores"] >= 1
    assert record.machine["processor"]


def test_a_file_is_described_by_its_path_size_and_hash(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a dog\n")
    text = TextRecord.of_file(path)
    assert (text.name, text.size, len(text.sha256)) == (str(path), 6, 64)
    path.write_bytes(b"a cat\n")
    assert TextRecord.of_file(path).sha256 != text.sha256
    missing = TextRecord.of_file(tmp_path / "pipe")
    assert missing == TextRecord(str(tmp_path / "pipe"), None, None)


def test_every_damage_of_a_record_is_one_line(record, tmp_path):
    record.write(tmp_path)
    path = tmp_path / RECORD
    data = path.read_bytes()
    for i in range(0, len(data), 7):
        for damaged in (data[:i], data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :]):
            path.write_bytes(damaged)
            try:
                assert RunRecord.read(tmp_path) == record
            except FileError as error:
                assert str(path) in str(error) and "\n" not in str(error)
    path.unlink()
    with pytest.raises(FileError, match="is missing"):
        RunRecord.read(tmp_path)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("format", 99, r"has format 99, but this version reads only \(1, 2, 3\); install"),
        ("options", [], r"options is \[\], not an object"),
        ("kept", [1], r"kept is \[1\], not an object"),
        ("options", {"seed": [1]}, r"options has \[1\] for seed"),
        ("chosen", "epochs", r"chosen is 'epochs', not a list of names of options"),
        ("chosen", ["epochs", "x"], r"chosen is \['epochs', 'x'\], not a list"),
        ("texts", {"source": {"name": "x"}}, "missing 2 required"),
        ("texts", ["x"], "has no attribute 'items'"),
        ("precision", "float8", "precision is 'float8'"),
        ("precision", "auto", "precision is 'auto'"),
        ("has_begun", 1, "has_begun is 1"),
        ("machine", None, "machine is None, not an object"),
        ("surprise", 1, "unexpected keyword argument 'surprise'"),
    ],
)
def test_a_record_of_another_schema_is_refused(record, tmp_path, name, value, message):
    record.write(tmp_path)
    write_json(tmp_path / RECORD, read_json(tmp_path / RECORD) | {name: value})
    with pytest.raises(FileError, match=message):
        RunRecord.read(tmp_path)


def test_a_record_that_could_not_be_read_is_not_written(record, tmp_path):
    with pytest.raises(TypeError, match="options has"):
        record.changed(options={"seed": object()}).write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_record_is_data_that_others_can_read(record, tmp_path):
    record.write(tmp_path)
    assert json.loads((tmp_path / RECORD).read_text("utf-8"))["texts"]["source"]["size"] == 7


def test_a_record_of_the_first_format_is_read_and_written_as_the_present_one(record, tmp_path):
    record.write(tmp_path)
    values = read_json(tmp_path / RECORD)
    assert values.pop("kept") is None and values.pop("chosen") == []
    write_json(tmp_path / RECORD, values | {"format": 1})
    read = RunRecord.read(tmp_path)
    assert read == record and read.format == FORMAT
    kept = {"epoch": 3, "metric": "bleu", "value": 39.1, "signature": "nrefs:1", "why": "the best"}
    read.changed(kept=kept, options=record.options | {"source": ["/a", "/b"]}).write(tmp_path)
    assert RunRecord.read(tmp_path).kept == kept
