import json
import math
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import (
    Forecaster,
    LanguageModel,
    SequenceClassifier,
    Transformer,
    presets,
)
from keras_transformer.export.precision import serving_copy

SMALL = {"num_layers": 3, "d_model": 16, "num_heads": 4, "d_ff": 32, "source_vocab_size": 24}
TYINGS = {"all": 24, "source_target": 24, "target_output": 31, "none": 31}  # target vocabulary
# Keras 3.15 turns its variables into arrays in a way of which NumPy 2.4 warns.
saves_variables = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy"
)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def transformer(randomize):
    """A 3+3-layer model of random weights; biases and norms are random, too."""

    def make(**kwargs):
        return randomize(Transformer(**{**SMALL, **kwargs}), scale=0.1)

    return make


@pytest.fixture
def ids():
    """Random ids (B, T) of real tokens; after `lengths` tokens the rest of a row is padding."""
    generator = np.random.default_rng(1)

    def draw(batch_size, length, lengths=None, vocab_size=24):
        tokens = generator.integers(1, vocab_size, (batch_size, length)).astype("int32")
        if lengths is not None:
            tokens[np.arange(length) >= np.array(lengths)[:, None]] = 0
        return tokens

    return draw


def pad(tokens, amount):
    return np.pad(tokens, ((0, 0), (0, amount)))


