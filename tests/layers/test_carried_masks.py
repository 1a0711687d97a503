"""The mask that `keras.layers.Embedding(mask_zero=True)` makes: honoured, and passed on."""

import keras
import numpy as np
import pytest
from keras import ops
from keras.src.testing import TestCase

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    Forecaster,
    MultiHeadAttention,
    PositionalEmbedding,
    masked_mean,
)
from keras_transformer.layers.residual import Residual

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 16}
DEEP = {"num_layers": 2, **SIZES, "norm_first": True, "norm": "rms_norm"}
ALONE = {"cross_attention": False}
IDS = np.array([[5, 3, 0, 0, 0], [4, 1, 2, 6, 3], [7, 0, 0, 0, 0]])
SOURCE_IDS = np.array([[8, 3, 4, 0], [2, 0, 0, 0], [5, 6, 7, 8]])
VISIBLE = np.tril(np.ones((1, 5, 5), bool))
LAYERS = {
    "attention": (lambda: MultiHeadAttention(8, 2), lambda f, x, y: f(x)),
    "rotary": (lambda: MultiHeadAttention(8, 2, rotary=True), lambda f, x, y: f(x)),
    "attention_with_mask": (
        lambda: MultiHeadAttention(8, 2),
        lambda f, x, y: f(x, attention_mask=VISIBLE),
    ),
    "attention_to_itself": (lambda: MultiHeadAttention(8, 2), lambda f, x, y: f(x, x, x)),
    "cross_attention": (lambda: MultiHeadAttention(8, 2), lambda f, x, y: f(x, y)),
    "keys_apart": (lambda: MultiHeadAttention(8, 2), lambda f, x, y: f(x, y, y)),
    "feed_forward": (lambda: FeedForward(8, 16), lambda f, x, y: f(x)),
    "residual": (lambda: Residual(), lambda f, x, y: f(x, sublayer=ops.tanh)),
    "encoder_layer": (lambda: EncoderLayer(**SIZES), lambda f, x, y: f(x)),
    "decoder_layer": (lambda: DecoderLayer(**SIZES), lambda f, x, y: f(x, y)),
    "decoder_layer_alone": (lambda: DecoderLayer(**SIZES, **ALONE), lambda f, x, y: f(x)),
    "decoder_layer_with_mask": (
        lambda: DecoderLayer(**SIZES),
        lambda f, x, y: f(x, y, attention_mask=np.ones((1, 5, 5), bool)),
    ),
    "encoder": (lambda: Encoder(**DEEP), lambda f, x, y: f(x)),
    "decoder": (lambda: Decoder(**DEEP), lambda f, x, y: f(x, y)),
    "decoder_alone": (lambda: Decoder(**DEEP, **ALONE), lambda f, x, y: f(x)),
}


def averages(layer, call, masks):
    """From ids to the layer's output, averaged by Keras over what the mask says is real."""
    embed = keras.layers.Embedding(9, 8, mask_zero=masks, name="x", embeddings_initializer="normal")
    source = keras.layers.Embedding(9, 8, mask_zero=masks, name="y")
    pool = keras.layers.GlobalAveragePooling1D()

    def run(ids, source_ids):
        return pool(call(layer, embed(ids), source(source_ids)))

    run.layers = embed, source, layer
    return run


def trimmed(run, row):
    """The answer for one row without its padding, by layers that make no masks."""
    ids, source_ids = (x[row : row + 1, : np.count_nonzero(x[row])] for x in (IDS, SOURCE_IDS))
    return ops.convert_to_numpy(run(ids, source_ids))


@pytest.fixture(params=LAYERS)
def runs(request, randomize):
    """A function that knows masks, and one with the same weights that does not."""
    make, call = LAYERS[request.param]
    layer = make()
    masked, plain = averages(layer, call, True), averages(layer, call_trimmed(call), False)
    masked(IDS, SOURCE_IDS), plain(IDS, SOURCE_IDS)
    for one, other in zip(masked.layers[:2], plain.layers[:2], strict=True):
        randomize(one)
        other.set_weights(one.get_weights())
    randomize(layer)
    return masked, plain


def call_trimmed(call):
    """`call`, with the masks that it gives cut to the length of the input."""

    def cut(layer, x, y):
        length = x.shape[1]

        def layer_of_length(*inputs, attention_mask=None, **options):
            if attention_mask is not None:
                options["attention_mask"] = attention_mask[:, :length, :length]
            return layer(*inputs, **options)

        return call(layer_of_length, x, y)

    return cut


@pytest.mark.filterwarnings("error:Layer .* was passed an input with a mask")
# Keras 3.15 turns its variables into arrays in a way of which NumPy 2.4 warns.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")
def test_masked_input_equals_trimmed_input(runs, tmp_path):
    masked, plain = runs
    expected = np.concatenate([trimmed(plain, row) for row in range(3)])
    inputs = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, masked(*inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    ways = {
        "eager": masked(IDS, SOURCE_IDS),
        "functional": model((IDS, SOURCE_IDS)),
        "graph": model.predict((IDS, SOURCE_IDS), verbose=0),
        "reloaded": loaded((IDS, SOURCE_IDS)),
    }
    for name, found in ways.items():
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6, err_msg=name)


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize(
    ("layer_class", "arguments", "options"),
    [
        (MultiHeadAttention, {"d_model": 8, "num_heads": 2}, {}),
        (FeedForward, {"d_model": 8, "d_ff": 16}, {}),
        (PositionalEmbedding, {"vocab_size": 9, "d_model": 8}, {"input_data": IDS}),
        (EncoderLayer, SIZES, {}),
        (DecoderLayer, {**SIZES, **ALONE}, {}),
        pytest.param(Encoder, DEEP, {}, marks=pytest.mark.slow),
        pytest.param(Decoder, {**DEEP, **ALONE}, {}, marks=pytest.mark.slow),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_keras_finds_what_it_asks_of_every_layer(layer_class, arguments, options):
    options = options or {"input_shape": (2, 3, 8), "expected_output_shape": (2, 3, 8)}
    TestCase().run_layer_test(layer_class, arguments, supports_masking=True, **options)


def test_our_pooling_takes_the_mask_that_the_embedding_computes(random):
    embedding = keras.layers.Embedding(9, 8, mask_zero=True)
    ids = keras.Input((None,), dtype="int32")
    x = EncoderLayer(**SIZES)(embedding(ids))
    ours = masked_mean(x, embedding.compute_mask(ids))
    model = keras.Model(ids, [ours, keras.layers.GlobalAveragePooling1D()(x)])
    found, expected = model(IDS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_an_explicit_mask_and_a_carried_one_both_hide(random):
    layer = EncoderLayer(**SIZES)
    x = random(1, 4, 8)
    first, second = np.array([[True, True, True, False]]), np.array([[True, False, True, True]])
    expected = layer(x, padding_mask=first & second)
    np.testing.assert_allclose(layer(x, padding_mask=first, mask=second), expected, atol=1e-6)


def test_a_forecaster_honours_the_mask_of_its_history(random):
    sizes = {"num_layers": 1, **SIZES}
    forecaster = Forecaster(history_length=4, horizon=2, **sizes)
    history = random(2, 4, 1)
    history[0, 2:] = -1.0
    inputs = keras.Input((4, 1))
    model = keras.Model(inputs, forecaster(keras.layers.Masking(-1.0)(inputs)))
    explicit = {"history": history, "padding_mask": history[..., 0] != -1.0}
    np.testing.assert_allclose(model(history), forecaster(explicit), rtol=0, atol=1e-6)
