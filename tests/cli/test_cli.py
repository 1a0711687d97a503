"""The command line: exit codes, one clear line for an error, one line out for one line in."""

import errno
import gzip
import io
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer import Translator
from keras_transformer.checks import check_directory, check_new_file
from keras_transformer.cli import _exit_when_terminated, _reopen_closed_streams, main
from keras_transformer.commands.lines.reading import arriving_lines, decode
from keras_transformer.commands.messages import error_line, one_line
from keras_transformer.commands.options import SEARCH
from keras_transformer.files import write_text
from keras_transformer.inference.run_directory import save_run
from keras_transformer.version_directory import write_version


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


def test_help_is_immediate_and_names_every_command():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = subprocess.run(
            [sys.executable, "-m", "keras_transformer", "--help"], capture_output=True, text=True
        )
        times.append(time.perf_counter() - start)
    assert result.returncode == 0
    for command in (
        "demo",
        "train",
        "translate",
        "score",
        "evaluate",
        "inspect",
        "average",
        "export",
    ):
        assert command in result.stdout
    assert min(times) < 0.3


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "give a command; see keras-transformer --help"),
        (["fly"], "there is no command 'fly'; see"),
        (["trian"], r"no command 'trian' \(did you mean train\?\)"),
        (["train"], "--out must be given"),
        (["train", "--otu", "x"], r"no option --otu \(did you mean --out\?\); see .* train --help"),
        (
            ["translate", "x", "--precision", "int8"],
            "no option --precision, which is .* train, export",
        ),
        (["translate", "x", "--beam", "3"], r"no option --beam \(did you mean --beam-size\?\)"),
        (["--verbose", "translate", "x"], "no option --verbose"),
        (["translate", "x", "a dog"], "a dog is one argument too many"),
        (["train", "--out"], "--out needs a value"),
        (["train", "--out", "x", "--resume=3"], "--resume takes no value, but got 3"),
        (["average", "x", "y"], "give one of --last --best"),
        (["average", "x", "y", "--last", "1", "--best", "1"], "exclude each other"),
        (
            ["train", "--out", "x", "--epochs", "0"],
            "--epochs must be an integer of at least 1, but is 0",
        ),
        (["train", "--out", "x", "--seed", "-1"], "--seed must be an integer in .*but is -1"),
        (["train", "--out", "x", "--dropout", "1"], r"must be a number in \[0, 1\), but is 1"),
        (
            ["train", "--out", "x", "--preset", "huge"],
            "--preset must be one of tiny, small, base, big, but is huge",
        ),
        (
            ["translate", "x", "--beam-size", "many"],
            "--beam-size must be an integer of at least 1, but is many",
        ),
        (["translate", "x", "--length-penalty", "-1"], r"--length-penalty must be .* in \[0, 10\]"),
        (["translate", "x", "--length-penalty", "11"], r"must be a number in \[0, 10\], but is 11"),
        (
            ["translate", "x", "--coverage-penalty", "100"],
            r"must be a number in \[0, 100\), but",
        ),
        (
            ["translate", "x", __file__],
            r"needs an option before it \(did you mean --input",
        ),
        (["evaluate", "x", "--source", "y"], "--target must be given"),
    ],
)
def test_bad_usage_exits_with_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    line = capsys.readouterr().err
    assert re.search(message, line)
    assert line.count("\n") == 1 and "--help" in line and "argument " not in line.split("see")[1]


