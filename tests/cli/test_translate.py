"""`translate` and `score` on files: their formats, their order, and going on where they stopped."""

import io
import json
import os
import random
import re
import sys
from types import SimpleNamespace

import pytest

from keras_transformer.cli import main
from keras_transformer.commands.lines import batches
from keras_transformer.commands.lines.batches import answered, in_windows
from keras_transformer.commands.lines.journal import Journal
from keras_transformer.commands.values import Shard
from keras_transformer.training.run_record import RunRecord

LINES = [f"line {i} " + "x" * (7 * i % 31) for i in range(100)] + ["", " ", "a ||| b", "ä\u2028b"]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(batches, "LINES", 10)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    return str(path)


@pytest.fixture
def answers(echo):
    """Lets the model answer with other fields than `echo` does."""

    def give(**fields):
        def ask(columns):
            return [{"source_cut": False, **fields} for _ in next(iter(columns.values()))]

        echo.ask = ask

    return give


def stop_at(model, number):
    """Lets the model fail when it is asked for the last line of a window for the n-th time."""
    ask, asked = model.ask, []

    def failing(columns):
        asked.append(columns)
        if len(asked) == number:
            raise RuntimeError("stopped")
        return ask(columns)

    model.ask = failing
    return lambda: setattr(model, "ask", ask)


def test_each_line_of_a_file_is_one_line_in_its_place(run, source, echo, capsysbinary):
    assert main(["translate", run, "--input", source]) == 0
    assert capsysbinary.readouterr().out.decode() == "".join(f"{line}\n" for line in LINES)
    for columns in echo.calls:  # of similar length within a window of ten
        lengths = [len(text) for text in columns["text"]]
        assert lengths == sorted(lengths, reverse=True) and len(lengths) <= 2


def test_windows_are_read_when_they_are_needed(echo):
    read = []
    rows = ((read.append(i) or [str(i)], False) for i in range(1000))
    done = answered(in_windows(rows, ["text"]), echo)
    for number, (window, found) in enumerate(done, start=1):
        assert [answer["translation"] for answer in found] == window.columns["text"]
        assert len(read) <= 10 * (number + 3)
    assert len(read) == 1000


def test_long_lines_make_small_windows(monkeypatch):
    monkeypatch.setattr(batches, "CHARACTERS", 100)
    rows = [(["x" * 60], False)] * 5
    assert [len(window.line_cut) for window in in_windows(rows, ["text"])] == [2, 2, 1]


def test_empty_files_give_empty_outputs(run, tmp_path, echo, capsysbinary):
    (tmp_path / "empty").touch()
    output = tmp_path / "out"
    assert (
        main(["translate", run, "--input", str(tmp_path / "empty"), "--output", str(output)]) == 0
    )
    assert output.read_bytes() == b"" and not (tmp_path / "out.journal").exists()


def test_what_was_stopped_goes_on_and_ends_the_same(run, source, echo, tmp_path, capsys):
    """Stopped anywhere, and torn anywhere: output, journal or both."""
    rng = random.Random(0)
    whole, output = tmp_path / "whole", tmp_path / "out"
    journal = tmp_path / "out.journal"
    arguments = ["translate", run, "--input", source, "--json", "--output"]
    assert main([*arguments, str(whole)]) == 0
    for _ in range(25):
        go_on = stop_at(echo, rng.randint(1, 50))
        assert main([*arguments, str(output)]) == 1
        go_on()
        assert "stopped" in capsys.readouterr().err
        there = [path for path in (output, journal) if path.exists()]
        assert len(there) in (0, 2)  # none before the first answers
        assert not there or whole.read_bytes().startswith(output.read_bytes())
        for path in rng.sample(there, rng.randint(0, len(there))):
            os.truncate(path, rng.randint(0, path.stat().st_size))
        done = output.read_bytes().count(b"\n") if there else 0
        echo.calls.clear()
        assert main([*arguments, str(output), "--batch-size", "3"]) == 0
        asked = sum(len(columns["text"]) for columns in echo.calls)
        assert output.read_bytes() == whole.read_bytes() and not journal.exists()
        assert asked >= len(LINES) - done
        output.unlink()
        capsys.readouterr()


