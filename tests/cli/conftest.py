"""Two files of text, and `translate` on bytes."""

import gzip
import io

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
def translate(monkeypatch, capsysbinary):
    """Runs `translate` on bytes; returns the exit code and the bytes written."""

    def call(data: bytes, *arguments):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["translate", *arguments])
        return code, capsysbinary.readouterr().out

    return call
