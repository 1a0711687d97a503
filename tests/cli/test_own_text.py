"""Own text and what a run says: tokenizers, several files, splits, progress, disk, history."""

import json
import os
from types import SimpleNamespace

import pytest

from keras_transformer import Tokenizer, presets
from keras_transformer.cli import main
from keras_transformer.commands import progress
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.progress import Progress, duration, stage
from keras_transformer.commands.training_run.disk_space import default_keep, size
from keras_transformer.commands.training_run.progress import Plan, ShowTraining
from keras_transformer.commands.training_run.text import read_texts, split_texts
from keras_transformer.data.corpus import Corpus
from keras_transformer.training.run_record import RunRecord


@pytest.mark.slow
def test_a_tokenizer_keeps_symbols_whole_and_trains_a_run(
    files, sentences, tmp_path, monkeypatch, capsys
):
    path, out, tsv = tmp_path / "t.model", tmp_path / "run", tmp_path / "valid.tsv"
    symbols = ["<en>", "<New York>", "\u2581"]
    arguments = ["--text", *files, "--vocab-size", "300", "--coverage", "0.99"]
    assert main(["tokenizer", *arguments, "--out", str(path), "--symbols", *symbols]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    tokenizer = Tokenizer.load(path)
    for symbol in symbols:
        ids = tokenizer.tokenize([f"x{symbol}y"]).to_list()[0]
        assert len(ids) == len(tokenizer.tokenize(["xy"]).to_list()[0]) + 1
        assert tokenizer.detokenize([ids]).numpy()[0].decode() == f"x{symbol}y"
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.1}
    monkeypatch.setattr(presets, "TINY", sizes)
    tsv.write_text("\n".join("\t".join(pair) for pair in zip(*sentences, strict=True)), "utf-8")
    text = ["--source", files[0], files[0], "--target", files[1], files[1]]
    options = ["--valid-tsv", str(tsv), "--metric", "chrf", "--epochs", "1", "--num-heads", "4"]
    options += ["--precision", "float32", "--tokenizer", str(path), "--out", str(out)]
    assert main(["train", *text, *options]) == 0
    printed = capsys.readouterr().err
    for line in ("reading the text", "loading the vocabulary", "building the model", "first step"):
        assert line in printed
    assert "epoch 1/1: loss " in printed and "* new best" in printed and "disk: at most" in printed
    record = RunRecord.read(out)
    assert list(record.texts) == ["source", "source_2", "target", "target_2", "valid_tsv"]
    assert record.options["num_heads"] == 4 and record.options["source"] == [files[0]] * 2
    (epoch,) = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert {"epoch", "loss", "val_loss", "perplexity", "val_bleu", "val_chrf"} < set(epoch)
    assert {"learning_rate", "seconds", "tokens_per_second"} < set(epoch)
    assert record.kept["value"] == epoch["val_chrf"] and record.kept["epoch"] == 1
    assert record.kept["metric"] == "chrf" and record.kept["signature"].startswith("nrefs:1|")
    assert record.kept["why"] == "the best chrF of 1 epoch on the validation text"
    assert (out / "tokenizer.model").read_bytes() == path.read_bytes()
    os.remove(path)
    assert main(["train", "--resume", "--out", str(out)]) == 0  # it is finished


@pytest.mark.parametrize("symbols", [[""], [" a"], ["a", "a"], ["</s>"], ["<0x41>"], ["a\0b"]])
def test_a_symbol_that_cannot_stay_whole_is_refused(symbols):
    with pytest.raises(ValueError, match=r"user_symbols\[\d\]"):
        Tokenizer.train_on_texts(["a dog"] * 9, vocab_size=300, user_symbols=symbols)
    with pytest.raises(ValueError, match=r"coverage must be a number in \(0, 1\], but is 2"):
        Tokenizer.train_on_texts(["a dog"] * 9, vocab_size=300, coverage=2)


