"""With KERAS_BACKEND=jax and TensorFlow absent: layers, `fit` on arrays and all searches."""

import os
import subprocess
import sys

import pytest

pytest.importorskip(
    "jax", reason="jax is not installed: pip install 'keras-transformer-layers[jax]'"
)
pytestmark = pytest.mark.slow

SCRIPT = """
import pathlib
import sys
import tempfile

class NoTensorFlow:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, NoTensorFlow())

import jax
import keras
import numpy as np
from keras import ops
from keras_transformer import (
    Beam, Forecaster, ForecastLoss, LanguageModel, MaskedAccuracy, MaskedCrossentropy,
    MultiHeadAttention, Perplexity, Sample, SequenceClassifier, Transformer,
    TokenStore, TransformerSchedule, Vocabulary, beam_search, greedy_search, prepare_store,
)
from keras_transformer.forecasting.windows import rolling_windows
from keras_transformer.layers.attention_memory import InPlaceKVCache, KVCache
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.language_model import split_prompts
from keras_transformer.training.losses import smoothed_crossentropy
from keras_transformer.training.precision import policy

assert keras.backend.backend() == "jax"
keras.utils.set_random_seed(0)
# The target repeats the source: token i of the one is token i of the other.
rng = np.random.default_rng(0)
words = rng.integers(4, 14, (256, 5)).astype("int32")
end = np.full((256, 1), 3, "int32")
source_ids = labels = np.concatenate([words, end], axis=1)
target_ids = np.concatenate([np.full((256, 1), 2, "int32"), words], axis=1)

model = Transformer(
    num_layers=1, d_model=32, num_heads=4, d_ff=64, source_vocab_size=14, dropout=0.0
)
model.compile(
    keras.optimizers.Adam(TransformerSchedule(32, warmup_steps=100), beta_2=0.98),
    loss=MaskedCrossentropy(label_smoothing=0.1),
    metrics=[MaskedAccuracy(), Perplexity()],
)
history = model.fit(
    (source_ids, target_ids), labels, epochs=30, batch_size=32, verbose=0, validation_split=0.1
).history
assert history["masked_accuracy"][-1] > 0.95, history

start_ids = np.full(4, 2, "int32")
settings = {"end_id": 3, "max_length": 8}
cache = model.init_cache(source_ids[:4], max_length=8)
greedy = greedy_search(model.decode_step, start_ids, cache, **settings)
cache = model.init_cache(source_ids[:4], max_length=8, beam_size=3)
beam = beam_search(model, start_ids, cache, Beam(size=3, num_hypotheses=3), **settings)
expected = np.pad(labels[:4], ((0, 0), (0, 2)))
assert (np.array(greedy.ids)[:, 0] == expected).all(), greedy.ids
assert (np.array(beam.ids)[:, 0] == expected).all(), beam.ids

layer = MultiHeadAttention(d_model=16, num_heads=4)
x = jax.numpy.asarray(rng.normal(size=(3, 6, 16)), "float32")
mask = np.arange(6) < np.array([[6], [4], [0]])

def attended(x, plainly):
    settings = {"attention_mask": mask, "use_causal_mask": True}
    if plainly:
        return layer(x, **settings, return_attention_scores=True)[0]
    return layer(x, **settings)

def gradient(x, plainly):
    return jax.grad(lambda x: (attended(x, plainly)[:2] ** 2).sum())(x)

for function in attended, gradient, jax.jit(attended, static_argnums=1):
    fused, plain = function(x, False), function(x, True)
    np.testing.assert_allclose(fused, plain, atol=1e-5)
    assert np.isfinite(fused).all()

def steps(x, kind):
    cache = kind(*(jax.numpy.zeros((3, 4, 6, 4)) for _ in range(2)))
    outputs = []
    for t in range(6):
        cache.index = t
        outputs.append(layer(x[:, t : t + 1], use_causal_mask=True, cache=cache))
    return ops.concatenate(outputs, axis=1)

for kind in KVCache, InPlaceKVCache:
    expected = layer(x, use_causal_mask=True)
    np.testing.assert_allclose(jax.jit(steps, static_argnums=1)(x, kind), expected, atol=1e-5)
memory = layer.project_memory(x)
np.testing.assert_allclose(layer(x[:, :2], memory), layer(x[:, :2], x), atol=1e-5)
kept = np.array(Dropout(0.25)(np.ones(40_000), training=True))
assert abs((kept == 0).mean() - 0.25) < 0.02 and abs(kept.mean() - 1) < 0.02

assert policy("auto", 32, 64) in ("float32", "mixed_bfloat16")

logits, labels = rng.normal(size=(7, 11)).astype("float32"), rng.integers(0, 11, 7)
gradients = jax.grad(lambda z: (smoothed_crossentropy(labels, z, 0.1) * np.arange(7)).sum())(logits)
smoothed = 0.9 * np.eye(11)[labels] + 0.1 / 11
expected = (jax.nn.softmax(logits) - smoothed) * np.arange(7)[:, None]
np.testing.assert_allclose(gradients, expected, atol=1e-5)

sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
forecaster = Forecaster(history_length=12, horizon=3, patch_length=3, **sizes)
forecaster.compile(keras.optimizers.Adam(1e-2), ForecastLoss(forecaster.quantiles))
windows = rolling_windows(np.sin(np.arange(75.0)), history_length=12, horizon=3)
losses = forecaster.fit(*windows, epochs=9, batch_size=61, verbose=0).history["loss"]
assert losses[-1] < 0.8 * losses[0], losses
assert SequenceClassifier(num_classes=2, vocab_size=9, **sizes)(source_ids[:4] % 9).shape == (4, 2)

# Text to a store to batches; a resumed training reads the batches that a whole one would.
with tempfile.TemporaryDirectory() as folder:
    text = pathlib.Path(folder, "text.tsv")
    text.write_text("".join(f"a dog {i % 10}\\tein Hund {i % 10}\\n" for i in range(400)))
    store = prepare_store(f"{folder}/store", [(text,)], Vocabulary(size=300), processes=1)
    batches = TokenStore(store.path).batches(batch_tokens=256, bpe_dropout=0.1)
    batches.sample.processes = 1
    model = Transformer(**sizes, source_vocab_size=store.manifest["vocab_size"], dropout=0.1)
    model.compile(keras.optimizers.Adam(0.01), loss=MaskedCrossentropy())
    losses = model.fit(batches.sequence(), epochs=3, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0], losses
    rest = batches.sequence(first_epoch=1)
    for found, expected in zip(rest[2][0], next(batches.epoch(1, 2))[0]):
        np.testing.assert_array_equal(found, expected)
    model.fit(rest, shuffle=False, verbose=0)
    batches.sample.close()
assert "tensorflow" not in sys.modules
print("translated")

# A text counts on from where its prompt begins.
texts = (rng.integers(0, 10, (256, 1)) + np.arange(12)) % 10 + 4
ids = np.concatenate([np.full((256, 1), 3), texts[:, :-1]], axis=1)
model = LanguageModel(
    num_layers=1, d_model=32, num_heads=2, d_ff=32, vocab_size=14, dropout=0.0, max_length=16,
    positions="rotary", norm="rms_norm", activation="swiglu",
)
model.compile(keras.optimizers.Adam(0.01), loss=MaskedCrossentropy())
model.fit(ids, texts, epochs=12, batch_size=64, verbose=0)
context_ids, start_ids = split_prompts(np.array([[6, 7, 8, 9], [12, 13, 0, 0]]))
cache = model.init_cache(context_ids, max_length=4)
settings = {"end_id": 3, "max_length": 4}
sampled = greedy_search(model.decode_step, start_ids, cache, Sample(top_k=1), **settings)
cache = model.init_cache(context_ids, max_length=4, beam_size=3)
beam = beam_search(model, start_ids, cache, Beam(size=3), **settings)
for result in (sampled, beam):
    found = np.array(result.ids)[:, 0]
    assert (found == [[10, 11, 12, 13], [4, 5, 6, 7]]).all(), found
assert "tensorflow" not in sys.modules
print("continued")
"""


def test_layers_fit_and_all_searches_run_on_jax_alone():
    # Programs that run once are not worth the time to optimize them.
    options = {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment = {**os.environ, **options}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.split() == ["translated", "continued"]