def test_failures_exit_with_1_and_one_line(capsys, tmp_path, files, run, monkeypatch):
    out = ["--out", str(tmp_path / "run")]
    missing = str(tmp_path / "missing.txt")
    short = tmp_path / "short.txt"
    short.write_text("one line\n")
    pair = ["--source", files[0], "--target", files[1]]
    cases = [
        (["train", *out], "give one text: --source with --target, --tsv, --store, --tfds or"),
        (["train", *out, "--source", files[0]], "--target is missing"),
        (["train", *out, "--synthetic", "--tsv", files[0]], "give one text"),
        (["train", *out, "--source", missing, "--target", files[1]], "missing.txt"),
        (["train", *out, "--source", files[0], "--target", str(short), "--quiet"], "6.*1"),
        (["train", "--out", run, "--synthetic"], "holds a run already; name another, or add"),
        (["train", "--out", str(short), "--synthetic"], "is a file; name another directory"),
        (["train", "--out", f"{short}/x", *pair], "short.txt is a file; name another directory"),
        (["train", *out, *pair, "--r-drop-delay", "3"], "--r-drop-delay needs R-Drop; add"),
        (["train", *out, *pair, "--early-stopping", "3"], "needs a score to watch; name text with"),
        (["train", *out, *pair, "--plots"], "--plots needs a sentence to draw; name text with"),
        (["average", run, str(short), "--last", "1"], "OUT.* is a file; name another directory"),
        (["evaluate", run, *pair, "--output", str(tmp_path)], "--output .* is a directory; name a"),
        (
            ["evaluate", run, *pair, "--output", f"{missing}/x"],
            "there is no directory",
        ),
        (["train", "--out", str(tmp_path), "--synthetic"], "holds other files"),
        (["translate", missing], "does not exist"),
        (
            ["translate", run, "--min-length", "9", "--max-length", "5"],
            "--min-length 9 is more than --max-length 5; give a larger --max-length",
        ),
        (
            ["train", *out, *pair, "--tokenizer", str(short)],
            "--tokenizer .*short.txt: The tokenizer is not a SentencePiece model; give a file",
        ),
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


def test_no_epoch_is_best_without_validation(run, tmp_path, monkeypatch, capsys):
    history = [{"loss": 2.0}, {"loss": 1.0}]
    monkeypatch.setattr("keras_transformer.commands.average.read_history", lambda path: history)
    assert main(["average", run, str(tmp_path / "mean"), "--best", "2"]) == 1
    message = capsys.readouterr().err
    assert "was trained without text to validate on" in message and "give --last 2" in message
    assert not (tmp_path / "mean").exists()


def test_more_epochs_than_there_are_cannot_be_averaged(tmp_path, capsys):
    run = Path(__file__).parents[1] / "inference" / "formats" / "3"  # it has one epoch
    assert main(["average", str(run), str(tmp_path / "mean"), "--last", "40"]) == 1
    assert "formats/3 has only 1 epoch, not 40; give at most 1." in capsys.readouterr().err
    assert not (tmp_path / "mean").exists()
    assert main(["average", str(run), str(tmp_path / "mean"), "--last", "1"]) == 0
    assert capsys.readouterr().out == "averaged epoch-00001\n"


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


class Pipe:
    """A stream that has its parts one after another, and has nothing more while one is read."""

    def __init__(self, *parts):
        self.parts = list(parts)

    def read1(self, size):
        return self.parts.pop(0) if self.parts else b""


def test_lines_are_translated_as_they_arrive():
    stream = Pipe(b"a\nb\r\nc", b"d\n", b"e", b"f")
    lines = arriving_lines(stream)
    assert next(lines) == [b"a", b"b\r"] and len(stream.parts) == 3
    assert next(lines) == [b"cd"] and len(stream.parts) == 2
    assert list(lines) == [[b"ef"]]
    marked = Pipe(b"\xef\xbb", b"\xbfa\n\xef\xbb\xbfb")  # a mark inside the text is text
    assert list(arriving_lines(marked)) == [[b"a"], [b"\xef\xbb\xbfb"]]
    assert list(arriving_lines(Pipe(b"\xef\xbb\xbf"))) == []
    assert [decode(line) for line in (b"b\r", b"\xff", b"")] == ["b", "\ufffd", ""]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_refused(run, echo, monkeypatch, capsysbinary, encoding):
    data = "a dog runs\na cat sleeps\n".encode(encoding)
    for stream in (io.BytesIO(data), Pipe(*(data[i : i + 1] for i in range(len(data))))):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream, isatty=bool))
        assert main(["translate", run]) == 1
        captured = capsysbinary.readouterr()
        assert captured.out == b"" and captured.err == (
            b"keras-transformer translate: standard input: UTF-16, UTF-32 or binary data; "
            b"convert it to UTF-8 text.\n"
        )


def test_compressed_input_is_refused(run, echo, translate):
    assert translate(gzip.compress(b"a dog\n"), run) == (1, b"")


def test_a_line_without_end_is_not_kept_whole(monkeypatch):
    monkeypatch.setattr("keras_transformer.commands.lines.reading.MAX_LINE_BYTES", 10)
    parts = [b"a\n", *[b"b" * 7] * 1000, b"b\nc\r\nd"]
    lines = sum(arriving_lines(Pipe(*parts)), [])
    assert lines == [b"a", b"b" * 11, b"c\r", b"d"]


@pytest.mark.slow
def test_long_lines_are_translated_from_their_beginning(export, translate):
    data = b"a dog runs" + b" " * (1 << 23) + b"x\na cat sleeps\n"
    code, output = translate(data, export)
    assert code == 0 and output.splitlines() == [b"ein Hund rennt", b"eine Katze schl\xc3\xa4ft"]


