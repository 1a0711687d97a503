"""The decoder-only model: against NumPy, by causality, and by prompts read in two ways."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import Beam, LanguageModel, MaskedCrossentropy, beam_search
from keras_transformer.export.precision import serving_copy
from keras_transformer.models.language_model import split_prompts

V, END = 23, 3
SMALL = {"num_layers": 2, "d_model": 16, "num_heads": 2, "d_ff": 24, "vocab_size": V}
MODERN = {"positions": "rotary", "norm": "rms_norm", "activation": "swiglu"}
# Keras 3.15 turns its variables into arrays in a way of which NumPy 2.4 warns.
saves_variables = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy"
)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def language_model(randomize):
    """A model of random weights; biases and norms are random, too."""

    def make(**kwargs):
        return randomize(LanguageModel(**{**SMALL, **kwargs}), scale=0.1)

    return make


def random_ids(batch_size, length, lengths=None, seed=1):
    """Random ids (B, T) of real tokens; after `lengths` tokens the rest of a row is padding."""
    ids = np.random.default_rng(seed).integers(4, V, (batch_size, length)).astype("int32")
    if lengths is not None:
        ids[np.arange(length) >= np.array(lengths)[:, None]] = 0
    return ids


def test_logits_equal_numpy(language_model, reference, variant):
    model, ids = language_model(**variant), random_ids(2, 7)
    logits, formula = as_array(model(ids)), reference.of(model)
    assert logits.shape == (2, 7, V)
    for row in range(2):
        np.testing.assert_allclose(logits[row], formula.language_model(ids[row]), atol=1e-5)


def test_a_token_changes_nothing_before_it(language_model, variant):
    model, ids = language_model(**variant), random_ids(2, 6)
    before = as_array(model(ids, training=False))
    for t in range(6):
        changed = ids.copy()
        changed[:, t] = ids[:, t] % (V - 4) + 4
        after = as_array(model(changed, training=False))
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert np.abs(after - before)[:, t:].max(-1).min() > 1e-5


def test_padding_and_other_rows_change_no_real_position(language_model):
    model, lengths = language_model(**MODERN), [6, 2, 4]
    ids = random_ids(3, 6, lengths)
    expected = as_array(model(ids))
    padded = as_array(model(np.pad(ids, ((0, 0), (0, 9)))))[:, :6]
    for row, length in enumerate(lengths):
        alone = as_array(model(ids[row : row + 1, :length]))[0]
        np.testing.assert_allclose(expected[row, :length], alone, rtol=0, atol=1e-5)
        np.testing.assert_allclose(padded[row, :length], alone, rtol=0, atol=1e-5)


def test_texts_that_share_a_row_are_read_as_if_alone(language_model, variant):
    """Each from its end token on; the first is the rest of one that began in an earlier row."""
    model = language_model(**variant, max_length=4)
    texts = [random_ids(1, 3)[0], *(np.append(END, random_ids(1, n, seed=n)[0]) for n in (4, 0, 2))]
    together = as_array(model(np.pad(np.concatenate(texts), (0, 2))[None]))[0]
    for text, logits in zip(texts, np.split(together, np.cumsum([3, 5, 1])), strict=True):
        alone = as_array(model(text[None]))[0]
        np.testing.assert_allclose(logits[: len(text)], alone, rtol=0, atol=1e-5)


# Searching: prompts that differ in length, read at once.

LENGTHS = [5, 1, 0, 3]


def test_prompts_begin_after_an_end_token_and_leave_their_last_to_the_search():
    prompts = random_ids(4, 5, LENGTHS)
    context_ids, start_ids = map(as_array, split_prompts(prompts))
    for prompt, context, start, length in zip(
        prompts, context_ids, start_ids, LENGTHS, strict=True
    ):
        whole = [END, *prompt[:length]]
        assert [*context[:length], start] == whole and not context[length:].any()
    for array in split_prompts(np.zeros((2, 0), "int64")):
        assert as_array(array).size in (0, 2)


def last_logits(model, texts):
    """The logits after the last token of each of some lists of ids, by one pass over all."""
    longest = max(map(len, texts))
    ids = np.array([[*text, *[0] * (longest - len(text))] for text in texts])
    return as_array(model(ids))[np.arange(len(texts)), [len(text) - 1 for text in texts]]


# A hypothesis alone and a beam; in place as in an export.
WAYS = [
    pytest.param(1, False, marks=pytest.mark.slow),
    pytest.param(3, False, marks=pytest.mark.slow),
    (3, True),
]


@pytest.mark.parametrize("beam_size, in_place", WAYS)
def test_steps_after_a_prompt_equal_full_passes_of_each_hypothesis(
    language_model, variant, beam_size, in_place
):
    """Reordered at random, and resized on the way to two of the four texts.

    The last prompt holds an end token, of which nothing before is seen.
    """
    model, rng = language_model(**variant), np.random.default_rng(2)
    prompts = random_ids(4, 5, LENGTHS)
    prompts[3, 1] = END
    context_ids, start_ids = split_prompts(prompts)
    cache = model.init_cache(context_ids, max_length=2, beam_size=beam_size)
    texts = [[[END, *row[:n]]] * beam_size for row, n in zip(prompts, LENGTHS, strict=True)]
    tokens = np.repeat(as_array(start_ids), beam_size)
    for position in range(4):
        if position == 2:
            chosen = np.array([3, 1], "int32")
            texts = [texts[i] for i in chosen]
            tokens = tokens.reshape(4, beam_size)[chosen].reshape(-1)
            cache = model.compact_cache(cache, chosen, 4)
        logits, cache = model.decode_step(tokens, cache, position, in_place=in_place)
        expected = last_logits(model, [hypothesis for text in texts for hypothesis in text])
        np.testing.assert_allclose(as_array(logits), expected, rtol=0, atol=2e-5)
        tokens = rng.integers(4, V, len(expected)).astype("int32")
        parents = rng.integers(0, beam_size, (len(texts), beam_size))
        rows = parents + np.arange(len(texts))[:, None] * beam_size
        cache = model.reorder_cache(cache, rows.reshape(-1).astype("int32"))
        texts = [
            [[*texts[b][parents[b, k]], tokens[b * beam_size + k]] for k in range(beam_size)]
            for b in range(len(texts))
        ]


@pytest.mark.parametrize("variant", ["paper", "rotary"], indirect=True)
def test_a_prompt_read_at_once_equals_one_read_token_by_token(language_model, variant):
    model, prompt = language_model(**variant), random_ids(2, 4)
    context_ids, start_ids = split_prompts(prompt)
    logits, _ = model.decode_step(start_ids, model.init_cache(context_ids, max_length=1), 0)
    cache = model.init_cache(np.zeros((2, 0), "int32"), max_length=5)
    for position, tokens in enumerate(np.concatenate([[[END], [END]], prompt], axis=1).T):
        expected, cache = model.decode_step(tokens, cache, position)
    np.testing.assert_allclose(as_array(logits), as_array(expected), rtol=0, atol=1e-5)


def test_a_wide_beam_finds_the_most_probable_continuation(language_model):
    """Against all continuations of two tokens, scored by full passes."""
    model, prompt = language_model(vocab_size=8, **MODERN), np.array([[5, 7, 4]], "int32")
    context_ids, start_ids = split_prompts(prompt)
    result = beam_search(
        model,
        start_ids,
        model.init_cache(context_ids, max_length=2, beam_size=64),
        Beam(size=64, length_penalty=0.0),
        end_id=END,
        max_length=2,
    )
    scores = {}
    first = log_softmax(as_array(model(np.array([[END, 5, 7, 4]])))[0, -1])
    for a in range(8):
        second = log_softmax(as_array(model(np.array([[END, 5, 7, 4, a]])))[0, -1])
        scores |= {(a, b): first[a] + second[b] for b in range(8)} if a != END else {}
    scores[(END, 0)] = first[END]
    best = max(scores, key=scores.get)
    assert tuple(as_array(result.ids)[0, 0]) == best
    assert float(result.log_probs[0, 0]) == pytest.approx(scores[best], abs=1e-4)


def log_softmax(logits):
    return logits - np.log(np.sum(np.exp(logits)))


# Training.


class PlainCrossentropy(MaskedCrossentropy):
    """Has another type, so that Keras's own step is taken."""