def test_a_split_holds_out_what_training_never_sees():
    corpus = Corpus([f"s{i % 40}" for i in range(100)], [f"t{i}" for i in range(100)], {"empty": 1})
    train, valid = split_texts(corpus, 5, seed=3)
    assert len(valid.sources) == 5 and not set(valid.sources) & set(train.sources)
    assert sum(train.skipped.values()) - 1 + len(train.sources) + 5 == 100
    assert split_texts(corpus, 5, seed=3).valid == valid != split_texts(corpus, 5, seed=4).valid
    with pytest.raises(ValueError, match="--valid-split 100 leaves nothing of 100 pairs"):
        split_texts(corpus, 100, seed=0)


def test_several_files_are_read_as_one(files):
    train = ["train", "--out", "x", "--valid-split", "2"]
    text = ["--source", files[0], "--source", files[0], "--target", files[1], files[1]]
    options = build_parser().parse_args([*train, *text])
    assert options.source == [files[0]] * 2
    texts = read_texts(options)
    assert len(texts.valid.sources) == 2 and texts.train.skipped


def test_a_log_has_a_line_now_and_then_and_none_if_quiet(monkeypatch, capsys):
    with Progress("copying", 200, "files") as work:
        work.advance(50)
        assert work._line().startswith("copying: 50 of 200 files (25%), ")
        assert " files/s, " in work._line() and work._line().endswith("left")
    with stage("reading"), stage("writing", quiet=True):
        pass
    assert capsys.readouterr().err == "reading\n"
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.001)
    lines = iter([])
    with Progress("waiting"):
        while "waiting, " not in "".join(lines):
            lines = capsys.readouterr().err
    assert not progress.is_terminal()


def test_a_bar_begins_where_an_earlier_start_has_stopped(monkeypatch):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)
    with Progress("epoch 1/2", 100, "steps", done=40, quiet=True) as work:
        clock.now = 5.0
        work.advance(10)
        assert work._line() == "epoch 1/2: 50 of 100 steps (50%), 2.0 steps/s, 25 s left"


def test_a_plan_counts_the_epochs_to_come():
    options = SimpleNamespace(epochs=3, max_steps=None, valid_steps=None)
    assert Plan.of(options, num_batches=10) == (10, 30, False)
    options.max_steps, options.valid_steps = 7, 4
    assert Plan.of(options, num_batches=10) == (4, 7, True)
    plan = Plan(epoch_steps=8, total_steps=30)
    assert [plan.epochs_left(steps) for steps in (0, 1, 24, 30, 40)] == [4, 4, 1, 0, 0]


@pytest.mark.parametrize("is_by_steps, name", [(False, "epoch 2/4"), (True, "step 16/30")])
def test_a_training_by_steps_says_its_steps(is_by_steps, name, capsys):
    checkpoint = SimpleNamespace(step=0, total_steps=8)
    best = SimpleNamespace(monitor="val_bleu", epoch=2, best=4.0)
    shown = ShowTraining(Plan(8, 30, is_by_steps), checkpoint, best)
    shown.set_params({"epochs": 4})
    shown.on_train_begin()
    shown.on_epoch_begin(1)
    for step in range(1, 9):
        checkpoint.step, checkpoint.total_steps = step, 8 + step
        shown.on_train_batch_end(step - 1, {"loss": 2.0})
    assert shown.progress.done == shown.progress.total == 8
    assert shown.progress.what == name
    checkpoint.step = 0
    shown.on_epoch_end(1, {"loss": 2.0, "val_bleu": 5.0})
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"{name}: loss 2.000, BLEU 5.0, ") and line.endswith(" left in all")
    assert "* new best" in line
    shown.value_before = 5.0
    shown.on_epoch_end(1, {"loss": 2.0, "val_bleu": 5.0})
    assert "* as good as the best" in capsys.readouterr().err
    shown.set_model(SimpleNamespace(stop_training=True))
    shown.on_epoch_end(1, {"loss": 2.0})
    assert "left in all" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "seconds, text",
    [(0.04, "40 ms"), (1.3, "1.3 s"), (42, "42 s"), (185, "3 min"), (7500, "2 h 5 min")],
)
def test_times_are_written_as_people_do(seconds, text):
    assert duration(seconds) == text


def test_large_models_keep_fewer_epochs():
    assert default_keep(3_000_000) == 10 and default_keep(210_000_000) == 2
    assert (size(812), size(3_400_000_000), size(2e15)) == ("812 bytes", "3.4 GB", "2e+03 TB")
