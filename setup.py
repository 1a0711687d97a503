"""Installs keras_transformer; the distribution is called keras-transformer-layers."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "keras_transformer/__init__.py").read_text(), re.MULTILINE
).group(1)

EXTRAS = {
    # Beam wants protobuf 6; sentencepiece 0.2.3 needs 7, but does not declare it.
    "beam": ["apache-beam>=2.77,<3", "sentencepiece>=0.2.2,<0.2.3"],
    "ctranslate2": ["ctranslate2>=4.6"],
    # Ruff breaks long signatures into lines.
    "docs": [
        "mkdocs>=1.6,<2",
        "mkdocs-material>=9.6,<10",
        "mkdocstrings[python]>=1,<2",
        "ruff>=0.8",
    ],
    "forecasting": ["statsmodels>=0.14.5"],
    "jax": ["jax>=0.5"],
    "serving": ["tensorflow-serving-api>=2.20,<2.22"],
    # tensorflow-datasets imports importlib_resources without declaring it.
    "tfds": ["tensorflow-datasets>=4.9.7", "importlib_resources"],
}
# What only slow tests need; `make test` does not wait for its installation.
OF_SLOW_TESTS = ("beam", "ctranslate2", "docs", "forecasting", "tfds")
EXTRAS["test"] = [
    # Editors and type checkers see what users of the library see.
    "jedi>=0.19",
    "mypy>=1.18",
    "hypothesis>=6",
    "pytest>=8",
    "pytest-xdist>=3.7",
    "ruff>=0.8",
    *(package for name in EXTRAS if name not in OF_SLOW_TESTS for package in EXTRAS[name]),
]
EXTRAS["test-all"] = [
    *EXTRAS["test"],
    *(package for name in OF_SLOW_TESTS for package in EXTRAS[name]),
    "basedpyright>=1.31",
    # The sdist and the wheel are built and tried.
    "build>=1.2",
    "setuptools>=77",
]

setup(
    name="keras-transformer-layers",
    version=VERSION,
    description="Transformers for Keras 3, from raw text to a served translation",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    # A plain path for editable installations: type checkers cannot see through setuptools's finder.
    package_dir={"": "."},
    packages=find_packages(include=["keras_transformer", "keras_transformer.*"]),
    package_data={
        "": ["*.pyi"],
        "keras_transformer": ["py.typed"],
        "keras_transformer.visualization": ["*.html"],
    },
    install_requires=[
        "Babel>=2.12",
        "keras>=3.15,<4",
        # The first screen of TensorBoard, the pages of `inspect`.
        "matplotlib>=3.9",
        "num2words>=0.5.13",
        # Keras needs it, too; it draws the progress bars.
        "rich>=13",
        "sacrebleu>=2.4,<3",
        "sentencepiece>=0.2.1",
        "tensorboard>=2.20",
        "tensorflow>=2.21,<2.22",
        "tensorflow-text>=2.21.1,<2.22",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["keras-transformer = keras_transformer.cli:main"]},
)
