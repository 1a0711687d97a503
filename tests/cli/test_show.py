"""`keras-transformer show`: what a run or an export says of itself, for a person and a program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer.cli import main
from keras_transformer.files import fingerprint, write_json
from keras_transformer.training.run_record import RunRecord, TextRecord

FORMATS = Path(__file__).parents[1] / "inference" / "formats"
OPTIONS = {"source": "/data/train.en", "epochs": 2, "dropout": 0.0, "plots": False, "ema": None}
KEPT = {"epoch": 2, "metric": "bleu", "value": 39.06, "signature": "nrefs:1|v:2", "why": "best"}


def write_run(directory, *, options=OPTIONS, kept=KEPT, bleu=39.06):
    directory.mkdir()
    texts = {"source": TextRecord("/data/train.en", 1234567, "ab" * 32)}
    tokenizer = {"size": 5, "sha256": "cd" * 32, "vocab_size": 8000}
    record = RunRecord(options, texts, tokenizer, "float32", kept=kept, has_begun=True)
    record.changed(is_finished=True).write(directory)
    epochs = [{"epoch": 1, "loss": 3.5, "val_bleu": 20.0}, {"epoch": 2, "loss": 2.0}]
    epochs[1] |= {
        "val_bleu": bleu,
        "val_chrf": 60.5,
        "learning_rate": 1e-4,
        "gradient_norm": None,
        "other": 7,
    }
    (directory / "history.jsonl").write_text("".join(json.dumps(e) + "\n" for e in epochs))
    config = {"format": 3, "class": "Transformer", "parameters": 2349056, "model": {"d_model": 128}}
    (directory / "config.json").write_text(json.dumps(config))
    files = {"config.json": fingerprint(directory / "config.json")}
    write_json(directory / "manifest.json", {"files": files})
    return str(directory)


@pytest.fixture
def show(capsys):
    def call(*arguments):
        assert main(["show", *arguments]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return call


def test_a_person_reads_what_made_a_run_and_which_epoch_was_kept(show, tmp_path):
    text = " ".join(show(write_run(tmp_path / "run")).split())
    for part in (
        "run: a run, finished: 2 of 2 epochs",
        "Transformer, 2,349,056 parameters",
        "kept epoch 2, BLEU 39.06 (best); nrefs:1|v:2",
        "source: /data/train.en, 1,234,567 bytes, sha256 abababababab",
        "--source /data/train.en --epochs 2 --dropout 0 versions",
        "1 3.500 20.0 2 2.000 39.1 60.5 1.00e-04 * kept",
    ):
        assert part in text, part
    assert "not known" not in text and "damaged" not in text and " UTC" in text


def test_a_program_reads_all_of_it(show, tmp_path):
    path = write_run(tmp_path / "run")
    card = json.loads(show(path, "--json"))
    assert (card["kind"], card["path"], card["unknown"], card["damage"]) == ("run", path, [], [])
    assert card["options"] == OPTIONS and card["kept"] == KEPT
    assert [epoch.get("other") for epoch in card["history"]] == [None, 7]
    assert card["texts"]["source"]["sha256"] == "ab" * 32 and card["files"]["config.json"]["size"]
    assert card["began"] <= card["ended"]
    assert [card["kind"] for card in json.loads(show(path, path, "--json"))] == ["run", "run"]


def test_several_are_compared_by_what_differs(show, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b", options={**OPTIONS, "dropout": 0.1, "ema": 0.9}, bleu=41.0)
    lines = {line.split("  ")[0]: line.split()[-2:] for line in show(first, second).splitlines()}
    assert lines[""] == [first, second]
    assert lines["--dropout"] == ["0", "0.1"] and lines["--ema"] == ["-", "0.9"]
    assert lines["last epoch: BLEU"] == ["39.1", "41.0"]
    assert not {"--source", "--epochs", "model: d_model", "precision"} & set(lines)
    assert "differ in nothing" in show(first, first)


@pytest.mark.parametrize("name", ["2", "3"])
def test_what_an_earlier_version_did_not_note_is_said(show, name):
    card = json.loads(show(str(FORMATS / name), "--json"))
    assert card["model"]["class"] and len(card["history"]) == 1 and card["damage"] == []
    assert any("options, text, versions" in text for text in card["unknown"])
    assert "not known" in show(str(FORMATS / name))


def test_what_is_damaged_is_said_and_the_rest_is_shown(show, tmp_path):
    path = write_run(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text('{"class": "Other"}')
    with open(tmp_path / "run" / "history.jsonl", "a") as file:
        file.write('{"epoch": 3, "lo')
    card = json.loads(show(path, "--json"))
    assert len(card["history"]) == 2 and len(card["damage"]) == 2
    assert "config.json is not the file that was written" in " ".join(show(path).split())
    (tmp_path / "run" / "record.json").write_text("[]")
    assert "record.json is damaged" in " ".join(show(path).split())


def test_what_is_neither_is_an_error(tmp_path, capsys):
    for path, fault in ((tmp_path, "is neither a run nor"), (tmp_path / "x", "does not exist")):
        assert main(["show", str(path)]) == 1
        line = capsys.readouterr().err
        assert fault in line and line.count("\n") == 1


def test_it_needs_neither_tensorflow_nor_keras(tmp_path):
    path = write_run(tmp_path / "run")
    code = (
        "import sys; from keras_transformer.cli import main; main(sys.argv[1:]); "
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, "show", path], check=True, capture_output=True)