def test_control_characters_reach_a_pipe_and_no_terminal(run, echo, monkeypatch, capsysbinary):
    text = "a\x1b]0;owned\x07\x9b2J\x7f\tä"
    for is_terminal in (False, True):
        stream = io.BytesIO(text.encode() + b"\n")
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream, isatty=bool))
        monkeypatch.setattr(sys.stdout, "isatty", lambda answer=is_terminal: answer)
        assert main(["translate", run]) == 0
        shown = r"a\x1b]0;owned\x07\x9b2J\x7f" + "\tä" if is_terminal else text
        assert capsysbinary.readouterr().out.decode() == shown + "\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full here")
def test_a_full_disk_behind_standard_output_is_one_line(run, echo, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"x\n"), isatty=bool))
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main(["translate", run]) == 1
        monkeypatch.undo()
    message = capsys.readouterr().err
    assert "standard output could not be written (No space left on device); make room" in message
    assert message.count("\n") == 1


def test_what_evaluate_and_inspect_write_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="page.html could not be"):
        patch.setattr(os, "fsync", fail)
        write_text(path, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"
    write_text(path, "a\nä")
    assert path.read_bytes() == "a\nä".encode()
    write_text("/dev/null", "to a device")
    assert Path("/dev/null").is_char_device()


def test_an_error_shows_no_control_characters(capsys):
    assert main(["translate", "/\x1b[2Jx"]) == 1
    assert r"/\x1b[2Jx does not exist" in capsys.readouterr().err


def test_an_error_of_tensorflow_is_said_without_the_operation():
    where = "{{function_node __wrapped__SaveV2_dtypes_9_device_/job:localhost/device:CPU:0}} "
    error = tf.errors.ResourceExhaustedError(None, None, f"{where}x/y; No space left [Op:SaveV2]")
    assert error_line(error) == "x/y; No space left"
    assert error_line(ValueError("a\n  b{{c}}")) == "a b{{c}}"
    assert error_line(MemoryError()) == "MemoryError"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--synthetic", "--out", "gs://bucket/run"],
        ["train", "--out", "run", "--source", "s3://b/x.en", "--target", "x.de"],
        ["train", "--out", "run", "--synthetic", "--valid-source", "hdfs://b/x", "--valid-target"],
        ["translate", "gs://bucket/run"],
        ["evaluate", "gs://bucket/run", "--source", "x", "--target", "y"],
        ["evaluate", "run", "--source", "x", "--target", "y", "--output", "gs://b/x"],
        ["inspect", "run", "a dog", "--out", "gs://bucket/page.html"],
        ["average", "run", "gs://bucket/mean", "--last", "2"],
        ["export", "run", "gs://bucket/export"],
        ["export", "run", "export", "--warmup", "gs://bucket/text"],
        ["demo", "--out", "gs://bucket/demo"],
    ],
)
def test_an_address_is_no_path(arguments, tmp_path, monkeypatch, capsys):
    arguments += ["x"] if arguments[-1] == "--valid-target" else []
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert re.search("must be a path of this machine, but is (gs|s3|hdfs)://b.*; copy", message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [check_directory, check_new_file])
def test_an_address_is_no_path_for_python_either(write):
    for path in ("gs://bucket/run", Path("gs://bucket/run")):
        with pytest.raises(ValueError, match="must be a path of this machine, but is gs:/"):
            write("directory", path)
    write("directory", Path("C:x"))


def test_nothing_is_exported_to_a_folder_named_like_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="The place to export to must be a path of this machine"):
        write_version("gs://bucket/models/en-de", lambda path: None)
    assert not list(tmp_path.iterdir())


def test_a_warning_is_one_line(monkeypatch, capsys, tmp_path):
    def run(options):
        warnings.warn("two\nlines", stacklevel=1)

    monkeypatch.setattr("keras_transformer.commands.translate.run", run)
    monkeypatch.setattr("keras_transformer.commands.early_checks.check_early", lambda options: None)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["translate", "x"]) == 0
    assert capsys.readouterr().err == "note: two lines\n"


