"""Fixtures that several folders of tests need: seeds, and a tiny translator, trained once."""

import errno
import gc
import os
import random as random_module
import re
from functools import cache, partialmethod
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The tests run in as many processes as there are cores.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # the same products on every processor

import keras
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SENTENCES = [
    ("a dog runs", "ein Hund rennt"),
    ("a cat sleeps", "eine Katze schläft"),
    ("the dog sleeps", "der Hund schläft"),
    ("the cat runs", "die Katze rennt"),
    ("a small dog runs home", "ein kleiner Hund rennt nach Hause"),
    ("two big cats sleep here today", "zwei große Katzen schlafen heute hier"),
]

# Building graphs makes many objects that stay; to look through them again and again is a twentieth
# of the time that the tests take.
gc.set_threshold(50_000)

# Files are dealt to processes in this order, so that none is left with a long one at the end.
LONGEST_FIRST = ("examples", "cli", "test_documentation", "serving", "export", "training")


def pytest_collection_modifyitems(items):
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    folder = {item: item.path.relative_to(Path(__file__).parent).parts[0] for item in items}
    items.sort(key=lambda item: ranks.get(folder[item].removesuffix(".py"), len(ranks)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Deals whole files to processes; all files that use the export go to one, which makes it once.

    A group mark would say the same, but pytest-xdist 3.8 loses it under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class WholeFiles(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return "exported" if uses_export(config.rootpath / file) else file

    return WholeFiles(config, log)


@cache
def uses_export(path):
    return re.search(r"\bexported\b", path.read_text("utf-8")) is not None


@pytest.fixture(scope="session")
def sentences():
    """Aligned sources and targets that the `trained` model knows."""
    sources, targets = zip(*SENTENCES, strict=True)
    return list(sources), list(targets)


@pytest.fixture(scope="session")
def tokenizer(sentences):
    from keras_transformer import Tokenizer

    return Tokenizer.train_on_texts(sum(sentences, []) * 5, vocab_size=320)


@pytest.fixture(scope="session")
def trained(sentences, tokenizer):
    """A model that has learnt the six sentences by heart; do not change its weights."""
    from keras_transformer import MaskedCrossentropy, Transformer
    from keras_transformer.data.batching import TokenBatches

    keras.utils.set_random_seed(0)
    model = Transformer(
        num_layers=1,
        d_model=32,
        num_heads=4,
        d_ff=64,
        source_vocab_size=tokenizer.vocab_size,
        dropout=0.0,
    )
    model.compile(keras.optimizers.Adam(5e-3, beta_2=0.98), loss=MaskedCrossentropy())
    batches = TokenBatches(*sentences, tokenizer, batch_tokens=256, num_buckets=1)
    (inputs, labels) = next(batches.epoch(0))
    for _ in range(120):
        loss = model.train_on_batch(inputs, labels)
    assert loss < 0.05
    return model


@pytest.fixture(scope="session")
def exported(trained, tokenizer, sentences, tmp_path_factory):
    """A beam search `Translator`, and the path of its export; with warm-up requests if possible."""
    from keras_transformer import Translator

    translator = Translator(trained, tokenizer)
    warmup = sentences[0] if find_spec("tensorflow_serving") else None
    directory = tmp_path_factory.mktemp("exports") / "en-de"
    return translator, translator.export(directory, warmup=warmup)


@pytest.fixture(scope="session")
def served(exported):
    """served(signature, name=values): what the export answers, a dict of arrays."""
    import tensorflow as tf

    signatures = tf.saved_model.load(exported[1]).signatures

    def ask(signature="serving_default", **inputs):
        function = signatures[signature]
        specs = function.structured_input_signature[1]
        inputs = {name: tf.constant(inputs[name], specs[name].dtype) for name in inputs}
        return {name: output.numpy() for name, output in function(**inputs).items()}

    return ask


@pytest.fixture(scope="session")
def word_salads(sentences):
    """Texts of the words that the `trained` model knows, of 1 to 12 words."""
    rng = np.random.default_rng(0)
    words = sorted({word for source in sentences[0] for word in source.split()})
    return [" ".join(rng.choice(words, rng.integers(1, 13))) for _ in range(100)]


@pytest.fixture(autouse=True)
def fixed_seed():
    # Keras draws its seeds from these two. `keras.utils.set_random_seed` seeds TensorFlow as well,
    # which makes it forget every function that it has optimized.
    random_module.seed(0)
    np.random.seed(0)


@pytest.fixture
def eager(monkeypatch):
    """`fit` without graphs, which would take longer to build than so short a training."""
    compile_eagerly = partialmethod(keras.Model.compile, run_eagerly=True)
    monkeypatch.setattr(keras.Model, "compile", compile_eagerly)


@pytest.fixture
def random():
    """Standard normal float32 arrays: random(2, 3, 8)."""
    generator = np.random.default_rng(0)
    return lambda *shape: generator.normal(size=shape).astype("float32")


@pytest.fixture
def randomize(random):
    """Gives every weight of a layer, biases and norms too, a value of its own."""

    def fill(layer, scale=0.3):
        for weight in layer.weights:
            weight.assign(weight + scale * random(*weight.shape))
        return layer

    return fill


@pytest.fixture
def events():
    """What was logged to a folder for TensorBoard: tag -> [(step, value), ...]."""

    def read(folder):
        accumulator = EventAccumulator(str(folder))
        accumulator.Reload()
        # Files of the same second are read in the order of their names: the tenth before the ninth.
        logged = {
            tag: sorted(accumulator.Tensors(tag), key=lambda event: event.wall_time)
            for tag in accumulator.Tags()["tensors"]
        }
        return {
            tag: [(event.step, event.tensor_proto) for event in events]
            for tag, events in logged.items()
        }

    return read


@pytest.fixture
def break_at(monkeypatch):
    """break_at(number, dies=False): the call of that number that writes, renames or syncs fails.

    It raises an OSError. If the process dies, it raises a SystemExit, and so do all calls after it
    and every removal. A write that fails has written half.
    """

    def patch(number, dies=False):
        counted = 0

        def breaking(function):
            def call(target, *arguments, **options):
                nonlocal counted
                counted += 1
                if counted == number or dies and counted > number:
                    if function.__name__ in ("write_bytes", "write_text"):
                        function(target, arguments[0][: len(arguments[0]) // 2], *arguments[1:])
                    raise SystemExit if dies else OSError(errno.ENOSPC, "No space left")
                return function(target, *arguments, **options)

            return call

        calls = [(os, "fsync"), (os, "replace"), (os, "open"), (np.lib.format, "write_array")]
        calls += [(Path, "write_bytes"), (Path, "write_text")]
        for home, name in calls + dies * [(os, "unlink")]:
            monkeypatch.setattr(home, name, breaking(getattr(home, name)))

    return patch
