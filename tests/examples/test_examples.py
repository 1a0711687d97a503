"""The examples run as a reader of the README would run them."""

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer import presets
from keras_transformer.inference.run_directory import save_run

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(monkeypatch, example, **options):
    """Runs an example in this process: importing TensorFlow takes longer than most."""
    words = [w for name, value in options.items() for w in (f"--{name}", str(value))]
    monkeypatch.setattr("sys.argv", [example, *words])
    return runpy.run_path(str(EXAMPLES / example), run_name="__main__")


@pytest.fixture(scope="module")
def example_export(tmp_path_factory):
    """Where the example of training exported its translator, a smaller one than a reader's."""
    size = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
    out, output = tmp_path_factory.mktemp("example"), io.StringIO()
    options = {"num-pairs": 300, "vocab-size": 400, "epochs": 1, "out": out}
    with pytest.MonkeyPatch.context() as monkeypatch, contextlib.redirect_stdout(output):
        monkeypatch.setattr(presets, "TINY", size)
        run(monkeypatch, "train_translation.py", **options)
    return re.search(r"^exported to (.+)$", output.getvalue(), re.MULTILINE).group(1)


def python(*arguments, text=""):
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env=environment,
    )


@pytest.mark.slow
def test_training_example_exports_a_saved_model(example_export):
    assert (Path(example_export) / "saved_model.pb").is_file()


@pytest.mark.slow
def test_translation_example_needs_tensorflow_only(example_export):
    script = EXAMPLES / "translate.py"
    assert "keras" not in script.read_text("utf-8")
    result = python("-I", script, example_export, text="It is late.\n\nOn Monday.\n")
    assert result.returncode == 0, result.stderr[-2000:]
    lines = result.stdout.split("\n")
    assert len(lines) == 4 and lines[1] == "0.000\t"
    assert all(float(line.split("\t")[0]) <= 0 for line in lines[:3])


@pytest.mark.slow
def test_translation_example_without_a_model_says_how(example_export):
    result = python(EXAMPLES / "translate.py")
    assert result.returncode == 1 and "< input.txt" in result.stderr


@pytest.mark.slow
def test_pictures_are_drawn_from_a_run(trained, tokenizer, tmp_path, monkeypatch):
    save_run(trained, tokenizer, tmp_path / "run")
    options = {"run": tmp_path / "run", "sentence": "a cat sleeps", "word": "Katz"}
    run(monkeypatch, "pictures.py", **options, out=tmp_path / "out")
    documented = EXAMPLES.parent / "docs" / "images"
    for path in (tmp_path / "out").iterdir():
        assert (documented / path.name).is_file()
    assert len(list((tmp_path / "out").glob("*.png"))) == 9
    assert "\\u2581Katz" in (tmp_path / "out" / "attention.html").read_text("utf-8")


@pytest.mark.slow
def test_language_model_is_compared_with_ngrams_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    small = {"num-sections": 12, "epochs": 1, "num-layers": 1, "d-model": 16, "vocab-size": 400}
    run(monkeypatch, "language_model.py", **small, out=tmp_path)
    output = capsys.readouterr().out
    bits = re.findall(r"^(?:Kneser-Ney|this model): (.+) bits per byte", output, re.MULTILINE)
    assert len(bits) == 2 and all(1 < float(value) < 9 for value in bits)
    assert "\n---\nA list is" in output
    assert (tmp_path / "manifest.json").is_file()


@pytest.mark.slow
def test_forecasting_example_scores_every_model(eager, tmp_path, monkeypatch, capsys):
    pytest.importorskip("statsmodels", reason="needs the extra [forecasting]")
    options = {"series": "sunspots", "seeds": 1, "updates": 2, "origins": 2}
    run(monkeypatch, "forecasting.py", **options, plot=tmp_path / "forecasts.png")
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[2:]]
    models = ["seasonal naive", "ETS", "LSTM", "LSTM + linear", "Forecaster"]
    assert [row[1].strip() for row in rows] == models
    assert all(0 < float(row[3]) < 9 and 0 < float(row[4]) < 9 for row in rows)
    sizes = [int(row[2]) for row in rows[2:]]
    assert sizes[2] <= sizes[0] < 1.05 * sizes[2]  # the LSTM is no smaller
    assert (tmp_path / "forecasts.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_classification_example_exports_the_classifier(eager, tmp_path, monkeypatch, capsys):
    options = {"limit": 200, "epochs": 1, "vocab-size": 400, "d-model": 8}
    run(monkeypatch, "classification.py", **options, out=tmp_path / "languages")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[3:6]] == [
        "| the most frequent language",
        "| naive Bayes",
        "| SequenceClassifier",
    ]
    assert lines[6].endswith("languages/1")
    assert (tmp_path / "languages" / "1" / "saved_model.pb").is_file()


@pytest.mark.slow
def test_the_example_of_jax_and_keras_distribution_learns_on_two_devices():
    pytest.importorskip("jax", reason="needs the extra [jax]")
    flags = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, EXAMPLES / "jax_devices.py", "--epochs", "6"]
    options = {"env": {**os.environ, **flags}, "capture_output": True, "text": True}
    output = subprocess.run(command, check=True, **options).stdout
    assert "2 devices, accuracy" in output and output.endswith("[[10, 9, 8, 7, 6, 5]]\n")
