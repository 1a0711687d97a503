"""Docstring examples run; names and files that the pages mention exist."""

import doctest
import importlib
import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformer

ROOT = Path(keras_transformer.__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "keras_transformer").rglob("*.py")
    if path.stem not in ("__init__", "__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    public = {name: getattr(keras_transformer, name) for name in keras_transformer.__all__}
    names = {**public, **vars(module), "np": np, "keras": keras, "ops": keras.ops}
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, globs=names):
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        output = []
        runner.run(test, out=output.append)
        assert runner.failures == 0, "".join(output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    folders = "data|layers|models|training|decoding|evaluation|visualization|export|commands"
    folders += "|tests|examples"
    for name in re.findall(rf"`((?:{folders})/\w+\.py)`", page.read_text("utf-8")):
        roots = (ROOT / "keras_transformer", ROOT)
        assert any((root / name).is_file() for root in roots), name


def test_architecture_page_lists_every_file():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    for path in (ROOT / "keras_transformer").rglob("*.py"):
        folder = path.parent.name
        if path.stem.startswith("__") or folder in ("commands", "keras_transformer"):
            continue
        assert f"`{folder}/{path.name}`" in text, path.name


def test_the_code_of_the_decoding_page_runs(trained, tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/decoding.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    names = {"model": trained, "tokenizer": tokenizer}
    for block in blocks:
        exec(compile(block, "decoding.md", "exec"), names)
    assert len(blocks) > 8
    assert "ein Hund rennt" in capsys.readouterr().out


def test_the_code_of_the_training_page_runs(sentences, tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/training.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    names = {"sources": sentences[0], "targets": sentences[1], "tokenizer": tokenizer}
    exec(compile(block, "training.md", "exec"), names)
    assert len(names["checkpoint"].history) == 2


def test_the_code_of_the_page_of_pictures_runs(trained, tokenizer, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="needs the extra [plots]")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/visualization.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    names = {"model": trained, "tokenizer": tokenizer}
    for block in blocks:
        exec(compile(block, "visualization.md", "exec"), names)
    assert len(blocks) > 9
    assert "zwei große Katzen schlafen heute hier" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"attention.html", "cross.png"}


def test_the_code_of_the_language_modelling_page_runs(sentences, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export = "keras_transformer.export.text_generator.export_saved_model"
    monkeypatch.setattr(export, lambda *arguments, **keywords: "exports/texts/1")  # slow
    page = (ROOT / "docs/language_modelling.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    names = {"texts": sum(sentences, []) * 3}
    for block in blocks:
        exec(compile(block, "language_modelling.md", "exec"), names)
    assert len(blocks) > 5
    assert "a small dog" in capsys.readouterr().out


def test_every_option_of_the_training_page_exists():
    page = (ROOT / "docs/training.md").read_text("utf-8")
    known = set(
        re.findall(
            r"--[a-z-]+", (ROOT / "keras_transformer" / "commands/options.py").read_text("utf-8")
        )
    )
    named = set(re.findall(r"--[a-z][a-z-]+", page)) - {"--logdir"}
    assert len(named) > 15 and named <= known


def test_readme_code_is_the_public_api():
    code = re.search(r"```python\n(.+?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    compile(code.group(1), "README.md", "exec")
    names = re.search(r"from keras_transformer import \((.+?)\)", code.group(1), re.DOTALL)
    for name in re.findall(r"\w+", names.group(1)):
        assert hasattr(keras_transformer, name)


def test_paper_page_quotes_lines_that_exist():
    page = (ROOT / "docs/paper_to_code.md").read_text("utf-8")
    quoted = 0
    for section in page.split("\n## "):
        heading_file = re.search(r"`(\w+/\w+\.py)`", section.splitlines()[0])
        for row in re.findall(r"^\| .+ \|$", section, re.MULTILINE):
            cells = [cell.strip() for cell in row.strip("|").split(" | ")]
            if not re.fullmatch(r"`.+`", cells[1]):
                continue
            file = cells[2].strip("`") if len(cells) > 2 else heading_file.group(1)
            text = (ROOT / "keras_transformer" / file).read_text("utf-8")
            lines = {line.strip() for line in text.splitlines()}
            assert cells[1].strip("`") in lines, f"{file}: {cells[1]}"
            quoted += 1
    assert quoted > 25
