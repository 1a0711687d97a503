"""`pipeline`: Apache Beam writes what `translate` writes, or nothing."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformer.cli import main
from keras_transformer.commands import early_checks
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.pipeline import beam_options, last_line

# A handler that does not answer the n-th batch of a process, as long as the file "fail" is there.
SCRIPT = """
import os, sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from keras_transformer.apache_beam.files import TranslateFiles
from keras_transformer.apache_beam.translation import TranslationHandler

class Handler(TranslationHandler):
    def run_inference(self, batch, model, inference_args=None):
        if os.path.exists("fail"):
            assert sys.argv[2] != "error", "an error in a bundle"
            os.kill(os.getpid(), 9)
        return super().run_inference(batch, model)

if __name__ == "__main__":
    options = "--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode"
    pipeline = beam.Pipeline(options=PipelineOptions([*options, "multi_processing"]))
    transform = TranslateFiles(["source.txt"], "out.txt", Handler(sys.argv[1]))
    _ = pipeline | transform
    try:
        pipeline.run().wait_until_finish()
    finally:
        transform.remove_parts()
"""


def test_what_follows_two_dashes_is_for_beam():
    words = ["pipeline", "exports/en-de", "--input", "in", "--output", "out"]
    assert build_parser().parse_args(words).rest == []
    options = build_parser().parse_args([*words, "--json", "--", "--runner", "FlinkRunner"])
    assert options.json and options.rest == ["--runner", "FlinkRunner"]
    assert beam_options(options.rest) == options.rest
    local = beam_options(["--direct_num_workers", "3"])
    assert local[:2] == ["--direct_num_workers", "3"] and "--runner=FnApiRunner" in local
    assert not [word for word in local if word.startswith("--direct_num_workers=")]


def test_an_option_of_another_name_is_refused_before_the_dashes(capsys):
    with pytest.raises(SystemExit):
        main(["pipeline", "x", "--input", "i", "--output", "o", "--runner", "FlinkRunner"])
    assert "there is no option --runner" in capsys.readouterr().err


def test_what_is_missing_is_said_before_the_pipeline_is_built(tmp_path, capsys, monkeypatch):
    arguments = ["pipeline", str(tmp_path), "--input", "in", "--output"]
    monkeypatch.setattr(early_checks, "find_spec", lambda name: None)
    assert main([*arguments, "out"]) == 1
    assert 'pip install "keras-transformer-layers[beam]"' in capsys.readouterr().err
    monkeypatch.setattr(early_checks, "find_spec", lambda name: name)
    assert main([*arguments, str(tmp_path / "no" / "out")]) == 1
    assert "no/out" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "out")]) == 1
    assert "is neither a run nor an export" in capsys.readouterr().err


def test_the_cause_of_an_error_is_its_last_line():
    assert last_line(RuntimeError("Traceback\n  File x\nValueError: no\n")) == "ValueError: no"
    assert last_line(KeyError()) == "KeyError"


@pytest.fixture
def source(word_salads, tmp_path):
    path = tmp_path / "source.txt"
    lines = [*word_salads * 3, "", " \t", "a\u2028dog", "x" * 300]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def python(*arguments, cwd):
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        timeout=500,
    )


@pytest.mark.slow
def test_the_transform_gives_a_dict_for_each_line_in_batches_by_length(echo):
    beam = pytest.importorskip("apache_beam", reason="needs the extra [beam]")
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.testing.util import assert_that, equal_to

    from keras_transformer.apache_beam import Translate

    echo._replace = lambda **changes: SimpleNamespace(**{**vars(echo), **changes})
    lines = ["x" * (7 * i % 31) for i in range(50)]
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        answers = pipeline | beam.Create(lines) | Translate("export")
        pairs = answers | beam.Map(lambda answer: (answer["text"], answer["translation"]))
        assert_that(pairs, equal_to([(line, line) for line in lines]))
    asked = [len(text) for columns in echo.calls for text in columns["text"]]
    assert asked == sorted(map(len, lines), reverse=True)


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_translate_with_a_model_each(exported, source, tmp_path):
    pytest.importorskip("apache_beam", reason="needs the extra [beam]")
    text = source.read_bytes() + "grün\n".encode("latin-1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.txt").write_bytes(text)
    (tmp_path / "in/2.txt.gz").write_bytes(gzip.compress(text))
    (tmp_path / "in/3.txt").write_bytes(b"")
    source.write_bytes(text * 2)
    command = ["-m", "keras_transformer", "pipeline", exported[1], "--input", "in/*", "--scores"]
    result = python(*command, "--output", "out.txt", "--", "--direct_num_workers=2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = text.count(b"\n") * 2
    assert f"wrote {lines} lines to out.txt; models loaded: 2" in result.stderr
    assert f"2 of {lines} lines have U+FFFD" in result.stderr
    whole = tmp_path / "whole.txt"
    arguments = ["translate", exported[1], "--input", str(source), "--output", str(whole)]
    assert main([*arguments, "--scores"]) == 0
    assert (tmp_path / "out.txt").read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {
        "in",
        "out.txt",
        "source.txt",
        "whole.txt",
    }


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["error", "kill"])
def test_a_failure_leaves_nothing_and_the_next_run_all(exported, source, tmp_path, failure):
    pytest.importorskip("apache_beam", reason="needs the extra [beam]")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "fail").touch()
    result = python("script.py", exported[1], failure, cwd=tmp_path)
    assert result.returncode == 1
    assert failure == "kill" or "an error in a bundle" in result.stderr
    here = {path.name for path in tmp_path.iterdir()}
    assert here == {"fail", "script.py", "source.txt"}
    (tmp_path / "fail").unlink()
    assert python("script.py", exported[1], failure, cwd=tmp_path).returncode == 0
    whole = tmp_path / "whole.txt"
    arguments = ["translate", exported[1], "--input", str(source), "--output", str(whole)]
    assert main(arguments) == 0
    assert (tmp_path / "out.txt").read_bytes() == whole.read_bytes()
