"""The fastest precision is found by timing, and what cannot be made is left out."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer import Beam, LanguageModel, TextGenerator, Transformer, Translator
from keras_transformer.export import packed, precision
from keras_transformer.export.precision import fastest_precision, in_precision, search_to_time


@pytest.fixture
def machine(monkeypatch):
    """machine(name=seconds): how long a search takes in each precision, by a clock of its own."""

    def set_seconds(**seconds):
        now = [0.0]

        def search(name):
            def run(count):
                now[0] += seconds[name][count]

            return run

        def copy(graph, name):
            if seconds[name] is None:
                raise RuntimeError("no products of integers")
            return name, []

        monkeypatch.setattr(precision, "in_precision", copy)
        monkeypatch.setattr(precision, "search_to_time", search)
        clock = SimpleNamespace(perf_counter=lambda: now[0])
        monkeypatch.setattr(precision, "time", clock)

    return set_seconds


@pytest.mark.parametrize(
    "times, fastest",
    [
        ({"float32": (16, 160), "bfloat16": (32, 320), "int8": (32, 64)}, "int8"),
        ({"float32": (16, 160), "bfloat16": (32, 320), "int8": (48, 96)}, "float32"),
        ({"float32": (16, 160), "bfloat16": (16, 80), "int8": (16, 96)}, "bfloat16"),
        ({"float32": (16, 160), "bfloat16": (32, 320), "int8": None}, "float32"),
    ],
)
def test_the_fastest_is_chosen(machine, times, fastest):
    one, some = packed.SENTENCES
    seconds = {name: t and {one: t[0], some: t[1]} for name, t in times.items()}
    machine(**seconds)
    chosen, per_step = fastest_precision(None)
    assert chosen == fastest
    expected = {name: [x / precision.STEPS for x in t] for name, t in times.items() if t}
    assert per_step == expected


def test_a_float_that_cannot_be_made_is_an_error(machine):
    machine(float32=None, bfloat16=None, int8=None)
    with pytest.raises(RuntimeError):
        fastest_precision(None)


def test_a_search_is_timed_on_ids_that_the_source_has(tokenizer):
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "tied_embeddings": "none"}
    vocabularies = tokenizer.vocab_size, tokenizer.vocab_size + 100
    names = ("source_vocab_size", "target_vocab_size")
    model = Transformer(**sizes, **dict(zip(names, vocabularies, strict=True)))
    translator = Translator(model, tokenizer, "greedy", max_length=2, max_source_length=200)
    assert search_to_time(translator.graph)(4).shape[0] == 4


@pytest.mark.parametrize("change", [("quantize", "int8"), ("enable_lora", 2)])
def test_weights_of_another_form_are_refused_with_the_remedy(change, tokenizer):
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
    translator = Translator(model, tokenizer, "greedy", max_length=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras's, of layers without products
        getattr(model, change[0])(change[1])
    with pytest.raises(ValueError, match=r"before quantize\(\); with LoRA, save_run and load_run"):
        in_precision(translator.graph, "float32")


@pytest.mark.slow
@pytest.mark.parametrize("name", precision.PRECISIONS)
def test_a_search_that_is_timed_takes_all_steps(trained, tokenizer, name):
    translator = Translator(trained, tokenizer, Beam(size=2), max_length=16, max_source_length=30)
    graph, _ = in_precision(translator.graph, name)
    ids = search_to_time(graph)(3)
    assert ids.shape[:2] == (3, 1) and np.count_nonzero(ids, axis=2).tolist() == [[16]] * 3


@pytest.mark.slow
def test_a_generator_has_its_fastest_precision(tokenizer):
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16, "max_length": 24}
    model = LanguageModel(vocab_size=tokenizer.vocab_size, **sizes)
    generator = TextGenerator(model, tokenizer, "greedy", max_length=8)
    chosen, seconds = fastest_precision(generator.graph)
    assert chosen in precision.PRECISIONS and set(seconds) == set(precision.PRECISIONS)
    assert all(x > 0 for pair in seconds.values() for x in pair)