def number_of_parameters(num_layers, d_model, d_ff, matrices):
    """By the paper: matrices with biases, and layer norms of two vectors."""
    attention = 4 * (d_model**2 + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return num_layers * (encoder_layer + decoder_layer) + sum(matrices) * d_model


def test_base_model_has_the_papers_number_of_parameters():
    model = Transformer(**presets.BASE, source_vocab_size=37000)
    expected = number_of_parameters(6, 512, 2048, matrices=[37000])  # 63,082,496
    assert model.count_params() == expected
    assert 62e6 < expected < 66e6


@pytest.mark.parametrize("num_decoder_layers", [None, 1])
def test_logits_equal_the_paper_in_numpy(transformer, reference, ids, variant, num_decoder_layers):
    model = transformer(**variant, num_decoder_layers=num_decoder_layers)
    source_ids, target_ids, formula = ids(2, 6), ids(2, 5), reference.of(model)
    logits = as_array(model((source_ids, target_ids)))
    assert logits.shape == (2, 5, 24)
    assert len(model.decoder.layers) == (num_decoder_layers or 3)
    for row in range(2):
        expected = formula.transformer(source_ids[row], target_ids[row])
        np.testing.assert_allclose(logits[row], expected, rtol=1e-5, atol=1e-5)


def test_biases_are_there_if_asked_for_and_in_no_gate(variant):
    model = Transformer(**SMALL, **variant)
    paths = [w.path for w in model.weights if w.path.endswith("/bias")]
    gated = variant.get("activation") in ("reglu", "swiglu")
    expected = 0 if not variant.get("use_bias", True) else 9 * 3 + (0 if gated else 6 * 2)
    assert len(paths) == expected  # 3 projections of 9 attentions, 2 layers of 6 networks
    assert sum("feed_forward" in path for path in paths) == (0 if gated or not expected else 12)


def test_a_model_of_fused_projections_carried_over_translates_the_same(ids, reference):
    """Weights as they were: one kernel (D, 3D) of queries, keys and values per attention."""

    class OldLayout(reference):
        def projections(self, x, memory, name):
            query = np.split(self.dense(x, name), 3, axis=-1)[0]
            return query, *np.split(self.dense(memory, name), 3, axis=-1)[1:]

    rng, d_model = np.random.default_rng(5), SMALL["d_model"]
    model, source_ids, target_ids = (
        Transformer(**SMALL, tied_embeddings="none"),
        ids(3, 6),
        ids(3, 5),
    )
    old, values = OldLayout(model.get_config(), {}), []
    for weight in model.weights:
        path = weight.path.removeprefix(f"{model.name}/")
        *owner, part, kind = path.split("/")
        if part in ("query_projection", "memory_projection"):
            fused = "/".join([*owner, kind])
            if fused not in old.weights:
                shape = (*weight.shape[:-1], 3 * d_model)
                old.weights[fused] = rng.normal(scale=0.4, size=shape)
            columns = slice(None, d_model) if part == "query_projection" else slice(d_model, None)
            values.append(old.weights[fused][..., columns])
        else:
            old.weights[path] = as_array(weight) + rng.normal(scale=0.3, size=weight.shape)
            values.append(old.weights[path])
    model.set_weights(values)
    logits = as_array(model((source_ids, target_ids)))
    for row in range(3):
        expected = old.transformer(source_ids[row], target_ids[row])
        np.testing.assert_allclose(logits[row], expected, rtol=1e-4, atol=1e-4)

    def translate(source_ids, start):
        target = [start]
        while len(target) < 9 and target[-1] != 3:
            target.append(int(old.transformer(source_ids, np.array(target))[-1].argmax()))
        return target[1:] + [0] * (9 - len(target))

    starts = np.array([2, 9, 14])
    cache, tokens, found = model.init_cache(source_ids, max_length=8), starts, []
    done = np.zeros(3, bool)
    for position in range(8):
        logits, cache = model.decode_step(tokens, cache, position, in_place=True)
        tokens = np.where(done, 0, as_array(logits).argmax(-1))
        done = done | (tokens == 3)
        found.append(tokens)
    expected = [translate(row, start) for row, start in zip(source_ids, starts, strict=True)]
    assert np.transpose(found).tolist() == expected


# Tyings: which of the source embedding, the target embedding and the output are one matrix.


@pytest.mark.parametrize(
    "tying, matrices",
    {
        "all": [24],
        "source_target": [24, 24],
        "target_output": [24, 31],
        "none": [24, 31, 31],
    }.items(),
)
def test_tyings_have_the_matrices_they_name(ids, tying, matrices):
    vocabulary = {"target_vocab_size": TYINGS[tying], "tied_embeddings": tying}
    model = Transformer(**SMALL, **vocabulary)
    assert model.count_params() == number_of_parameters(3, 16, 32, matrices)
    logits = model((ids(2, 4), ids(2, 3, vocab_size=TYINGS[tying])))
    assert logits.shape == (2, 3, TYINGS[tying])
    assert model.count_params() == number_of_parameters(3, 16, 32, matrices)


@pytest.mark.slow
@pytest.mark.parametrize("tying", TYINGS)
def test_tyings_route_changes_to_what_they_tie(transformer, ids, tying):
    """Token 23 stands in the source alone, 22 in the target alone, 21 in neither."""
    model = transformer(num_layers=1, target_vocab_size=TYINGS[tying], tied_embeddings=tying)
    source_ids, target_ids = ids(2, 5, vocab_size=20), ids(2, 4, vocab_size=20)
    source_ids[:, 1], target_ids[:, 1] = 23, 22

    def effects(matrix, token):
        """Whether the encoding, other tokens' logits and the token's own logit change."""

        def observe():
            logits = as_array(model((source_ids, target_ids)))
            return (
                as_array(model.encode(source_ids)),
                np.delete(logits, token, 2),
                logits[..., token],
            )

        before, values = observe(), as_array(matrix + 0)
        changed = values.copy()
        axis_of_tokens = 0 if values.shape[0] in (24, 31) else 1
        np.moveaxis(changed, axis_of_tokens, 0)[token] += 1
        matrix.assign(changed)
        after = observe()
        matrix.assign(values)
        return tuple(not np.array_equal(*pair) for pair in zip(before, after, strict=True))

    source, target = model.source_embedding.embeddings, model.target_embedding.embeddings
    input_tied, output_tied = tying in ("all", "source_target"), tying in ("all", "target_output")
    assert (source is target) == input_tied
    assert effects(source, 23) == (True, True, True)
    assert effects(target, 22) == (False, True, True)
    assert effects(source, 21) == (False, False, tying == "all")
    assert effects(target, 21) == (False, False, output_tied)
    assert (model.output_projection is None) == output_tied
    if not output_tied:
        assert effects(model.output_projection.kernel, 22) == (False, False, True)


# Masks: padding and later target tokens.


@pytest.mark.parametrize("norm_first", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_padding_changes_no_real_position(transformer, ids, norm_first):
    model = transformer(norm_first=norm_first)
    source_lengths, target_lengths = [7, 3, 1, 5], [2, 6, 4, 1]
    source_ids, target_ids = ids(4, 7, source_lengths), ids(4, 6, target_lengths)
    real = target_ids != 0
    expected = as_array(model((source_ids, target_ids)))
    for source_pad, target_pad in [(1, 0), (0, 1), (3, 2), (30, 0), (0, 30), (17, 40)]:
        padded = as_array(model((pad(source_ids, source_pad), pad(target_ids, target_pad))))
        difference = np.abs(padded[:, :6] - expected)[real]
        assert difference.max() < 1e-5, (source_pad, target_pad)
    for row, (s, t) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        alone = as_array(model((source_ids[row : row + 1, :s], target_ids[row : row + 1, :t])))
        np.testing.assert_allclose(alone[0], expected[row, :t], rtol=0, atol=1e-5)


def test_rows_of_nothing_but_padding_stay_finite_and_apart(transformer, ids):
    model, source_ids, target_ids = transformer(), ids(3, 4, [4, 0, 3]), ids(3, 5, [5, 2, 0])
    logits = as_array(model((source_ids, target_ids)))
    assert np.isfinite(logits).all()
    alone = as_array(model((source_ids[:1], target_ids[:1])))
    np.testing.assert_allclose(alone[0], logits[0], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dropout, norm_first",
    [
        (0.1, False),
        pytest.param(0.0, False, marks=pytest.mark.slow),
        pytest.param(0.1, True, marks=pytest.mark.slow),
    ],
)
def test_a_target_token_changes_nothing_before_it(transformer, ids, dropout, norm_first):
    model = transformer(dropout=dropout, norm_first=norm_first)
    source_ids, target_ids = ids(3, 6, [6, 2, 4]), ids(3, 7, [7, 5, 6], vocab_size=23)
    before = as_array(model((source_ids, target_ids), training=False))
    for t in range(7):
        for token in (0, 23):  # padding in the middle, too
            changed = target_ids.copy()
            changed[:, t] = token
            after = as_array(model((source_ids, changed), training=False))
            np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert np.all(np.abs(after - before)[:, t].max(-1) > 1e-4)


def test_rows_of_a_batch_do_not_mix(transformer, ids):
    model, source_ids, target_ids = transformer(), ids(4, 6, [6, 1, 3, 5]), ids(4, 5, [5, 4, 1, 3])
    logits = as_array(model((source_ids, target_ids)))
    order = [2, 0, 3, 1]
    permuted = as_array(model((source_ids[order], target_ids[order])))
    np.testing.assert_allclose(permuted, logits[order], rtol=0, atol=1e-5)


def test_source_order_and_content_matter(transformer, ids):
    model, source_ids, target_ids = transformer(), ids(1, 6), ids(1, 4)
    logits = as_array(model((source_ids, target_ids)))
    for other in (source_ids[:, ::-1], source_ids[:, :-1], (source_ids + 1) % 23 + 1):
        assert np.abs(as_array(model((other, target_ids))) - logits).max() > 1e-3


# Decoding with a cache.


# A hypothesis alone and a beam; in place as in an export.
WAYS = [
    pytest.param(1, False, marks=pytest.mark.slow),
    pytest.param(3, False, marks=pytest.mark.slow),
    (3, True),
]


@pytest.mark.parametrize("beam_size, in_place", WAYS)
def test_cached_steps_equal_full_passes_of_each_hypothesis(
    transformer, ids, beam_size, variant, in_place
):
    """After random reorderings each hypothesis is scored as if it had been fed alone."""
    tying = "none" if variant["norm_first"] else "all"
    model = transformer(**variant, num_decoder_layers=2, tied_embeddings=tying)
    generator, length = np.random.default_rng(2), 6
    source_ids = ids(3, 5, [5, 2, 4])
    cache = model.init_cache(source_ids, max_length=length, beam_size=beam_size)
    repeated = np.repeat(source_ids, beam_size, axis=0)
    first_rows = np.repeat(np.arange(3), beam_size) * beam_size
    prefixes = np.zeros((3 * beam_size, 0), "int32")
    for position in range(length):
        tokens = ids(3 * beam_size, 1)
        prefixes = np.concatenate([prefixes, tokens], axis=1)
        place = position if position % 2 else ops.convert_to_tensor(position)
        logits, cache = model.decode_step(tokens[:, 0], cache, place, in_place=in_place)
        expected = as_array(model((repeated, prefixes)))[:, -1]
        np.testing.assert_allclose(as_array(logits), expected, rtol=0, atol=1e-5)
        rows = first_rows + generator.integers(0, beam_size, 3 * beam_size)
        prefixes, cache = prefixes[rows], model.reorder_cache(cache, rows)


def test_steps_leave_the_old_cache_usable(transformer, ids):
    model, tokens = transformer(), ids(2, 2)
    cache = model.init_cache(ids(2, 4), max_length=3)
    first, _ = model.decode_step(tokens[:, 0], cache, 0)
    model.decode_step(tokens[:, 1], cache, 0)
    again, _ = model.decode_step(tokens[:, 0], cache, 0)
    np.testing.assert_array_equal(as_array(again), as_array(first))


def test_a_graph_of_unknown_lengths_equals_eager(transformer, ids):
    model = transformer()
    unknown = [tf.TensorSpec((None, None), tf.int32)] * 2
    graph = tf.function(lambda *inputs: model(inputs), input_signature=unknown)
    for source_ids, target_ids in [
        (ids(3, 6, [6, 2, 4]), ids(3, 5, [1, 5, 3])),
        (pad(ids(2, 4), 9), pad(ids(2, 7), 3)),
        (ids(1, 1), ids(1, 1)),
    ]:
        expected = as_array(model((source_ids, target_ids)))
        logits = as_array(graph(source_ids, target_ids))
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


# Dropout, precision, shapes and inputs.


def test_dropout_reaches_every_sum_and_sublayer_in_training_only(ids):
    """A rate near 1 leaves nothing of a pre-norm stack: its normalized output is zero."""
    inputs = ids(2, 8), ids(2, 8)
    dropped, plain = (Transformer(**SMALL, norm_first=True, dropout=rate) for rate in (0.999, 0.0))
    plain.set_weights(dropped.get_weights())
    np.testing.assert_array_equal(as_array(dropped(inputs)), as_array(plain(inputs)))
    for output in (dropped.encode(inputs[0], training=True), dropped(inputs, training=True)):
        assert np.mean(np.abs(as_array(output)).max(-1) < 1e-6) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["attention_dropout", "feed_forward_dropout"])
def test_optional_dropouts_act_in_both_stacks_in_training_only(ids, argument):
    inputs = ids(2, 4), ids(2, 4)
    dropped = Transformer(**SMALL, dropout=0.0, **{argument: 0.999})
    plain = Transformer(**SMALL, dropout=0.0)
    plain.set_weights(dropped.get_weights())
    np.testing.assert_array_equal(as_array(dropped(inputs)), as_array(plain(inputs)))
    x, source = ops.ones((1, 4, 16)), ops.ones((1, 3, 16))
    for stack, vectors in (("encoder", (x,)), ("decoder", (x, source))):
        training = getattr(dropped, stack)(*vectors, training=True)
        expected = getattr(plain, stack)(*vectors, training=True)
        assert np.abs(as_array(training) - as_array(expected)).max() > 1e-3, stack


def of_policy(make, dtype):
    """A model, and the same in a policy; "serving" is that of an export in bfloat16."""
    exact = make()
    if dtype == "serving":
        return exact, serving_copy(exact, "bfloat16", max_length=50)
    lower = make(dtype=dtype)
    lower.set_weights(exact.get_weights())
    return exact, lower


POLICIES = [
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("mixed_float16", "bfloat16")),
    "mixed_bfloat16",
    "serving",
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", POLICIES)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param("paper", marks=pytest.mark.slow),
        pytest.param("pre-norm", marks=pytest.mark.slow),
        "modern",
    ],
    indirect=True,
)
def test_every_policy_runs_in_training_inference_and_search(ids, dtype, variant):
    tying = "none" if variant["norm_first"] else "all"
    make = partial(Transformer, **SMALL, **variant, tied_embeddings=tying)
    exact, model = of_policy(make, dtype)
    inputs, expected_dtype = (ids(2, 5, [5, 3]), ids(2, 4, [2, 4])), model.variable_dtype
    logits, step = model(inputs), ids(2, 1)[:, 0]
    cache = model.init_cache(inputs[0], max_length=2, track_coverage=True)
    step_logits, cache = model.decode_step(step, cache, 0)
    step_logits, _ = model.decode_step(step, cache, 1, in_place=True)
    assert keras.backend.standardize_dtype(model.encode(inputs[0]).dtype) == model.compute_dtype
    for tensor in (logits, step_logits):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
    if dtype != "serving":
        assert {weight.dtype for weight in model.weights} == {expected_dtype}
    np.testing.assert_allclose(as_array(logits), as_array(exact(inputs)), rtol=0.05, atol=0.1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, run_eagerly=True)
    assert np.isfinite(model.train_on_batch(inputs, ids(2, 4)))
    assert np.isfinite(as_array(model(inputs))).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16,), (3, 16), (2, 3, 16)])
