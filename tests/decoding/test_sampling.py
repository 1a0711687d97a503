"""Samples against the distribution they should have, and everything that must not change them."""

import os
import subprocess
import sys
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Sample
from keras_transformer.decoding.result import IMPOSSIBLE
from keras_transformer.decoding.sampling import (
    gumbel_noise,
    lowbias32,
    random_bits,
    sample,
    seeds_of_rows,
)
from tests.decoding.conftest import PrefixModels, hypotheses_of

DRAWS = 2000

# Rows of different shapes: flat, steep, with ties, with tokens that are forbidden.
LOGITS = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.3, 2.0, -1.0, 0.5, 1.2, -0.4],
        [IMPOSSIBLE, 1.0, IMPOSSIBLE, 0.0, 1.0, -0.5],
        [4.0, 4.5, 3.0, -30.0, 5.0, 4.2],
    ],
    "float32",
)

SETTINGS = [
    {},
    {"temperature": 2.5},
    {"temperature": 0.6, "top_k": 3},
    {"top_p": 0.7},
    {"temperature": 1.7, "top_k": 4, "top_p": 0.8},
]


def kept(probabilities, top_k, top_p):
    """The tokens that remain, most probable first; of equal ones the first."""
    order = np.argsort(-probabilities, kind="stable")[: top_k or None]
    order = order[probabilities[order] > 0]
    mass = np.cumsum(probabilities[order]) / probabilities[order].sum()
    return order[: 1 + np.searchsorted(mass, top_p - 1e-6)]


