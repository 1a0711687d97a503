"""Two files of text, and `translate` on bytes."""

import gzip
import io
from types import SimpleNamespace

import pytest

from keras_transformer.cli import main


@pytest.fixture(scope="module")
def files(sentences, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli")
    paths = directory / "source.txt.gz", directory / "target.txt"
    paths[0].write_bytes(gzip.compress(("\n".join(sentences[0]) + "\n").encode()))
    paths[1].write_text("\n".join(sentences[1]) + "\n", "utf-8")
    return [str(path) for path in paths]


@pytest.fixture
def run(tmp_path):
    """What looks like a run, from far; for commands that do not load it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("1")
    return str(tmp_path / "run")


@pytest.fixture
def translate(monkeypatch, capsysbinary):
    """Runs `translate` on bytes; returns the exit code and the bytes written."""

    def call(data: bytes, *arguments):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["translate", *arguments])
        return code, capsysbinary.readouterr().out

    return call


@pytest.fixture
def echo(monkeypatch):
    """Lets commands get back what they read: every text is its own translation.

    Its list `calls` has the columns of each call.
    """
    calls = []

    def ask(columns):
        calls.append(columns)
        fields = {"score": -1.0, "source_cut": False, "ended": True}
        return [{"translation": text, **fields} for text in columns["text"]]

    model = SimpleNamespace(ask=ask, batch_size=2, threads=2, limit="are cut", calls=calls)
    monkeypatch.setattr("keras_transformer.commands.loading.load", lambda *_: model)
    return model
