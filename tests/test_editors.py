"""Type checkers and completion see the public names: in the checkout, in a wheel, when editable."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import jedi
import pytest

import keras_transformer
from keras_transformer import visualization

ROOT = Path(keras_transformer.__file__).parents[1]
CODE = re.compile(r"```python\n(.+?)```", re.DOTALL)
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
# The names that a page takes as given.
GIVEN = """
from keras_transformer import Tokenizer, Transformer

model: Transformer
teacher: Transformer
second_teacher: Transformer
tokenizer: Tokenizer
sources: list[str]
targets: list[str]
texts: list[str]
"""
TAKEN = {
    "decoding": "model, tokenizer",
    "fast_models": "teacher, second_teacher, tokenizer",
    "language_modelling": "texts",
    "training": "sources, targets, tokenizer",
    "visualization": "model, tokenizer",
}
RIGHT = """
import keras_transformer as kt
from keras_transformer import Transformer, presets

model = Transformer(**presets.TINY, source_vocab_size=8000, dtype="mixed_bfloat16")
translator = kt.Translator(model, kt.Tokenizer.load("tokenizer.model"), kt.Beam(size=4))
texts: list[str] = translator(["a dog"])
page: str = kt.visualization.attention_page({})
"""
# Each line is an error.
WRONG = """
Transformer(num_layer=2)
Transformer(**presets.TINY, source_vocab_size=8000, num_layer=2)
translator(3)
translator("a dog")
kt.EncoderLayer(d_model=8, num_heads="2", d_ff=8)
kt.Beam(siz=4)
kt.Tokenizers
kt.visualization.attention_page({}, titel="")
kt.load_translator("run", max_len=3)
"""


def check_wrong_lines(text):
    """Each line of `WRONG` has an error, and nothing else has one."""
    errors = re.findall(r"(\w+)\.py:(\d+)(?::\d+)?(?: -|:) error: (.+)", text)
    first = RIGHT.count("\n") + 2
    expected = {("wrong", str(first + i)) for i in range(WRONG.count("\n") - 1)}
    assert {error[:2] for error in errors} == expected, errors


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder: the code of each page, that of `WRONG` behind `RIGHT`, each public name."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "given.pyi").write_text(GIVEN, "utf-8")
    for page in PAGES:
        if blocks := CODE.findall(page.read_text("utf-8")):
            taken = TAKEN.get(page.stem)
            code = [f"from given import {taken}", *blocks] if taken else blocks
            (folder / f"{page.stem.lower()}_page.py").write_text("\n".join(code), "utf-8")
    (folder / "wrong.py").write_text(RIGHT + WRONG, "utf-8")
    names = [f"kt.{name}" for name in keras_transformer.__all__]
    names += [f"kt.visualization.{name}" for name in visualization.__all__]
    lines = ["import keras_transformer as kt", *(f"reveal_type({name})" for name in names)]
    (folder / "names.py").write_text("\n".join(lines), "utf-8")
    return folder


def check_with_mypy(folder, *options, **environment):
    """What mypy says of a folder and of the examples; Keras and TensorFlow have no types."""
    files = [*folder.glob("*.py"), *(ROOT / "examples").rglob("*.py")]
    known = ["--ignore-missing-imports", "--check-untyped-defs", "--no-error-summary"]
    caches = ["--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *known, *caches, *options, *map(str, files)]
    environment = {**os.environ, **environment}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder
    ).stdout


def test_mypy_sees_pages_examples_and_public_names(written):
    text = check_with_mypy(written, "--follow-imports", "silent", MYPYPATH=str(ROOT))
    check_wrong_lines(text)
    revealed = re.findall(r'names\.py:\d+: note: Revealed type is "(.+)"', text)
    assert len(revealed) == len(keras_transformer.__all__) + len(visualization.__all__)
    assert not [shown for shown in revealed if re.search(r"\bAny\b", shown)]


@pytest.mark.parametrize("package", [keras_transformer, visualization])
def test_completion_offers_all_public_names_and_no_private_one(package):
    code = f"import keras_transformer\n{package.__name__}."
    project = jedi.Project(ROOT, added_sys_path=[str(ROOT)])
    names = {completion.name for completion in jedi.Script(code, project=project).complete()}
    assert set(package.__all__) <= names
    # Else modules, which are files, and what every module has.
    others = {name for name in names - set(package.__all__) if not name.startswith("__")}
    assert others <= {path.stem for path in Path(keras_transformer.__file__).parent.rglob("*")}
    assert not [name for name in others if name.startswith("_")]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with a copy of the sources, and a wheel that was built from their sdist."""
    pytest.importorskip("build", reason="needs the extra [test-all]")
    folder = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "keras_transformer", folder / "keras_transformer", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    run = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder]
    subprocess.run(run, check=True, capture_output=True)
    return folder


@pytest.fixture(params=["wheel", "editable"])
def installed(request, built, tmp_path):
    """The Python of a fresh environment in which the package is installed."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv/bin/python"
    packages = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    # What the package needs; a path in a .pth file brings no editable installation along.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others), "utf-8")
    (wheel,) = (built / "dist").glob("*.whl")
    what = [wheel] if request.param == "wheel" else ["--no-build-isolation", "--editable", built]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--force-reinstall", *what], check=True, capture_output=True)
    return python


@pytest.mark.slow
def test_both_checkers_see_an_installation(installed, written, built, tmp_path):
    pytest.importorskip("basedpyright", reason="needs the extra [test-all]")
    text = check_with_mypy(written, "--python-executable", str(installed))
    check_wrong_lines(text)
    (tmp_path / "pyrightconfig.json").write_text(
        # Keras and TensorFlow have no types. Guesses from their code are often wrong.
        '{"useLibraryCodeForTypes": false, "typeCheckingMode": "standard", '
        f'"include": ["{written}", "{ROOT}/examples"], '
        f'"extraPaths": ["{written}", "{ROOT}/examples"]}}',
        "utf-8",
    )
    checker = [sys.executable, "-m", "basedpyright", "--pythonpath", installed, "-p", tmp_path]
    text = subprocess.run(checker, capture_output=True, text=True).stdout
    check_wrong_lines(text)
    code = "import keras_transformer as kt; maps = {'x': ([[[[1.0]]]], ['a'], ['b'])}; "
    code += "print(kt.__file__, kt.visualization.attention_page(maps))"
    result = subprocess.run([installed, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert str(ROOT) not in result.stdout and "<html" in result.stdout, result.stderr
    shown = subprocess.run([installed.with_name("keras-transformer"), "--help"], check=True)
    assert shown.returncode == 0


@pytest.mark.slow
def test_an_sdist_and_a_wheel_hold_the_package(built):
    import tarfile
    import zipfile

    (wheel,), (sdist,) = (built / "dist").glob("*.whl"), (built / "dist").glob("*.tar.gz")
    package = {path for path in (ROOT / "keras_transformer").rglob("*") if path.is_file()}
    package = {str(x.relative_to(ROOT)) for x in package if "__pycache__" not in x.parts}
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info" not in name}
    assert in_wheel == package
    in_sdist = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
    assert package | {"README.md", "LICENSE", "setup.py"} <= in_sdist
