"""A signature, `Translator` and a command do the same things, as the table in the docs says."""

import inspect
import json
import re
from pathlib import Path

import pytest

from keras_transformer import Beam, Greedy, Sample, Translator, save_run
from keras_transformer.cli import main
from keras_transformer.commands.options import OPTIONS, Option
from keras_transformer.inference.translation_graph import TranslationGraph

PAGE = Path(__file__).parents[2] / "docs" / "decoding.md"
# What is no answer: how files are read and how they are shown.
GENERAL = {"--input", "--output", "--batch-size", "--shard"}
GENERAL |= {"--quiet", "--debug", "--verbose"}
# Settings of a strategy, of a Translator and of an export, in a list above or beside the table.
SETTINGS = {"--coverage-penalty", "--min-length", "--no-repeat-ngram", "--max-source-length"}


def rows_of_the_table():
    text = PAGE.read_text("utf-8")
    table = text[text.index("| what | signature of an export |") :].split("\n\n")[0]
    for line in table.split("\n")[2:]:
        yield [re.findall(r"`(.+?)`", cell) for cell in line.strip("| ").split(" | ")][1:]


def test_the_table_names_what_is_there_and_all_of_it():
    signatures, methods, options = set(), set(), {"translate": set(), "score": set()}
    for named, (call,), (command,) in rows_of_the_table():
        signatures |= set(named)
        name, arguments = re.fullmatch(r"(\w+)\((.+)\)", call).groups()
        method = Translator if name[0].isupper() else getattr(Translator, name, Translator.__call__)
        assert set(arguments.replace("=...", "").split(", ")) <= set(
            inspect.signature(method).parameters
        ), call
        methods.add(name)
        command, *typed = command.split()
        options[command] |= set(typed)
    assert signatures == set(TranslationGraph.signatures)
    public = {name for name, value in vars(Translator).items() if inspect.isfunction(value)}
    public = {name for name in public if not name.startswith("_")} - {"export_ctranslate2"}
    assert methods == public | {"translator", "Translator"}
    for command, named in options.items():
        of_command = [option for option in OPTIONS[command] if isinstance(option, Option)]
        known = {option.name for option in of_command if option.name.startswith("--")}
        assert named <= known
        assert command != "translate" or known <= named | GENERAL | SETTINGS


@pytest.fixture(scope="module")
def texts(sentences, word_salads):
    return [*sentences[0], "", *word_salads[:3]]


@pytest.fixture
def models(exported, trained, tokenizer, tmp_path):
    """A run and its export."""
    save_run(trained, tokenizer, tmp_path / "run")
    return [str(tmp_path / "run"), exported[1]]


@pytest.fixture
def command(texts, tmp_path, capsys):
    """Runs a command on the texts; returns what it writes as JSON."""
    (tmp_path / "source").write_text("".join(f"{text}\n" for text in texts), "utf-8")

    def call(name, model, *options):
        source = "--source" if name == "score" else "--input"
        assert main([name, model, source, str(tmp_path / "source"), "--json", *options]) == 0
        lines = capsys.readouterr().out.split("\n")
        return [json.loads(line) for line in lines[:-1]]

    return call


def of_signature(answer, names):
    """The rows of what a signature answers, as JSON has them."""
    columns = zip(*(answer[name].tolist() for name in names), strict=True)
    return [
        {name: decoded(value) for name, value in zip(names, row, strict=True)} for row in columns
    ]


def decoded(value):
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def assert_same(rows, expected):
    for row, other in zip(rows, expected, strict=True):
        for name, value in other.items():
            near = pytest.approx(value, abs=1e-3) if "score" in name or "log" in name else value
            assert row[name] == near, name


@pytest.mark.slow
def test_best_translations(exported, models, served, texts, command):
    names = ("translation", "score", "ended", "source_cut")
    expected = of_signature(served(text=texts), names)
    answers = exported[0].translate(texts)
    columns = *answers, answers.ended, answers.source_cut
    python = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    assert_same(python, expected)
    for model in models:
        assert_same(command("translate", model), expected)
    greedy = of_signature(served("greedy", text=texts), names)
    for model in models:
        assert_same(command("translate", model, "--search", "greedy"), greedy)


@pytest.mark.slow
def test_several_translations(exported, models, served, texts, command):
    expected = of_signature(served("nbest", text=texts), ("translations", "scores", "ended"))
    python = exported[0].nbest(texts)
    assert [row.texts for row in python] == [row["translations"] for row in expected]
    assert [row.ended for row in python] == [row["ended"] for row in expected]
    expected = [{name: values[:3] for name, values in row.items()} for row in expected]
    for model in models:
        assert_same(command("translate", model, "--nbest", "3"), expected)
    assert main(["translate", models[1], "--nbest", "5", "--input", __file__]) == 1