@pytest.mark.parametrize("compiled", [{}, {"r_drop": 1.0}])
def test_own_step_and_that_of_keras_train_the_same_weights(compiled):
    ids, labels = random_ids(4, 7, [7, 7, 4, 0]), random_ids(4, 7, [7, 7, 4, 0], seed=2)
    own, stock = (LanguageModel(**SMALL, **MODERN, dropout=0.0) for _ in range(2))
    stock.set_weights(own.get_weights())
    own.compile(keras.optimizers.SGD(0.5), MaskedCrossentropy(), run_eagerly=True, **compiled)
    stock.compile(keras.optimizers.SGD(0.5), PlainCrossentropy(), run_eagerly=True)
    assert own.step_metrics is not None and stock.step_metrics is None
    own.train_on_batch(ids, labels)
    stock.train_on_batch(ids, labels)
    for a, b in zip(own.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)


def test_one_training_step_moves_every_weight():
    model = LanguageModel(**SMALL, **MODERN, dropout=0.0)
    model.compile(keras.optimizers.SGD(1.0), MaskedCrossentropy(), run_eagerly=True)
    before = model.get_weights()
    model.train_on_batch(random_ids(2, 5), random_ids(2, 5, seed=3))
    for weight, old, new in zip(model.weights, before, model.get_weights(), strict=True):
        assert np.isfinite(new).all() and not np.array_equal(new, old), weight.path


