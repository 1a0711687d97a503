"""What searches must not choose, against a reading of every hypothesis."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.processors import no_repeat_ngram
from keras_transformer.decoding.result import IMPOSSIBLE
from tests.decoding.conftest import END, PrefixModels, hypotheses_of

V, L = 4, 10


def repeats(ids, size):
    """Whether some `size` tokens in a row occur twice."""
    ngrams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


def forbidden_by_trial(ids, position, size):
    """Boolean (R, V): the tokens that would make the first repetition's end."""
    mask = np.zeros((len(ids), V), "bool")
    for row, hypothesis in enumerate(ids[:, :position].tolist()):
        ngrams = [hypothesis[i : i + size] for i in range(position - size + 1)]
        for token in range(V):
            last = [*hypothesis, token][-size:]
            mask[row, token] = last in ngrams
    return mask


# The mask alone


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_an_ngram_is_forbidden_if_and_only_if_it_is_there(size):
    ids = np.random.default_rng(size).integers(0, V, (60, L)).astype("int32")
    processor, some = no_repeat_ngram(size), 0
    for position in range(L):
        mask = np.array(processor(ids, position, V))
        assert mask.shape == (60, V) and mask.dtype == "bool"
        np.testing.assert_array_equal(mask, forbidden_by_trial(ids, position, size))
        assert position >= size or not mask.any()
        some += mask.sum()
    assert some > 20


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_lies_behind_the_position_does_not_matter(size):
    ids = np.random.default_rng(0).integers(0, V, (60, L)).astype("int32")
    for position in range(L):
        garbage = ids.copy()
        garbage[:, position:] = 3
        expected = no_repeat_ngram(size)(ids, position, V)
        np.testing.assert_array_equal(no_repeat_ngram(size)(garbage, position, V), expected)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_one_graph_serves_every_number_of_rows_capacity_and_position(size):
    specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32)]

    @tf.function(input_signature=specs)
    def graph(ids, position):
        return no_repeat_ngram(size)(ids, position, V)

    ids = np.random.default_rng(1).integers(0, V, (20, L)).astype("int32")
    for rows, capacity, position in ((20, L, 9), (20, 7, 6), (1, 1, 0), (3, 4, 2)):
        mask = graph(ids[:rows, :capacity], position)
        np.testing.assert_array_equal(mask, forbidden_by_trial(ids[:rows], position, size))
    assert graph(ids[:0], 3).shape == (0, V)


# Inside the searches


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("beam_size", [None, 1, 3], ids=["greedy", "beam of 1", "beam of 3"])
def test_nothing_repeats_and_scores_stay_the_models_own(size, beam_size):
    models = PrefixModels(20, vocab_size=4, max_length=7, end_logit=-2.0)
    result, free_result = (search(models, beam_size, no_repeat_ngram=n) for n in (size, 0))
    found, free = ([hypotheses_of(x, i) for i in range(20)] for x in (result, free_result))
    for model, hypotheses in enumerate(found):
        for ids, _, log_prob in hypotheses:
            if log_prob > IMPOSSIBLE / 2:
                assert not repeats(ids, size)
                assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
            else:
                assert ids == () and log_prob == IMPOSSIBLE
    assert all(hypotheses[0][0] for hypotheses in found)
    assert sum(repeats(ids, size) for hypotheses in free for ids, *_ in hypotheses) > 5


def search(models, beam_size, processors=(), **kwargs):
    kwargs["logits_processors"] = processors
    if beam_size is None:
        return models.greedy_search(**kwargs)
    return models.search(beam_size=beam_size, num_hypotheses=beam_size, **kwargs)


@pytest.mark.parametrize("size", [2, 3])
def test_greedy_search_takes_the_best_token_that_repeats_nothing(size):
    models = PrefixModels(20, vocab_size=4, max_length=7, end_logit=-2.0)
    result = search(models, None, no_repeat_ngram=size)
    for model in range(20):
        ids = []
        while len(ids) < 7 and END not in ids:
            allowed = [token for token in range(4) if not repeats([*ids, token], size)]
            ids.append(max(allowed, key=lambda token: models.log_prob(model, [*ids, token])))
        assert hypotheses_of(result, model)[0][0] == tuple(ids)


@pytest.mark.parametrize("beam_size", [None, 1, 4])
def test_a_hypothesis_for_which_everything_is_forbidden_does_not_exist(beam_size):
    models = PrefixModels(10, vocab_size=3, max_length=7)
    everything = [no_repeat_ngram(1), lambda ids, position, size: np.arange(size) == END]
    result = search(models, beam_size, everything)
    assert not np.any(result.lengths) and np.all(np.array(result.scores) == IMPOSSIBLE)


def test_dead_hypotheses_do_not_become_copies_of_one_that_ended():
    models = PrefixModels(10, vocab_size=3, max_length=7)

    def nothing_after_the_first(ids, position, vocab_size):
        return np.full(vocab_size, True) & (position > 0)

    result = search(models, 3, [nothing_after_the_first])
    for model in range(10):
        assert [ids for ids, *_ in hypotheses_of(result, model)] == [(END,), (), ()]


@pytest.mark.parametrize("beam_size", [None, 1, 3])
@pytest.mark.parametrize("count", [1, 8, 9, 11])
def test_few_and_many_suppressed_tokens_are_never_chosen(count, beam_size):
    models = PrefixModels(20, vocab_size=13, max_length=3)
    suppressed = [token for token in range(13) if token != END][:count]
    result = search(models, beam_size, suppress_ids=suppressed)
    for model in range(20):
        for ids, _, log_prob in hypotheses_of(result, model):
            assert not set(ids) & set(suppressed)
            if ids:
                assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
    assert np.isin(search(models, beam_size).ids, suppressed).any()


@pytest.mark.parametrize("beam_size", [None, 1, 3])
@pytest.mark.parametrize("min_length", [0, 1, 2, 4, 5, 9])
def test_no_hypothesis_is_shorter_than_the_minimum(min_length, beam_size):
    models = PrefixModels(30, end_logit=1.5)
    result = search(models, beam_size, min_length=min_length)
    free = search(models, beam_size)
    assert np.min(free.lengths) == 1
    assert np.min(result.lengths) == min(max(min_length, 1), models.max_length)
    if min_length <= 1:
        np.testing.assert_array_equal(result.ids, free.ids)
    for model in range(30):
        for ids, _, log_prob in hypotheses_of(result, model):
            assert log_prob == pytest.approx(models.log_prob(model, ids), rel=1e-5)
