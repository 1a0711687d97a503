"""`keras-transformer inspect`: one page with all that a model does with a sentence."""

import base64
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from keras_transformer import Transformer
from keras_transformer.cli import main
from keras_transformer.commands import inspect
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.pictures import find_word, whole_words
from keras_transformer.commands.training_run.callbacks import Callbacks
from keras_transformer.commands.training_run.data import TrainingData
from keras_transformer.commands.training_run.progress import Plan
from keras_transformer.commands.training_run.text import Texts
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.corpus import Corpus
from keras_transformer.inference.run_directory import load_run, save_run
from keras_transformer.training.translation_monitor import TranslationMonitor
from keras_transformer.visualization import FigureMonitor

SECTIONS = [
    "Attention",
    "Translation",
    "Hypotheses",
    "Beam",
    "Encoder self-attention",
    "Decoder self-attention",
    "Cross-attention",
    "One word",
    "Masks",
    "Positions",
    "Similarity of positions",
    "Schedule",
]


@pytest.fixture(scope="module")
def run(trained, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("inspect") / "run"
    save_run(trained, tokenizer, directory)
    return str(directory)


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("inspect") / "page.html"
    options = ["--out", str(out), "--word", "Katze", "--beam-size", "3", "--length-penalty", "0"]
    assert main(["inspect", run, "the cat runs", *options]) == 0
    return out.read_text("utf-8")


def pictures(page):
    """The texts in each picture, by the heading above it."""
    found = {}
    for name, data in re.findall(r"<h2>([^<]+)</h2>(?:(?!<h2>).)*?base64,([\w+/=]+)", page, re.S):
        svg = ElementTree.fromstring(base64.b64decode(data))
        texts = svg.iter("{http://www.w3.org/2000/svg}text")
        found[name] = ["".join(text.itertext()).strip() for text in texts]
    return found


@pytest.mark.slow
def test_the_page_has_every_section_in_order_and_no_address(page):
    assert re.findall(r"<h2>([^<]+)</h2>", page) == SECTIONS
    assert list(pictures(page)) == SECTIONS[3:]
    assert set(re.findall(r"https?://[^\"'<> ]+", page)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.slow
def test_a_model_without_sinusoids_has_no_pictures_of_them(tokenizer, tmp_path):
    size = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "positions": "rotary"}
    model = Transformer(**size, source_vocab_size=tokenizer.vocab_size)
    save_run(model, tokenizer, tmp_path / "run")
    options = ["--out", str(tmp_path / "page.html"), "--max-length", "4"]
    assert main(["inspect", str(tmp_path / "run"), "a dog", *options]) == 0
    headings = re.findall(r"<h2>([^<]+)</h2>", (tmp_path / "page.html").read_text("utf-8"))
    assert headings == [*SECTIONS[:9], "Schedule"]


@pytest.mark.slow
def test_a_sentence_of_bytes_that_are_no_utf8_has_its_page(run, tmp_path):
    out = tmp_path / "page.html"
    assert main(["inspect", run, "the \udcff cat", "--out", str(out)]) == 0
    assert '<h1 dir="auto">the \ufffd cat → ' in out.read_text("utf-8")


@pytest.mark.slow
def test_the_translation_stands_with_its_pieces_scores_and_rivals(page):
    translation = "die Katze rennt"
    assert f'<h1 dir="auto">the cat runs → {translation}</h1>' in page
    assert f'<td dir="auto">{translation}</td>' in page
    assert len(re.findall(r'<td class="number">[1-3]</td><td class="number">-', page)) == 3
    words = re.findall(r"<li><bdi>([^<]+)</bdi><small>[\d.]+%</small>", page)
    assert words == [*translation.split(), "&lt;/s&gt;"]
    pieces = re.findall(r"<small><bdi>([^<]+)</bdi> [\d.]+%</small>", page)
    assert "".join(pieces).replace("\u2581", " ").strip() in translation


@pytest.mark.slow
def test_the_interactive_part_holds_the_models_scores(page, run, tokenizer):
    data = json.loads(re.search(r'application/json">(.+?)</script>', page).group(1))
    assert [m["name"] for m in data["maps"]] == SECTIONS[4:7]
    source = tokenizer.tokenize(["the cat runs"]).numpy()[0].tolist() + [3]
    target = tokenizer.tokenize(["die Katze rennt"]).numpy()[0].tolist()
    weights = load_run(run)[0].attention_scores((np.array([source]), np.array([[2, *target]])))
    for shown, expected in zip(data["maps"], weights, strict=True):
        expected = np.array(expected)[:, 0]
        np.testing.assert_allclose(np.array(shown["scores"]) / 1000, expected, atol=5.1e-4)
    map_number, word = data["shown"]["map"], data["shown"]["word"]
    assert data["maps"][map_number]["queries"][word] == "\u2581Katz"


@pytest.mark.slow
def test_pictures_show_the_pieces(page):
    texts = pictures(page)
    for name in ("Encoder self-attention", "Cross-attention", "Masks"):
        assert "\u2581cat" in texts[name], name
    for name in ("Decoder self-attention", "Cross-attention", "Masks", "Beam"):
        assert "\u2581Katz" in texts[name], name
    assert "What “\u2581Katz” attends to, in percent" in texts["One word"]
    assert sum("#" in text for text in texts["Beam"]) == 3 and "<pad>" in texts["Masks"]
    assert "d_model 32, warm-up 4,000" in texts["Schedule"]


@pytest.mark.slow
def test_plots_of_a_training_are_those_pictures(trained, tokenizer, sentences, tmp_path):
    out = ["--out", str(tmp_path), "--synthetic", "--plots", "--quiet"]
    options = build_parser().parse_args(["train", *out])
    corpus = Corpus(*sentences, {})
    texts, valid = Texts(corpus, corpus), TokenBatches(*sentences, tokenizer)
    plan = Plan(epoch_steps=2, total_steps=4)
    data = TrainingData(texts, {}, tokenizer, valid, valid)
    every = Callbacks(trained, data, plan, options).all
    first, monitor = (callback for callback in every if isinstance(callback, FigureMonitor))
    (translations,) = (callback for callback in every if isinstance(callback, TranslationMonitor))
    translations.samples = list(zip(*sentences, sentences[1], strict=True))[:3]
    names = ["translations_1", "translations_2", "attention_1", "attention_2"]
    assert list(first.every_epoch()) == [f"at_a_glance/{name}" for name in names]
    assert list(monitor.at_start()) == [f"pictures/{name}" for name in SECTIONS[-3:]]
    assert list(monitor.every_epoch()) == [f"pictures/{name}" for name in SECTIONS[3:-3]]
    with pytest.raises(ValueError, match="--plots needs a sentence to draw; name text with"):
        Callbacks(trained, data._replace(texts=Texts(corpus, None), valid=None), plan, options)


def test_the_default_page_is_a_file_here():
    options = build_parser().parse_args(["inspect", "run", "a", "b"])
    assert (options.out, options.sentence) == ("inspect.html", ["a", "b"])


@pytest.mark.slow
def test_sentences_that_are_typed_have_pages_with_the_form(run, monkeypatch, capsys):
    served = []
    monkeypatch.setattr(inspect, "serve", lambda *arguments: served.extend(arguments))
    assert main(["inspect", run, "--serve", "--port", "9", "--max-source-length", "4"]) == 0
    answer, port, sentence = served
    assert (port, sentence) == (9, "")
    assert "<form" in answer("") and "<h2>" not in answer("")
    page = answer('the cat "runs" <b>')
    assert 'value="the cat &quot;runs&quot; &lt;b&gt;"' in page and "<b>" not in page
    assert re.findall(r"<h2>([^<]+)</h2>", page) == SECTIONS
    assert "longer than max_source_length=4 tokens" in page  # a note
    assert "longer than max_source_length=4" in capsys.readouterr().err
    assert main(["inspect", run]) == 1
    assert "The sentence is missing; give one, or --serve" in capsys.readouterr().err


@pytest.mark.slow
def test_failures_are_one_line(run, tmp_path, capsys, monkeypatch):
    missing, sentence = str(tmp_path / "missing"), "a dog"
    cases = [
        ([missing, sentence], "missing does not exist; name a directory that train has written"),
        ([str(tmp_path), sentence], "is no run; name a directory that train has written"),
        ([run, " "], "The sentence must have words to look at, but is ' '"),
        ([run, sentence, "--out", str(tmp_path)], "is a directory; name a file in it"),
        ([run, sentence, "--out", f"{missing}/x.html"], "there is no directory .*; make it first"),
        (
            [run, sentence, "--word", "cat"],
            "--word cat is neither in the sentence nor in its translation; their pieces are a ",
        ),
    ]
    monkeypatch.chdir(tmp_path)
    for arguments, message in cases:
        assert main(["inspect", *arguments]) == 1, arguments
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and line.startswith("keras-transformer inspect: ")
        assert re.search(message, line), line
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["inspect", run, sentence]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_whole_words_are_pieces_by_themselves():
    assert whole_words(["A", "nna", "\u2581buys", "\u2581a", "\u2581ha", "t", "</s>"]) == [2, 3]
    assert whole_words(["It", "</s>"]) == [0]
    assert whole_words(["x", "y", "</s>"]) == [0, 1, 2]


def test_a_word_is_found_by_its_piece_or_by_its_beginning():
    pieces = ["A", "nna", "\u2581b", "ough", "t", "\u2581the", "\u2581b", "</s>"]
    found = {word: find_word(pieces, word) for word in ("Anna", "bought", "b", "the", "t", "ugh")}
    assert found == {"Anna": 0, "bought": 2, "b": 2, "the": 5, "t": 4, "ugh": None}
    pieces = ["今日", "猫は", "手紙", "</s>"]
    assert [find_word(pieces, word) for word in ("猫", "は", "猫は手")] == [1, None, 1]
