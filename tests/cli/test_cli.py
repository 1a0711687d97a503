"""The command line: exit codes, one clear line for an error, one line out for one line in."""

import argparse
import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import presets
from keras_transformer.cli import main
from keras_transformer.commands import training_text
from keras_transformer.commands.options import build_parser
from keras_transformer.commands.train import check_out
from keras_transformer.commands.training_text import read_texts
from keras_transformer.commands.translate import one_line
from keras_transformer.data.corpus import Corpus, CorpusError
from keras_transformer.export.run_directory import load_run, save_run


@pytest.fixture(scope="module")
def run(trained, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli") / "run"
    save_run(trained, tokenizer, directory)
    return str(directory)


@pytest.fixture(scope="module")
def export(run, tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("cli") / "export")
    assert main(["export", run, directory, "--search", "greedy", "--signatures"]) == 0
    return directory


@pytest.fixture(scope="module")
def files(sentences, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli")
    paths = directory / "source.txt.gz", directory / "target.txt"
    paths[0].write_bytes(gzip.compress(("\n".join(sentences[0]) + "\n").encode()))
    paths[1].write_text("\n".join(sentences[1]) + "\n", "utf-8")
    return [str(path) for path in paths]


@pytest.fixture
def translate(monkeypatch, capsysbinary):
    """Runs `translate` on bytes; returns the exit code and the bytes written."""

    def call(data: bytes, *arguments):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["translate", *arguments])
        return code, capsysbinary.readouterr().out

    return call


def test_help_is_immediate_and_names_every_command():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = subprocess.run(
            [sys.executable, "-m", "keras_transformer", "--help"], capture_output=True, text=True
        )
        times.append(time.perf_counter() - start)
    assert result.returncode == 0
    for command in ("demo", "train", "translate", "evaluate", "inspect", "average", "export"):
        assert command in result.stdout
    assert min(times) < 0.3


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["train"], "required: --out"),
        (["train", "--out", "x", "--epochs", "0"], "--epochs: must be at least 1, but is 0"),
        (["train", "--out", "x", "--dropout", "1"], r"--dropout: must be in \[0, 1\), but is 1"),
        (["train", "--out", "x", "--preset", "huge"], "--preset: invalid choice: 'huge'"),
        (["translate", "x", "--beam-size", "many"], "--beam-size: invalid"),
        (["translate", "x", "--length-penalty", "-1"], "--length-penalty: must be in"),
        (["evaluate", "x", "--source", "y"], "required: --target"),
    ],
)
def test_bad_usage_exits_with_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_failures_exit_with_1_and_one_line(capsys, tmp_path, files, run, monkeypatch):
    out = ["--out", str(tmp_path / "run")]
    missing = str(tmp_path / "missing.txt")
    short = tmp_path / "short.txt"
    short.write_text("one line\n")
    pair = ["--source", files[0], "--target", files[1]]
    cases = [
        (["train", *out], "give one of --source and --target, --tsv, --tfds, --synthetic"),
        (["train", *out, "--source", files[0]], "--target is missing"),
        (["train", *out, "--synthetic", "--tsv", "x"], "give one of"),
        (["train", *out, "--source", missing, "--target", files[1]], "missing.txt"),
        (["train", *out, "--source", files[0], "--target", str(short)], "6.*1"),
        (["train", "--out", run, "--synthetic"], "holds a run already; name another, or add"),
        (["train", "--out", str(short), "--synthetic"], "is a file; name a directory"),
        (["train", "--out", str(tmp_path), "--synthetic"], "holds other files"),
        (["translate", missing], "does not exist"),
        (["translate", str(tmp_path)], "is neither a run nor an export"),
        (["evaluate", run, "--source", files[0], "--target", str(short)], "6 lines.*1;"),
        (["export", str(tmp_path), str(tmp_path / "e")], "is no run"),
        (["export", run, str(short)], "is a file"),
        (["evaluate", run, *pair, "--bleu-tokenize", "ja-mecab"], "'ja-mecab' cannot be used"),
        (["train", *out, *pair, "--bleu-tokenize", "ja-mecab"], "'ja-mecab' cannot be used"),
    ]
    monkeypatch.setitem(sys.modules, "MeCab", None)  # as if it were not installed
    for arguments, message in cases:
        assert main(arguments) == 1, arguments
        captured = capsys.readouterr()
        assert captured.out == ""
        line = captured.err.removesuffix("\n")
        assert "\n" not in line and "Traceback" not in line
        assert line.startswith(f"keras-transformer {arguments[0]}: ")
        assert re.search(message, line), (message, line)


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        main(["translate", str(tmp_path / "missing"), "--debug"])


