import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import Greedy, greedy_search
from tests.decoding.conftest import find

END, START, V, L = 3, 1, 5, 5


class PrefixModels:
    """Random models whose next-token logits depend on every token so far.

    The cache spells the prefix of each row as a number in base V, and names the row's model.
    """

    def __init__(self, count, seed=0, end_logit=0.0):
        rng = np.random.default_rng(seed)
        self.logits = rng.normal(0, 2, (count, 2 * V**L, V)).astype("float32")
        self.logits[:, :, END] += end_logit

    def start(self, models):
        models = tf.cast(models, "int32")
        return tf.fill(tf.shape(models), START), {"model": models, "prefix": tf.zeros_like(models)}

    def step(self, token_ids, cache, position):
        prefix = cache["prefix"] * V + token_ids
        places = tf.stack([cache["model"], prefix], axis=1)
        return tf.gather_nd(self.logits, places), {**cache, "prefix": prefix}

    def log_probs(self, model, prefix):
        logits = self.logits[model, prefix].astype("float64")
        return logits - np.log(np.exp(logits).sum())

    def greedy(self, model, max_length=L, forbidden=()):
        """The most probable token, one after the other, and their log-probability."""
        prefix, ids, total = START, [], 0.0
        while len(ids) < max_length and END not in ids:
            log_probs = self.log_probs(model, prefix)
            best = max((i for i in range(V) if i not in forbidden), key=lambda i: log_probs[i])
            ids.append(best)
            total += log_probs[best]
            prefix = prefix * V + best
        return ids, total


def search(models, rows, **kwargs):
    start_ids, cache = models.start(rows)
    kwargs = {"end_id": END, "max_length": L, **kwargs}
    return find(Greedy, models.step, start_ids, cache, **kwargs)


def take(result):
    """(tokens, padding, score, log_prob) of each row's only hypothesis."""
    ids, lengths, scores, log_probs = (np.asarray(field)[:, 0] for field in result)
    return [
        (ids[i, :n].tolist(), ids[i, n:].tolist(), scores[i], log_probs[i])
        for i, n in enumerate(lengths)
    ]


def speller(words):
    """A model that spells word i for row i, ends, and goes on with garbage."""
    letters = [[*word, END, *[7] * L][: L + 1] for word in words]

    def step_fn(token_ids, cache, position):
        return ops.one_hot(ops.take(np.array(letters), position, axis=1), 9) * 50.0, cache

    return step_fn


def test_a_scripted_model_spells_its_words():
    result = greedy_search(
        speller([[4, 5], [8], [], [6, 6, 4]]), np.zeros(4), (), end_id=END, max_length=L
    )
    assert np.asarray(result.ids).tolist() == [
        [[4, 5, END, 0, 0]],
        [[8, END, 0, 0, 0]],
        [[END, 0, 0, 0, 0]],
        [[6, 6, 4, END, 0]],
    ]
    assert np.asarray(result.lengths).tolist() == [[3], [2], [1], [4]]


def test_every_hypothesis_is_the_argmax_chain_with_its_own_score():
    models = PrefixModels(60)
    for i, (ids, padding, score, log_prob) in enumerate(take(search(models, np.arange(60)))):
        expected, total = models.greedy(i)
        assert ids == expected
        assert not any(padding)
        assert log_prob == pytest.approx(total, rel=1e-5)
        assert score == pytest.approx(total / ((5 + len(ids)) / 6) ** 0.6, rel=1e-5)


