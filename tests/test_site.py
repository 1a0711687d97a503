"""The documentation site: it builds without a warning, is complete, and needs no other site."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_transformer
from keras_transformer import visualization

pytestmark = pytest.mark.slow
ROOT = Path(keras_transformer.__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("mkdocstrings", reason="needs the extra [docs]")
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0 and "WARNING" not in result.stderr, result.stderr
    return folder


@pytest.fixture(scope="module")
def documented(site):
    """Paths of all that the reference describes, such as `keras_transformer.presets`."""
    pages = "".join(page.read_text("utf-8") for page in (site / "reference").glob("*.html"))
    return set(re.findall(r'id="(keras_transformer[\w.]*)"', pages))


@pytest.mark.parametrize("package", [keras_transformer, visualization])
def test_the_reference_has_every_public_name(documented, package):
    names = {f"{package.__name__}.{name}" for name in package.__all__}
    missing = names - documented - {"keras_transformer.visualization"}  # a page of its own
    assert not missing, "add them to a page in docs/reference"


def test_the_reference_has_every_name_that_a_page_imports(documented):
    imported = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for code in re.findall(r"```python\n(.+?)```", page.read_text("utf-8"), re.DOTALL):
            pattern = r"^from (keras_transformer[\w.]*) import (\(.+?\)|.+?$)"
            for module, names in re.findall(pattern, code, re.MULTILINE | re.DOTALL):
                imported |= {(module, name) for name in re.findall(r"\w+", names)}
    assert len(imported) > 30
    assert {f"{module}.{name}" for module, name in imported} <= documented


def test_no_section_of_a_docstring_is_left_as_text(site):
    for page in (site / "reference").glob("*.html"):
        text = page.read_text("utf-8")
        # What Griffe does not know becomes a box; an example that it does not see, a quotation.
        assert "<details" not in text and "<blockquote>" not in text, page.name
        assert not re.search(r"<p>(Args|Call arguments|Returns|Raises|Example)s?:", text), page.name


def test_a_page_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        for tag in re.findall(
            r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text("utf-8")
        ):
            assert not re.search(r'(?:src|href)=["\']?(?:\w+:)?//', tag), f"{page.name}: {tag}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:\w+:)?//", style.read_text("utf-8"))