def test_one_line_in_one_line_out(export, translate, sentences):
    sources, targets = sentences
    data = f"{sources[0]}\n\n  \n{sources[1]}\r\n".encode() + b"\xff\xfe\n" + b"no newline"
    code, output = translate(data, export)
    lines = output.decode().split("\n")
    assert code == 0
    assert len(lines) == 6 + 1 and lines[-1] == ""
    assert lines[0] == targets[0] and lines[3] == targets[1]
    assert lines[1] == lines[2] == ""


def test_no_input_gives_no_output(run, translate):
    assert translate(b"", run) == (0, b"")


def test_line_separators_inside_a_sentence_do_not_split_it(export, translate):
    _, output = translate("a dog\u2028runs\x0bhome\x85\n".encode(), export)
    assert output.count(b"\n") == 1
    assert one_line("a\nb\r\nc") == "a b  c"


def test_search_options_reach_the_search(run, translate, sentences):
    source = "\n".join(sentences[0]).encode()
    options = ["--no-repeat-ngram", "1", "--coverage-penalty", "0.2", "--beam-size", "2"]
    code, no_token_twice = translate(source, run, *options)
    lines = no_token_twice.decode().splitlines()
    assert code == 0 and len(lines) == len(sentences[1])
    assert lines != sentences[1] and all(len(line) < 60 for line in lines)
    long = translate(source, run, "--min-length", "60", "--search", "greedy")[1]
    assert len(long) > 2 * len("\n".join(sentences[1]))


def test_export_options_reach_the_export(run, sentences, translate, tmp_path, capsysbinary):
    source = "\n".join(sentences[0]).encode()
    directory = str(tmp_path / "half")
    (tmp_path / "half" / "1").mkdir(parents=True)
    assert main(["export", run, directory + "/1"]) == 1
    assert b"pass overwrite=True (--overwrite)" in capsysbinary.readouterr().err
    options = ["--precision", "bfloat16", "--signatures", "score"]
    assert main(["export", run, directory, *options]) == 0
    assert capsysbinary.readouterr().out.decode().strip() == directory + "/2"
    assert set(tf.saved_model.load(directory + "/2").signatures) == {"serving_default", "score"}
    assert main(["export", run, directory, "--signatures", "best"]) == 1
    assert b"signatures must be one of 'serving_default'" in capsysbinary.readouterr().err
    assert translate(source, directory)[1].decode().splitlines() == sentences[1]


def test_ctranslate2_is_a_format_of_export(run, tmp_path, capsys):
    pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
    directory = tmp_path / "ct2"
    arguments = ["export", run, str(directory), "--format", "ctranslate2"]
    assert main([*arguments, "--quantization", "int8"]) == 0
    assert (directory / "model.bin").is_file()
    assert main([*arguments, "--precision", "bfloat16", "--overwrite"]) == 1
    assert "precision" in capsys.readouterr().err


def test_a_search_is_refused_for_an_export(export, capsys):
    assert main(["translate", export, "--search", "beam", "--beam-size", "3"]) == 1
    assert "whose search is fixed; leave out --search, --beam-size" in capsys.readouterr().err


