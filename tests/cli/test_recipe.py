"""What `train` chooses by the size of the text: at four sizes, between them, beside options."""

import itertools
from pathlib import Path

import pytest

from keras_transformer import presets
from keras_transformer.commands import vocabulary_size
from keras_transformer.commands.demo import TRAIN_OPTIONS
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.training_run import recipe
from keras_transformer.commands.training_run.data import choose_metric, text_size
from keras_transformer.commands.training_run.model_size import model_size, num_parameters
from keras_transformer.commands.training_run.progress import NoteOverfitting
from keras_transformer.commands.training_run.recipe import Model, Text
from keras_transformer.commands.training_run.run_history import is_useless
from keras_transformer.commands.training_run.text import Texts
from keras_transformer.commands.vocabulary_size import (
    choose_vocab_size,
    count_letters,
    num_characters,
    vocab_size,
    vocab_size_of_corpus,
    vocab_size_of_files,
)
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.models.transformer import Transformer

TINY = Model(2_300_000, 128)
CAPTIONS = Text(29_000, 462_000)
# Of a target, about; of longer sentences where there are millions.
LETTERS_OF_PAIR = 70
# Sizes of text, and what suits them, as papers and other libraries train on such sizes.
SIZES = {
    Text(200, 3_000): {"batch_tokens": 512, "dropout": 0.3, "norm_first": True},
    Text(2_000, 40_000): {"batch_tokens": 1024, "dropout": 0.3, "norm_first": True},
    CAPTIONS: {"batch_tokens": 2048, "epochs": 30, "dropout": 0.3, "average": 10},
    Text(300_000, 4_000_000): {"batch_tokens": 4096, "epochs": 20, "early_stopping": 6},
    Text(4_500_000, 130_000_000): {"batch_tokens": 24_576, "epochs": 10, "norm_last": True},
}


def parse(*arguments):
    return build_parser().parse_args(["train", "--out", "x", *arguments])


@pytest.mark.parametrize("text", SIZES)
def test_what_suits_a_size_is_what_is_usual_for_it(text):
    found = recipe.recipe(text, TINY, {})
    assert SIZES[text].items() <= found.items()
    other = "norm_last" if "norm_first" in found else "norm_first"
    assert set(found) == set(recipe.CHOSEN) - {other}
    assert found["cooldown"] == 0.5