@pytest.mark.slow
def test_prefixes_and_limits(exported, models, served, texts, command, tmp_path):
    prefixes = [["", "die", "zwei gro"][i % 3] for i in range(len(texts))]
    inputs = {"length_penalty": [1.0] * len(texts), "max_length": [9] * len(texts)}
    answer = served("translate", text=texts, prefix=prefixes, **inputs)
    expected = of_signature(answer, ("translation", "score", "ended"))
    python = exported[0].translate(texts, prefix=prefixes, length_penalty=1.0, max_length=9)
    assert python.texts == [row["translation"] for row in expected]
    assert python.ended == [row["ended"] for row in expected]
    several = exported[0].nbest(texts, prefix=prefixes, length_penalty=1.0, max_length=9)
    assert [row.texts[0] for row in several] == python.texts
    aligned = exported[0].align(texts, prefix=prefixes, length_penalty=1.0, max_length=9)
    assert aligned.texts == python.texts
    (tmp_path / "prefixes").write_text("".join(f"{prefix}\n" for prefix in prefixes))
    options = ["--prefix-file", str(tmp_path / "prefixes"), "--length-penalty", "1"]
    for model in models:
        assert_same(command("translate", model, *options, "--max-length", "9"), expected)


@pytest.mark.slow
def test_alignments(exported, models, served, texts, command):
    answer = served("align", text=texts)
    expected = of_signature(answer, ("translation", "score", "ended"))
    python = exported[0].align(texts)
    assert python.texts == [row["translation"] for row in expected]
    for i, attention in enumerate(python.attention):
        size = tuple(map(len, (python.target_pieces[i], python.source_pieces[i])))
        assert attention.shape == size
        assert attention == pytest.approx(answer["attention"][i, : size[0], : size[1]], abs=1e-4)
    for row, pairs in zip(expected, python.pharaoh(), strict=True):
        row["alignment"] = pairs
    assert expected[0]["alignment"].count("-") == len(python.texts[0].split())
    for model in models:
        assert_same(command("translate", model, "--alignments"), expected)


@pytest.mark.slow
def test_scores_of_given_translations(exported, models, served, texts, command, tmp_path, capsys):
    targets = exported[0](texts)
    names = ("log_prob", "length")
    expected = of_signature(served("score", source=texts, target=targets), names)
    log_probs, per_token = exported[0].score_tokens(texts, targets)
    assert log_probs == pytest.approx([row["log_prob"] for row in expected], abs=1e-4)
    assert exported[0].score(texts, targets) == log_probs
    for row, tokens in zip(expected, per_token, strict=True):
        assert row["length"] == len(tokens)
        row["token_log_probs"] = tokens
    path = tmp_path / "target"
    path.write_text("".join(f"{target}\n" for target in targets), "utf-8")
    for model in models:
        assert_same(command("score", model, "--target", str(path)), expected)
    perplexity = exported[0].perplexity(texts, targets).per_token
    output = ["--output", str(tmp_path / "out"), "--source", str(tmp_path / "source")]
    assert main(["score", models[1], *output, "--target", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"perplexity {perplexity:.2f} per token")


@pytest.mark.slow
def test_samples_depend_on_the_seed_alone(trained, tokenizer, models, texts, command):
    strategy = Sample(temperature=0.9, top_k=5, seed=3)
    expected = Translator(trained, tokenizer, strategy)(texts)
    options = ["--sample", "--temperature", "0.9", "--top-k", "5", "--seed", "3"]
    rows = command("translate", models[0], *options, "--batch-size", "3")
    assert [row["translation"] for row in rows] == expected


@pytest.mark.parametrize("strategy", [Greedy(), Beam(size=2)])
def test_options_in_python_are_checked(trained, tokenizer, strategy):
    translator = Translator(trained, tokenizer, strategy)
    for options, message in (
        ({"prefix": ["a"]}, "prefix must have one value for each of 2 texts, .* but has 1"),
        ({"length_penalty": [1.0]}, "length_penalty must have one value for each of 2 texts"),
        ({"length_penalty": 11}, r"length_penalty must be a number in \[0, 10\], but is 11"),
        ({"max_length": 0}, "max_length must be an integer of at least 1, but is 0"),
        ({"max_length": 999}, "max_length must be at most 256, but is 999"),
    ):
        for ask in (translator.translate, translator.nbest, translator.align):
            with pytest.raises(ValueError, match=message):
                ask(["a dog", "a cat"], **options)
    with pytest.raises(TypeError, match=r"prefix\[1\] must be a string, but is 3"):
        translator.translate(["a dog", "a cat"], prefix=["", 3])
