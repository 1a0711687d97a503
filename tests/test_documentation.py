"""Docstring examples run; names and files that the pages mention exist."""

import doctest
import importlib
import re
import runpy
import shlex
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer import keras_names
from keras_transformer.commands.parser import build_parser

ROOT = Path(keras_transformer.__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
MODULES = ["keras_transformer"] + sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "keras_transformer").rglob("*.py")
    if path.stem not in ("__init__", "__main__")
)
# Their examples make exports, or pictures of a search, or need an extra of slow tests.
SLOW = ("data.tfds_corpus", "export.classifier", "forecasting.export", "inference.inspection")
SLOW += ("inference.run_directory", "inference.translator")


def with_marks(module):
    is_slow = module.removeprefix("keras_transformer.") in SLOW
    return pytest.param(module, marks=pytest.mark.slow) if is_slow else module


@pytest.mark.parametrize("name", [with_marks(module) for module in MODULES])
def test_docstring_examples(name, eager):
    if ".apache_beam." in name:
        pytest.importorskip("apache_beam", reason="needs the extra [beam]")
    if name.endswith("data.tfds_corpus"):
        pytest.importorskip("tensorflow_datasets", reason="needs the extra [tfds]")
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
def test_no_sentence_becomes_a_list(page):
    # "... of up to" and "20. It ..." on the next line: Markdown reads an item with the number 20.
    text = re.sub(r"```.+?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    assert not re.search(r"^\s*(?!1\.)\d+[.)] ", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    folders = "data|layers|models|training|decoding|evaluation|visualization|inference|export"
    folders += "|forecasting|commands|apache_beam|tests|examples"
    for name in re.findall(rf"`((?:{folders})/[\w/]+\.py)`", page.read_text("utf-8")):
        roots = (ROOT / "keras_transformer", ROOT)
        assert any((root / name).is_file() for root in roots), name


def test_the_table_of_files_is_up_to_date():
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    updated = runpy.run_path(str(ROOT / "docs/file_table.py"))["updated"]
    assert updated(page) == page, "run python docs/file_table.py"


@pytest.fixture
def run_code(tmp_path, monkeypatch, capsys):
    """run_code(page, **names): runs its Python blocks, returns their number and what they print."""
    monkeypatch.chdir(tmp_path)

    def run(page, **names):
        text, printed = (ROOT / page).read_text("utf-8"), []
        blocks = re.findall(r"```python\n(.+?)```(?:\n\n```text\n(.+?)```)?", text, re.DOTALL)
        with np.printoptions():  # a page may set its own
            for code, expected in blocks:
                exec(compile(code, page, "exec"), names)
                printed.append(capsys.readouterr().out)
                assert expected in ("", printed[-1]), code
        return len(blocks), "".join(printed)

    return run


def test_the_code_of_the_first_page_runs(run_code):
    assert run_code("docs/index.md")[1].count("EncoderLayer") == 2


def test_the_code_of_the_paper_page_runs(run_code):
    num_blocks, printed = run_code("docs/paper_to_code.md")
    assert num_blocks > 15 and "False\nFalse" not in printed


@pytest.mark.slow
def test_the_code_of_the_page_about_keras_runs(run_code):
    assert run_code("docs/keras.md")[0] == 7