def test_what_suits_changes_one_way_and_smoothly_with_the_size():
    sizes = [int(10_000 * 1.1**i) for i in range(110)]
    found = [recipe.recipe(Text(size // 14, size), TINY, {}) for size in sizes]
    for name, sign in {"batch_tokens": 1, "warmup_steps": 1, "epochs": -1, "dropout": -1}.items():
        for one, other in itertools.pairwise(settings[name] for settings in found):
            # A batch is rounded, and the number of steps with it.
            assert sign * (other - one) >= (-0.1 * one if name == "warmup_steps" else 0), name
            assert other < 1.3 * one and one < 1.3 * other + 0.05, name
    steps = [s["epochs"] * size / s["batch_tokens"] for s, size in zip(found, sizes, strict=True)]
    assert steps[0] < 2_500 and steps[-1] > 50_000
    assert ["norm_first" in settings for settings in found] == sorted(
        ("norm_first" in settings for settings in found), reverse=True
    )
    words = [vocab_size(LETTERS_OF_PAIR * size.pairs) for size in SIZES]
    assert words == [2_000, 2_000, 8_000, 16_000, 32_000]


def test_a_text_of_many_characters_gets_a_subword_for_each(tmp_path):
    lines = ["".join(map(chr, range(first, first + 12))) for first in range(0x4E00, 0x5A00, 12)]
    texts = ["a dog"] * len(lines) + lines
    assert num_characters(texts) == pytest.approx(3_072 + 5, abs=5)
    size = vocab_size_of_corpus(Corpus(texts[: len(lines)], lines, {}))
    assert 3_072 + 300 < size < 6_000
    Tokenizer.train_on_texts(lines, vocab_size=size)
    # An alphabet changes nothing.
    assert vocab_size(0, num_characters(["a dog", "ein Hund"])) == vocab_size(0) == 2_000


def test_files_have_the_size_of_their_text(tmp_path, monkeypatch):
    sides = [["a dog runs"] * 50_000, ["ein Hund läuft"] * 50_000]
    paths = [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.tsv")]
    for path, side in zip(paths, sides, strict=False):
        Path(path).write_text("".join(f"{line}\n" for line in side), "utf-8")
    rows = zip(*sides, strict=True)
    Path(paths[2]).write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    expected = vocab_size_of_corpus(Corpus(*sides, {}))
    assert expected == 8_000
    assert vocab_size_of_files([paths[:2]]) == vocab_size_of_files([paths[2:]]) == expected
    assert vocab_size_of_files([paths[:2], paths[2:]]) == vocab_size(2 * 50_000 * 14)
    # Of all files the characters are counted, though not of all their lines.
    monkeypatch.setattr(vocabulary_size, "SAMPLED_LINES", 1)
    monkeypatch.setattr(vocabulary_size, "ALPHABET", 2)
    letters = len(set("a dog runs" + "ein Hund läuft"))
    assert vocab_size_of_files([paths[:2]]) == pytest.approx(8_000 + letters - 2, abs=1)
    assert vocab_size_of_files([("a pipe", "another")]) == 8_000


@pytest.mark.parametrize(
    "one, line",
    [
        (1, "Ein Hund läuft über die Straße"),
        (1, "Собака бежит по улице"),
        (1, "कुत्ता सड़क पर दौड़ता है"),
        (1, "الكلب يركض في الشارع"),
        (1, "สุนัขวิ่งบนถนน"),
        (2, "いぬがみちをはしる"),
        (2, "개가거리를달린다"),
        (3, "狗在街上奔跑"),
    ],
)
def test_each_script_counts_by_what_its_characters_say(one, line):
    assert count_letters(line.encode()) == one * len(line)


def test_lines_that_are_left_out_change_no_vocabulary(tmp_path):
    path, usual = tmp_path / "a.txt", ["a dog runs home"] * 9
    left_out = ["x" * 3_600_000] * 5 + [" " * 300_000] + ["ä" * 10_001] * 99
    left_out += ["".join(map(chr, range(0x4E00, 0x9000)))]
    path.write_text("\n".join([*usual, *left_out]), "utf-8")
    assert vocab_size_of_files([(str(path), str(path))]) == 2_000
    path.write_text("\n".join(usual + ["ä" * 10_000] * 21), "utf-8")
    assert vocab_size_of_files([(str(path), str(path))]) == 8_000


def test_chrf_tells_the_best_epoch_where_bleu_sees_no_words():
    for typed, references, metric in (
        ((), ["猫は魚を食べる。"], "chrf"),
        ((), ["ผู้ชายกำลังเดินอยู่บนถนน และสุนัขกำลังวิ่ง 1 2 3 4"] * 3, "chrf"),
        ((), ["ผู้ชายคนหนึ่งกำลังเดินอยู่บนถนนกับสุนัขของเขา และผู้หญิงคนหนึ่งยืนดู"] * 3 + ["a b c d"], "chrf"),
        ((), ["a dog runs home"], "bleu"),
        (("--metric", "bleu"), ["猫は魚を食べる。"], "bleu"),
        (("--bleu-tokenize", "char"), ["猫は魚を食べる。"], "bleu"),
    ):
        options = parse(*typed)
        choose_metric(options, Corpus(references, references, {}))
        assert options.metric == metric and ("metric" in options.chosen) is (metric == "chrf"), (
            references
        )


def test_the_largest_rate_is_the_models_own_whatever_the_warm_up():
    for d_model, peak in ((128, 0.004), (512, 0.0007), (1024, 0.0005)):
        for warmup_steps in (100, 1_000, 4_000):
            found = recipe.recipe(CAPTIONS, Model(10**7, d_model), {"warmup_steps": warmup_steps})
            scale = found["learning_rate_scale"]
            assert scale * (d_model * warmup_steps) ** -0.5 == pytest.approx(peak, rel=0.05)


def test_an_option_that_is_given_stays_and_others_follow():
    usual = recipe.recipe(CAPTIONS, TINY, {})
    for name, value in usual.items():
        assert name not in recipe.recipe(CAPTIONS, TINY, {name: value})
    large = recipe.recipe(CAPTIONS, TINY, {"batch_tokens": 8192})
    assert usual["epochs"] < large["epochs"] < 4 * usual["epochs"]
    assert large["warmup_steps"] < usual["warmup_steps"]
    short = recipe.recipe(CAPTIONS, TINY, {"max_steps": 400})
    assert short["warmup_steps"] == 100 and "epochs" not in short and short["average"] == 0
    often = recipe.recipe(CAPTIONS, TINY, {"max_steps": 400, "valid_steps": 20})
    assert often["average"] == 6
    assert "early_stopping" not in recipe.recipe(CAPTIONS._replace(is_validated=False), TINY, {})
    assert not {"norm_first", "norm_last"} & set(recipe.recipe(CAPTIONS, TINY, {"norm_last": True}))


def test_the_options_get_what_was_chosen_and_it_is_said(capsys):
    options = parse("--dropout", "0", "--epochs", "7")
    choose_vocab_size(options, lambda: 8000)
    recipe.choose(options, CAPTIONS, 8000)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        "29,000 pairs with 0.46 million target tokens, 0.2 for each parameter"
    )
    assert said[1].split()[:4] == ["--vocab-size", "8000", "--batch-tokens", "2048"]
    assert (options.dropout, options.epochs) == (0, 7)
    assert not {"dropout", "epochs", "norm_last"} & set(options.chosen)
    # What was chosen can be typed, and is then no longer chosen.
    typed = parse("--dropout", "0", "--epochs", "7", *said[1].split())
    recipe.choose(typed, CAPTIONS, 8000)
    assert typed.chosen == []
    for name in (*recipe.CHOSEN, "vocab_size"):
        assert getattr(typed, name) == (getattr(options, name) or getattr(typed, name)), name


def test_the_table_of_the_page_is_what_is_chosen():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
    table = page[page.index("| pairs | target tokens |") :].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.split("\n")[2:]]
    assert len(rows) == len(recipe.ROWS)
    for pairs, tokens, subwords, *others in rows:
        pairs, tokens, subwords, batch_tokens, epochs = (
            float(cell.replace(",", "").replace(" million", "e6"))
            for cell in (pairs, tokens, subwords, *others[:2])
        )
        options = parse()
        choose_vocab_size(options, lambda n=LETTERS_OF_PAIR * pairs: vocab_size(n))
        recipe.choose(options, Text(int(pairs), tokens), options.vocab_size)
        found = options.vocab_size, options.batch_tokens, options.epochs, options.dropout
        assert found == (subwords, batch_tokens, epochs, float(others[2]))
        assert others[3] == ("first" if options.norm_first else "last")


def test_the_demonstration_keeps_its_own_recipe(capsys):
    options = build_parser().parse_args(["train", *TRAIN_OPTIONS, "--out", "x"])
    before = vars(options).copy()
    choose_vocab_size(options, lambda: 9000)
    recipe.choose(options, CAPTIONS, 1000)
    assert vars(options) == before and capsys.readouterr().err == ""


def test_a_time_takes_the_place_of_the_epochs():
    options = parse("--norm-last")
    recipe.choose(options, CAPTIONS, 8000)
    assert options.epochs == 30
    recipe.choose(options, CAPTIONS, 8000, max_steps=40, batch_tokens=2048)
    assert (options.epochs, options.max_steps, options.warmup_steps) == (None, 40, 10)
    assert options.norm_last and not options.norm_first
    assert set(options.chosen) >= {"max_steps", "batch_tokens"} and "epochs" not in options.chosen


@pytest.mark.parametrize("preset, noted", [("tiny", "base"), ("small", "base"), ("base", None)])
def test_a_model_that_is_small_for_its_text_is_noted(preset, noted, capsys):
    recipe.choose(parse("--preset", preset), Text(4_500_000, 130_000_000), 32_000)
    assert (f"--preset {noted} learns more" in capsys.readouterr().err) is (noted is not None)


def test_the_parameters_of_a_model_are_counted_without_building_it():
    few = ["--encoder-layers", "1", "--decoder-layers", "2"]
    size = model_size(parse(*few, "--tie", "none", "--activation", "swiglu"))
    model = Transformer(**size, source_vocab_size=500)
    assert num_parameters(size, 500) == pytest.approx(model.count_params(), rel=0.02)
    assert num_parameters(presets.BIG, 37_000) == pytest.approx(
        213e6, rel=0.02
    )  # as the paper says


def test_the_tokens_of_a_text_are_counted_in_a_sample(tokenizer, sentences, monkeypatch):
    texts = Texts(Corpus(*sentences, {}), None)
    ids = tokenizer.tokenize(sentences[1]).to_list()
    exact = sum(map(len, ids)) + len(ids)
    assert text_size(texts, tokenizer, 200) == Text(len(ids), exact, False)
    # Pairs that the training leaves out are left out here.
    lengths = [len(row) + 1 for row in ids]
    sources = [len(row) + 1 for row in tokenizer.tokenize(sentences[0]).to_list()]
    most = sorted(lengths)[len(lengths) // 2]
    kept = [n for n, m in zip(lengths, sources, strict=True) if max(n, m) <= most]
    assert 0 < len(kept) < len(ids)
    assert text_size(texts, tokenizer, most) == Text(len(kept), sum(kept), False)
    monkeypatch.setattr("keras_transformer.commands.training_run.data.MOST_SAMPLED", len(ids) // 2)
    found = text_size(texts, tokenizer, 200).target_tokens
    assert found != exact and found == pytest.approx(exact, rel=0.5)


def test_a_model_that_translates_nothing_is_known_by_its_score_alone():
    scores = [("bleu", 1.9), ("bleu", 2.1), ("chrf", 14), ("chrf", 16), (None, None)]
    found = [is_useless({"metric": metric, "value": value}) for metric, value in scores]
    assert found == [True, False, True, False, False]


def test_a_loss_that_rises_is_noted_once_also_after_a_resume(capsys):
    losses = [3.0, 2.0, 2.1, 2.05, 2.2, 2.4]
    for resumed_after in range(len(losses)):
        note = NoteOverfitting()
        for epoch, loss in enumerate(losses):
            call = note.replay if epoch < resumed_after else note.on_epoch_end
            call(epoch, {"val_loss": loss})
        said = capsys.readouterr().err
        assert said.count("has risen since epoch 2, from 2.000 to 2.200") == (resumed_after < 5)
    note = NoteOverfitting()
    for epoch, loss in enumerate([3.0, 2.0, 2.01, 2.01, 2.01, 1.99]):
        note.on_epoch_end(epoch, {"val_loss": loss})
    note.on_epoch_end(6, {})
    assert capsys.readouterr().err == ""
