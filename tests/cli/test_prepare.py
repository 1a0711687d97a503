"""`prepare`, and `train` on what it writes: the same as on the text."""

import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import presets
from keras_transformer.cli import main
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.training_run import data as training_data
from keras_transformer.commands.training_run import resume
from keras_transformer.commands.training_run import text as training_text
from keras_transformer.data import prepare
from keras_transformer.data.store_files import is_store
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.inference.run_directory import load_run
from keras_transformer.training.run_record import RunRecord

SMALLEST = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
OPTIONS = ["--batch-tokens", "64", "--precision", "float32", "--quiet"]
# What else follows from the number of epochs, in which trainings differ here.
OPTIONS += ["--warmup-steps", "4000", "--learning-rate-scale", "1", "--cooldown", "0"]
VOCABULARY = ["--vocab-size", "300"]


@pytest.fixture(scope="module", autouse=True)
def quick():
    patch = pytest.MonkeyPatch()
    patch.setattr(presets, "TINY", SMALLEST)
    compile_model = keras.Model.compile
    patch.setattr(
        keras.Model, "compile", lambda *args, **kw: compile_model(*args, **kw, run_eagerly=True)
    )
    yield
    patch.undo()


@pytest.fixture
def text(files):
    return ["--source", files[0], "--target", files[1]]


@pytest.fixture
def large(monkeypatch):
    """Takes every text for a large one."""
    monkeypatch.setattr(training_text, "LARGE_BYTES", 1)


@pytest.fixture
def store(text, tmp_path):
    out = tmp_path / "store"
    arguments = [*text, *VOCABULARY, "--processes", "1", "--quiet"]
    assert main(["prepare", *arguments, "--out", str(out)]) == 0
    return str(out)


def train(out, *arguments, epochs=1):
    assert main(["train", *arguments, *OPTIONS, "--epochs", str(epochs), "--out", str(out)]) == 0
    return load_run(out)[0].get_weights()


