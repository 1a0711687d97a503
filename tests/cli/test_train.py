"""`train` and `average`: from files to a run that is whole, goes on, and refuses what it cannot."""

import argparse
import json
import shutil

import numpy as np
import pytest

from keras_transformer import presets
from keras_transformer.cli import main
from keras_transformer.commands import train as train_command
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.text_notes import bleu_note, notes_on
from keras_transformer.commands.train import build_model, chosen_precision
from keras_transformer.commands.training_run import text as training_text
from keras_transformer.commands.training_run.data import TrainingData, num_out_of_reach, report
from keras_transformer.commands.training_run.recipe import Text, choose
from keras_transformer.commands.training_run.resume import check_out
from keras_transformer.commands.training_run.text import Texts, read_texts, split_texts
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.text_lines import CorpusError
from keras_transformer.inference.run_directory import load_run
from keras_transformer.training.run_record import RunRecord


@pytest.fixture
def smallest(monkeypatch):
    """The preset that `train` takes, with fewer numbers."""
    size = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
    monkeypatch.setattr(presets, "TINY", size)
    return size


@pytest.mark.filterwarnings("default:1 of 3 texts are longer than max_source_length")
def test_train_writes_a_run_that_translates(smallest, files, tmp_path, translate, capsysbinary):
    out = tmp_path / "run"
    options = ["--vocab-size", "300", "--epochs", "2", "--batch-tokens", "256", "--quiet"]
    text = ["--source", files[0], "--target", files[1]]
    # Two pairs that no batch takes, the second with too many tokens for a picture, too.
    valid = tmp_path / "valid.en"
    valid.write_text("a dog " * 30 + "\n" + "a dog " * 150 + "\na dog runs\n", "utf-8")
    valid = ["--valid-source", str(valid), "--valid-target", str(valid), "--max-length", "30"]
    long = ["--warmup-steps", "4000"]
    assert main(["train", *text, *valid, *options, *long, "--out", str(out)]) == 0
    printed = capsysbinary.readouterr().err.decode()
    assert "the training ends after 2 steps, within --warmup-steps 4000, before" in printed
    assert "1 validation pair (skipped: 2 more tokens than --max-length)" in printed
    assert "translates next to nothing. Train it longer than 2 steps, or on more text" in printed
    assert "whether line n of the target is the translation of line n of the source" in printed
    assert "precision: " in printed and "GFLOP/s in bfloat16)" in printed
    record = json.loads((out / "record.json").read_text("utf-8"))
    assert record["precision"] in printed and record["options"]["precision"] == "auto"
    chosen = {"cooldown": 0.5, "norm_first": True, "average": 0, "early_stopping": 0}
    assert chosen.items() <= record["options"].items() and chosen.keys() <= set(record["chosen"])
    assert not {"epochs", "batch_tokens", "warmup_steps"} & set(record["chosen"])
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
        "at_a_glance/attention_1",
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
    assert main(["train", "--out", str(out), "--resume"]) == 1
    printed = capsysbinary.readouterr().err.decode()
    assert "holds a run but no state to go on from; add --force" in printed


