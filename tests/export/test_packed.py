"""A packed model computes what it computed before, by fewer or other variables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import LanguageModel, Transformer
from keras_transformer.export import packed
from keras_transformer.export.saved_model import serving_copy

SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24}
MODELS = {
    "tied": lambda: Transformer(**SIZES, source_vocab_size=20),
    "untied": lambda: Transformer(**SIZES, source_vocab_size=20, tied_embeddings="none"),
    "no biases": lambda: Transformer(**SIZES, source_vocab_size=20, use_bias=False),
    "gated": lambda: Transformer(**SIZES, source_vocab_size=20, activation="swiglu"),
    "language model": lambda: LanguageModel(**SIZES, vocab_size=20),
}


@pytest.fixture
def layouts(monkeypatch):
    """layouts(spare, transposed): what timing is to find."""

    def set_layouts(spare, transposed):
        monkeypatch.setattr(packed, "spare_columns_win", lambda *_: spare)
        monkeypatch.setattr(packed, "transposed_wins", lambda *_: transposed)

    return set_layouts


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    "precision, tolerance",
    [("float32", 1e-5), pytest.param("bfloat16", 0.1, marks=pytest.mark.slow)],
)
def test_a_packed_model_computes_what_it_did(layouts, randomize, kind, precision, tolerance):
    model = randomize(MODELS[kind]())
    plain, copy = (serving_copy(model, precision, 9) for _ in range(2))
    layouts(spare=True, transposed=True)
    variables = packed.pack(copy)
    ids = np.random.default_rng(0).integers(1, 20, (2, 5))
    inputs = ids if kind == "language model" else (ids, ids)
    expected = keras.ops.convert_to_numpy(plain(inputs))
    np.testing.assert_allclose(copy(inputs), expected, rtol=0, atol=tolerance)
    # A graph reads these variables and no others.
    graph = tf.function(lambda: copy(inputs)).get_concrete_function()
    assert {id(x) for x in graph.graph.variables} <= {id(x) for x in variables}


def test_without_a_faster_layout_variables_are_copies(layouts):
    layouts(spare=False, transposed=False)
    model = MODELS["tied"]()
    variables = packed.pack(model)
    assert [x.shape for x in variables] == [weight.shape for weight in model.weights]
    assert "logits" not in vars(model)
    assert any(variable is model.target_embedding.embeddings.value for variable in variables)


@pytest.mark.parametrize("columns", [256, 511, 640, 1000])
def test_rows_that_are_no_whole_kilobytes_need_no_spare_columns(columns, monkeypatch):
    monkeypatch.setattr(packed, "is_faster", lambda *_: True)
    packed.spare_columns_win.cache_clear()
    assert packed.spare_columns_win(8, columns, "float32") is (columns % 256 == 0 and columns > 500)
    packed.spare_columns_win.cache_clear()


def test_logits_of_a_small_matrix_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(packed, "is_faster", lambda *_: True)
    packed.transposed_wins.cache_clear()
    assert [packed.transposed_wins(size, 8) for size in (2**15 - 1, 2**15)] == [False, True]
    packed.transposed_wins.cache_clear()


def test_the_faster_of_two_functions_is_found():
    x = tf.ones((400, 400))

    def slow():
        for _ in range(20):
            tf.matmul(x, x).numpy()

    assert packed.is_faster(lambda: None, slow) and not packed.is_faster(slow, lambda: None)
