"""The public names are those that README, docs, examples and the API reference use."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import keras
import pytest

import keras_transformer
from keras_transformer import apache_beam, visualization

ROOT = Path(keras_transformer.__file__).parents[1]
PACKAGES = {
    "keras_transformer": keras_transformer,
    "keras_transformer.visualization": visualization,
    "keras_transformer.apache_beam": apache_beam,
}
PUBLIC = [(package, name) for package in PACKAGES for name in PACKAGES[package].__all__]
REFERENCE = sorted((ROOT / "docs/reference").glob("*.md"))
# Rooms whose public names still lack type hints or examples.
UNFINISHED = ()
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def imported(code):
    """The pairs (module, name) that a program imports of this package."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "keras_transformer":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] != "keras_transformer" for alias in node.names)


def used():
    """The pairs (module, name) of each page and example."""
    for page in PAGES:
        for block in re.findall(r"```python\n(.+?)```", page.read_text("utf-8"), re.DOTALL):
            yield from imported(block)
    for example in (ROOT / "examples").rglob("*.py"):
        yield from imported(example.read_text("utf-8"))


def documented():
    text = "".join(page.read_text("utf-8") for page in REFERENCE)
    return [tuple(name.rsplit(".", 1)) for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]


def test_pages_and_examples_use_public_names_only():
    assert not set(used()) - set(PUBLIC)


def test_the_reference_has_every_public_name_once_and_nothing_else():
    pages = {("keras_transformer", "visualization")}  # a page of its own
    assert sorted(documented()) == sorted(set(PUBLIC) - pages)


def public(package, name):
    if package == "keras_transformer.apache_beam":
        pytest.importorskip("apache_beam", reason="needs the extra [beam]")
    return getattr(PACKAGES[package], name)


def is_finished(value):
    return not isinstance(value, ModuleType) and value.__module__.split(".")[1] not in UNFINISHED


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_a_public_name_has_a_docstring_with_an_example(package, name):
    value = public(package, name)
    assert len(value.__doc__.split("\n")[0]) > 20
    assert ">>> " in value.__doc__ or not is_finished(value)


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_arguments_and_results_have_type_hints(package, name):
    value = public(package, name)
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    if is_error or not is_finished(value):
        return
    # Of a class that inherits `__init__`, Python 3.11.2 shows the `__new__` of Keras.
    is_layer = inspect.isclass(value) and issubclass(value, keras.layers.Layer)
    signature = inspect.signature(value.__init__ if is_layer else value)
    for parameter in signature.parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != "self":
            assert parameter.annotation is not parameter.empty, parameter.name
    if inspect.isfunction(value):
        assert signature.return_annotation is not signature.empty


def test_an_unknown_name_is_an_attribute_error():
    for package in PACKAGES.values():
        with pytest.raises(AttributeError, match="has no attribute 'Transformers'"):
            _ = package.Transformers


def test_importing_loads_neither_keras_nor_tensorflow():
    code = (
        "import sys, keras_transformer, keras_transformer.cli;"
        "keras_transformer.visualization;"
        "print({'keras', 'tensorflow', 'numpy', 'matplotlib'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "set()", result.stderr


def test_a_wheel_has_the_stubs_that_editors_read():
    setup = (ROOT / "setup.py").read_text("utf-8")
    assert '"": ["*.pyi"]' in setup and '["py.typed"]' in setup  # "" is each package
    assert (ROOT / "keras_transformer/py.typed").is_file()
