"""A packed model computes what it computed before, by fewer or other variables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import LanguageModel, Transformer
from keras_transformer.export import int8, packed, products
from keras_transformer.export.precision import serving_copy

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

    def set_layouts(spare, transposed, integers=False):
        monkeypatch.setattr(packed, "spare_columns_win", lambda *_: spare)
        monkeypatch.setattr(packed, "transposed_wins", lambda *_: transposed)
        monkeypatch.setattr(packed, "int8_wins", lambda *_: integers)

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


@pytest.mark.parametrize(
    "kind",
    [
        "untied",
        "language model",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("tied", "no biases", "gated")),
    ],
)
def test_a_model_of_integers_is_close_to_that_of_floats(layouts, randomize, kind):
    model = randomize(MODELS[kind]())
    plain, copy = (serving_copy(model, "int8", 9) for _ in range(2))
    layouts(spare=False, transposed=False, integers=True)
    variables = packed.pack(copy, "int8")
    ids = np.random.default_rng(0).integers(1, 20, (2, 5))
    inputs = ids if kind == "language model" else (ids, ids)
    expected = keras.ops.convert_to_numpy(plain(inputs))
    graph = tf.function(lambda: copy(inputs), autograph=False).get_concrete_function()
    assert 0 < np.std(graph() - expected) < 0.1 * np.std(expected)
    # It reads all of these variables and no others, and no matrix of floats is among them.
    assert {id(x) for x in graph.graph.variables} == {id(x) for x in variables}
    matrices = {str(x.dtype) for x in variables if len(x.shape) == 2}
    assert matrices == {"<dtype: 'qint8'>", "<dtype: 'int8'>"}
    nodes = [node.op for node in graph.graph.as_graph_def().node]
    dense = len(list(packed.dense_layers(copy)))
    assert nodes.count(int8.OPERATION) == dense + 1  # the logits
    assert "MatMul" not in nodes


def test_integers_that_do_not_win_are_left_out(layouts):
    layouts(spare=False, transposed=False, integers=False)
    model = MODELS["tied"]()
    variables = packed.pack(model, "int8")
    dtypes = [x.dtype for x in variables if len(x.shape) == 2]
    assert dtypes.count(tf.int8) == 1 and tf.qint8 not in dtypes  # the table of the lookups


@pytest.mark.parametrize("columns", [256, 511, 640, 1000])
def test_rows_that_are_no_whole_kilobytes_need_no_spare_columns(columns, monkeypatch):
    monkeypatch.setattr(products, "is_faster", lambda *_: True)
    products.spare_columns_win.cache_clear()
    assert products.spare_columns_win(8, columns, "float32") is (
        columns % 256 == 0 and columns > 500
    )
    products.spare_columns_win.cache_clear()


def test_logits_of_a_small_matrix_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(products, "is_faster", lambda *_: True)
    products.transposed_wins.cache_clear()
    assert [products.transposed_wins(size, 8) for size in (2**15 - 1, 2**15)] == [False, True]
    products.transposed_wins.cache_clear()


def test_the_faster_of_two_functions_is_found():
    x = tf.ones((400, 400))

    def slow(rows):
        for _ in range(20):
            tf.matmul(x, x).numpy()

    def fast(rows):
        pass

    assert products.is_faster(fast, slow) and not products.is_faster(slow, fast)
