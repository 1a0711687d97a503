import numpy as np
import pytest
from keras import ops

from keras_transformer import DecoderLayer, EncoderLayer
from keras_transformer.layers.attention_memory import InPlaceKVCache, KVCache, ScoreRecorder

MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)  # (B, T)
SOURCE_MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)  # (B, S)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def decoder_layer(randomize):
    def make(**kwargs):
        layer = DecoderLayer(d_model=8, num_heads=2, d_ff=16, **kwargs)
        layer.build((None, None, 8), (None, None, 8))
        return randomize(layer)

    return make


@pytest.fixture
def inputs(random):
    return random(2, 4, 8), random(2, 5, 8)


@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_is_composed_of_its_sublayers(decoder_layer, inputs, norm_first):
    layer, (x, encoder_output) = decoder_layer(norm_first=norm_first, activation="gelu"), inputs
    causal = np.tril(np.ones((4, 4), bool)) & MASK[:, None]
    sublayers = [
        lambda x: layer.self_attention(x, attention_mask=causal),
        lambda x: layer.cross_attention(x, encoder_output, attention_mask=SOURCE_MASK),
        lambda x: layer.feed_forward(x),
    ]
    norms = [
        layer.self_attention_residual.norm,
        layer.cross_attention_residual.norm,
        layer.feed_forward_residual.norm,
    ]
    output = layer(x, encoder_output, padding_mask=MASK, source_padding_mask=SOURCE_MASK)
    for sublayer, norm in zip(sublayers, norms, strict=True):
        x = x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
    np.testing.assert_allclose(as_array(output), as_array(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_without_cross_attention_it_is_an_encoder_layer_that_sees_no_later_position(
    random, randomize, norm_first
):
    options = {"d_model": 8, "num_heads": 2, "d_ff": 16, "norm_first": norm_first}
    decoder_layer, x = DecoderLayer(**options, cross_attention=False), random(2, 4, 8)
    encoder_layer = EncoderLayer(**options)
    encoder_layer.build(x.shape)
    decoder_layer.build(x.shape)
    weights = {w.path.split("/", 1)[1]: w for w in randomize(decoder_layer).weights}
    for weight in encoder_layer.weights:
        weight.assign(weights.pop(weight.path.split("/", 1)[1]))
    assert not weights
    recorder = ScoreRecorder()
    output = decoder_layer(x, padding_mask=MASK, scores=recorder)
    assert len(recorder.self_attention) == 1 and not recorder.cross_attention
    for t in range(4):
        alone = as_array(encoder_layer(x[:, : t + 1], padding_mask=MASK[:, : t + 1]))
        np.testing.assert_allclose(as_array(output)[:, t], alone[:, t], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_later_target_position_changes_nothing_before_it(decoder_layer, inputs, norm_first):
    layer, (x, encoder_output) = decoder_layer(norm_first=norm_first), inputs
    output = as_array(layer(x, encoder_output))
    for t in range(4):
        changed = x.copy()
        changed[:, t, 0] += 1  # not the whole vector: layer normalization would undo that
        changed = as_array(layer(changed, encoder_output))
        np.testing.assert_array_equal(changed[:, :t], output[:, :t])
        assert np.all(np.abs(changed[:, t:] - output[:, t:]).max(-1) > 1e-4)


def test_content_of_source_padding_changes_nothing(decoder_layer, inputs):
    layer, (x, encoder_output) = decoder_layer(), inputs
    other = np.where(SOURCE_MASK[..., None], encoder_output, 100)
    output, changed = (
        as_array(layer(x, source, source_padding_mask=SOURCE_MASK))
        for source in (encoder_output, other)
    )
    np.testing.assert_array_equal(output, changed)


def test_attention_mask_replaces_the_causal_one(decoder_layer, inputs):
    layer, (x, encoder_output) = decoder_layer(), inputs
    triangle, full = np.tril(np.ones((1, 4, 4), bool)), np.ones((1, 4, 4), bool)
    causal = as_array(layer(x, encoder_output))
    by_mask = as_array(layer(x, encoder_output, attention_mask=triangle))
    np.testing.assert_array_equal(by_mask, causal)
    seeing_all = as_array(layer(x, encoder_output, attention_mask=full))
    assert np.abs(seeing_all - causal)[:, :-1].max() > 0.01
    np.testing.assert_allclose(seeing_all[:, -1], causal[:, -1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", [KVCache, InPlaceKVCache])
@pytest.mark.parametrize("chunks", [[1, 1, 1, 1], [2, 2]])
def test_cached_chunks_equal_one_full_pass(decoder_layer, inputs, norm_first, kind, chunks):
    layer, (x, encoder_output) = decoder_layer(norm_first=norm_first), inputs
    masks, outputs = {"source_padding_mask": SOURCE_MASK}, []
    expected = as_array(layer(x, encoder_output, **masks))
    cache = kind(ops.zeros((2, 2, 6, 4)), ops.zeros((2, 2, 6, 4)))
    memory = layer.cross_attention.project_memory(encoder_output)
    for chunk in np.split(x, np.cumsum(chunks)[:-1], axis=1):
        outputs.append(as_array(layer(chunk, memory, **masks, cache=cache)))
        cache.index += chunk.shape[1]
    np.testing.assert_allclose(np.concatenate(outputs, 1), expected, rtol=1e-5, atol=1e-5)


def test_scores_are_those_of_both_masked_attentions(decoder_layer, inputs):
    layer, (x, encoder_output) = decoder_layer(), inputs
    masks = {"padding_mask": MASK, "source_padding_mask": SOURCE_MASK}
    recorder = ScoreRecorder()
    output = layer(x, encoder_output, **masks, scores=recorder)
    np.testing.assert_array_equal(as_array(output), as_array(layer(x, encoder_output, **masks)))
    causal = np.tril(np.ones((4, 4), bool)) & MASK[:, None]
    recorded = recorder.self_attention, recorder.cross_attention
    for (scores,), mask in zip(recorded, (causal, SOURCE_MASK[:, None]), strict=True):
        scores = as_array(scores)
        assert scores.shape == (2, 2, 4, mask.shape[-1])
        assert np.array_equal(scores > 0, np.broadcast_to(mask[:, None], scores.shape))


ATTENTIONS = ["self_attention.output_projection", "cross_attention.output_projection"]
DROPPED_PROJECTIONS = {
    "dropout": [*ATTENTIONS, "feed_forward.outer"],
    "attention_dropout": ATTENTIONS,
    "feed_forward_dropout": ["feed_forward.outer"],
}


@pytest.mark.parametrize("layer_class", [EncoderLayer, DecoderLayer])
@pytest.mark.parametrize("argument", DROPPED_PROJECTIONS)
def test_each_dropout_silences_its_branches_in_training_only(random, layer_class, argument):
    """A rate near 1 does what zero projections do; biases are zero at the start."""
    inputs = (random(4, 3, 8), random(4, 2, 8))[: 1 + (layer_class is DecoderLayer)]
    layers = {}
    for name, rate in (("dropped", 0.999), ("silent", 0.0), ("plain", 0.0)):
        rates = {**dict.fromkeys(DROPPED_PROJECTIONS, 0.0), argument: rate}
        layer = layer_class(d_model=8, num_heads=2, d_ff=16, norm_first=True, **rates)
        layer.build(*(x.shape for x in inputs))
        layer.set_weights(layers["dropped"].get_weights() if layers else layer.get_weights())
        layers[name] = layer
    for path in DROPPED_PROJECTIONS[argument]:
        branch, projection = path.split(".")
        if hasattr(layers["silent"], branch):
            kernel = getattr(getattr(layers["silent"], branch), projection).kernel
            kernel.assign(np.zeros(kernel.shape))
    inference = as_array(layers["dropped"](*inputs, training=False))
    np.testing.assert_array_equal(inference, as_array(layers["plain"](*inputs, training=True)))
    np.testing.assert_array_equal(inference, as_array(layers["dropped"](*inputs)))
    training = as_array(layers["dropped"](*inputs, training=True))
    silent = as_array(layers["silent"](*inputs))
    assert np.mean(np.all(np.isclose(training, silent, atol=1e-5), axis=-1)) >= 0.7
    assert not np.any(np.all(np.isclose(inference, silent, atol=1e-5), axis=-1))


@pytest.mark.parametrize("layer_class", [EncoderLayer, DecoderLayer])
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 3}, "d_model=8 and num_heads=3; choose num_heads among the divisors of 8"),
        ({"d_ff": 0}, "d_ff must be an integer of at least 1, but is 0"),
        ({"dropout": 1.5}, r"^dropout must be a number in \[0, 1\), but is 1.5"),
        ({"attention_dropout": 1}, r"attention_dropout must be a number in \[0, 1\), but is 1"),
        (
            {"feed_forward_dropout": -1},
            r"feed_forward_dropout must be a number in \[0, 1\), but is -1",
        ),
    ],
)
def test_wrong_arguments_are_named(layer_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        layer_class(**{"d_model": 8, "num_heads": 2, "d_ff": 16, **arguments})


def test_padding_stays_hidden_under_an_attention_mask(decoder_layer, inputs):
    layer, (x, encoder_output) = decoder_layer(), inputs
    masks = {"padding_mask": np.array([[True, True, True, False]] * 2)}
    masks["attention_mask"] = np.ones((1, 4, 4), bool)
    changed = x.copy()
    changed[:, -1] += 1
    output, other = (as_array(layer(each, encoder_output, **masks)) for each in (x, changed))
    np.testing.assert_array_equal(output[:, :-1], other[:, :-1])


def test_an_encoder_output_is_there_if_and_only_if_it_is_attended_to(decoder_layer, inputs):
    x, encoder_output = inputs
    with pytest.raises(ValueError, match="is True and encoder_output is missing"):
        decoder_layer()(x)
    with pytest.raises(ValueError, match="is False and encoder_output is given"):
        decoder_layer(cross_attention=False)(x, encoder_output)


def test_a_mask_of_two_axes_is_refused_for_it_could_be_one_of_tokens(decoder_layer, inputs):
    with pytest.raises(ValueError, match=r"three axes, .* has the shape \(4, 4\); pass attention"):
        decoder_layer()(*inputs, attention_mask=np.tril(np.ones((4, 4), bool)))
