"""The history of a search against the search itself."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Beam
from keras_transformer.decoding.history import (
    DEAD,
    ENDED,
    KEPT,
    RETURNED,
    UNFINISHED,
    beam_history,
    tokens_of,
)
from tests.decoding.conftest import END, START, PrefixModels, find, hypotheses_of, penalty


def history_of(models, model, *, beam_size=4, **kwargs):
    start_ids, cache = models.start([model], beam_size)
    kwargs = {"max_length": models.max_length, "size": beam_size, **kwargs}
    return find(Beam, models.step, start_ids, cache, search=beam_history, **kwargs)


def nodes_of(tree, fate):
    return [i for i, node in enumerate(tree) if node.fate == fate]


def results_of(tree):
    """As `hypotheses_of`: the results of a tree, best first."""
    found = [
        (tuple(tokens_of(tree, i)), tree[i].score, tree[i].log_prob)
        for i in nodes_of(tree, RETURNED)
    ]
    return sorted(found, key=lambda result: -result[1])


def assert_same_results(tree, result):
    expected = [found for found in hypotheses_of(result, 0) if found[0]]
    found = results_of(tree)
    assert [ids for ids, *_ in found] == [ids for ids, *_ in expected]
    np.testing.assert_allclose([f[1:] for f in found], [f[1:] for f in expected], rtol=1e-6)


@pytest.mark.parametrize("alpha", [0, 0.6])
@pytest.mark.parametrize(("beam_size", "num_hypotheses"), [(1, 1), (3, 3), (4, 2)])
def test_what_survives_is_what_the_search_returns(beam_size, num_hypotheses, alpha):
    models = PrefixModels(2, end_logit=1.0, seed=5)
    settings = {"beam_size": beam_size, "num_hypotheses": num_hypotheses, "length_penalty": alpha}
    for model in range(len(models)):
        tree = history_of(models, model, **settings)
        assert_same_results(tree, models.search([model], **settings))
        assert len(nodes_of(tree, RETURNED)) == num_hypotheses
        if num_hypotheses == beam_size:
            assert not nodes_of(tree, ENDED) and not nodes_of(tree, UNFINISHED)


def test_options_of_a_search_are_options_of_its_history():
    models = PrefixModels(2, seed=2)
    options = {
        "num_hypotheses": 4,
        "suppress_ids": (0,),
        "min_length": 3,
        "no_repeat_ngram": 1,
        "prefix_ids": np.array([[3]]),
        "score_adjustment": lambda cache: tf.cast(cache["history"][0] % 5, "float32")[None] / -7,
    }
    for model in range(len(models)):
        tree = history_of(models, model, **options)
        assert_same_results(tree, models.search([model], **options))
        assert all(node.token != 0 for node in tree)


def test_a_dead_hypothesis_was_less_probable_than_all_that_were_kept_at_its_step():
    models, deaths = PrefixModels(5, end_logit=0.5, seed=8), 0
    for model in range(len(models)):
        tree = history_of(models, model, num_hypotheses=4)
        for i in nodes_of(tree, DEAD):
            rivals = [n for n in tree if n.length == tree[i].length and n.fate != DEAD]
            assert tree[i].log_prob <= min(n.log_prob for n in rivals)
            assert not any(n.parent == i for n in tree)
            deaths += 1
    assert deaths > 50


def test_every_step_fills_the_beam_and_offers_the_most_probable_continuations():
    models = PrefixModels(4, end_logit=0.5, seed=3)
    for model in range(len(models)):
        tree = history_of(models, model, num_hypotheses=4)
        assert all(node.parent < i for i, node in enumerate(tree))
        for i in nodes_of(tree, KEPT):
            offered = [n for n in tree if n.parent == i]
            best = np.argsort(-models.log_probs[model, number_of(tree, i)])[:4]
            assert [n.token for n in offered] == best.tolist()
        for length in range(1, 1 + max(node.length for node in tree)):
            living = [n for n in tree if n.length == length and n.fate != DEAD]
            ended_before = [n for n in tree if n.fate == RETURNED and n.length < length]
            assert len(living) + len(ended_before) == 4


def number_of(tree, i):
    """The prefix of a hypothesis as `PrefixModels` counts it."""
    number = START
    for token in tokens_of(tree, i):
        number = number * 5 + token
    return number


def test_every_log_prob_and_score_is_that_of_its_own_tokens():
    models = PrefixModels(2, seed=1)
    for model in range(len(models)):
        for i, node in enumerate(tree := history_of(models, model)):
            tokens = tokens_of(tree, i)
            assert node.length == len(tokens)
            assert node.log_prob == pytest.approx(models.log_prob(model, tokens), rel=1e-5)
            expected = node.log_prob / penalty(node.length, 0.6) if tokens else 0
            assert node.score == pytest.approx(expected, rel=1e-5)


def test_a_vocabulary_smaller_than_the_beam_leaves_places_free():
    models = PrefixModels(2, vocab_size=3, max_length=2)
    for model in range(2):
        tree = history_of(models, model, beam_size=9, num_hypotheses=9)
        assert_same_results(tree, models.search([model], beam_size=9, num_hypotheses=9))
        assert len(nodes_of(tree, RETURNED)) == 7  # END, and two tokens before each of three


def test_more_than_one_sentence_is_an_error():
    models = PrefixModels(2)
    start_ids, cache = models.start([0, 1], 4)
    with pytest.raises(ValueError, match="start_ids must be of one sentence, but is of 2; look at"):
        beam_history(models.step, start_ids, cache, end_id=END, max_length=3)
