"""Training on JAX: as on TensorFlow, whatever the number of devices and of processes."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "jax", reason="jax is not installed: pip install 'keras-transformer-layers[jax]'"
)
PROGRAM = Path(__file__).with_name("steps_of_fit.py")
PARTS = {"micro_batches": 2, "clip": 1.0}
FOUR_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


def start(*words, **environment):
    # Programs that run once are not worth the time to optimize them.
    settings = {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **environment}
    command = [sys.executable, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **settings}, **pipes)


def output_of(process):
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    return output


def on_jax(file, strategy="none", environment=None, **options):
    words = [f"{name}={value}" for name, value in options.items()]
    output = output_of(start(PROGRAM, file, strategy, *words, **environment or {}))
    return arrays_of(file), output


def arrays_of(file):
    with np.load(file) as arrays:
        return [arrays[name] for name in arrays.files]


def on_tensorflow(**options):
    return runpy.run_path(str(PROGRAM))["trained_weights"](**options)[0]


def assert_equal(found, expected):
    for a, b in zip(found[:-1], expected[:-1], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-6)  # loss, norm, perplexity


def test_four_devices_on_jax_train_as_tensorflow_does_on_one(tmp_path):
    """Micro-batches, clipping, and rows of 1 token beside rows of 12."""
    options = {**PARTS, "epochs": 1}
    found, _ = on_jax(tmp_path / "jax.npz", "data_parallel", FOUR_DEVICES, **options)
    assert_equal(found, on_tensorflow(**options))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"micro_batches": 3}, {"r_drop": 2.0, "clip": 1.0}])
def test_one_device_on_jax_trains_as_tensorflow_does(tmp_path, options):
    found, _ = on_jax(tmp_path / "jax.npz", **options)
    assert_equal(found, on_tensorflow(**options))


@pytest.mark.slow
def test_weights_cut_between_devices_train_as_whole_ones(tmp_path):
    file = tmp_path / "cut.npz"
    found, output = on_jax(file, "model_parallel=2", FOUR_DEVICES, **PARTS)
    assert_equal(found, on_tensorflow(**PARTS))
    # d_model 8, d_ff 16, a vocabulary of 24
    shards = dict(line.split(" ", 1) for line in output.splitlines())
    assert shards["source_embedding/embeddings"] == "12 8"
    for stack in "encoder", "decoder":
        layer = f"{stack}/layer_0"
        assert shards[f"{layer}/self_attention/query_projection/kernel"] == "8 4"
        assert shards[f"{layer}/self_attention/memory_projection/bias"] == "8"
        assert shards[f"{layer}/self_attention/output_projection/kernel"] == "4 8"
        assert shards[f"{layer}/feed_forward/inner/kernel"] == "8 8"
        assert shards[f"{layer}/feed_forward/outer/kernel"] == "8 8"
        assert shards[f"{layer}/feed_forward_residual/norm/gamma"] == "8"
    assert shards["decoder/layer_0/cross_attention/memory_projection/kernel"] == "8 8"


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def environments():
    """The variables of two processes on this machine."""
    address = f"127.0.0.1:{free_port()}"
    names = {"KERAS_DISTRIBUTION_JOB_ADDRESSES": address, "KERAS_DISTRIBUTION_NUM_PROCESSES": "2"}
    return [{**names, "KERAS_DISTRIBUTION_PROCESS_ID": str(i)} for i in range(2)]


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    files = [tmp_path / f"{i}.npz" for i in range(2)]
    words = ["data_parallel", *(f"{name}={value}" for name, value in PARTS.items())]
    pairs = zip(files, environments(), strict=True)
    processes = [start(PROGRAM, file, *words, **environment) for file, environment in pairs]
    for process in processes:
        output_of(process)
    expected = on_tensorflow(**PARTS)
    for file in files:
        assert_equal(arrays_of(file), expected)


DELAY = """
import keras, numpy as np
from keras_transformer import DelayRDrop, LanguageModel, MaskedCrossentropy
model = LanguageModel(num_layers=1, d_model=8, num_heads=2, d_ff=8, vocab_size=9, dropout=0.5)
model.compile(keras.optimizers.SGD(0.0), MaskedCrossentropy(), r_drop=100.0)
ids = np.array([[2, 4, 5, 6], [2, 7, 8, 4]])
losses = model.fit(ids, ids, epochs=2, callbacks=[DelayRDrop(1)], verbose=0).history["loss"]
print(losses[1] > 2 * losses[0], losses)
"""


@pytest.mark.slow
def test_a_step_that_changes_is_traced_again():
    assert output_of(start("-c", DELAY)).startswith("True")


PARTS_OF_LOGITS = """
import sys
import jax, jax.numpy as jnp, keras, numpy as np
from keras_transformer.training import projected_crossentropy as module
from keras_transformer.training.losses import smoothed_crossentropy