@pytest.mark.parametrize("alpha", [0, 0.6, 2.0])
def test_the_penalty_changes_scores_and_nothing_else(alpha):
    models = PrefixModels(20)
    plain = search(models, np.arange(20), length_penalty=0)
    result = search(models, np.arange(20), length_penalty=alpha)
    assert np.array_equal(result.ids, plain.ids)
    np.testing.assert_array_equal(result.log_probs, plain.log_probs)
    expected = plain.scores / ((5 + np.asarray(plain.lengths)) / 6) ** alpha
    np.testing.assert_allclose(result.scores, expected, rtol=1e-5)


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30, -1e30])
def test_nothing_after_the_end_token_changes_a_finished_hypothesis(garbage):
    models = PrefixModels(30, end_logit=1.0)

    def garbage_after_end(token_ids, cache, position):
        logits, new_cache = models.step(token_ids, cache, position)
        over = cache["over"] | (token_ids == END)
        return tf.where(over[:, None], garbage, logits), {**new_cache, "over": over}

    start_ids, cache = models.start(np.arange(30))
    cache["over"] = tf.zeros(30, "bool")
    result = greedy_search(garbage_after_end, start_ids, cache, end_id=END, max_length=L)
    for expected, actual in zip(search(models, np.arange(30)), result, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_the_search_ends_with_its_longest_hypothesis():
    models = PrefixModels(8, seed=3, end_logit=2.0)
    positions = []

    def step_fn(token_ids, cache, position):
        positions.append(int(position))
        return models.step(token_ids, cache, position)

    start_ids, cache = models.start(np.arange(8))
    result = greedy_search(step_fn, start_ids, cache, end_id=END, max_length=L)
    longest = int(np.max(result.lengths))
    assert longest < L, "choose models that all end before the limit"
    assert positions == list(range(longest))


def test_a_row_alone_equals_that_row_in_a_shuffled_batch():
    models, rng = PrefixModels(12), np.random.default_rng(5)
    order, limits = rng.permutation(12), rng.integers(1, L + 1, 12)
    together = take(search(models, order, max_lengths=limits))
    for i, row in enumerate(order):
        (alone,) = take(search(models, [row], max_lengths=limits[i : i + 1]))
        assert alone[0] == together[i][0] == models.greedy(row, limits[i])[0]
        assert alone[2:] == pytest.approx(together[i][2:], rel=1e-6)


def test_limits_above_max_length_do_not_lengthen_anything():
    models = PrefixModels(12, end_logit=-9.0)
    result = search(models, np.arange(12), max_length=4, max_lengths=np.full(12, 100))
    assert np.asarray(result.lengths).tolist() == [[4]] * 12
    assert result.ids.shape == (12, 1, 4)


def test_suppressed_tokens_are_never_chosen_and_scores_stay_the_models_own():
    models, forbidden = PrefixModels(30), (0, 4)
    rows = take(search(models, np.arange(30), suppress_ids=forbidden))
    for i, (ids, _, _, log_prob) in enumerate(rows):
        expected, total = models.greedy(i, forbidden=forbidden)
        assert ids == expected
        assert log_prob == pytest.approx(total, rel=1e-5)
    assert any(set(ids) & set(forbidden) for ids, *_ in take(search(models, np.arange(30))))


def in_graph(models, max_length=L):
    """The search as one graph for every batch size and, as a tensor, every length."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)])
    def graph(rows, max_length):
        return search(models, rows, max_length=max_length)

    return lambda rows: graph(tf.constant(rows, tf.int32), max_length)


def test_one_graph_equals_eager_for_every_batch_size():
    models = PrefixModels(9)
    graph = in_graph(models)
    for rows in (np.arange(9), [4], [8, 8, 0]):
        for expected, actual in zip(search(models, rows), graph(rows), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-6)
            assert actual.dtype == expected.dtype


@pytest.mark.parametrize("wrap", [in_graph, lambda models: lambda rows: search(models, rows)])
def test_a_batch_of_none_gives_none(wrap):
    result = wrap(PrefixModels(1))(np.zeros(0, "int32"))
    assert [tuple(field.shape) for field in result] == [(0, 1, L), (0, 1), (0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_length": 0}, "max_length must be an integer of at least 1, but is 0"),
        ({"max_length": -3}, "max_length must be an integer of at least 1, but is -3"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        search(PrefixModels(1), [0], **wrong)
