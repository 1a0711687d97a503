"""What the benchmarks give Marian, and how they read it, without Marian.

`benchmarks/marian_parity.py` is the test with it.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_transformer import Tokenizer, Transformer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CASE = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16, "dropout": 0.3}
# A package in Marian's place: it writes what an epoch of the files' two sentences is told by.
PRETENDER = """
import signal, sys
for epoch in range(3):
    print("Ep. 1 : Up. 1 : Sen. 1 : Cost 4.00 * 3 @ 3 after 3 : Time 1s", file=sys.stderr)
    print("Ep. 1 : Up. 2 : Sen. 2 : Cost 1.00 * 1 @ 1 after 4 : Time 1s", file=sys.stderr)
    print(f"Seen {2 - epoch // 2} samples", file=sys.stderr, flush=True)
signal.pause()
"""


@pytest.fixture
def load(monkeypatch):
    """load("marian_model"): a file of benchmarks or of benchmarks/trainers."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "trainers"))
    return importlib.import_module


@pytest.fixture
def case_folder(tmp_path):
    """Two sentences, as `write_case` of benchmarks/training.py leaves them."""
    (tmp_path / "source.txt").write_text("p4 p5\np5\n", "utf-8")
    (tmp_path / "target.txt").write_text("p5 p4\n\n", "utf-8")
    (tmp_path / "vocabulary.txt").write_text("<blank>\n<s>\n</s>\np4\np5\n", "utf-8")
    return tmp_path


def test_the_file_holds_every_weight_and_forbids_only_the_special_tokens(load, tmp_path):
    tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=270)
    sizes = {name: CASE[name] for name in ("num_layers", "d_model", "num_heads", "d_ff")}
    model = Transformer(**sizes, source_vocab_size=270)
    load("marian_model").write_marian(model, tokenizer, tmp_path / "marian", may_end=False)
    with np.load(tmp_path / "marian" / "model.npz") as file:
        arrays = dict(file)
    settings = arrays.pop("special:model.yml").tobytes().decode()
    assert settings.endswith("\0")
    assert "dim-vocabs: [270, 270]" in settings
    bias = arrays.pop("decoder_ff_logit_out_b")
    assert np.flatnonzero(bias).tolist() == [0, 1, 2, 3]
    assert sum(array.size for array in arrays.values()) == model.count_params()
    assert all(array.dtype == "float32" for array in arrays.values())
    attention = model.decoder.layers[0].cross_attention
    keys_and_values = [arrays[f"decoder_l1_context_W{name}"] for name in "kv"]
    np.testing.assert_array_equal(
        np.concatenate(keys_and_values, axis=1), np.array(attention.memory_projection.kernel)
    )


def test_sines_come_before_cosines_from_the_first_frequency_to_the_last(load):
    table = load("marian_model").sinusoids(50, 8)
    position = np.arange(50)
    for column, expected in (
        (0, np.sin(position)),
        (3, np.sin(position / 10000)),
        (4, np.cos(position)),
        (7, np.cos(position / 10000)),
    ):
        np.testing.assert_allclose(table[:, column], expected, atol=1e-6)


def test_a_training_is_read_epoch_by_epoch_and_misses_no_sentence(
    load, case_folder, monkeypatch, tmp_path
):
    (tmp_path / "pymarian.py").write_text(PRETENDER, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    case = {**CASE, "warmup_steps": 10, "batch_tokens": 40}
    engine = load("marian_engine").Engine(case, case_folder)
    assert engine.epoch() == (4.0 * 3 + 1.0) / 4
    assert engine.epoch() == (4.0 * 3 + 1.0) / 4
    assert engine.peak_mib() > 0
    with pytest.raises(AssertionError, match="not all of the text"):
        engine.epoch()
    engine.process.kill()
    engine.process.wait()
    engine.process.stderr.close()
    assert engine.options(case, case_folder)["mini-batch-words"] == 50  # 5 source tokens, 4 target


def test_marian_has_as_many_ids_as_the_other_engines(load, case_folder):
    load("marian_engine").write_vocabulary(case_folder)
    text = (case_folder / "vocabulary.yml").read_text("utf-8")
    ids = json.loads("{" + ",".join(text.splitlines()) + "}")
    assert ids == {"</s>": 0, "<unk>": 1, "<blank>": 2, "<s>": 3, "p4": 4, "p5": 5}


def test_marian_runs_by_default_where_its_environment_is_named(load, monkeypatch, capsys):
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "CT2_USE_MKL"):
        monkeypatch.setenv(name, "0")  # the import sets what is not set; this is undone
    decoding = load("decoding")
    monkeypatch.setattr(sys, "argv", ["decoding.py"])
    assert "marian" not in decoding.parse_options().engines
    monkeypatch.setattr(sys, "argv", ["decoding.py", "--python", f"marian={sys.executable}"])
    options = decoding.parse_options()
    assert {"graph", "marian", "marian_int8"} <= set(options.engines)
    assert options.python == {"marian": sys.executable}
    monkeypatch.setattr(sys, "argv", ["decoding.py", "--python", f"graph={sys.executable}"])
    with pytest.raises(SystemExit):
        decoding.parse_options()
    assert "give marian=PATH" in capsys.readouterr().err