@pytest.mark.slow
def test_lines_that_are_cut_are_counted(run, monkeypatch, capsysbinary):
    data = " ".join(["dog"] * 40).encode() + b"\na dog" + b" " * 40 + b"\n"
    for limit, noted in (("9", True), ("60", False)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        options = ["--search", "greedy", "--max-length", "9", "--max-source-length", limit]
        assert main(["translate", run, *options]) == 0
        captured = capsysbinary.readouterr()
        assert captured.out.count(b"\n") == 2
        note = b"note: 1 of 2 lines are read up to token 9; give a larger --max-source-length"
        assert (note in captured.err) == noted


def test_termination_is_an_exit_that_cleans_up():
    before = signal.getsignal(signal.SIGTERM)
    cleaned_up = []
    try:
        _exit_when_terminated()
        with pytest.raises(SystemExit) as exit:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                cleaned_up.append(True)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert exit.value.code == 143 and cleaned_up


def test_closed_streams_lead_nowhere(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    _reopen_closed_streams()
    streams = sys.stdin, sys.stdout, sys.stderr
    assert streams[0].read() == "" and streams[1].write("lost") == streams[2].write("lost") == 4
    for stream in streams:
        stream.close()


@pytest.mark.slow
def test_line_separators_inside_a_sentence_do_not_split_it(export, translate):
    _, output = translate("a dog\u2028runs\x0bhome\x85\n".encode(), export)
    assert output.count(b"\n") == 1
    assert one_line("a\nb\r\nc") == "a b  c"


@pytest.mark.slow
def test_search_options_reach_the_search(run, translate, sentences):
    source = "\n".join(sentences[0]).encode()
    options = ["--no-repeat-ngram", "1", "--coverage-penalty", "0.2", "--beam-size", "2"]
    code, no_token_twice = translate(source, run, *options)
    lines = no_token_twice.decode().splitlines()
    assert code == 0 and len(lines) == len(sentences[1])
    assert lines != sentences[1] and all(len(line) < 60 for line in lines)
    long = translate(source, run, "--min-length", "60", "--search", "greedy")[1]
    assert len(long) > 2 * len("\n".join(sentences[1]))


@pytest.mark.slow
def test_export_options_reach_the_export(run, sentences, translate, tmp_path, capsysbinary):
    source = "\n".join(sentences[0]).encode()
    directory = str(tmp_path / "half")
    (tmp_path / "half" / "1").mkdir(parents=True)
    assert main(["export", run, directory + "/1"]) == 1
    assert b"1 exists; add --overwrite, or name" in capsysbinary.readouterr().err
    options = ["--precision", "bfloat16", "--signatures", "score"]
    assert main(["export", run, directory, *options]) == 0
    assert capsysbinary.readouterr().out.decode().strip() == directory + "/2"
    assert set(tf.saved_model.load(directory + "/2").signatures) == {"serving_default", "score"}
    assert main(["export", run, directory, "--signatures", "best"]) == 1
    assert b"signatures must be one of 'serving_default'" in capsysbinary.readouterr().err
    assert translate(source, directory)[1].decode().splitlines() == sentences[1]


@pytest.mark.slow
def test_ctranslate2_is_a_format_of_export(run, tmp_path, capsys):
    pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
    directory = tmp_path / "ct2"
    arguments = ["export", run, str(directory), "--format", "ctranslate2"]
    assert main([*arguments, "--quantization", "int8"]) == 0
    assert (directory / "model.bin").is_file()
    assert main([*arguments, "--precision", "bfloat16", "--overwrite"]) == 1
    assert "ctranslate2 does not take --precision; leave it out" in capsys.readouterr().err
    assert main(["export", run, str(directory), "--quantization", "int8"]) == 1
    assert "savedmodel does not take --quantization; leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--beam-size", "--coverage-penalty"])
def test_an_option_of_a_beam_is_refused_for_greedy_search(option, run, capsys):
    assert main(["translate", run, "--search", "greedy", option, "1"]) == 1
    assert f"{option} needs a beam search; leave it out" in capsys.readouterr().err


def test_the_defaults_in_the_help_are_those_of_the_search(trained, tokenizer):
    helps = {option.name.removeprefix("--"): option.help for option in SEARCH}
    graph = Translator(trained, tokenizer).graph
    for name, default in (
        ("beam-size", graph.strategy.size),
        ("length-penalty", graph.strategy.length_penalty),
        ("coverage-penalty", int(graph.strategy.coverage_penalty)),
        ("max-source-length", graph.max_source_length),
        ("max-length", graph.max_length),
    ):
        assert helps[name].endswith(f"({default})"), name


def test_a_search_is_refused_for_an_export(export, capsys):
    assert main(["translate", export, "--max-length", "5", "--search", "greedy"]) == 1
    assert "its signature translate has the search of the export" in capsys.readouterr().err
    assert main(["translate", export, "--search", "beam", "--beam-size", "3"]) == 1
    assert "a fixed search; leave out --beam-size" in capsys.readouterr().err


@pytest.mark.slow
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


@pytest.mark.slow
def test_native_logs_and_closed_pipes_are_quiet(run):
    command = f"yes 'a dog runs' | {sys.executable} -m keras_transformer translate {run} | head -2"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.stdout == "ein Hund rennt\n" * 2
    assert result.stderr == ""