def test_only_what_was_not_done_is_done(run, source, echo, tmp_path, capsys):
    output = str(tmp_path / "out")
    arguments = ["translate", run, "--input", source, "--output", output]
    go_on = stop_at(echo, 36)
    assert main(arguments) == 1
    go_on(), echo.calls.clear()
    with open(output, "ab") as file:
        file.write(b"half of a li")
    assert main(arguments) == 0
    done = int(re.search(r"going on after line (\d+)", capsys.readouterr().err)[1])
    assert done >= 20
    assert sum(len(columns["text"]) for columns in echo.calls) == len(LINES) - done


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda files, arguments: files["source"].write_text("other\n"), "not with the same text;"),
        (lambda files, arguments: files["manifest"].write_text("2"), "not with the same model;"),
        (lambda files, arguments: arguments.append("--scores"), "the same options;"),
        (lambda files, arguments: files["out"].write_text("other " * 99), "was altered"),
    ],
)
def test_another_beginning_is_not_gone_on_with(run, source, echo, tmp_path, capsys, change, named):
    output = tmp_path / "out"
    arguments = ["translate", run, "--input", source, "--output", str(output)]
    go_on = stop_at(echo, 36)
    assert main(arguments) == 1
    go_on(), capsys.readouterr()
    files = {"source": tmp_path / "source.txt", "manifest": tmp_path / "run/manifest.json"}
    change({**files, "out": output}, arguments)
    before = output.read_bytes()
    assert main(arguments) == 1
    message = capsys.readouterr().err
    assert named in message and str(tmp_path / "out.journal") in message
    assert output.read_bytes() == before
    (tmp_path / "out.journal").unlink()
    assert main(arguments) == 0


@pytest.mark.parametrize("source_is", ["a file", "a pipe"])
def test_what_was_there_stays_until_the_first_answers(
    run, source, echo, tmp_path, capsys, source_is
):
    output, arguments = tmp_path / "out", ["translate", run, "--input", source, "--output"]
    output.write_text("of hours\n")
    go_on = stop_at(echo, 1)
    if source_is == "a pipe":
        arguments[3] = str(tmp_path / "pipe")
        os.mkfifo(arguments[3])
        if (child := os.fork()) == 0:
            with open(arguments[3], "wb") as to:
                to.write(b"a line\n")
            os._exit(0)
    assert main([*arguments, str(output)]) == 1
    assert f"note: {output} is there, and will be replaced" in capsys.readouterr().err
    assert output.read_text() == "of hours\n" and not (tmp_path / "out.journal").exists()
    if source_is == "a pipe":
        os.waitpid(child, 0)
        return
    go_on()
    go_on = stop_at(echo, 1)
    assert main([*arguments, str(tmp_path / "new")]) == 1 and not (tmp_path / "new").exists()
    go_on()
    assert main([*arguments, str(output)]) == 0
    assert output.read_text("utf-8") == "".join(f"{line}\n" for line in LINES)


def test_a_journal_of_no_lines_stops_nobody(run, source, echo, tmp_path):
    (tmp_path / "out.journal").write_text('{"format": 1, "text": "other"}\n')
    assert main(["translate", run, "--input", source, "--output", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit(143)])
def test_a_stop_says_how_to_go_on(run, source, echo, tmp_path, capsys, stop):
    output, ask = tmp_path / "out", echo.ask

    def stopping(columns):
        if len(echo.calls) > 30:
            raise stop
        return ask(columns)

    echo.ask = stopping
    arguments = ["translate", run, "--input", source, "--output", str(output)]
    try:
        assert main(arguments) == 1
    except SystemExit as end:
        assert end.code == 143
    done = output.read_bytes().count(b"\n")
    assert done and f"{output}: stopped after line {done}; the same" in capsys.readouterr().err


def test_a_full_disk_is_named(run, source, echo, capsys):
    for output in ([], ["--output", "/dev/full"]):
        with open("/dev/full", "w") as full:
            if not output:
                sys.stdout, before = full, sys.stdout
            try:
                assert main(["translate", run, "--input", source, *output]) == 1
            finally:
                if not output:
                    sys.stdout = before
        name = "/dev/full" if output else "standard output"
        assert f"{name} could not be written (No space left" in capsys.readouterr().err


def test_a_closed_output_is_no_success(run, source, echo, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["translate", run, "--input", source]) == 1
    sys.stdout.close()  # the null device, which stands for it
    assert "standard output is closed; name a file by --output" in capsys.readouterr().err


