"""Beam search against exhaustive search, a plain reference, and itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import Beam, Greedy, beam_search, greedy_search
from keras_transformer.decoding.result import IMPOSSIBLE
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.search_model import SearchModel
from tests.decoding.conftest import (
    END,
    START,
    PrefixModels,
    assert_same,
    every_hypothesis,
    hypotheses_of,
    penalty,
)


def reference_search(models, model, *, beam_size, num_hypotheses, alpha, stop=True):
    """Beam search in a few lines of Python: the N best, and the number of steps.

    Without `stop` it goes on until no hypothesis is live.
    """
    live, finished, steps = [(0.0, ())], [], 0

    def score(hypothesis):
        return hypothesis[0] / penalty(len(hypothesis[1]), alpha)

    while live:
        ranked = sorted(map(score, finished), reverse=True)
        bound = max(live)[0] / penalty(models.max_length, alpha)
        if stop and len(ranked) >= num_hypotheses and ranked[num_hypotheses - 1] >= bound:
            break
        candidates = [
            (models.log_prob(model, (*ids, token)), (*ids, token))
            for _, ids in live
            for token in range(models.vocab_size)
        ]
        best = sorted(candidates, reverse=True)[: beam_size - len(finished)]
        steps += 1
        ended = [h for h in best if h[1][-1] == END or len(h[1]) == models.max_length]
        finished += ended
        live = [h for h in best if h not in ended]
    return sorted(finished, key=score, reverse=True)[:num_hypotheses], steps


# Exact answers


@pytest.mark.parametrize("alpha", [0, 0.6, 1.0])
@pytest.mark.parametrize(("vocab_size", "max_length", "count"), [(5, 4, 341), (3, 5, 63)])
def test_a_beam_of_full_width_is_exhaustive_search(vocab_size, max_length, count, alpha):
    models = PrefixModels(20, vocab_size, max_length)
    everything = list(every_hypothesis(vocab_size, max_length))
    assert len(everything) == count
    result = models.search(beam_size=count, num_hypotheses=count, length_penalty=alpha)
    for model in range(len(models)):
        found = hypotheses_of(result, model)
        assert sorted(ids for ids, *_ in found) == sorted(everything)
        expected = [models.log_prob(model, ids) for ids, *_ in found]
        expected_scores = [
            x / penalty(len(f[0]), alpha) for x, f in zip(expected, found, strict=True)
        ]
        np.testing.assert_allclose([f[2] for f in found], expected, rtol=1e-5)
        np.testing.assert_allclose([f[1] for f in found], expected_scores, rtol=1e-5)
        # Best first; rounding may swap what differs in the sixth digit.
        np.testing.assert_allclose(expected_scores, sorted(expected_scores)[::-1], rtol=1e-5)


@pytest.mark.parametrize("alpha", [0, 0.6, 1.0])
def test_the_best_of_a_full_beam_is_the_best_of_all(alpha):
    models = PrefixModels(20, 5, 4, end_logit=1.0, seed=1)
    result = models.search(beam_size=341, num_hypotheses=3, length_penalty=alpha)
    everything = list(every_hypothesis(5, 4))
    for model in range(len(models)):
        scores = [models.log_prob(model, ids) / penalty(len(ids), alpha) for ids in everything]
        best = np.argsort(scores)[::-1][:3]
        found = hypotheses_of(result, model)
        assert [ids for ids, *_ in found] == [everything[i] for i in best]


def test_hand_arithmetic_and_a_model_that_is_flat_after_the_end_token():
    # "2" ends at once with 0.55; "3 2" has 0.45 * 0.98 = 0.441. Its log(0.441) / (7 / 6) ** alpha
    # is -0.6015 at alpha 2 and -0.5923 at 2.1; that of "2" is always log(0.55) = -0.5978.
    table = np.log([[0.25] * 4, [1e-9, 1e-9, 0.55, 0.45], [0.25] * 4, [0.01, 0.005, 0.98, 0.005]])

    def step_fn(token_ids, cache, position):
        return ops.take(table, token_ids, axis=0), cache

    def best(alpha, max_length=3):
        strategy = Beam(size=2, num_hypotheses=2, length_penalty=alpha)
        result = beam_search(step_fn, [START], (), strategy, end_id=END, max_length=max_length)
        return [
            (ids, round(float(np.exp(log_prob)), 4))
            for ids, _, log_prob in hypotheses_of(result, 0)
        ]

    assert best(0) == [((2,), 0.55), ((3, 2), 0.441)]
    assert best(2.0) == [((2,), 0.55), ((3, 2), 0.441)]
    assert best(2.1) == [((3, 2), 0.441), ((2,), 0.55)]


# Scores and order of narrow beams


@pytest.mark.parametrize("beam_size", [2, 3, 4])
def test_every_score_is_that_of_its_own_ids(beam_size):
    models = PrefixModels(100, seed=beam_size)
    result = models.search(beam_size=beam_size, num_hypotheses=beam_size)
    for model in range(len(models)):
        found = hypotheses_of(result, model)
        assert len({ids for ids, *_ in found}) == beam_size
        for ids, score, log_prob in found:
            assert ids[-1] == END or len(ids) == models.max_length
            assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
            assert score == pytest.approx(log_prob / penalty(len(ids), 0.6), rel=1e-5)
        assert [f[1] for f in found] == sorted((f[1] for f in found), reverse=True)


@pytest.mark.parametrize("alpha", [0, 0.6, 2.0])
@pytest.mark.parametrize(("beam_size", "num_hypotheses"), [(2, 1), (4, 2), (3, 3)])
def test_the_search_stops_as_soon_as_nothing_live_can_win_and_loses_nothing(
    beam_size, num_hypotheses, alpha
):
    models = PrefixModels(8, end_logit=1.0, seed=7)
    settings = {"beam_size": beam_size, "num_hypotheses": num_hypotheses}
    steps = []
    for model in range(len(models)):
        positions = []

        def counting(token_ids, cache, position, positions=positions):
            positions.append(int(position))
            return models.step(token_ids, cache, position)

        result = models.search([model], step_fn=counting, length_penalty=alpha, **settings)
        expected, expected_steps = reference_search(models, model, alpha=alpha, **settings)
        to_the_end, _ = reference_search(models, model, alpha=alpha, stop=False, **settings)
        assert [ids for ids, *_ in hypotheses_of(result, 0)] == [ids for _, ids in expected]
        assert expected == to_the_end
        assert positions == list(range(expected_steps))
        steps.append(expected_steps)
    assert min(steps) < models.max_length, "some searches must stop early"
    assert len(set(steps)) > 1


@pytest.mark.parametrize("alpha", [0, 0.6])
def test_a_beam_of_one_is_greedy_search(alpha):
    models = PrefixModels(100, end_logit=0.5, seed=4)
    limits = np.random.default_rng(0).integers(1, 6, 100)
    settings = {"max_length": 5, "max_lengths": limits, "length_penalty": alpha}
    assert_same(models.search(beam_size=1, **settings), models.greedy_search(**settings))


def test_fewer_hypotheses_are_the_first_of_more():
    models = PrefixModels(30)
    all_four = models.search(num_hypotheses=4)
    for n in (1, 2, 3):
        assert_same(models.search(num_hypotheses=n), [field[:, :n] for field in all_four])


# What must not matter


@pytest.mark.parametrize("garbage", ["nan", "inf", "1e30", "-1e30", "pad", "end"])
def test_nothing_after_the_end_token_changes_a_finished_hypothesis(garbage):
    models = PrefixModels(40, end_logit=1.0)
    certain = {"pad": tf.one_hot(0, 5) * 1e4, "end": tf.one_hot(END, 5) * 1e4}
    logits_after = certain[garbage] if garbage in certain else tf.fill([5], float(garbage))

    def garbage_after_end(token_ids, cache, position):
        logits, new = models.step(token_ids, cache["model_cache"], position)
        over = cache["over"] | (token_ids == END)
        logits = tf.where(over[:, None], logits_after, logits)
        return logits, {"model_cache": new, "over": over}

    start_ids, cache = models.start(np.arange(40), 4)
    cache = {"model_cache": cache, "over": tf.zeros(160, "bool")}
    strategy = Beam(num_hypotheses=4)
    result = beam_search(garbage_after_end, start_ids, cache, strategy, end_id=END, max_length=5)
    assert_same(result, models.search(num_hypotheses=4))


@pytest.mark.slow
def test_a_row_alone_equals_that_row_in_a_shuffled_batch_of_other_limits():
    models, rng = PrefixModels(20, end_logit=0.5, seed=9), np.random.default_rng(2)
    rows, limits = rng.permutation(20), rng.integers(1, 6, 20)
    graph = in_graph(models, beam_size=3, num_hypotheses=3)
    together = graph(rows, 5, limits)
    assert len(set(np.asarray(together.lengths)[:, 0].tolist())) > 2
    for i in range(20):
        alone = graph(rows[i : i + 1], 5, limits[i : i + 1])
        assert_same(alone, [field[i : i + 1] for field in together])


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_of_a_row_is_its_max_length(limit):
    models = PrefixModels(20, end_logit=-1.0)
    limited = models.search(max_lengths=np.full(20, limit), num_hypotheses=2)
    short = models.search(max_length=limit, num_hypotheses=2)
    assert int(np.max(limited.lengths)) == limit
    assert_same([limited.ids[:, :, :limit], *limited[1:]], short)
    assert not np.any(limited.ids[:, :, limit:])


def test_suppressed_tokens_are_never_chosen_and_scores_stay_the_models_own():
    models, forbidden = PrefixModels(40), (0, 3)
    result = models.search(suppress_ids=forbidden, num_hypotheses=4)
    for model in range(len(models)):
        for ids, _, log_prob in hypotheses_of(result, model):
            assert not set(ids) & set(forbidden)
            assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
    assert np.isin(models.search().ids, forbidden).any()


def test_a_reorder_cache_of_ones_own_replaces_the_gather():
    models, beam_size = PrefixModels(25), 3

    def step_fn(token_ids, cache, position):  # prefixes as a matrix (K, B)
        prefix = tf.reshape(tf.transpose(cache["prefix"]), [-1])
        model_cache = {"model": cache["model"], "history": [prefix]}
        logits, new = models.step(token_ids, model_cache, position)
        prefix = tf.transpose(tf.reshape(new["history"][0], [-1, beam_size]))
        return logits, {**cache, "prefix": prefix}

    def reorder_cache(cache, rows):
        prefix = tf.gather(tf.reshape(tf.transpose(cache["prefix"]), [-1]), rows)
        return {**cache, "prefix": tf.transpose(tf.reshape(prefix, [-1, beam_size]))}

    start_ids, cache = models.start(np.arange(25), beam_size)
    cache = {"model": cache["model"], "prefix": tf.zeros([beam_size, 25], "int32")}
    model, strategy = SearchModel(step_fn, reorder_cache), Beam(size=3, num_hypotheses=3)
    result = beam_search(model, start_ids, cache, strategy, end_id=END, max_length=5)
    assert_same(result, models.search(beam_size=3, num_hypotheses=3))


# Missing hypotheses


def test_hypotheses_that_do_not_exist_have_length_0_and_a_score_of_minus_1e9():
    models = PrefixModels(6, vocab_size=3, max_length=1)
    result = models.search(beam_size=5, num_hypotheses=5)
    for model in range(6):
        found = hypotheses_of(result, model)
        assert sorted(ids for ids, *_ in found[:3]) == [(0,), (1,), (2,)]
        assert found[3:] == [((), IMPOSSIBLE, IMPOSSIBLE)] * 2
    assert np.all(np.isfinite(result.scores))


@pytest.mark.parametrize("mask", [-np.inf, -1e9])
def test_tokens_that_the_model_itself_masks_make_no_hypotheses(mask):
    """Only 3 is possible until the end token is: one hypothesis, however wide the beam."""

    def step_fn(token_ids, cache, position):
        possible = tf.one_hot(tf.where(position < 2, 3, END), 4) > 0
        return tf.where(possible, 0.0, mask) + tf.zeros_like(token_ids[:, None], "float32"), cache

    strategy = Beam(size=3, num_hypotheses=3)
    result = beam_search(step_fn, [START], (), strategy, end_id=END, max_length=6)
    assert hypotheses_of(result, 0) == [
        ((3, 3, END), 0.0, 0.0),
        ((), IMPOSSIBLE, IMPOSSIBLE),
        ((), IMPOSSIBLE, IMPOSSIBLE),
    ]


def test_suppressing_all_but_the_end_token_leaves_one_hypothesis():
    models = PrefixModels(10, vocab_size=4, max_length=3)
    result = models.search(beam_size=6, num_hypotheses=6, suppress_ids=(0, 1, 3))
    for model in range(10):
        assert [ids for ids, *_ in hypotheses_of(result, model)] == [(END,)] + [()] * 5


def end_at_once(token_ids, cache, position):
    """Logits of a model that ends every hypothesis by its second token."""
    return ops.one_hot(ops.full_like(token_ids, END), 5) * 30.0, cache


@pytest.mark.parametrize("compact_cache", [None, lambda cache, sentences, length: cache])
@pytest.mark.parametrize("alpha", [0, 2, 10])
def test_a_search_whose_hypotheses_have_all_ended_ends(alpha, compact_cache):
    steps = []

    def step(*arguments):
        steps.append(1)
        assert len(steps) < 20
        return end_at_once(*arguments)

    model = SearchModel(step, compact_cache=compact_cache)
    strategy = Beam(size=2, length_penalty=alpha)
    result = beam_search(model, ops.array([START]), (), strategy, end_id=END, max_length=64)
    assert np.array(result.ids)[0, 0, 0] == END and np.array(result.lengths)[0, 0] == 1


@pytest.mark.parametrize("alpha", [0.6, 10])
def test_a_place_without_a_hypothesis_is_never_the_best(alpha):
    strategy = Beam(num_hypotheses=4, suppress_ids=(0, 1, 3, 4), length_penalty=alpha)
    result = beam_search(end_at_once, ops.array([START]), (), strategy, end_id=END, max_length=64)
    assert np.array(result.lengths).tolist() == [[1, 0, 0, 0]]


@pytest.mark.parametrize("alpha", [[0.3], np.array([0.3]), tf.constant([0.3])])
def test_a_length_penalty_may_be_one_for_each_sentence(alpha):
    options = {"end_id": END, "max_length": 4}
    start_ids, rows = ops.array([START]), RowOptions(length_penalty=alpha)
    result = beam_search(end_at_once, start_ids, (), Beam(), rows=rows, **options)
    strategy = Beam(length_penalty=np.float32(0.3))
    assert_same(result, beam_search(end_at_once, start_ids, (), strategy, **options))


def test_a_model_brings_its_own_step_and_order():
    class Model:
        decode_step = staticmethod(end_at_once)
        calls = 0

        def reorder_cache(self, cache, rows):
            self.calls += 1
            return cache

    model, options = Model(), {"end_id": END, "max_length": 4}
    result = beam_search(model, ops.array([START]), "no tensors", Beam(), **options)
    assert np.array(result.lengths).tolist() == [[1]] and model.calls == 1
    greedy = greedy_search(model, ops.array([START]), (), Greedy(), **options)
    assert np.array(greedy.ids).tolist() == np.array(result.ids).tolist()


# Graphs


def in_graph(models, **kwargs):
    """The search as one graph for every batch size and, as a tensor, every length."""
    row_spec, scalar_spec = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[row_spec, scalar_spec, row_spec])
    def graph(rows, max_length, limits):
        return models.search(rows, max_length=max_length, max_lengths=limits, **kwargs)

    def search(rows, max_length, limits=None):
        limits = np.full(len(rows), max_length) if limits is None else limits
        return graph(tf.cast(rows, "int32"), max_length, tf.cast(limits, "int32"))

    return search


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3, 8])  # 8 is more than the vocabulary
def test_one_graph_equals_eager_for_every_batch_size_and_length(beam_size):
    models = PrefixModels(9)
    kwargs = {"beam_size": beam_size, "num_hypotheses": beam_size}
    graph = in_graph(models, **kwargs)
    for rows, max_length in ((np.arange(9), 5), ([4], 3), ([8, 8, 0], 1)):
        expected = models.search(rows, max_length=max_length, **kwargs)
        actual = graph(rows, max_length)
        assert_same(actual, expected)
        assert [keras.backend.standardize_dtype(field.dtype) for field in actual] == [
            "int32",
            "int32",
            "float32",
            "float32",
        ]


@pytest.mark.parametrize("graph", [True, False])
def test_a_batch_of_none_gives_none(graph):
    models = PrefixModels(1)
    rows = tf.zeros([0], tf.int32)
    search = in_graph(models, num_hypotheses=2)
    result = search(rows, 5) if graph else models.search(rows, num_hypotheses=2)
    assert [tuple(field.shape) for field in result] == [(0, 2, 5), (0, 2), (0, 2), (0, 2)]


# Errors


def test_coverage_needs_a_cache_that_tracks_it():
    strategy = Beam(coverage_penalty=0.2)
    with pytest.raises(ValueError, match=r"coverage_penalty=0.2 needs a cache.*track_coverage"):
        beam_search(end_at_once, ops.array([START]), (), strategy, end_id=END, max_length=4)