B, T, D, V = 8, 6, 5, 31
random = np.random.default_rng(0)

def with_logits(x, kernel, labels, weights, smoothing, r_drop):
    copies = jnp.split(x @ kernel.T, len(x) // B)
    loss = sum(smoothed_crossentropy(labels, z, smoothing) for z in copies) / len(copies)
    if r_drop:
        p, q = map(jax.nn.log_softmax, copies)
        loss += r_drop / 4 * ((jnp.exp(p) - jnp.exp(q)) * (p - q)).sum(-1)
    return (weights * loss).sum() / 7

def in_parts(*arguments):
    return module.projected_crossentropy(*arguments)[0] / 7

def derived(function, arrays, *rest):
    return jax.jit(jax.value_and_grad(lambda *x: function(*x, *rest), (0, 1))).lower(*arrays)

shapes = set()
with keras.distribution.DataParallel(auto_shard_dataset=False).scope():
    for rows, smoothing, r_drop in ((1, 0.0, 0.0), (4, 0.1, 0.0), (3, 0.1, 3.0), (99, 0.1, 0.0)):
        module.DEVICE_CHUNK_ROWS = rows
        x = random.normal(size=(2 * B if r_drop else B, T, D)).astype("float32")
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
        x = jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch")))
        arrays = x, random.normal(size=(V, D)).astype("float32")
        labels = random.integers(0, V, (B, T))
        rest = labels, random.random((B, T)).astype("float32") * (labels > 3), smoothing, r_drop
        program = derived(in_parts, arrays, *rest).compile()
        found, expected = program(*arrays), derived(with_logits, arrays, *rest).compile()(*arrays)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
        for a, b in zip(found[1], expected[1]):
            np.testing.assert_allclose(a, b, atol=1e-6)
        # All tokens of a device, or of all devices, by the vocabulary.
        tokens = B * T // len(jax.devices()), B * T
        has_all = [f"[{n},{V}]" in program.as_text() for n in tokens]
        assert any(has_all) == (rows == 99), (rows, has_all)
print("equal")
"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [{}, FOUR_DEVICES])
def test_the_loss_is_that_of_all_logits_of_which_few_are_there_at_once(devices):
    assert output_of(start("-c", PARTS_OF_LOGITS, **devices)).strip() == "equal"


SAME_TEXTS = """
import json, sys
import keras, numpy as np
from keras_transformer import Tokenizer, Transformer
texts = ["a dog runs", "", " ", "two big cats sleep here today", "a very " * 40]
tokenizer = Tokenizer.train_on_texts(texts * 9, vocab_size=300)
model = Transformer(
    num_layers=1, d_model=16, num_heads=2, d_ff=16, source_vocab_size=tokenizer.vocab_size + 3
)
random = np.random.default_rng(3)
model.set_weights([random.normal(0, 0.5, w.shape) for w in model.get_weights()])
if keras.backend.backend() == "jax":
    from keras_transformer.inference.training_translator import TrainingTranslator
    translate = TrainingTranslator(model, tokenizer, max_length=32, batch_size=2)
else:
    from keras_transformer import Translator
    translate = Translator(model, tokenizer, "greedy", max_length=32, max_source_length=32)
print(json.dumps(translate(texts)))
"""


@pytest.mark.slow
def test_texts_are_translated_as_on_tensorflow():
    answers = [
        output_of(start("-c", SAME_TEXTS, KERAS_BACKEND=backend)).splitlines()[-1]
        for backend in ("jax", "tensorflow")
    ]
    assert answers[0] == answers[1] and len(answers[0]) > 40
