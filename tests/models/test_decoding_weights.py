"""A step gives the same logits however the weights that it multiplies with are laid out."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import LanguageModel, Transformer
from keras_transformer.layers import linear
from keras_transformer.models import decoding_weights
from keras_transformer.models.decoding_weights import in_blocks, in_spaced_rows

K, B = 3, 2
SIZES = {"num_layers": 2, "d_model": 128, "d_ff": 192}
MODELS = {
    "heads of blocks": (Transformer, {"num_heads": 4, "source_vocab_size": 128}),
    "heads too narrow": (Transformer, {"num_heads": 8, "source_vocab_size": 128}),
    "vocabulary of no whole blocks": (Transformer, {"num_heads": 2, "source_vocab_size": 130}),
    "pre-norm, another output": (
        Transformer,
        {
            "num_heads": 4,
            "source_vocab_size": 70,
            "target_vocab_size": 64,
            "norm_first": True,
            "tied_embeddings": "none",
        },
    ),
    "no bias, rotary": (
        LanguageModel,
        {"num_heads": 2, "vocab_size": 128, "activation": "swiglu", "positions": "rotary"},
    ),
}


def build(name, **options):
    keras.utils.set_random_seed(0)
    kind, arguments = MODELS[name]
    model = kind(**{**SIZES, **arguments, **options})
    for weight in model.weights:  # biases begin as 0
        weight.assign(keras.random.normal(weight.shape, stddev=0.1))
    return model


def logits_of_steps(model, weights):
    """Those of four steps, between which hypotheses change places."""
    rng = np.random.default_rng(1)
    given = rng.integers(4, 60, (B, 5))
    options = {"weights": weights} if isinstance(model, Transformer) else {}
    cache = model.init_cache(given, max_length=4, beam_size=K, **options)
    results = []
    for position in range(4):
        tokens = rng.integers(4, 60, B * K)
        logits, cache = model.decode_step(tokens, cache, position, weights=weights)
        rows = (rng.integers(0, K, (B, K)) + np.arange(B)[:, None] * K).reshape(-1)
        cache = model.reorder_cache(cache, rows.astype("int32"))
        results.append(np.array(logits))
    return np.stack(results)


@pytest.fixture
def blocks_of_any_size(monkeypatch):
    monkeypatch.setattr(decoding_weights, "SMALLEST_MATRIX", 0)


@pytest.fixture
def spare_columns_of_any_size(monkeypatch):
    monkeypatch.setattr(linear, "NARROWEST_ROW", 0)


@pytest.mark.usefixtures("blocks_of_any_size")
@pytest.mark.parametrize("name", MODELS)
def test_steps_by_blocks_are_those_of_whole_matrices(name):
    model = build(name)
    head_dim = model.decoder.layers[0].self_attention.head_dim
    weights = in_blocks(model.decoding_weights(), head_dim)
    expected = logits_of_steps(model, None)
    assert expected.std() > 0.1
    np.testing.assert_allclose(logits_of_steps(model, weights), expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("spare_columns_of_any_size")
@pytest.mark.parametrize("name", MODELS)
def test_steps_in_spaced_rows_are_those_of_whole_matrices(name):
    vocabulary = {key: 256 for key in MODELS[name][1] if key.endswith("vocab_size")}
    model = build(name, **vocabulary, d_model=256, d_ff=512)
    whole = model.decoding_weights()
    weights = in_spaced_rows(whole)
    widths = {x.shape[-1] for x in keras.tree.flatten(weights)}
    assert all(width % 256 == linear.SPARE_COLUMNS for width in widths)
    expected = logits_of_steps(model, None)
    assert expected.std() > 0.1
    for given in (whole, weights):
        np.testing.assert_allclose(logits_of_steps(model, given), expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("blocks_of_any_size")
def test_what_sizes_allow_is_in_blocks():
    weights = in_blocks(build("heads of blocks").decoding_weights(), 32)
    assert weights["output_blocks"].shape == (2, 128, 64)
    for layer in weights["decoder"]:
        assert layer["self_attention"]["projection"][0].shape == (12, 128, 32)
        assert layer["cross_attention"]["query"][0].shape == (4, 128, 32)
        assert [kernel.shape for kernel, _ in layer["feed_forward"]] == [(3, 128, 64), (2, 192, 64)]
    weights = in_blocks(build("heads too narrow").decoding_weights(), 16)
    for layer in weights["decoder"]:
        assert layer["self_attention"]["projection"][0].shape == (128, 384)
    weights = in_blocks(build("vocabulary of no whole blocks").decoding_weights(), 64)
    assert weights["output_blocks"].shape == (3, 128, 64)


@pytest.mark.usefixtures("blocks_of_any_size")
def test_a_feed_forward_network_of_no_whole_blocks_stays_whole():
    """The bias of its columns is added to all of a product."""
    keras.utils.set_random_seed(0)
    model = Transformer(num_layers=1, d_model=64, num_heads=2, d_ff=100, source_vocab_size=64)
    weights = in_blocks(model.decoding_weights(), 32)
    assert [kernel.shape for kernel, _ in weights["decoder"][0]["feed_forward"]] == [
        (64, 100),
        (1, 100, 64),
    ]
    expected = logits_of_steps(model, None)
    np.testing.assert_allclose(logits_of_steps(model, weights), expected, rtol=0, atol=1e-4)


def test_small_matrices_stay_whole():
    weights = in_blocks(build("heads of blocks").decoding_weights(), 32)
    assert weights["output_blocks"].shape == (2, 128, 64)  # whose matrix is kept beside it
    for layer in weights["decoder"]:
        assert layer["self_attention"]["projection"][0].shape == (128, 384)
        assert layer["cross_attention"]["query"][0].shape == (128, 128)
        assert [kernel.shape for kernel, _ in layer["feed_forward"]] == [(128, 192), (192, 128)]


def test_weights_are_in_the_dtype_of_the_step():
    weights = build("heads of blocks", dtype="mixed_bfloat16").decoding_weights()
    dtypes = {keras.backend.standardize_dtype(x.dtype) for x in keras.tree.flatten(weights)}
    assert dtypes == {"bfloat16"}


def test_a_search_reads_the_weights_it_is_given():
    """Else an export would read each of them anew in every step."""
    model = build("heads of blocks")
    expected = logits_of_steps(model, None)
    given = model.decoding_weights()
    for part in given:
        zeros = {**given, part: keras.tree.map_structure(ops.zeros_like, given[part])}
        assert np.abs(logits_of_steps(model, zeros) - expected).max() > 0.01
