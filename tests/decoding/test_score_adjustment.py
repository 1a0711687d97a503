"""What the cache adds to a score, against the arithmetic for every hypothesis."""

import numpy as np
import pytest
import tensorflow as tf

from tests.decoding.conftest import (
    END,
    START,
    PrefixModels,
    assert_same,
    every_hypothesis,
    hypotheses_of,
    penalty,
)


class Judge:
    """A random adjustment for each model and the tokens that a hypothesis was fed."""

    def __init__(self, models, beam_size, scale=2.0, seed=0):
        self.beam_size, self.vocab_size = beam_size, models.vocab_size
        shape = models.logits.shape[:2]
        self.table = -scale * np.random.default_rng(seed).random(shape).astype("float32")

    def __call__(self, cache):
        places = tf.stack([cache["model"], cache["history"][0]], axis=1)
        return tf.reshape(tf.gather_nd(self.table, places), [-1, self.beam_size])

    def adjustment(self, model, ids):
        place = START
        for token in ids[:-1]:
            place = place * self.vocab_size + token
        return self.table[model, place]


@pytest.mark.parametrize("alpha", [0, 0.6, 1.0])
@pytest.mark.parametrize("num_hypotheses", [1, 4])
def test_the_best_are_those_of_log_prob_over_penalty_plus_adjustment(num_hypotheses, alpha):
    models = PrefixModels(20, 5, 4, end_logit=0.5, seed=5)
    judge = Judge(models, beam_size=341, scale=5.0)
    settings = {"beam_size": 341, "num_hypotheses": num_hypotheses, "length_penalty": alpha}
    result = models.search(score_adjustment=judge, **settings)
    plain, changed = models.search(**settings), 0
    for model in range(20):
        scores = {
            ids: models.log_prob(model, ids) / penalty(len(ids), alpha)
            + judge.adjustment(model, ids)
            for ids in every_hypothesis(5, 4)
        }
        best = sorted(scores, key=scores.get, reverse=True)[:num_hypotheses]
        found = hypotheses_of(result, model)
        assert [ids for ids, *_ in found] == best
        assert [score for _, score, _ in found] == pytest.approx([scores[ids] for ids in best])
        assert found[0][2] == pytest.approx(models.log_prob(model, best[0]), rel=1e-5)
        changed += best[0] != hypotheses_of(plain, model)[0][0]
    assert changed > 2, "an adjustment that decides something"


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_every_score_of_a_narrow_beam_has_its_own_hypothesis_adjustment(beam_size):
    models = PrefixModels(60, end_logit=0.5, seed=6)
    judge = Judge(models, beam_size)
    result = models.search(beam_size=beam_size, num_hypotheses=beam_size, score_adjustment=judge)
    lengths = set()
    for model in range(60):
        found = hypotheses_of(result, model)
        for ids, score, log_prob in found:
            assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
            expected = log_prob / penalty(len(ids), 0.6) + judge.adjustment(model, ids)
            assert score == pytest.approx(expected, rel=1e-5)
            lengths.add((len(ids), ids[-1] == END))
        assert [score for _, score, _ in found] == sorted((f[1] for f in found), reverse=True)
    assert {(1, True), (5, True), (5, False)} <= lengths, "ended early, late, and cut off"


def test_an_adjustment_of_0_changes_nothing():
    models = PrefixModels(30)
    result = models.search(num_hypotheses=4, score_adjustment=Judge(models, 4, scale=0.0))
    assert_same(result, models.search(num_hypotheses=4))


def test_a_graph_equals_eager():
    models = PrefixModels(9)
    judge = Judge(models, 4)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def graph(rows):
        return models.search(rows, num_hypotheses=4, score_adjustment=judge)

    for rows in (np.arange(9), [4], []):
        rows = np.array(rows, "int32")
        assert_same(graph(rows), models.search(rows, num_hypotheses=4, score_adjustment=judge))
