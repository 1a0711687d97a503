"""`train --resume`: from every moment a run was stopped in, with nothing typed again."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import presets
from keras_transformer.cli import main
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.training_run import resume
from keras_transformer.files import fingerprint, read_json, write_json
from keras_transformer.inference.run_directory import load_run
from keras_transformer.training import checkpoints
from keras_transformer.training.run_record import RECORD, RunRecord
from keras_transformer.training.stopping import StopOnNaN

SMALLEST = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
OPTIONS = ["--vocab-size", "300", "--batch-tokens", "64", "--precision", "float32", "--quiet"]
OPTIONS += ["--bpe-dropout", "0.1"]
# What else follows from the number of epochs, in which trainings differ here.
OPTIONS += ["--warmup-steps", "4000", "--learning-rate-scale", "1", "--cooldown", "0"]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.fixture(scope="module")
def train(files, tmp_path_factory):
    """train(out, *options): the status of a training that takes a second."""
    patch = pytest.MonkeyPatch()
    patch.setattr(presets, "TINY", SMALLEST)
    compile_model = keras.Model.compile
    patch.setattr(
        keras.Model, "compile", lambda *args, **kw: compile_model(*args, **kw, run_eagerly=True)
    )
    text = ["--source", files[0], "--target", files[1]]
    yield lambda out, *options: main(["train", *text, *OPTIONS, *options, "--out", str(out)])
    patch.undo()


@pytest.fixture(scope="module")
def finished(train, tmp_path_factory):
    """Runs of one and of two epochs."""
    folder = tmp_path_factory.mktemp("resume")
    for epochs in (1, 2):
        assert train(folder / str(epochs), "--epochs", str(epochs)) == 0
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the run of one epoch."""
    return Path(shutil.copytree(finished / "1", tmp_path / "run"))


def weights(run):
    return load_run(run)[0].get_weights()


