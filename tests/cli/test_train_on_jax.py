"""`train` on JAX: stopped and resumed, killed in several processes, and used by TensorFlow."""

import json
import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer import Vocabulary, load_translator, prepare_store
from keras_transformer.training.tensorboard import read_curve

pytest.importorskip(
    "jax", reason="jax is not installed: pip install 'keras-transformer-layers[jax]'"
)
pytestmark = pytest.mark.slow
# One batch an epoch, so one shape to compile. Dropout, so that its seeds matter.
OPTIONS = (
    *("--d-model", "8", "--num-heads", "2", "--d-ff", "8"),
    *("--encoder-layers", "1", "--decoder-layers", "1", "--dropout", "0.2", "--clip-norm", "1"),
    *("--precision", "float32", "--batch-tokens", "100000", "--warmup-steps", "3"),
    *("--learning-rate-scale", "1", "--cooldown", "0", "--norm-last"),
)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The options that name a small text."""
    folder = tmp_path_factory.mktemp("text")
    for name, words in (("source", "a dog runs"), ("target", "ein Hund rennt")):
        words = words.split()
        lines = [" ".join(words[i % 3 :] + words[: i % 4]) for i in range(40)]
        (folder / name).write_text("\n".join(lines) + "\n")
    files = SimpleNamespace(source=str(folder / "source"), target=str(folder / "target"))
    files.options = ("--source", files.source, "--target", files.target, "--vocab-size", "300")
    files.valid = ("--valid-source", files.source, "--valid-target", files.target)
    return files


# Runs the command line as on a machine where TensorFlow is not installed.
ALONE = """
import sys

sys.modules |= {"tensorflow": None, "tensorflow_text": None}
from keras_transformer.cli import main

sys.exit(main(sys.argv[1:]))
"""


def start(*words, program=("-m", "keras_transformer"), **environment):
    settings = {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **environment}
    command = [sys.executable, *program, "train", *map(str, words), *OPTIONS]
    log = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **settings}, **log)


def finish(process):
    errors = process.communicate(timeout=900)[1]
    assert process.returncode == 0, errors[-3000:]
    return errors


def state(out, epoch):
    with np.load(out / f"checkpoints/state-{epoch:05d}.npz") as members:
        return [members[name] for name in members.files if name != "header"]


def assert_same_bits(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_run_on_jax_resumes_bit_for_bit_and_translates_on_tensorflow(text, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    extras = ("--micro-batches", "2", "--r-drop", "1", "--ema", "0.9")
    options = (*text.options, *text.valid, *extras)
    finish(start(*options, "--epochs", "2", "--out", whole))
    finish(start(*options, "--epochs", "1", "--out", parts))
    finish(start("--resume", "--epochs", "2", "--out", parts))
    assert_same_bits(state(parts, 2), state(whole, 2))
    epochs = [json.loads(line) for line in (whole / "history.jsonl").read_text().splitlines()]
    names = {"val_bleu", "val_chrf", "val_perplexity", "gradient_norm", "perplexity"}
    assert len(epochs) == 2 and names <= epochs[1].keys()
    assert isinstance(load_translator(whole, "greedy")(["a dog runs"])[0], str)


def test_a_store_is_trained_on_without_tensorflow(text, tmp_path):
    pairs = [((text.source, text.target),)]
    prepare_store(tmp_path / "store", *pairs, Vocabulary(size=300), processes=1)
    options = ("--store", tmp_path / "store", *text.valid)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    finish(start(*options, "--epochs", "2", "--out", whole))
    alone = {"program": ("-c", ALONE)}
    finish(start(*options, "--epochs", "1", "--out", parts, **alone))
    finish(start("--resume", "--epochs", "2", "--out", parts, **alone))
    assert_same_bits(state(parts, 2), state(whole, 2))
    scores = [
        json.loads((out / "history.jsonl").read_text().split("\n")[1]) for out in (whole, parts)
    ]
    assert scores[0]["val_bleu"] == scores[1]["val_bleu"]
    curve = read_curve(parts / "logs/train", "step_loss")
    np.testing.assert_array_equal(curve, read_curve(whole / "logs/train", "step_loss"))
    assert isinstance(load_translator(parts, "greedy")(["a dog runs"])[0], str)


def two_processes(*words):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
    names = {"KERAS_DISTRIBUTION_JOB_ADDRESSES": address, "KERAS_DISTRIBUTION_NUM_PROCESSES": "2"}
    words = (*words, "--strategy", "data_parallel", "--quiet")
    return [start(*words, **names, KERAS_DISTRIBUTION_PROCESS_ID=str(i)) for i in range(2)]


@pytest.mark.parametrize("killed", [0, 1])
def test_two_processes_of_which_one_was_killed_end_bit_for_bit_alike(text, tmp_path, killed):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = (*text.options, "--epochs", "8", "--micro-batches", "2")
    for process in two_processes(*options, "--out", whole):
        finish(process)
    processes = two_processes(*options, "--out", parts)
    while not list(parts.glob("checkpoints/state-*.npz")):
        assert processes[killed].poll() is None
        time.sleep(0.05)
    for process in (processes[killed], processes[1 - killed]):  # as a scheduler does
        process.kill()
        process.communicate()
    for process in two_processes("--resume", "--out", parts):
        finish(process)
    assert_same_bits(state(parts, 8), state(whole, 8))
    assert not list(parts.rglob(".new-*"))