def test_a_window_takes_about_as_long_whatever_the_speed(monkeypatch):
    monkeypatch.setattr(batches, "LINES", 8192)
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(batches, "time", clock)
    for rate, lines in ((5, 150), (100, 3000), (0.1, 128), (10_000, 8192)):
        pace = batches.Pace()
        windows = in_windows(iter([(["a line"], False)] * 40_000), ["text"], pace)
        for expected in (1024, lines, lines):
            assert len(window := next(windows).line_cut) == expected
            clock.now += len(window) / rate
            pace.finished(len(window))


def test_two_processes_do_not_write_one_file(tmp_path):
    with Journal(tmp_path / "out", {}).writing() as journal:
        journal.write(b"a\n", 1, {})
        place = (tmp_path / "out.journal").stat().st_ino
        with pytest.raises(ValueError, match="out: another process is writing it"):
            with Journal(tmp_path / "out", {}).writing():
                pass
        # The other one still writes to the journal that is there.
        assert (tmp_path / "out.journal").stat().st_ino == place
    assert (tmp_path / "out").read_bytes() == b"a\n"


@pytest.mark.parametrize("count, form", [(3, []), (7, ["--nbest", "2"])])
def test_parts_joined_are_the_bytes_of_the_whole(run, source, echo, tmp_path, count, form):
    if form:  # each line begins with the line's number
        ask = echo.ask

        def ask_several(columns):
            fields = {"scores": [-1.0, -2.0], "ended": [True, True]}
            return [
                {"source_cut": False, "translations": [answer["translation"]] * 2, **fields}
                for answer in ask(columns)
            ]

        echo.ask = ask_several
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("".join(f"{i}\n" for i in range(len(LINES))))
    arguments = ["translate", run, "--input", source, "--prefix-file", str(prefixes), *form]
    arguments += ["--quiet", "--output"]
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    asked = len(echo.calls)
    joined = b""
    for index in range(1, count + 1):
        part = tmp_path / f"part-{index}"
        assert main([*arguments, str(part), "--shard", f"{index}/{count}"]) == 0
        joined += part.read_bytes()
    assert joined == (tmp_path / "whole").read_bytes()
    pairs = [pair for call in echo.calls[asked:] for pair in zip(*call.values(), strict=True)]
    assert sorted(pairs) == sorted((line, str(i)) for i, line in enumerate(LINES))