def test_the_page_about_keras_lists_every_name_that_has_another_name_here():
    page = (ROOT / "docs/keras.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    arguments = {name: ", or ".join(ours) for name, ours in keras_names.ARGUMENTS.items()}
    missing = {name: f"none: {why}" for name, why in keras_names.MISSING.items()}
    assert rows == {**keras_names.CLASSES, **arguments, **missing}


@pytest.mark.slow
def test_the_code_of_the_decoding_page_runs(run_code, trained, tokenizer):
    num_blocks, printed = run_code("docs/decoding.md", model=trained, tokenizer=tokenizer)
    assert num_blocks > 8 and "ein Hund rennt" in printed


@pytest.mark.slow
def test_the_code_of_the_page_about_fast_models_runs(run_code, trained, tokenizer):
    names = {"teacher": trained, "second_teacher": trained, "tokenizer": tokenizer}
    assert run_code("docs/fast_models.md", **names) == (1, "['ein Hund rennt']\n")


@pytest.mark.slow
def test_the_code_of_the_training_page_runs(eager, run_code, sentences, tokenizer):
    names = {"sources": sentences[0], "targets": sentences[1], "tokenizer": tokenizer}
    names["__name__"] = "__main__"
    for path, lines in (("train.en", sentences[0]), ("train.de", sentences[1])):
        Path(path).write_text("\n".join(lines * 9) + "\n", "utf-8")
    assert run_code("docs/training.md", **names)[0] == 3
    assert (Path("runs/page/checkpoints")).is_dir()


@pytest.mark.slow
def test_the_code_of_the_translation_page_runs(run_code, monkeypatch):
    size = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.0}
    monkeypatch.setattr(keras_transformer.presets, "TINY", size)
    # The page loads its export itself.
    monkeypatch.setattr("keras_transformer.export.saved_model.self_test", lambda *_: None)
    for name, count in (("train", 40), ("valid", 4)):
        for language, line in (("en", "a small dog runs home"), ("de", "ein kleiner Hund rennt")):
            Path(f"{name}.{language}").write_text(f"{line}\n" * count, "utf-8")
    num_blocks, printed = run_code("docs/translation.md")
    assert num_blocks == 8
    assert printed.startswith("40 pairs, skipped: {}\na small dog runs home -> ein kleiner Hund")
    assert printed.endswith("True\n")  # served, the translation is the same


@pytest.mark.slow
def test_the_code_of_the_page_of_pictures_runs(run_code, trained, tokenizer, tmp_path):
    num_blocks, printed = run_code("docs/visualization.md", model=trained, tokenizer=tokenizer)
    assert num_blocks > 9 and "zwei große Katzen schlafen heute hier" in printed
    names = {path.name for path in tmp_path.iterdir()}
    assert {"attention.html", "Cross-attention.png"} < names and len(names) == 4


@pytest.mark.slow
def test_the_code_of_the_language_modelling_page_runs(run_code, sentences, monkeypatch):
    export = "keras_transformer.export.saved_model.export_saved_model"
    monkeypatch.setattr(export, lambda *arguments, **keywords: "exports/texts/1")  # slow
    texts = sum(sentences, []) * 3
    num_blocks, printed = run_code("docs/language_modelling.md", texts=texts)
    assert num_blocks > 5 and "a small dog" in printed


def test_the_code_of_the_serving_page_runs(run_code, monkeypatch):
    import tensorflow as tf

    called = []  # TensorFlow refuses another number of threads once it has run anything
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", called.append)
    run_code("docs/serving.md")
    assert called == [1]


def test_the_code_of_every_page_has_a_test():
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for page in DOCS:
        if "```python" in page.read_text("utf-8"):
            assert f'"{page.relative_to(ROOT).as_posix()}"' in tests


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_pages_are_understood(page):
    for block in re.findall(r"```sh\n(.+?)```", page.read_text("utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if "keras-transformer " in line:
                words = shlex.split(line, comments=True)
                build_parser().parse_args(words[words.index("keras-transformer") + 1 :])


def test_commands_of_the_scripts_for_schedulers_are_understood():
    page = (ROOT / "docs/scaling.md").read_text("utf-8")
    commands = []
    for block in re.findall(r"```(?:bash|yaml)\n(.+?)```", page, re.DOTALL):
        block = re.sub(r"\\?\n +(?=--)", " ", block)
        block = re.sub(r"\$\(\(.+?\)\)|\$\w+|\$\(.+?\)", "7", block)  # what a shell fills in
        commands += re.findall(r"keras-transformer ([a-z]+ .+?)'?$", block, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        options = build_parser().parse_args(shlex.split(command))
        assert getattr(options, "shard", None) or options.strategy == "multi_worker"


@pytest.mark.slow
def test_the_code_of_the_forecasting_page_runs(eager, run_code):
    num_blocks, printed = run_code("docs/forecasting.md")
    assert num_blocks == 8
    scores = dict(re.findall(r"(.*MASE|pinball) ([\d.]+)", printed))
    assert float(scores["MASE"]) < float(scores["seasonal naive MASE"])


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
