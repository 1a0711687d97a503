import json
import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    Forecaster,
    LanguageModel,
    SequenceClassifier,
    Transformer,
    presets,
)

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


def logits_in_numpy(model, source_ids, target_ids):
    """The paper's forward pass, in float64, of one sentence pair without padding."""
    weights = {
        weight.path.removeprefix(f"{model.name}/"): value.astype("float64")
        for weight, value in zip(model.weights, model.get_weights(), strict=True)
    }

    def embed(ids, name):
        table = weights[f"{name}/embeddings"]
        d_model = table.shape[1]
        position = [
            [
                (math.cos if j % 2 else math.sin)(p / 10000 ** (j // 2 * 2 / d_model))
                for j in range(d_model)
            ]
            for p in range(len(ids))
        ]
        return table[ids] * math.sqrt(d_model) + np.array(position)

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-6)
        return centred / deviation * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def attention(x, memory, name, causal=False):
        query = np.split(dense(x, name), 3, axis=-1)[0]
        _, key, value = np.split(dense(memory, name), 3, axis=-1)
        heads = []
        for columns in np.split(np.arange(x.shape[1]), SMALL["num_heads"]):
            exponentials = np.exp(query[:, columns] @ key[:, columns].T / math.sqrt(len(columns)))
            exponentials = np.tril(exponentials) if causal else exponentials
            heads.append(exponentials / exponentials.sum(-1, keepdims=True) @ value[:, columns])
        return dense(np.concatenate(heads, -1), f"{name}/output_projection")

    def run(x, stack, norm_first, sublayers):
        for i in range(SMALL["num_layers"]):
            for name, sublayer in sublayers.items():
                layer, residual = (
                    f"{stack}/layer_{i}/{name}",
                    f"{stack}/layer_{i}/{name}_residual/norm",
                )
                if norm_first:
                    x = x + sublayer(norm(x, residual), layer)
                else:
                    x = norm(x + sublayer(x, layer), residual)
        return norm(x, f"{stack}/final_norm") if norm_first else x

    def feed_forward(x, name):
        return dense(np.maximum(0, dense(x, f"{name}/inner")), f"{name}/outer")

    norm_first = model.get_config()["norm_first"]
    encoder_output = run(
        embed(source_ids, "source_embedding"),
        "encoder",
        norm_first,
        {"self_attention": lambda x, name: attention(x, x, name), "feed_forward": feed_forward},
    )
    x = run(
        embed(target_ids, "source_embedding"),
        "decoder",
        norm_first,
        {
            "self_attention": lambda x, name: attention(x, x, name, causal=True),
            "cross_attention": lambda x, name: attention(x, encoder_output, name),
            "feed_forward": feed_forward,
        },
    )
    return x @ weights["source_embedding/embeddings"].T


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


@pytest.mark.parametrize("norm_first", [False, True])
def test_logits_equal_the_paper_in_numpy(transformer, ids, norm_first):
    model, source_ids, target_ids = transformer(norm_first=norm_first), ids(2, 6), ids(2, 5)
    logits = as_array(model((source_ids, target_ids)))
    assert logits.shape == (2, 5, 24)
    for row in range(2):
        expected = logits_in_numpy(model, source_ids[row], target_ids[row])
        np.testing.assert_allclose(logits[row], expected, rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize("norm_first", [False, True])
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


@pytest.mark.parametrize(
    "beam_size, norm_first, tying", [(1, False, "all"), (3, False, "all"), (3, True, "none")]
)
def test_cached_steps_equal_full_passes_of_each_hypothesis(
    transformer, ids, norm_first, tying, beam_size
):
    """After random reorderings each hypothesis is scored as if it had been fed alone."""
    model = transformer(norm_first=norm_first, tied_embeddings=tying)
    generator, length = np.random.default_rng(2), 6
    source_ids = ids(3, 5, [5, 2, 4])
    cache = model.init_cache(source_ids, max_length=length, beam_size=beam_size)
    repeated = np.repeat(source_ids, beam_size, axis=0)
    first_rows = np.repeat(np.arange(3), beam_size) * beam_size
    prefixes = np.zeros((3 * beam_size, 0), "int32")
    for position in range(length):
        tokens = ids(3 * beam_size, 1)
        prefixes = np.concatenate([prefixes, tokens], axis=1)
        logits, cache = model.decode_step(
            tokens[:, 0], cache, position if position % 2 else ops.convert_to_tensor(position)
        )
        expected = as_array(model((repeated, prefixes)))[:, -1]
        np.testing.assert_allclose(as_array(logits), expected, rtol=0, atol=1e-5)
        rows = first_rows + generator.integers(0, beam_size, 3 * beam_size)
        prefixes, cache = prefixes[rows], model.reorder_cache(cache, rows)


def test_logits_of_some_rows_are_those_of_all_at_these_rows(transformer, ids):
    model, tokens, rows = transformer(), ids(6, 1)[:, 0], np.array([1, 2, 5])
    cache = model.init_cache(ids(2, 4), max_length=3, beam_size=3)
    expected, full = model.decode_step(tokens, cache, 0)
    logits, same = model.decode_step(tokens, cache, 0, rows)
    np.testing.assert_allclose(as_array(logits), as_array(expected)[rows], rtol=0, atol=1e-6)
    for new, old in zip(keras.tree.flatten(same), keras.tree.flatten(full), strict=True):
        np.testing.assert_array_equal(as_array(new), as_array(old))


def test_steps_leave_the_old_cache_usable(transformer, ids):
    model, tokens = transformer(), ids(2, 2)
    cache = model.init_cache(ids(2, 4), max_length=3)
    first, _ = model.decode_step(tokens[:, 0], cache, 0)
    model.decode_step(tokens[:, 1], cache, 0)
    again, _ = model.decode_step(tokens[:, 0], cache, 0)
    np.testing.assert_array_equal(as_array(again), as_array(first))


def test_a_graph_of_unknown_lengths_equals_eager(transformer, ids):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.function needs the TensorFlow backend")
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


@pytest.mark.parametrize("tying", ["all", "none"])
def test_mixed_bfloat16_keeps_weights_and_logits_in_float32(ids, tying):
    exact = Transformer(**SMALL, tied_embeddings=tying)
    mixed = Transformer(**SMALL, tied_embeddings=tying, dtype="mixed_bfloat16")
    mixed.set_weights(exact.get_weights())
    inputs = ids(2, 5, [5, 3]), ids(2, 4, [2, 4])
    logits = mixed(inputs)
    step_logits, _ = mixed.decode_step(
        ids(2, 1)[:, 0], mixed.init_cache(inputs[0], max_length=2), 0
    )
    assert keras.backend.standardize_dtype(mixed.encode(inputs[0]).dtype) == "bfloat16"
    for tensor in (logits, step_logits, *mixed.weights):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
    np.testing.assert_allclose(as_array(logits), as_array(exact(inputs)), rtol=0.05, atol=0.1)


@pytest.mark.parametrize("dtype", ["int16", "int64"])
def test_ids_of_other_integer_types_give_the_same_logits(transformer, ids, dtype):
    model, source_ids, target_ids = transformer(), ids(2, 5, [5, 3]), ids(2, 4, [2, 4])
    expected = as_array(model((source_ids, target_ids)))
    others = source_ids.astype(dtype), target_ids.astype(dtype)
    np.testing.assert_array_equal(as_array(model(others)), expected)
    np.testing.assert_array_equal(as_array(model(list(others))), expected)  # a pair as a list


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
        {"tied_embeddings": "source_target", "norm_first": True, "dtype": "mixed_bfloat16"},
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
        {"target_vocab_size": 31, "tied_embeddings": "none"},
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


@pytest.mark.parametrize("tying", ["all", "none"])
def test_one_training_step_moves_every_weight(ids, tying):
    model = Transformer(**SMALL, tied_embeddings=tying, dropout=0.0)
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
        transformer().hidden(inputs)


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