@pytest.mark.parametrize("tying", ["all", "none"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_logits_are_products_with_the_vector_of_every_token(random, shape, tying, dtype):
    model = Transformer(**SMALL, tied_embeddings=tying, dtype=dtype)
    x = random(*shape)
    logits, expected = model.logits(x), x @ as_array(model.lm_head_kernel()).T
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    tolerance = 1e-5 if dtype == "float32" else 0.1
    np.testing.assert_allclose(as_array(logits), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["int16", "int64"])
def test_ids_of_other_integer_types_give_the_same_logits(transformer, ids, dtype):
    model, source_ids, target_ids = transformer(), ids(2, 5, [5, 3]), ids(2, 4, [2, 4])
    expected = as_array(model((source_ids, target_ids)))
    others = source_ids.astype(dtype), target_ids.astype(dtype)
    np.testing.assert_array_equal(as_array(model(others)), expected)
    np.testing.assert_array_equal(as_array(model(list(others))), expected)  # a pair as a list


@pytest.mark.slow
@pytest.mark.parametrize("batch_size, source, target", [(0, 3, 2), (2, 0, 3), (2, 3, 1), (1, 1, 0)])
def test_declared_and_symbolic_shapes_are_those_of_the_logits(ids, batch_size, source, target):
    model = Transformer(**SMALL, tied_embeddings="none", target_vocab_size=31)
    assert model.compute_output_shape([(batch_size, source), (batch_size, target)]) == (
        batch_size,
        target,
        31,
    )
    logits = model((ids(batch_size, source), ids(batch_size, target)))
    assert logits.shape == (batch_size, target, 31)
    assert np.isfinite(as_array(logits)).all()
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    assert model(inputs).shape == (None, None, 31)


# Saving.


@pytest.mark.parametrize(
    "make",
    [
        lambda **sizes: Transformer(source_vocab_size=np.int64(20), **sizes),
        lambda **sizes: LanguageModel(vocab_size=np.int64(20), **sizes),
        lambda **sizes: SequenceClassifier(
            num_classes=np.int64(3), vocab_size=np.int64(20), **sizes
        ),
        lambda **sizes: Forecaster(history_length=np.int64(8), horizon=np.int64(2), **sizes),
    ],
)
def test_sizes_may_be_numbers_of_numpy(make):
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
    model = make(**{name: np.int64(size) for name, size in sizes.items()}, dropout=np.float32(0.5))
    config = json.loads(json.dumps(model.get_config()))
    assert {name: config[name] for name in sizes} == sizes and config["dropout"] == 0.5


@saves_variables
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        pytest.param(
            {"tied_embeddings": "source_target", "norm_first": True, "dtype": "mixed_bfloat16"},
            marks=pytest.mark.slow,
        ),
        {
            "target_vocab_size": 31,
            "tied_embeddings": "target_output",
            "activation": "gelu",
            "dropout": 0.3,
            "attention_dropout": 0.2,
            "feed_forward_dropout": 0.15,
            "max_length": 50,
            "name": "mine",
        },
        pytest.param({"target_vocab_size": 31, "tied_embeddings": "none"}, marks=pytest.mark.slow),
        {
            "norm": "rms_norm",
            "positions": "rotary",
            "activation": "swiglu",
            "use_bias": False,
            "num_decoder_layers": 1,
        },
    ],
    ids=lambda arguments: arguments.get("tied_embeddings", "defaults"),
)
def test_configuration_weights_and_whole_model_survive_saving(
    transformer, ids, tmp_path, arguments
):
    arguments = {**SMALL, "num_layers": 2, "target_vocab_size": 24, **arguments}
    model = transformer(**arguments)
    config = model.get_config()
    for name, value in arguments.items():
        assert name == "dtype" or config[name] == value
    inputs = ids(2, 5, [5, 3]), ids(2, 4, [2, 4])
    expected = as_array(model(inputs))

    copy = Transformer.from_config(config)
    assert copy.get_config() == config
    assert np.abs(as_array(copy(inputs)) - expected).max() > 1e-3
    model.save_weights(tmp_path / "model.weights.h5")
    copy.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(as_array(copy(inputs)), expected)

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer and loaded.get_config() == config
    assert loaded.dtype_policy == model.dtype_policy
    np.testing.assert_array_equal(as_array(loaded(inputs)), expected)