# Precision, shapes, saving and errors.


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("mixed_float16", "bfloat16")),
        "mixed_bfloat16",
        "serving",
    ],
)
@pytest.mark.parametrize("variant", ["paper", "modern"], indirect=True)
def test_every_policy_runs_in_training_inference_and_search(dtype, variant):
    options, ids = {**SMALL, **variant}, random_ids(2, 5, [5, 3])
    exact = LanguageModel(**options)
    if dtype == "serving":
        model = serving_copy(exact, "bfloat16", max_length=50)
    else:
        model = LanguageModel(**options, dtype=dtype)
        model.set_weights(exact.get_weights())
    logits, (context_ids, start_ids) = model(ids), split_prompts(ids)
    cache = model.init_cache(context_ids, max_length=2)
    step_logits, cache = model.decode_step(start_ids, cache, 0)
    step_logits, _ = model.decode_step(start_ids, cache, 1, in_place=True)
    hidden_states = model.hidden_states(ids)
    assert keras.backend.standardize_dtype(hidden_states.dtype) == model.compute_dtype
    for tensor in (logits, step_logits):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
    np.testing.assert_allclose(as_array(logits), as_array(exact(ids)), rtol=0.05, atol=0.1)
    model.compile(keras.optimizers.SGD(0.01), MaskedCrossentropy(), run_eagerly=True)
    assert np.isfinite(model.train_on_batch(ids, random_ids(2, 5, seed=3)))
    assert np.isfinite(as_array(model(ids))).all()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 1), (1, 4)])
def test_declared_and_symbolic_shapes_are_those_of_the_logits(shape):
    model = LanguageModel(**SMALL)
    assert model.compute_output_shape(shape) == (*shape, V)
    assert model(np.ones(shape, "int32")).shape == (*shape, V)
    assert model(keras.Input((None,), dtype="int32")).shape == (None, None, V)


@saves_variables
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {
            **MODERN,
            "dropout": 0.3,
            "attention_dropout": 0.2,
            "feed_forward_dropout": 0.15,
            "norm_first": False,
            "max_length": 50,
            "name": "mine",
            "dtype": "mixed_bfloat16",
        },
    ],
    ids=["defaults", "all"],
)
def test_configuration_weights_and_whole_model_survive_saving(language_model, tmp_path, arguments):
    arguments = {**SMALL, **arguments}
    model, ids = language_model(**arguments), random_ids(2, 5, [5, 3])
    config = model.get_config()
    for name, value in arguments.items():
        assert name == "dtype" or config[name] == value
    copy = LanguageModel.from_config(config)
    assert copy.get_config() == config
    model.save_weights(tmp_path / "model.weights.h5")
    copy.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(as_array(copy(ids)), as_array(model(ids)))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is LanguageModel and loaded.get_config() == config
    np.testing.assert_array_equal(as_array(loaded(ids)), as_array(model(ids)))


def test_a_search_beyond_the_table_of_positions_is_refused(language_model):
    context_ids = np.ones((1, 5), "int32")
    model = language_model(max_length=8)
    model.init_cache(context_ids, max_length=3)
    with pytest.raises(ValueError, match="max_length=4 tokens after 5 others .* max_length=8;"):
        model.init_cache(context_ids, max_length=4)
    language_model(max_length=8, positions="rotary").init_cache(context_ids, max_length=4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"vocab_size": 0}, "vocab_size must be an integer of at least 1, but is 0"),
        ({"max_length": 0}, "max_length must be an integer of at least 1, but is 0"),
        (
            {"positions": "learnt"},
            "positions must be one of 'sinusoidal', 'rotary', but is 'learnt'",
        ),
        ({"norm": "batch"}, "norm must be one of 'layer_norm', 'rms_norm', but is 'batch'"),
        ({"num_layers": 0}, "num_layers must be an integer of at least 1, but is 0"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\), but is 1.0"),
        ({"num_heads": 3}, "d_model=16 and num_heads=3; choose num_heads among the divisors of 16"),
        (
            {"num_heads": 16, "positions": "rotary"},
            "heads of width 1; choose them so that it is even",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        LanguageModel(**{**SMALL, **arguments})


def test_a_prompt_is_not_covered():
    with pytest.raises(
        ValueError, match="coverage_penalty must be 0 for a language model, .* leave it out"
    ):
        LanguageModel(**SMALL).generate([[5]], Beam(coverage_penalty=0.2))