def test_evaluate_prints_both_scores_with_their_signatures(run, export, files, capsys, tmp_path):
    arguments = ["--source", files[0], "--target", files[1]]
    output = tmp_path / "translations.txt"
    for model in (run, export):
        assert main(["evaluate", model, *arguments, "--output", str(output)]) == 0
        bleu, chrf = capsys.readouterr().out.splitlines()
        assert bleu.startswith("BLEU 100.00  nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
        assert chrf.startswith("chrF 100.00  nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|")
    with open(files[1], encoding="utf-8") as references:
        assert output.read_text("utf-8") == references.read()


@pytest.fixture
def smallest(monkeypatch):
    """The preset that `train` takes, with fewer numbers."""
    size = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
    monkeypatch.setattr(presets, "TINY", size)
    return size


def test_train_writes_a_run_that_translates(smallest, files, tmp_path, translate, capsysbinary):
    out = tmp_path / "run"
    options = ["--vocab-size", "300", "--epochs", "2", "--batch-tokens", "256", "--quiet"]
    text = ["--source", files[0], "--target", files[1]]
    # Two pairs that no batch takes, the second with too many tokens for a picture, too.
    valid = tmp_path / "valid.en"
    valid.write_text("a dog " * 30 + "\n" + "a dog " * 150 + "\na dog runs\n", "utf-8")
    valid = ["--valid-source", str(valid), "--valid-target", str(valid), "--max-length", "30"]
    assert main(["train", *text, *valid, *options, "--out", str(out)]) == 0
    printed = capsysbinary.readouterr().err.decode()
    assert "all 2 steps are within --warmup-steps 4000" in printed
    assert "1 validation pairs (skipped: 2 more tokens than --max-length)" in printed
    config = json.loads((out / "config.json").read_text())
    weights = (out / "model.weights.h5").read_bytes()
    assert smallest.items() <= config["model"].items()
    code, output = translate(b"a dog runs\na cat\n", str(out), "--search", "greedy")
    assert code == 0 and output.count(b"\n") == 2
    assert tensorboard_tags(out / "logs") >= {
        "step_loss",
        "step_gradient_norm",
        "step_learning_rate",
        "step_tokens_per_second",
        "epoch_loss",
        "epoch_perplexity",
        "epoch_chrf",
        "attention/0",
        "epoch_learning_rate",
        "epoch_tokens_per_second",
        "epoch_bleu",
        "translations",
    }
    assert (out / "logs" / "projector_config.pbtxt").is_file()
    assert main(["train", *text, *options, "--out", str(out)]) == 1
    missing = ["--source", str(tmp_path / "missing"), "--target", files[1]]
    assert main(["train", *missing, *options, "--out", str(out), "--force"]) == 1
    assert (out / "model.weights.h5").read_bytes() == weights
    check_out(argparse.Namespace(out=str(out), force=True, resume=False))
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(ValueError, match="holds a run but no state to go on from; add --force"):
        check_out(argparse.Namespace(out=str(out), force=False, resume=True))


def test_a_run_goes_on_and_its_epochs_are_averaged(smallest, files, tmp_path, capfd):
    out, mean = tmp_path / "run", str(tmp_path / "mean")
    text = ["--source", files[0], "--target", files[1]]
    valid = ["--valid-source", files[0], "--valid-target", files[1]]
    options = ["--vocab-size", "300", "--batch-tokens", "256", "--quiet", "--out", str(out)]
    options += ["--precision", "float32", "--micro-batches", "2", "--bpe-dropout", "0.1"]
    options += ["--r-drop", "1", "--r-drop-delay", "1", "--ema", "0.9"]
    options += ["--clip-norm", "1", "--early-stopping", "9"]
    train = ["train", *text, *valid, *options, "--resume"]
    (out / "logs").mkdir(parents=True)
    assert main([*train, "--epochs", "1"]) == 1  # it may be the logs of something else
    (out / "tokenizer.model").touch()  # what a run leaves that is stopped in its first epoch
    assert main([*train, "--epochs", "1", "--keep", "1"]) == 0
    assert main([*train, "--epochs", "2", "--average", "2", "--keep", "1"]) == 0
    assert "going on after epoch 1" in capfd.readouterr().err
    assert [path.name[:11] for path in sorted((out / "checkpoints").glob("epoch*"))] == [
        "epoch-00001",
        "epoch-00002",
    ]
    assert main(["average", str(out), mean, "--last", "2"]) == 0
    assert capfd.readouterr().out == "averaged epoch-00001, epoch-00002\n"
    one, other = (load_run(path)[0].get_weights() for path in (out, mean))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    (out / "checkpoints" / "epoch-00001.weights.h5").unlink()
    assert main(["average", str(out), str(tmp_path / "other"), "--last", "2"]) == 1
    assert (
        "is not there; average fewer epochs, or train with a larger --keep"
        in capfd.readouterr().err
    )
    assert main(["average", str(out), mean, "--best", "1"]) == 1
    assert "is not empty; name a new directory" in capfd.readouterr().err
    assert main([*train, "--r-drop", "0"]) == 1
    assert "--r-drop-delay needs R-Drop; add --r-drop 5." in capfd.readouterr().err


def test_options_of_the_text_reach_its_readers(files, sentences, monkeypatch, capsys):
    asked = []

    def read_tfds(name, *, split="train", errors="strict"):
        asked.append((name, split, errors))
        if split == "validation":
            raise CorpusError("no such split")
        return Corpus(["a"], ["b"], {})

    monkeypatch.setattr(training_text, "read_tfds", read_tfds)
    train = ["train", "--out", "unused"]
    options = build_parser().parse_args([*train, "--tfds", "set", "--errors", "skip"])
    assert read_texts(options).valid is None
    assert asked == [("set", "train", "skip"), ("set", "validation", "skip")]
    assert "no text to validate on (no such split); name some with" in capsys.readouterr().err
    valid = ["--valid-source", files[0], "--valid-target", files[1]]
    options = build_parser().parse_args([*train, "--synthetic", "--num-pairs", "9", *valid])
    texts = read_texts(options)
    assert len(texts.train.sources) == 9 and texts.valid.sources == sentences[0]


def tensorboard_tags(directory):
    from tensorflow.python.summary.summary_iterator import summary_iterator

    tags = set()
    for path in directory.rglob("events.out.*"):
        for event in summary_iterator(str(path)):
            tags |= {value.tag for value in event.summary.value}
    return tags


def test_native_logs_and_closed_pipes_are_quiet(run):
    command = f"yes 'a dog runs' | {sys.executable} -m keras_transformer translate {run} | head -2"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.stdout == "ein Hund rennt\n" * 2
    assert result.stderr == ""