def expected_distribution(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The probabilities (V,) of one row."""
    logits = np.where(logits > IMPOSSIBLE / 2, logits.astype("float64") / temperature, -np.inf)
    probabilities = np.exp(logits - logits.max())
    remaining = np.zeros_like(probabilities)
    remaining[kept(probabilities, top_k, top_p)] = 1
    return probabilities * remaining / (probabilities * remaining).sum()


def sampler(**settings):
    """`sample` by a strategy: the choices for logits at a position."""
    return partial(sample, strategy=Sample(**settings))


def draw(choose, logits, positions=DRAWS):
    """The choices at many positions: int32 (positions, R)."""

    @tf.function
    def graph():
        return tf.map_fn(lambda position: choose(logits, position), tf.range(positions))

    return graph().numpy()


def assert_distributed(counts, probabilities):
    """Chi-square below a bound that one test in ten thousand exceeds, were the seed not fixed."""
    possible = probabilities > 0
    assert not counts[~possible].any()
    expected = counts.sum() * probabilities[possible]
    freedom = max(possible.sum() - 1, 1)
    chi_square = np.sum((counts[possible] - expected) ** 2 / expected)
    # Wilson & Hilferty (1931): the cube root of chi-square is almost normal.
    spread = 2 / (9 * freedom)
    assert chi_square <= freedom * (1 - spread + 3.72 * spread**0.5) ** 3


# The distribution


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_frequencies_over_positions_are_those_of_the_restricted_softmax(settings):
    for seed in (0, 2**32 - 1):
        drawn = draw(sampler(**settings, seed=seed), LOGITS)
        for row, logits in enumerate(LOGITS):
            counts = np.bincount(drawn[:, row], minlength=6)
            assert_distributed(counts, expected_distribution(logits, **settings))


@pytest.mark.slow
def test_frequencies_over_seeds_are_those_of_the_softmax():
    drawn = [int(sampler(seed=seed)(LOGITS[1:2], 3)[0]) for seed in range(400)]
    assert_distributed(np.bincount(drawn, minlength=6), expected_distribution(LOGITS[1]))


def test_consecutive_positions_and_seeds_are_independent():
    """Pairs have the product of the probabilities: a whole sentence is a sample of the model."""
    flat = np.zeros((1, 3), "float32")
    here, there = (draw(sampler(seed=seed), flat)[:, 0] for seed in (5, 6))
    product = np.full(9, 1 / 9)
    assert_distributed(np.bincount(3 * here + there, minlength=9), product)
    assert_distributed(np.bincount(3 * here[::2] + here[1::2], minlength=9), product)


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (2**32 - 1, 511)], ids=str)
def test_noise_of_a_large_vocabulary_is_gumbel_and_unlike_that_of_its_neighbours(place):
    size, (seed, position) = 32_000, place
    noise = np.array(gumbel_noise(random_bits(seed, position, size)), "float64")
    assert np.isfinite(noise).all() and noise.max() < 18
    uniform = np.sort(np.exp(-np.exp(-noise)))
    # Kolmogorov & Smirnov: one sample in a thousand is farther from uniform.
    assert np.abs(uniform - (np.arange(size) + 0.5) / size).max() < 1.95 / size**0.5
    for other in ((seed, position + 1), ((seed + 1) % 2**32, position)):
        correlation = np.corrcoef(noise, gumbel_noise(random_bits(*other, size)))[0, 1]
        assert abs(correlation) < 4 / size**0.5
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 4 / size**0.5


@pytest.mark.parametrize("settings", [{}, {"top_k": 3}])
def test_rows_with_different_seeds_are_independent(settings):
    """At one position, over rows: each row has the distribution, and pairs have the product."""
    flat = np.zeros((2 * DRAWS, 3), "float32")
    seeds = seeds_of_rows(np.arange(1, 2 * DRAWS + 1)[:, None])
    drawn = np.array(sampler(**settings, seed=5)(flat, 2, seeds=seeds[:, None]))
    assert_distributed(np.bincount(drawn, minlength=3), np.full(3, 1 / 3))
    assert_distributed(np.bincount(3 * drawn[::2] + drawn[1::2], minlength=9), np.full(9, 1 / 9))
    same = np.array(sampler(**settings, seed=5)(flat, 2, seeds=np.full((2 * DRAWS, 1), 7)))
    assert len(set(same.tolist())) == 1


def test_the_seed_of_a_row_is_that_of_its_ids_without_padding():
    ids = np.array([[5, 6, 7], [5, 6, 0], [6, 5, 0], [5, 6, 7]])
    seeds = np.array(seeds_of_rows(ids))
    assert seeds[0] == seeds[3] and len(set(seeds.tolist())) == 3 and seeds.min() >= 0
    assert np.array(seeds_of_rows(np.pad(ids, ((0, 0), (0, 9))))).tolist() == seeds.tolist()
    many = np.array(seeds_of_rows(np.random.default_rng(0).integers(1, 9, (2000, 6))))
    distinct = len({tuple(row) for row in np.random.default_rng(0).integers(1, 9, (2000, 6))})
    assert len(set(many.tolist())) == distinct


def test_the_hash_is_lowbias32():
    def reference(x):
        x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
        x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
        return x ^ (x >> 16)

    numbers = np.random.default_rng(0).integers(0, 2**32, 100, "uint32")
    assert np.array(lowbias32(numbers)).tolist() == [reference(int(x)) for x in numbers]


def test_noise_is_finite_where_the_hash_is_smallest_and_largest():
    """Both occur once in 2 ** 32 hashes: floats must not round them to 0 or 1."""
    ends = np.array([0, 1, 2**32 - 2, 2**32 - 1], "uint32")
    noise = np.array(gumbel_noise(ends))
    assert np.isfinite(noise).all()
    assert noise[0] > noise[1] > 20 and noise[3] <= noise[2] < -2


# Restrictions


@pytest.mark.parametrize("settings", [{"temperature": 1e-3}, {"temperature": 1e-300}, {"top_k": 1}])
@pytest.mark.parametrize("extra", [{}, {"top_p": 0.4}])
def test_a_temperature_near_0_or_one_token_is_greedy(settings, extra, random):
    logits = random(50, 97)
    for position in range(5):
        chosen = sampler(**settings, **extra, seed=4)(logits, position)
        assert np.array(chosen).tolist() == logits.argmax(-1).tolist()


def test_a_nucleus_always_holds_the_most_probable_token(random):
    logits = random(50, 97)
    chosen = sampler(top_p=1e-9)(logits, 0)
    assert np.array(chosen).tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize(("top_p", "size"), [(0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.9, 4)])
def test_a_nucleus_is_the_smallest_set_that_reaches_its_probability(top_p, size):
    probabilities = np.array([[0.0625, 0.5, 0.0625, 0.25, 0.125]], "float32")
    drawn = draw(sampler(top_p=top_p, temperature=1.0), np.log(probabilities), 500)
    assert set(drawn[:, 0]) == {1, 3, 4, 0}.intersection([1, 3, 4, 0][:size])


def test_settings_that_restrict_nothing_change_nothing(random):
    logits = random(20, 50)
    for position in range(20):
        plain = np.array(sampler(seed=9)(logits, position))
        for settings in ({"top_k": 50}, {"top_k": 1000}, {"top_p": 1}):
            chosen = sampler(seed=9, **settings)(logits, position)
            assert np.array(chosen).tolist() == plain.tolist()


@pytest.mark.parametrize("forbidden", [IMPOSSIBLE, -np.inf, np.nan, np.inf])
@pytest.mark.parametrize("settings", [{}, {"temperature": 1e9}, {"top_k": 40}, {"top_p": 0.999}])
def test_what_is_forbidden_or_not_a_number_is_not_chosen(settings, forbidden, random):
    logits = random(4, 97)
    logits[0, ::2] = logits[1, 5:] = logits[2] = forbidden
    for position in range(10):
        chosen = np.array(sampler(**settings)(logits, position))
        assert chosen[0] % 2 == 1 and chosen[1] < 5
        assert 0 <= chosen[2] < 97, "any token, where none is allowed"
        assert chosen.dtype == "int32"


# What must not matter


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_row_depends_on_neither_its_batch_nor_its_place_in_it(settings, random):
    choose, logits = sampler(**settings, seed=3), 3 * random(40, 211)
    order = np.random.default_rng(1).permutation(40)
    together = np.array(choose(logits, 7))
    assert np.array(choose(logits[order], 7)).tolist() == together[order].tolist()
    for row in range(0, 40, 8):
        assert np.array(choose(logits[row : row + 1], 7)).tolist() == [together[row]]
        repeated = np.repeat(logits[row : row + 1], 3, axis=0)
        assert np.array(choose(repeated, 7)).tolist() == [together[row]] * 3


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_graph_has_no_random_and_no_xla_operation_and_equals_eager(settings, random):
    choose = sampler(**settings, seed=11)
    specs = [tf.TensorSpec([None, 211], tf.float32), tf.TensorSpec([], tf.int32)]
    graph = tf.function(choose, input_signature=specs)
    for operation in graph.get_concrete_function().graph.get_operations():
        assert not operation.op_def.is_stateful and "Xla" not in operation.type
    logits = 3 * random(30, 211)
    for position in (0, 1, 100):
        eager = np.array(choose(logits, position)).tolist()
        assert np.array(graph(logits, position)).tolist() == eager
    assert graph(logits[:0], 0).shape == (0,)


def test_global_seeds_change_nothing(random):
    logits, chosen = random(30, 211), []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        chosen.append(np.array(sampler(seed=5)(logits, 2)).tolist())
    assert chosen[0] == chosen[1]
    assert chosen[0] != np.array(sampler(seed=6)(logits, 2)).tolist()


# In a search


def search(models, rows, **settings):
    return models.greedy_search(rows, kind=Sample, **settings)


def test_a_sampled_hypothesis_has_the_models_own_score():
    models = PrefixModels(30, end_logit=-1.0)
    result = search(models, range(30), seed=2, temperature=1.5)
    greedy = search(models, range(30), top_k=1)
    seeded = search(models, range(30), seed=2, temperature=1.5, seeds=[7] * 30)
    assert not np.array_equal(seeded.ids, result.ids)
    differ = 0
    for model in range(30):
        ((ids, _, log_prob),) = hypotheses_of(result, model)
        assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
        ((most_probable, _, _),) = hypotheses_of(greedy, model)
        differ += ids != most_probable
    assert differ > 20


def test_a_reloaded_saved_model_gives_the_same_samples_at_every_call(tmp_path):
    models, rows = PrefixModels(12), np.arange(12, dtype="int32")
    settings = {"seed": 8, "temperature": 1.3, "top_p": 0.95}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def graph(rows):
        return search(models, rows, **settings)._asdict()

    module = tf.Module()
    module.search = graph
    tf.saved_model.save(module, str(tmp_path))
    reloaded = tf.saved_model.load(str(tmp_path)).search
    expected = search(models, rows, **settings).ids.numpy()
    for function in (graph, graph, reloaded, reloaded):
        assert np.array_equal(function(rows)["ids"], expected)
    for row in rows:
        assert np.array_equal(reloaded(rows[row : row + 1])["ids"], expected[row : row + 1])
    assert not np.array_equal(search(models, rows, **{**settings, "seed": 9}).ids, expected)


JAX_SCRIPT = """
from functools import partial

import jax
import numpy as np
from keras_transformer import Sample
from keras_transformer.decoding.sampling import sample, seeds_of_rows

logits = 3 * np.random.default_rng(0).normal(size=(20, 97)).astype("float32")
seeds = seeds_of_rows(np.arange(40).reshape(20, 2))[:, None]
for settings in ({}, {"top_k": 5}, {"top_p": 0.8, "temperature": 1.5}):
    choose = partial(sample, strategy=Sample(**settings, seed=2**32 - 2), seeds=seeds)
    jitted = jax.jit(choose)
    for position in range(4):
        chosen = np.array(choose(logits, position)).tolist()
        assert np.array(jitted(logits, position)).tolist() == chosen
        print(*chosen)
"""


@pytest.mark.slow
def test_jax_draws_the_same_tokens():
    pytest.importorskip("jax", reason="jax is not installed")
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    result = subprocess.run(
        [sys.executable, "-c", JAX_SCRIPT], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr[-3000:]
    drawn = [[int(token) for token in line.split()] for line in result.stdout.splitlines()]
    logits = 3 * np.random.default_rng(0).normal(size=(20, 97)).astype("float32")
    expected, seeds = [], seeds_of_rows(np.arange(40).reshape(20, 2))[:, None]
    for settings in ({}, {"top_k": 5}, {"top_p": 0.8, "temperature": 1.5}):
        choose = partial(sampler(**settings, seed=2**32 - 2), seeds=seeds)
        expected += [np.array(choose(logits, position)).tolist() for position in range(4)]
    assert drawn == expected
