"""Hypotheses with a given beginning, against all of those with that beginning."""

import numpy as np
import pytest

from keras_transformer import Sample
from tests.decoding.conftest import (
    END,
    PrefixModels,
    assert_same,
    every_hypothesis,
    hypotheses_of,
    penalty,
)

# Of the models with five tokens and at most four of them; 0 is padding.
PREFIXES = [(), (3,), (1, 4), (4, 4, 3), (3, 1, 3, 4), (END,), (4, END)]


def padded(prefixes):
    width = max(map(len, prefixes))
    return np.array([[*prefix, *[0] * (width - len(prefix))] for prefix in prefixes], "int32")


@pytest.mark.parametrize("alpha", [0, 0.6, 1.0])
def test_the_best_are_the_best_of_all_that_begin_so(alpha):
    prefixes = PREFIXES * 2
    models = PrefixModels(len(prefixes), 5, 4, seed=3)
    result = models.search(
        beam_size=341, num_hypotheses=5, length_penalty=alpha, prefix_ids=padded(prefixes)
    )
    for model, prefix in enumerate(prefixes):
        scores = {
            ids: models.log_prob(model, ids) / penalty(len(ids), alpha)
            for ids in every_hypothesis(5, 4)
            if ids[: len(prefix)] == prefix
        }
        best = sorted(scores, key=scores.get, reverse=True)[:5]
        found = [hypothesis for hypothesis in hypotheses_of(result, model) if hypothesis[0]]
        assert [ids for ids, *_ in found] == best
        assert [score for _, score, _ in found] == pytest.approx([scores[i] for i in best])


@pytest.mark.parametrize("beam_size", [1, 2, 4, 8])
def test_every_hypothesis_of_a_narrow_beam_begins_so_with_the_whole_ones_score(beam_size):
    rng = np.random.default_rng(0)
    prefixes = [tuple(rng.choice([1, 3, 4], rng.integers(0, 5))) for _ in range(40)]
    models = PrefixModels(40)
    result = models.search(
        beam_size=beam_size, num_hypotheses=beam_size, prefix_ids=padded(prefixes)
    )
    for model, prefix in enumerate(prefixes):
        found = [hypothesis for hypothesis in hypotheses_of(result, model) if hypothesis[0]]
        assert found and len({ids for ids, *_ in found}) == len(found)
        for ids, score, log_prob in found:
            assert ids[: len(prefix)] == prefix
            assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
            assert score == pytest.approx(log_prob / penalty(len(ids), 0.6), rel=1e-5)


def test_greedy_search_goes_on_where_a_prefix_ends():
    models = PrefixModels(len(PREFIXES), seed=1)
    kwargs = {"prefix_ids": padded(PREFIXES), "suppress_ids": (4,)}
    assert_same(models.greedy_search(**kwargs), models.search(beam_size=1, **kwargs))


def test_a_sample_begins_with_its_prefix_and_has_the_whole_ones_score():
    models, ends = PrefixModels(len(PREFIXES), end_logit=-1.0), set()
    for seed in range(5):
        result = models.greedy_search(prefix_ids=padded(PREFIXES), kind=Sample, seed=seed)
        for model, prefix in enumerate(PREFIXES):
            ((ids, _, log_prob),) = hypotheses_of(result, model)
            assert ids[: len(prefix)] == prefix
            assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
            ends.add(ids[len(prefix) :])
    assert len(ends) > 10


def test_no_prefix_and_one_of_padding_are_the_same():
    models = PrefixModels(20)
    expected = models.search(num_hypotheses=4)
    for width in (1, 3, 9):
        prefix_ids = np.zeros((20, width), "int32")
        assert_same(models.search(num_hypotheses=4, prefix_ids=prefix_ids), expected)


def test_the_prefix_that_a_search_would_take_anyway_changes_nothing():
    models = PrefixModels(20, seed=2)
    free = models.search(beam_size=1)
    assert_same(models.search(beam_size=1, prefix_ids=free.ids[:, 0, :3]), free)


def test_a_row_alone_equals_that_row_among_prefixes_of_other_lengths():
    models, prefix_ids = PrefixModels(len(PREFIXES)), padded(PREFIXES)
    together = models.search(num_hypotheses=3, prefix_ids=prefix_ids)
    for row in range(len(PREFIXES)):
        alone = models.search([row], num_hypotheses=3, prefix_ids=prefix_ids[row : row + 1])
        assert_same(alone, [field[row : row + 1] for field in together])


def test_a_prefix_may_hold_what_the_rest_must_not():
    models = PrefixModels(20, end_logit=-3.0)
    result = models.search(prefix_ids=padded([(3, 4)] * 20), suppress_ids=(3,), num_hypotheses=3)
    for model in range(20):
        for ids, _, log_prob in hypotheses_of(result, model):
            assert ids[:2] == (3, 4) and 3 not in ids[2:]
            assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)


def test_a_limit_cuts_a_longer_prefix():
    models, prefix = PrefixModels(10), (3, 1, 3, 4)
    result = models.search(prefix_ids=padded([prefix] * 10), max_lengths=np.full(10, 2))
    for model in range(10):
        ((ids, _, log_prob),) = hypotheses_of(result, model)
        assert ids == prefix[:2]
        assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