def assert_equal(weights, others):
    for found, expected in zip(weights, others, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_store_trains_what_its_text_trains(text, store, large, tmp_path, monkeypatch):
    beside = train(tmp_path / "beside", *text, *VOCABULARY)
    assert is_store(tmp_path / "beside" / "store")
    assert_equal(beside, train(tmp_path / "stored", "--store", store))
    monkeypatch.undo()
    assert_equal(beside, train(tmp_path / "memory", *text, *VOCABULARY))
    assert not (tmp_path / "memory" / "store").exists()


@pytest.mark.slow
@pytest.mark.parametrize("named", ["text", "store"])
def test_a_run_goes_on_with_the_store_that_it_began_with(
    named, text, store, large, tmp_path, monkeypatch
):
    arguments = ["--bpe-dropout", "0.3"]
    arguments += ["--store", store] if named == "store" else [*text, *VOCABULARY]
    in_turn = lambda function, jobs, processes: (function(*job) for job in jobs)  # noqa: E731
    monkeypatch.setattr("keras_transformer.data.sampled_epochs.work", in_turn)
    whole = train(tmp_path / "whole", *arguments, epochs=2)
    train(tmp_path / "run", *arguments)
    monkeypatch.setattr(prepare, "_write_part", lambda *_: pytest.fail("prepared again"))
    assert_equal(whole, train(tmp_path / "run", "--resume", epochs=2))
    record = RunRecord.read(tmp_path / "run")
    assert (named in record.texts) is (named == "store")
    assert not (tmp_path / "run" / "sampled").exists()


def test_a_store_holds_out_what_its_text_holds_out(text, store):
    arguments = ["--valid-split", "2", "--seed", "3", "--out", "x"]
    options = [
        build_parser().parse_args(["train", *named, *arguments])
        for named in (text, ["--store", store])
    ]
    expected = training_text.read_texts(options[0])
    opened = training_text.training_store(options[1], {}, None)
    found = training_text.read_texts(options[1], opened)
    assert found.valid == expected.valid
    batches = found.train.batches(batch_tokens=64)
    assert len(batches.kept) == len(expected.train.sources)
    # What suits the text follows from these sizes: without a store, of all its targets.
    known, size = (
        training_data.text_size(texts, Tokenizer(opened.tokenizer_model), 200)
        for texts in (expected, found)
    )
    assert (size.pairs, size.is_validated) == (known.pairs, True)
    assert size.target_tokens == pytest.approx(known.target_tokens, rel=0.3)


@pytest.mark.slow
def test_a_lost_store_is_made_again_with_the_runs_vocabulary(text, large, tmp_path, monkeypatch):
    whole = train(tmp_path / "whole", *text, *VOCABULARY, epochs=2)
    train(tmp_path / "run", *text, *VOCABULARY)
    shutil.rmtree(tmp_path / "run" / "store")
    monkeypatch.setattr(prepare, "learn_from_files", lambda *_: pytest.fail("learnt again"))
    assert_equal(whole, train(tmp_path / "run", "--resume", epochs=2))


@pytest.mark.slow
def test_a_run_that_began_in_memory_stays_there(text, tmp_path, monkeypatch):
    out = tmp_path / "run"
    train(out, *text, *VOCABULARY)
    record = RunRecord.read(out)
    options = {k: v for k, v in record.options.items() if k not in ("tokenizer_lines", "store")}
    record.changed(options=options).write(out)
    monkeypatch.setattr(training_text, "LARGE_BYTES", 1)
    train(out, "--resume", epochs=2)
    assert not (out / "store").exists()


@pytest.mark.slow
def test_a_start_that_was_killed_while_it_prepared_goes_on(text, large, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_join_parts", interrupt)
        assert main(["train", *text, *VOCABULARY, *OPTIONS, "--out", str(out)]) == 1
    assert [path.name for path in out.iterdir()] == ["store"]
    monkeypatch.setattr(prepare, "_write_part", lambda *_: pytest.fail("prepared again"))
    train(out, "--resume", *text, *VOCABULARY)


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_store_that_changed_is_refused(store, tmp_path, capsys):
    out = tmp_path / "run"
    train(out, "--store", store)
    path = Path(store, "source.ids")
    path.write_bytes(path.read_bytes()[:-1])
    resumed = ["train", "--resume", "--out", str(out), "--epochs", "2", "--quiet"]
    assert main(resumed) == 1
    assert "source.ids was altered or damaged; restore it" in capsys.readouterr().err
    Path(store, "store.json").write_text("{}")
    assert main(resumed) == 1
    assert "the text has changed since the run began: --store" in capsys.readouterr().err


def test_shards_are_joined_to_the_store_of_the_whole(text, store, tmp_path, capsys):
    out, model = tmp_path / "joined", ["--tokenizer", str(Path(store, "tokenizer.model"))]
    arguments = [*text, *model, "--processes", "1", "--quiet"]
    for i in (2, 3, 1):
        shard = ["--shard", f"{i}/3", "--out", str(out)]
        assert main(["prepare", *arguments, *shard]) == 0
    assert main(["prepare", "--join", "--out", str(out)]) == 0
    assert "6 pairs in 300 subwords (skipped: none)" in capsys.readouterr().err
    assert main(["prepare", *arguments, "--out", str(tmp_path / "whole")]) == 0
    names = sorted(path.name for path in out.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "whole").iterdir())
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert main(["prepare", "--join", "--out", str(out)]) == 0  # it is there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tsv", "FILE", "--shard", "1/2"], "--shard needs the vocabulary of all shards; add"),
        (["--tsv", "FILE", "--source", "FILE", "--target", "FILE"], "give one text: --source with"),
        (["--source", "FILE"], "--source and --target go together; --target is missing"),
        ([], "give one text: --source with --target, or --tsv"),
        (["--join", "--tsv", "FILE"], "--join takes what is in --out; leave out the text"),
        (["--join"], "shards 1/N to N/N are needed, but there are none"),
        (["--tsv", "FILE", "--tokenizer", "FILE", "--tokenizer-lines", "9"], "leave out --token"),
        (
            ["--tsv", "/dev/null", "--tokenizer", "MODEL", "--shard", "1/2"],
            "reads files alone, but",
        ),
    ],
)
def test_what_cannot_be_prepared_is_refused(arguments, message, files, tokenizer, tmp_path, capsys):
    tokenizer.save(tmp_path / "model")
    names = {"FILE": files[1], "MODEL": str(tmp_path / "model")}
    arguments = [names.get(word, word) for word in arguments]
    assert main(["prepare", *arguments, "--out", str(tmp_path / "s")]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error and not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "missing"], "--store missing does not exist"),
        (["--store", "."], "--store . is no store; name a directory that prepare has written"),
        (["--store", "STORE", "--tokenizer", "FILE"], "--store has a vocabulary; leave out --tok"),
        (["--store", "STORE", "--vocab-size", "9"], "--store has a vocabulary; leave out --vocab"),
        (["--store", "STORE", "--valid-split", "6"], "--valid-split: 6 pairs to validate on leave"),
        (
            ["--store", "STORE", "--tsv", "FILE"],
            "give one text: --source with --target, --tsv, --store",
        ),
    ],
)
def test_a_store_excludes_what_it_has(arguments, message, store, files, tmp_path, capsys):
    names = {"FILE": files[1], "STORE": store}
    arguments = [names.get(word, word) for word in arguments]
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3"])
def test_a_shard_is_a_part_of_some(text, capsys):
    with pytest.raises(SystemExit):
        main(["prepare", "--shard", text, "--out", "x"])
    assert (
        f"--shard must be I/N with I from 1 to N, such as 1/8, but is {text}"
        in capsys.readouterr().err
    )


def test_a_store_and_the_epochs_of_bpe_dropout_may_be_left_by_a_stop():
    assert {"store", "sampled"} <= resume.LEFTOVERS


def test_neither_the_command_nor_its_processes_import_keras():
    modules = "keras_transformer.commands.prepare, keras_transformer.data.sampled_epochs"
    check = f"import sys, {modules}; assert not {{'keras', 'tensorflow'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