# Training.


@pytest.mark.slow
def test_fit_on_arrays_lowers_the_loss(ids):
    model = Transformer(**{**SMALL, "num_layers": 1})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    source_ids, target_ids = ids(64, 4), ids(64, 5)
    labels = target_ids % 23 + 1  # the token after each, always the same one
    history = model.fit(
        (source_ids, target_ids), labels, batch_size=8, epochs=4, verbose=0
    ).history["loss"]
    assert history == sorted(history, reverse=True)
    assert history[-1] < 0.5 * math.log(24)  # half of a uniform guess's


@pytest.mark.parametrize("variant", ["paper", "modern"], indirect=True)
def test_one_training_step_moves_every_weight(ids, variant):
    tying = "none" if variant["norm_first"] else "all"
    model = Transformer(**SMALL, **variant, tied_embeddings=tying, dropout=0.0)
    model.compile(
        keras.optimizers.SGD(1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    before = model.get_weights()
    model.train_on_batch((ids(2, 5, [5, 3]), ids(2, 4, [2, 4])), ids(2, 4))
    for weight, old, new in zip(model.weights, before, model.get_weights(), strict=True):
        assert np.isfinite(new).all() and not np.array_equal(new, old), weight.path


# Errors.


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"source_vocab_size": 0}, "source_vocab_size must be an integer of at least 1, but is 0"),
        ({"target_vocab_size": 0}, "target_vocab_size must be an integer of at least 1, but is 0"),
        ({"num_layers": 0}, "num_layers must be an integer of at least 1, but is 0"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be an integer of at least 1, but"),
        ({"norm": "batch"}, "norm must be one of 'layer_norm', 'rms_norm', but is 'batch'"),
        ({"positions": "learnt"}, "positions must be one of 'sinusoidal', 'rotary', but is 'le"),
        ({"d_model": 18}, "d_model=18 and num_heads=4; choose num_heads among the divisors of 18"),
        ({"d_ff": "32"}, "d_ff must be an integer of at least 1, but is '32'"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\), but is 1.0"),
        ({"attention_dropout": 2}, r"attention_dropout must be a number in \[0, 1\), but is 2"),
        ({"max_length": 0}, "max_length must be an integer of at least 1, but is 0"),
        (
            {"tied_embeddings": "some"},
            "tied_embeddings must be one of 'all', 'source_target', 'target_output', 'none', "
            "but is 'some'",
        ),
        (
            {"target_vocab_size": 31},
            'tied_embeddings="all" needs one vocabulary, but source_vocab_size=24 and '
            'target_vocab_size=31; use tied_embeddings="target_output" or "none"',
        ),
        (
            {"target_vocab_size": 31, "tied_embeddings": "source_target"},
            'tied_embeddings="source_target" needs one vocabulary',
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**{**SMALL, **arguments})


@pytest.mark.parametrize("inputs", [np.ones((3, 4), "int32"), {"source": 1, "target": 2}])
def test_what_is_no_pair_is_refused(transformer, inputs):
    with pytest.raises(ValueError, match=r"Transformer takes a pair, \(source_ids, target_ids\)"):
        transformer().hidden_states(inputs)


@pytest.mark.parametrize(
    "model",
    [
        lambda **sizes: Transformer(source_vocab_size=1000, **sizes),
        lambda **sizes: LanguageModel(vocab_size=1000, **sizes),
        lambda **sizes: SequenceClassifier(num_classes=3, vocab_size=1000, **sizes),
    ],
)
def test_ids_that_are_floats_are_not_rounded_in_lower_precision(model):
    model = model(num_layers=1, d_model=8, num_heads=2, d_ff=16, dtype="mixed_bfloat16")
    ids = np.array([[301, 517, 999]])
    floats = ids.astype("float32")
    pair = isinstance(model, Transformer)
    exact, found = (as_array(model((x, x) if pair else x)) for x in (ids, floats))
    np.testing.assert_array_equal(exact, found)


@pytest.mark.parametrize("name", ["start_id", "end_id"])
def test_ids_of_a_search_are_of_the_vocabulary(transformer, name):
    with pytest.raises(ValueError, match=name):
        transformer().translate([[5, 3]], "greedy", max_length=2, **{name: 99})