def test_parts_are_all_lines_in_order():
    for total in (0, 1, 5, 64, 1001):
        for count in (1, 2, 7, 64, 100):
            parts = [Shard(index, count).lines(total) for index in range(1, count + 1)]
            assert [line for part in parts for line in part] == list(range(total))
            assert {len(part) for part in parts} <= {total // count, -(-total // count)}


def test_a_part_that_was_stopped_goes_on_and_is_no_other_part(run, source, echo, tmp_path, capsys):
    whole, output = tmp_path / "whole", tmp_path / "out"
    arguments = ["translate", run, "--input", source, "--output"]
    assert main([*arguments, str(whole)]) == 0
    half = [*arguments, str(output), "--shard"]
    go_on = stop_at(echo, 25)
    assert main([*half, "2/2"]) == 1
    go_on(), echo.calls.clear(), capsys.readouterr()
    done = output.read_bytes().count(b"\n")
    assert main([*half, "1/2"]) == 1
    assert "not with the same options" in capsys.readouterr().err
    assert main([*half, "2/2"]) == 0
    captured = capsys.readouterr()
    assert f"part 2 of 2: lines {len(LINES) // 2 + 1} to {len(LINES)}" in captured.err
    assert output.read_bytes() == b"".join(whole.read_bytes().splitlines(True)[len(LINES) // 2 :])
    assert 0 < done == len(LINES) // 2 - sum(len(columns["text"]) for columns in echo.calls)


def test_a_part_needs_files(run, source, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command, part = ["translate", run, "--shard", "1/2"], ["--output", str(tmp_path / "part")]
    assert main([*command, *part]) == 1 and main([*command, "--input", source]) == 1
    assert capsys.readouterr().err.count("--shard needs --input and --output") == 2
    assert main([*command, *part, "--input", str(pipe)]) == 1
    assert f"--input {pipe} is none" in capsys.readouterr().err
    for wrong in ("0/2", "3/2", "1", "1/", "a/b", "-1/2", "1/2/3", "\u0661/2"):
        with pytest.raises(SystemExit):
            main(["translate", run, f"--shard={wrong}"])
        assert f"must be I/N with I from 1 to N, such as 1/8, but is {wrong}" in (
            capsys.readouterr().err
        )


def test_pipes_are_read_once_and_not_gone_on_with(run, source, echo, tmp_path):
    output = tmp_path / "out"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if (child := os.fork()) == 0:
        with open(source, "rb") as file, open(pipe, "wb") as to:
            to.write(file.read())
        os._exit(0)
    assert main(["translate", run, "--input", str(pipe), "--output", str(output)]) == 0
    os.waitpid(child, 0)
    assert output.read_text("utf-8") == "".join(f"{line}\n" for line in LINES)


@pytest.mark.parametrize(
    "options, expected",
    [
        ([], ["eins"]),
        (["--scores"], ["eins ||| -0.5000"]),
        (["--nbest", "2"], ["0 ||| eins", "0 ||| zwei"]),
        (["--nbest", "2", "--scores"], ["0 ||| eins ||| -0.5000", "0 ||| zwei ||| -0.7500"]),
        (["--alignments"], ["eins ||| 0-0 1-2"]),
        (["--alignments", "--scores"], ["eins ||| 0-0 1-2 ||| -0.5000"]),
        (
            ["--nbest", "2", "--json"],
            [
                {
                    "translations": ["eins", "zwei"],
                    "scores": [-0.5, -0.75],
                    "ended": [True, False],
                    "source_cut": False,
                }
            ],
        ),
        (
            ["--alignments", "--json"],
            [
                {
                    "translation": "eins",
                    "score": -0.5,
                    "alignment": "0-0 1-2",
                    "source_pieces": ["a"],
                    "target_pieces": ["b"],
                    "ended": True,
                    "source_cut": False,
                }
            ],
        ),
    ],
)
def test_formats(run, tmp_path, answers, capsys, options, expected):
    text = tmp_path / "one.txt"
    text.write_text("x\n")
    if "--nbest" in options:
        several = ["eins", "zwei", "drei"], [-0.5, -0.75, -1.0], [True, False, True]
        answers(**dict(zip(("translations", "scores", "ended"), several, strict=True)))
    else:
        pieces = (
            {"source_pieces": ["a"], "target_pieces": ["b"]} if "--alignments" in options else {}
        )
        aligned = {"alignment": [(0, 0), (1, 2)], **pieces} if pieces else {}
        answers(translation="eins", score=-0.5, ended=True, **aligned)
    assert main(["translate", run, "--input", str(text), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) if "--json" in options else line for line in lines] == expected


def test_an_object_is_one_line_for_every_reader(run, tmp_path, answers, capsys):
    (tmp_path / "one.txt").write_text("x\n")
    text = "a\nb\u2028c\x85d\x9b2J\x1b"
    answers(translation=text, score=-0.123456789, ended=True)
    assert main(["translate", run, "--input", str(tmp_path / "one.txt"), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["translation"] == text
    assert json.loads(line)["score"] == pytest.approx(-0.123456789, abs=1e-6)


def test_what_was_cut_or_hit_a_limit_is_counted_and_marked(run, source, answers, capsys):
    answers(translation="x", score=-1.0, ended=False, source_cut=True)
    assert main(["translate", run, "--input", source, "--json"]) == 0
    captured = capsys.readouterr()
    count = len(LINES)
    assert f"note: {count} of {count} lines are cut" in captured.err
    assert f"note: {count} of {count} translations end at a limit of their length" in captured.err
    assert "has learnt little, or its targets are longer than that\n" in captured.err
    assert all(json.loads(line)["source_cut"] for line in captured.out.splitlines())


def test_bytes_that_are_not_utf8_are_counted(run, echo, tmp_path, monkeypatch, capsysbinary):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9\nthe\xe9 \xe9\ntea\n")
    assert main(["translate", run, "--input", str(path)]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out.decode() == "caf\ufffd\nthe\ufffd \ufffd\ntea\n"
    note = b"note: 2 of 3 lines have U+FFFD, which stands for bytes that are not UTF-8; convert"
    assert note in captured.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert main(["translate", run]) == 0
    assert note in capsysbinary.readouterr().err
    path.write_bytes("tea\u4f60\n".encode())
    assert main(["translate", run, "--input", str(path)]) == 0
    assert b"UTF-8" not in capsysbinary.readouterr().err


def test_prefixes_go_with_their_lines(run, source, echo, tmp_path, translate, capsysbinary):
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("".join(f"{i}\n" for i in range(len(LINES))))
    both = ["--input", source, "--prefix-file", str(prefixes)]
    assert main(["translate", run, *both]) == 0
    pairs = [pair for call in echo.calls for pair in zip(*call.values(), strict=True)]
    assert sorted(pairs) == sorted((line, str(i)) for i, line in enumerate(LINES))
    prefixes.write_text("1\n2\n")
    assert main(["translate", run, *both]) == 1
    assert f"source.txt has {len(LINES)} lines, but" in capsysbinary.readouterr().err.decode()
    assert translate(b"a\nb\n", run, "--prefix-file", str(prefixes)) == (0, b"a\nb\n")
    assert echo.calls[-1]["prefix"] == ["1", "2"]
    assert translate(b"a\nb\nc\n", run, "--prefix-file", str(prefixes))[0] == 1


@pytest.mark.parametrize(
    "options, message",
    [
        (["--nbest", "5", "--beam-size", "4"], "--nbest must be at most --beam-size 4, but is 5"),
        (["--nbest", "2", "--search", "greedy"], "--nbest needs a beam search"),
        (["--nbest", "2", "--sample"], "--nbest needs a beam search"),
        (["--nbest", "2", "--alignments"], "leave out --nbest"),
        (["--sample", "--beam-size", "2"], "--beam-size is no option of --sample"),
        (["--top-k", "2"], "--top-k needs --sample; add it"),
        (["--output", "SOURCE", "--input", "SOURCE"], "would replace what --input reads"),
    ],
)
def test_options_that_exclude_one_another(run, source, capsys, options, message):
    options = [source if option == "SOURCE" else option for option in options]
    assert main(["translate", run, *options]) == 1
    assert message in capsys.readouterr().err


def test_blank_pairs_have_no_perplexity(run, source, answers, capsys):
    answers(log_prob=0.0, length=0)
    assert main(["score", run, "--source", source, "--target", source]) == 0
    assert "all pairs are blank, so there is no perplexity" in capsys.readouterr().err


def test_scores_and_their_perplexity(run, source, answers, tmp_path, capsys):
    answers(log_prob=-2.0, length=4, token_log_probs=[-0.5] * 4, target_cut=False)
    arguments = ["score", run, "--source", source, "--target", source]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == "-2.0000\n" * len(LINES)
    assert "perplexity 1.65 per token" in captured.err
    output = tmp_path / "scores.jsonl"
    assert main([*arguments, "--json", "--output", str(output)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("perplexity 1.65 per token") and captured.out.count("\n") == 1
    assert json.loads(output.read_text().split("\n")[0])["token_log_probs"] == [-0.5] * 4
    (tmp_path / "short.txt").write_text("one\n")
    assert main([*arguments[:-1], str(tmp_path / "short.txt")]) == 1
    assert "short.txt has 1; line n of one" in capsys.readouterr().err


def test_evaluate_scores_with_the_tokenizer_of_the_run(run, echo, tmp_path, capsys):
    text = tmp_path / "zh.txt"
    text.write_text("猫吃鱼，狗在街上跑。\n" * 5, "utf-8")
    arguments = ["evaluate", run, "--source", str(text), "--target", str(text), "--quiet"]
    note = (
        "note: by --bleu-tokenize 13a only 0 of 5 references have four words, so BLEU says little"
    )
    for recorded, typed, used in (
        (None, [], "13a"),
        ("zh", [], "zh"),
        ("zh", ["--bleu-tokenize", "13a"], "13a"),
    ):
        if recorded:
            RunRecord({"bleu_tokenize": recorded}, {}, {}, "float32").write(run)
        assert main([*arguments, *typed]) == 0
        captured = capsys.readouterr()
        assert f"|tok:{used}|" in captured.out and (note in captured.err) is (used == "13a")
