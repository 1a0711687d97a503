"""benchmarks/corpora.py: which files it finds, what it compares, and how it writes a table."""

import gzip
import importlib
import json
from pathlib import Path

import pytest

from keras_transformer.commands.options import OPTIONS, Option

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LINES = [f"the dog number {i} runs home today" for i in range(60)]


@pytest.fixture
def corpora(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("corpora")


@pytest.fixture
def arguments(tmp_path):
    """The words that name a corpus in files, and where runs go."""
    for split in ("train", "val", "test_2016", "test_2016.lc"):
        for language in ("en", "de"):
            text = "".join(f"{line}\n" for line in LINES)
            (tmp_path / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    languages = ["--source-language", "en", "--target-language", "de"]
    return ["--data", str(tmp_path), *languages, "--out", str(tmp_path / "out")]


def test_every_line_is_made_of_options(corpora):
    known = {option.key for option in OPTIONS["train"] if isinstance(option, Option)}
    for changes in (corpora.RECIPE, *corpora.OURS.values()):
        assert set(changes) <= known
    plain = corpora.RECIPE | corpora.OURS["plain"]
    assert set(plain.values()) == {None}


def test_files_are_found_and_shortened(corpora, arguments, tmp_path):
    options = corpora.parse_options(["recipe", *arguments])
    corpus = corpora.find_corpus(options)
    assert [Path(source).name for source, _ in corpus] == [
        "train.en.gz",
        "val.en.gz",
        "test_2016.en.gz",
    ]
    few = corpora.shortened(corpus, tmp_path / "few", 3)
    assert gzip.decompress(Path(few.test[1]).read_bytes()).decode().splitlines() == LINES[:3]
    (tmp_path / "val.en.gz").unlink()
    with pytest.raises(SystemExit, match="has no file for valid.en.gz; one is read of"):
        corpora.find_corpus(options)
    (tmp_path / "val.en.gz").write_bytes(b"")
    (tmp_path / "test_2017.en.gz").write_bytes(b"")
    with pytest.raises(SystemExit, match="has 2 files for test.en.gz; one is read of"):
        corpora.find_corpus(options)


def test_a_folder_of_runs_of_other_settings_is_refused(corpora, arguments, tmp_path):
    for more in ([], ["--seeds", "2"]):
        options = corpora.parse_options(["recipe", *arguments, *more])
        corpora.refuse_other_settings(tmp_path / "out", options)
    options = corpora.parse_options(["recipe", *arguments, "--limit", "9"])
    with pytest.raises(SystemExit, match="'limit': None.*'limit': 9.*name another --out"):
        corpora.refuse_other_settings(tmp_path / "out", options)


def test_the_text_to_validate_on_chooses_and_all_is_compared(
    corpora, arguments, tmp_path, monkeypatch, capsys
):
    calls = []

    def make(line, run, seed, corpus, tokenizer, options):
        run.mkdir(parents=True)

        def translate(file, penalties):
            calls.append((line, Path(file).name, tuple(penalties)))
            # The penalty 1.0 is best, and the recipe better than the other line.
            wrong = 20 if line == "recipe" else 40
            return [
                ["a cat"] * int(wrong + 10 * abs(x - 1.0)) + LINES[int(wrong + 10 * abs(x - 1.0)) :]
                for x in penalties
            ]

        return translate

    monkeypatch.setattr(corpora, "our_translator", make)
    monkeypatch.setattr(corpora, "opennmt_tf_translator", make)
    monkeypatch.setattr(corpora, "tokenizer_at", lambda *_: None)
    words = ["recipe", "opennmt_tf_pre", *arguments, "--seeds", "1", "2"]
    corpora.main(words)
    lines = capsys.readouterr().out.splitlines()
    assert calls[:2] == [
        ("recipe", "val.en.gz", corpora.LENGTH_PENALTIES),
        ("recipe", "test_2016.en.gz", (1.0,)),
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = "recipe", "opennmt_tf_pre"
    assert [row[:3] for row in rows[2:4]] == [[name, "1", "1.0"] for name in names]
    assert rows[2][-1] == "" and float(rows[3][-1]) < 0.05
    assert float(rows[2][4]) > float(rows[3][4])
    assert [row[0] for row in rows[6:8]] == ["recipe, mean", "opennmt_tf_pre, mean"]
    assert lines[-2].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    before = len(calls)
    corpora.main(words)  # all is there
    assert len(calls) == before and capsys.readouterr().out.splitlines() == lines
    saved = json.loads((tmp_path / "out" / "recipe-1" / "scores-default.json").read_text())
    assert saved["length_penalty"] == 1.0 and len(saved["translations"]) == len(LINES)