def assert_equal_weights(run, other):
    for found, expected in zip(weights(run), weights(other), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_resume_needs_nothing_typed_again(train, finished, run, capsys):
    assert main(["train", "--out", str(run), "--resume", "--epochs", "2", "--quiet"]) == 0
    assert "going on after epoch 1" in capsys.readouterr().err
    assert_equal_weights(run, finished / "2")
    record = RunRecord.read(run)
    assert record.options["epochs"] == 2 and record.is_finished
    assert record.options["vocab_size"] == 300 and record.precision == "float32"
    assert main(["train", "--out", str(run), "--resume"]) == 0
    assert "is finished; give more --epochs to train it longer" in capsys.readouterr().err


def test_the_record_names_the_text(run, files):
    record = RunRecord.read(run)
    assert record.options["source"] == record.texts["source"].name == os.path.abspath(files[0])
    assert set(record.texts) == {"source", "target"}
    known = {"size": record.texts["target"].size, "sha256": record.texts["target"].sha256}
    assert known == fingerprint(files[1])
    assert fingerprint(run / "tokenizer.model").items() <= record.tokenizer.items()


def refused(arguments, run, capsys):
    """The one line by which `train --resume` ends, before it changes anything."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["train", "--out", str(run), "--resume", *arguments]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    return message


@pytest.mark.parametrize(
    "typed, named",
    [
        (["--vocab-size", "301"], "--vocab-size is 300, but typed 301"),
        (["--dropout", "0.2"], "--dropout is 0.3, but typed 0.2"),
        (["--seed", "1"], "--seed is 0, but typed 1"),
        (["--precision", "bfloat16"], "--precision is float32, but typed bfloat16"),
        (["--preset", "small"], "--preset is tiny, but typed small"),
        (["--plots"], "--plots is not given, but typed;"),
        (["--synthetic"], "--synthetic is not given, but typed;"),
        (["--cooldown", "0.5"], "--cooldown is 0.0, but typed 0.5"),
        (["--average", "2"], "--average is 0, but typed 2"),
        (["--valid-steps", "2"], "--valid-steps is not given, but typed 2"),
    ],
)
def test_every_option_that_differs_is_named(typed, named, run, capsys):
    message = refused([*typed, "--epochs", "5"], run, capsys)
    assert named in message and "with --force and without --resume" in message


def test_an_option_that_an_older_record_lacks_has_its_default(run, capsys):
    record = RunRecord.read(run)
    options = {name: value for name, value in record.options.items() if name != "d_model"}
    record.changed(options=options).write(run)
    assert "--d-model is not given, but typed 32" in refused(["--d-model", "32"], run, capsys)


def test_a_record_of_an_earlier_version_goes_on_as_that_version_trained(run):
    values = read_json(run / RECORD)
    assert "dropout" in values.pop("chosen")
    new = {"norm_last", "num_buckets", "warmup_steps", "cooldown"}
    options = {name: value for name, value in values["options"].items() if name not in new}
    options |= {"norm_first": False, "dropout": None, "average": None, "early_stopping": None}
    write_json(run / RECORD, values | {"format": 2, "options": options})
    found = build_parser().parse_args(["train", "--out", str(run), "--resume"])
    assert resume.record_to_go_on_with(found).chosen == found.chosen == []
    assert options.items() >= {"dropout": found.dropout, "average": found.average}.items()
    assert (found.warmup_steps, found.cooldown, found.num_buckets) == (4000, 0.0, 16)
    assert not found.norm_first and not found.norm_last


def test_all_that_differ_are_named_at_once(run, capsys):
    message = refused(["--seed", "7", "--ema", "0.5"], run, capsys)
    assert "--ema is not given, but typed 0.5; --seed is 0, but typed 7" in message


def test_what_may_change_is_a_short_list():
    lengths = {"epochs", "max_steps", "max_minutes", "early_stopping"}
    assert resume.CHANGEABLE == {"save_minutes", "keep", "strategy"} | lengths
    options = vars(build_parser().parse_args(["train", "--out", "x"]))
    assert set(resume.RECORDED) < set(options) and not set(resume.RECORDED) & resume.UNRECORDED


def test_the_same_words_again_are_no_difference(run, files, monkeypatch):
    monkeypatch.chdir(Path(files[0]).parent)
    text = ["--source", Path(files[0]).name, "--target", files[1]]
    assert main(["train", *text, *OPTIONS, "--epochs", "1", "--out", str(run), "--resume"]) == 0


def test_other_text_is_refused(run, files, tmp_path, capsys):
    other = tmp_path / "same.gz"
    shutil.copy(files[0], other)
    message = refused(["--source", str(other)], run, capsys)
    assert f"--source is {files[0]}, but typed {other}" in message
    record = RunRecord.read(run)
    changed = {name: tmp_path / f"{name}.txt" for name in ("source", "target")}
    for path in changed.values():
        path.write_text("a dog\na cat\n", "utf-8")
    paths = {name: str(path) for name, path in changed.items()}
    texts = {name: resume.TextRecord.of_file(path) for name, path in paths.items()}
    record.changed(options=record.options | paths, texts=texts).write(run)
    changed["target"].write_text("ein Hund\neine Katze\n", "utf-8")
    message = refused([], run, capsys)
    assert f"the text has changed since the run began: --target {changed['target']};" in message
    changed["source"].write_text("x\n", "utf-8")
    assert f"--source {changed['source']}, --target" in refused([], run, capsys)


def test_another_tokenizer_is_refused(run, capsys):
    path = run / "tokenizer.model"
    path.write_bytes(path.read_bytes() + b"\0")
    message = refused(["--epochs", "2"], run, capsys)
    assert f"{path} is not the tokenizer that the run began with; restore it" in message


def test_a_damaged_record_is_named_with_the_remedy(run, capsys):
    path = run / RECORD
    path.write_bytes(path.read_bytes()[:-9])
    message = refused([], run, capsys)
    assert str(path) in message and "With --force it is trained again." in message


def test_states_without_a_record_are_refused(run, capsys):
    (run / RECORD).unlink()
    message = refused(["--synthetic"], run, capsys)
    assert "holds a run but no record.json of what made it; add --force" in message


def test_a_run_that_another_process_trains_is_refused(run, train, tmp_path, capsys):
    with resume.locked(run):
        assert "another process is writing a run there" in refused([], run, capsys)
        assert train(run, "--force") == 1
    new = tmp_path / "new" / "run"
    with resume.locked(new):
        assert train(new) == 1
        assert "another process is writing a run there" in capsys.readouterr().err
    assert not new.parent.exists()  # nothing was written


def test_two_means_are_not_written_at_once(run, tmp_path, capsys):
    with resume.locked(tmp_path / "mean"):
        assert main(["average", str(run), str(tmp_path / "mean"), "--last", "1"]) == 1
        assert "another process is writing a run there" in capsys.readouterr().err
    assert not (tmp_path / "mean").exists()


@pytest.mark.slow
def test_a_full_disk_ends_a_training_in_one_line_and_loses_nothing(train, run, capfd):
    resource = pytest.importorskip("resource", reason="no limits on files here")
    before, (soft, hard) = weights(run), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        status = train(run, "--resume", "--epochs", "2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    line = capfd.readouterr().err.splitlines()[-1]
    assert status == 1 and line.startswith("keras-transformer train: ")
    assert str(run) in line and "could not be written (File too large)" in line
    for found, expected in zip(weights(run), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not list(run.rglob(".new-*"))


def test_a_folder_that_may_not_be_written_is_one_line(train, tmp_path, capsys):
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write everywhere")
        assert train(tmp_path / "run") == 1
        assert "could not be written (Permission denied)" in capsys.readouterr().err
    finally:
        tmp_path.chmod(0o700)


def test_a_system_without_locks_is_told_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with resume.locked(tmp_path / "run"), resume.locked(tmp_path / "run"):
        pass
    assert "cannot be locked" in capsys.readouterr().err


@pytest.mark.parametrize(
    "names, free",
    [
        ([], True),
        ([".new-record.json"], True),
        (["record.json", ".new-tokenizer.model"], True),
        (["record.json", "checkpoints/.new-state-00001.npz"], True),
        (["checkpoints/.new-state-00001.npz"], True),
        (["tokenizer.model", "config.json", ".new-manifest.json"], True),
        (["logs/x"], False),
        (["tokenizer.model", "a"], False),
        ([".new-a"], False),
        (["checkpoints/a"], False),
    ],
)
def test_what_a_killed_training_has_left_is_known(names, free, tmp_path):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert resume._is_free(tmp_path) is free


class Killed(BaseException):
    """Ends a training wherever it is, as a kill does."""


@pytest.fixture
def kill_at(monkeypatch):
    """kill_at(n): the n-th rename of a file from now on fails, and all after it."""
    replace, calls = os.replace, []

    def set_limit(n):
        calls.clear()

        def counting(*paths, **options):
            calls.append(paths)
            if len(calls) >= n:
                raise Killed
            return replace(*paths, **options)

        monkeypatch.setattr(os, "replace", counting)

    yield set_limit
    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("moments", [(1, 2, 3), pytest.param((5, 8), marks=pytest.mark.slow)])
def test_a_run_goes_on_from_every_moment(moments, train, finished, kill_at, tmp_path, capsys):
    out = tmp_path / "run"
    for moment in moments:
        kill_at(moment)
        with pytest.raises(Killed):
            train(out, "--epochs", "2", "--resume")
        # What a kill leaves, and an exception cleans up.
        (out / ".new-record.json").write_text("half")
    kill_at(10**9)
    assert train(out, "--epochs", "2", "--resume") == 0
    printed = capsys.readouterr().err
    assert ("starts from the beginning" in printed) == (moments != (1,))
    assert_equal_weights(out, finished / "2")
    assert RunRecord.read(out).is_finished


@pytest.fixture
def stop_at(monkeypatch):
    """stop_at(n, act): `act()` is called in the n-th step from now on."""
    step = StopOnNaN.on_train_batch_end

    def set_step(number, act):
        count = itertools.count(1)

        def counting(*arguments, **options):
            if next(count) == number:
                act()
            step(*arguments, **options)

        monkeypatch.setattr(StopOnNaN, "on_train_batch_end", counting)

    return set_step


def histories(out):
    lines = map(json.loads, (out / "history.jsonl").read_text().splitlines())
    times = "seconds", "tokens_per_second"
    return [{k: v for k, v in line.items() if k not in times} for line in lines]


def test_a_training_by_steps_stops_at_sigterm_and_goes_on_within_an_epoch(
    train, finished, stop_at, tmp_path, capsys
):
    out = tmp_path / "run"
    stop_at(1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        train(out, "--max-steps", "3", "--valid-steps", "2")
    assert ended.value.code == 143
    said = capsys.readouterr().err
    assert f"stopped after step 1; go on with: keras-transformer train --out {out} --resume" in said
    assert [path.stem for path in resume.states(out)] == ["state-00001-000000001"]
    resumes = ["train", "--out", str(out), "--resume", "--quiet"]
    assert main(resumes) == 0
    assert "going on after step 1" in capsys.readouterr().err
    assert [epoch["step"] for epoch in histories(out)] == [2, 3]
    assert main([*resumes, "--max-steps", "3"]) == 0
    assert "is finished; give more --max-steps to train it longer" in capsys.readouterr().err
    assert main(["show", str(out)]) == 0
    assert "finished: 3 of 3 steps" in capsys.readouterr().out
    # Two epochs have four steps. When a training validates and stops makes no difference to it.
    assert main([*resumes, "--epochs", "2"]) == 0
    assert [epoch["step"] for epoch in histories(out)] == [2, 3, 4]
    assert_equal_weights(out, finished / "2")


@pytest.mark.slow
def test_a_training_that_stops_at_sigterm_has_the_logs_of_one_that_does_not(
    train, finished, stop_at, tmp_path
):
    out = tmp_path / "run"
    stop_at(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        train(out, "--epochs", "2")
    assert [path.stem for path in resume.states(out)][-1] == "state-00002-000000001"
    assert main(["train", "--out", str(out), "--resume", "--quiet"]) == 0
    assert_equal_weights(out, finished / "2")
    assert histories(out) == histories(finished / "2")


def test_epochs_and_steps_exclude_each_other(tmp_path, capsys):
    typed = ["--epochs", "2", "--max-steps", "9"]
    assert main(["train", "--synthetic", *typed, "--out", str(tmp_path / "run")]) == 1
    assert "--epochs and --max-steps exclude each other; give one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "limits, asked, done",
    [
        ((2, None, 5), (2, None, 5), True),
        ((2, None, 5), (3, None, 5), False),
        ((2, None, 5), (2, 9, 5), False),
        ((2, 9, 5), (2, 9, 5), True),
        ((2, 9, 5), (2, 10, 5), False),
        ((2, 9, 5), (1, None, 5), False),
        ((2, None, 5), (2, None, 6), False),
    ],
)
def test_a_finished_run_goes_on_if_more_is_asked(limits, asked, done):
    names = ("epochs", "max_steps", "early_stopping")
    limits, asked = (dict(zip(names, values, strict=True)) for values in (limits, asked))
    record = RunRecord(limits, {}, {}, "float32", is_finished=True)
    options = SimpleNamespace(**asked)
    assert resume.is_done(record, options) is done
    assert not resume.is_done(record.changed(is_finished=False), options)


@pytest.mark.slow
def test_no_time_is_left_for_a_run_that_has_had_it(train, tmp_path, capsys):
    out, limit = tmp_path / "run", ["--max-minutes", "1e-6"]
    assert train(out, "--epochs", "3", *limit) == 0
    assert len(histories(out)) == 1
    assert train(out, "--epochs", "3", *limit, "--resume") == 0
    assert "its --max-minutes 1e-06 are over; give more" in capsys.readouterr().err
    assert len(histories(out)) == 1


@pytest.mark.slow
def test_a_state_that_is_not_written_is_said_though_something_else_ends_the_training(
    train, stop_at, tmp_path, monkeypatch, capsys
):
    def fails(*_):
        raise OSError("no room")

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "write_state", fails)
    # Otherwise the next step would raise it.
    monkeypatch.setattr(Future, "done", lambda self: False)
    stop_at(2, interrupt)
    assert train(tmp_path / "run", "--save-minutes", "1e-9") == 1
    note, advice, end = capsys.readouterr().err.splitlines()[-3:]
    assert (note, end) == ("note: no room", "keras-transformer train: interrupted")
    assert advice.startswith("stopped; the steps since the last saved state are lost; go on with: ")


@pytest.mark.slow
def test_a_forced_training_leaves_the_old_model_and_takes_none_of_its_states(
    train, run, kill_at, finished
):
    before = weights(run)
    kill_at(2)  # the record of the new training is written, the old states are cleared
    with pytest.raises(Killed):
        train(run, "--epochs", "2", "--force", "--seed", "5")
    for found, expected in zip(weights(run), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    kill_at(10**9)
    assert train(run, "--epochs", "2", "--resume", "--seed", "5") == 0
    assert any((a != b).any() for a, b in zip(weights(run), weights(finished / "2"), strict=True))
    assert RunRecord.read(run).options["seed"] == 5


def test_a_forced_training_goes_on_within_its_first_epoch(train, run, stop_at, tmp_path):
    other = ["--vocab-size", "310", "--epochs", "2"]
    stop_at(1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        train(run, *other, "--force")
    # The old model is still there, with its own vocabulary.
    assert (run / "tokenizer.model").read_bytes() != resume.tokenizer_path(run).read_bytes()
    assert len(weights(run)) and resume.states(run)
    assert train(run, *other, "--resume") == 0
    assert (run / "tokenizer.model").read_bytes() == resume.tokenizer_path(run).read_bytes()
    assert load_run(run)[1].vocab_size == 310


def test_weights_without_their_state_are_trained_again(train, finished, stop_at, tmp_path):
    """As if the training was killed while the state after its first epoch was written."""
    out = tmp_path / "run"
    stop_at(1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        train(out, "--epochs", "1")
    shutil.copy(finished / "1/checkpoints/epoch-00001.weights.h5", out / "checkpoints")
    assert train(out, "--epochs", "1", "--resume") == 0
    assert_equal_weights(out, finished / "1")


def test_a_training_that_stopped_early_says_what_goes_on(train, tmp_path, capsys):
    out = tmp_path / "run"
    limits = ["--early-stopping", "1", "--valid-split", "2", "--learning-rate-scale", "1e-9"]
    assert train(out, "--epochs", "9", *limits, "--average", "0") == 0
    epochs = len(histories(out))
    assert epochs < 9
    assert "to go on, give --resume and more, or 0 for never" in capsys.readouterr().err
    assert main(["train", "--out", str(out), "--resume", "--epochs", "12", "--quiet"]) == 0
    said = capsys.readouterr().err
    assert "stopped: no better chrF for 1 epoch, --early-stopping; to go on, give --resume" in said
    assert len(histories(out)) == epochs
    limits = ["--epochs", str(epochs + 1), "--early-stopping", "0"]
    assert main(["train", "--out", str(out), "--resume", "--quiet", *limits]) == 0
    assert len(histories(out)) == epochs + 1


@pytest.mark.slow
def test_a_killed_process_goes_on_to_the_same_end(tmp_path):
    arguments = ["--kills", "3", "--steps", "30", "--pairs", "60", "--out", str(tmp_path)]
    arguments += ["--valid-steps", "12"]
    run = subprocess.run([sys.executable, BENCHMARK, *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    assert "3 of 3 kills: each run went on, with the same end" in run.stdout