@pytest.mark.slow
def test_a_run_goes_on_and_its_epochs_are_averaged(smallest, files, tmp_path, capfd):
    out, mean = tmp_path / "run", str(tmp_path / "mean")
    text = ["--source", files[0], "--target", files[1]]
    valid = ["--valid-source", files[0], "--valid-target", files[1]]
    options = ["--vocab-size", "300", "--batch-tokens", "256", "--quiet", "--out", str(out)]
    options += ["--precision", "float32", "--micro-batches", "2", "--bpe-dropout", "0.1"]
    options += ["--r-drop", "1", "--r-drop-delay", "1", "--ema", "0.9"]
    options += ["--clip-norm", "1", "--early-stopping", "9", "--average", "2"]
    # So it learns too little to write signs that no font here has, which warn in its pictures.
    options += ["--warmup-steps", "4000", "--learning-rate-scale", "1", "--norm-last"]
    train = ["train", *text, *valid, *options, "--resume"]
    (out / "logs").mkdir(parents=True)
    assert main([*train, "--epochs", "1"]) == 1  # it may be the logs of something else
    (out / "tokenizer.model").touch()  # what a run leaves that is stopped in its first epoch
    assert main([*train, "--epochs", "1", "--keep", "1"]) == 0
    assert main([*train, "--epochs", "2", "--keep", "1"]) == 0
    assert "going on after epoch 1" in capfd.readouterr().err
    assert [path.name[:11] for path in sorted((out / "checkpoints").glob("epoch-*"))] == [
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
    assert "--r-drop is 1.0, but typed 0.0" in capfd.readouterr().err


@pytest.mark.parametrize(("leftover", "refused"), [(".new-model.weights.h5", False), ("a", True)])
def test_what_a_failed_save_has_left_is_trained_again(leftover, refused, tmp_path):
    for name in ("tokenizer.model", "config.json", leftover):
        (tmp_path / name).write_text("")
    for resume in (False, True):
        options = argparse.Namespace(out=str(tmp_path), force=False, resume=resume)
        if refused:
            with pytest.raises(ValueError, match="holds other files"):
                check_out(options)
        else:
            check_out(options)


@pytest.mark.parametrize(("longest", "expected"), [("200", 2048), ("5000", 5000)])
def test_a_model_reads_all_lengths_that_are_trained_on(smallest, tokenizer, longest, expected):
    options = build_parser().parse_args(["train", "--out", "x", "--max-length", longest])
    choose(options, Text(9, 99), tokenizer.vocab_size)
    assert build_model(tokenizer, 10, options).get_config()["max_length"] == expected


def test_a_run_goes_on_in_the_precision_that_it_began_in(smallest, monkeypatch, capsys):
    rates = {"float32": 1e9, "bfloat16": 3e9}
    monkeypatch.setattr(train_command, "product_rates", lambda *sizes: rates)
    monkeypatch.setattr(train_command, "fastest_precision", lambda *sizes: "bfloat16")
    options = argparse.Namespace(precision="auto", preset="tiny", quiet=True)
    assert chosen_precision(options, None) == "bfloat16"
    assert "1 GFLOP/s in float32, 3 GFLOP/s in bfloat16" in capsys.readouterr().err
    assert chosen_precision(options, RunRecord({}, {}, {}, "float32")) == "float32"
    assert "precision: float32, as the run began" in capsys.readouterr().err
    options.precision = "float16"
    assert chosen_precision(options, None) == "float16"


def test_a_vocabulary_that_the_text_cannot_fill_is_noted(tokenizer, sentences, capsys):
    corpus = Corpus(*sentences, {})
    batches = TokenBatches(*sentences, tokenizer)
    for asked, noted in (("100000", True), (str(tokenizer.vocab_size), False)):
        options = build_parser().parse_args(["train", "--out", "x", "--vocab-size", asked])
        choose(options, Text(9, 99), tokenizer.vocab_size)
        data = TrainingData(Texts(corpus, None), {}, tokenizer, batches, None)
        report(data, 10**6, options)
        note = f"the text has only {tokenizer.vocab_size} subwords, fewer than --vocab-size {asked}"
        assert (note in capsys.readouterr().err) is noted


def test_text_that_looks_like_a_mistake_is_noted(tokenizer, sentences):
    sources, targets = ([*side[:3]] for side in sentences)
    assert not [*notes_on(Corpus(sources, targets, {}))]
    (same,) = notes_on(Corpus(sources, [*sources[:2], "x"], {}))
    assert same == "note: in 2 of 3 pairs source and target are the same text"
    (again,) = notes_on(Corpus(sources[:1] * 3, targets[:1] * 3, {}))
    assert again == "note: 2 of 3 pairs repeat another pair"


def test_text_to_validate_on_that_is_trained_on_is_noted():
    train = Corpus([f"s{i}" for i in range(100)], [f"t{i}" for i in range(100)], {})
    (note,) = notes_on(train, train)
    assert note == (
        "note: 100 of 100 pairs to validate on are in the text to train on, too; their scores say "
        "nothing of other text"
    )
    other = [f"u{i}" for i in range(90)]
    for known, noted in ((10, False), (11, True)):
        sides = ([*side[:known], *other[: 100 - known]] for side in train[:2])
        assert bool([*notes_on(train, Corpus(*sides, {}))]) is noted
    assert not [*notes_on(train, Corpus(train.sources, other + other[:10], {}))]


def test_text_that_bleu_has_no_words_of_is_noted():
    references = ["猫は魚を食べる。", "犬が走る。"] * 9
    for_those = "for a language without spaces give char, zh"
    assert "by --bleu-tokenize 13a only 0 of 18 references have four words" in bleu_note(
        references, "13a"
    )
    assert for_those in bleu_note(references, "13a")
    assert bleu_note(references, "char") is bleu_note(["a dog runs home"], "13a") is None
    # One line of another language changes nothing.
    assert for_those in bleu_note([*references, "a dog runs home"], "13a")
    long = "ผู้ชายกำลังเดินอยู่บนถนน และสุนัขกำลังวิ่ง ผู้หญิงคนหนึ่งยืนดู แล้วเดินจากไป"
    assert "have a space after" in bleu_note([long] * 9, "13a")


def test_only_scripts_without_spaces_are_noted():
    spaced = (
        "siehe https://example.org/eine/sehr/lange/adresse?mit=vielen&parametern=1 im Netz dort",
        "고양이는 물고기를 먹고 개는 집으로 달린다",
        "कुत्ता घर की ओर दौड़ता है",
        "猫 は 魚 を 食べる 。",
        "ผู้ชาย กำลัง เดิน อยู่ บน ถนน กับ สุนัข ของ เขา",
        "បុរស ម្នាក់ កំពុង ដើរ នៅ លើ ផ្លូវ",
    )
    for reference in spaced:
        assert bleu_note([reference] * 9, "13a") is None, reference


def test_targets_that_no_search_can_reach_are_noted(tokenizer, sentences, capsys):
    limit = 3 * 5 + 20  # a search gives a source of five tokens so many, both with end tokens
    assert num_out_of_reach(np.array([5, 5, 6]), np.array([limit, limit + 1, limit + 1])) == 1
    short, long = sentences[0][0], " ".join(sentences[1] * 5)
    corpus = Corpus([short] * 9 + ["x"], [long] * 9 + ["y"], {})
    options = build_parser().parse_args(["train", "--out", "x", "--max-length", "1000"])
    choose(options, Text(10, 99), tokenizer.vocab_size)
    batches = TokenBatches(*corpus[:2], tokenizer, max_pair_length=1000)
    report(TrainingData(Texts(corpus, None), {}, tokenizer, batches, None), 10**6, options)
    assert (
        "note: 9 of 10 targets are longer than a translation may be (three tokens for each of the "
        "source, and 20)\n"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("sources, advised", [(["a dog"] * 4, False), (["a dog", "b"] * 2, True)])
def test_a_split_is_advised_where_it_can_be_made(sources, advised, tokenizer, capsys):
    corpus = Corpus(sources, ["ein Hund", "b", "c", "d"], {})
    options = build_parser().parse_args(["train", "--out", "x"])
    choose(options, Text(4, 99), tokenizer.vocab_size)
    batches = TokenBatches(*corpus[:2], tokenizer)
    report(TrainingData(Texts(corpus, None), {}, tokenizer, batches, None), 1, options)
    said = capsys.readouterr().err
    assert ("or add --valid-split 1" in said) is advised
    assert "name some with --valid-source and --valid-target" in said
    assert "--warmup-steps" not in said.partition("note: ")[2]  # it was not typed
    if not advised:
        with pytest.raises(ValueError, match="as the text has only 1 different source; give fewer"):
            split_texts(corpus, 1, seed=0)


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
