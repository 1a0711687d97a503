"""A search with compaction against one without, with a cache that tells whose it is."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Beam, Greedy, Sample, beam_search
from keras_transformer.decoding.compaction import (
    MOST_DONE,
    SHORTEST_ROUND_OF_ONE,
    next_capacity,
    no_capacity,
)
from keras_transformer.decoding.search_model import SearchModel
from tests.decoding.conftest import END, START, assert_same, find, hypotheses_of, penalty

V, L, PRIME = 7, 90, 499


class Diarist:
    """Random models that read their own cache, a diary of the tokens each hypothesis was fed.

    Logits are a hash of the sentence and of all the diary: a row at a wrong place, a lost token,
    or anything in the places that are still empty gives others. Sentence i ends after about
    `lengths[i]` tokens. Use eagerly to see `capacities` and `rows` of each step, and how many
    were `live`, with `only_live`.
    """

    def __init__(self, lengths, beam_size=1, seed=0):
        rng = np.random.default_rng(seed)
        self.table = rng.normal(0, 1.5, (PRIME, V)).astype("float32")
        self.weights = rng.integers(1, PRIME, L).astype("int32")
        self.lengths, self.beam_size = np.array(lengths, "int32"), beam_size
        self.capacities, self.rows, self.compactions, self.cache = [], [], [], None
        self.live = []

    def start(self, rows, capacity):
        sentence = tf.repeat(tf.cast(rows, "int32"), self.beam_size)
        diary = tf.zeros(tf.stack([tf.shape(sentence)[0], capacity]), "int32")
        return tf.fill(tf.shape(rows), START), {"sentence": sentence, "diary": diary}

    def step(self, token_ids, cache, position):
        sentence, diary = cache["sentence"], cache["diary"]
        capacity = tf.shape(diary)[1]
        diary = tf.where(tf.range(capacity) == position, token_ids[:, None], diary)
        key = tf.reduce_sum(diary * tf.constant(self.weights)[:capacity], axis=1) + 101 * sentence
        late = tf.cast(position - tf.gather(self.lengths, sentence), "float32")[:, None]
        logits = tf.gather(self.table, key % PRIME) + 0.5 * late * tf.one_hot(END, V)
        self.cache = {"sentence": sentence, "diary": diary}
        if tf.executing_eagerly():
            self.capacities.append(int(capacity))
            self.rows.append(len(sentence) // self.beam_size)
        return logits, self.cache

    def logits(self, states):
        """Of live hypotheses. The "hidden states" are logits already."""
        if tf.executing_eagerly():
            self.live.append(len(states))
        return states

    def compact(self, cache, sentences, length):
        rows = sentences[:, None] * self.beam_size + tf.range(self.beam_size)
        kept = {name: tf.gather(x, tf.reshape(rows, [-1])) for name, x in cache.items()}
        more = length - tf.shape(cache["diary"])[1]
        if tf.executing_eagerly():
            self.compactions.append((len(sentences), int(length)))
        return {**kept, "diary": tf.pad(kept["diary"], [[0, 0], [0, more]])}

    def search(
        self,
        rows=None,
        *,
        rounds,
        greedy=False,
        kind=Greedy,
        max_length=L,
        only_live=False,
        **kwargs,
    ):
        rows = np.arange(len(self.lengths)) if rows is None else rows
        start_ids, cache = self.start(rows, no_capacity(rows) if rounds else max_length)
        kwargs = {"end_id": END, "max_length": max_length, **kwargs}
        kwargs["compact_cache"] = self.compact if rounds else None
        kwargs["logits"] = self.logits if only_live else None
        if greedy:
            return find(kind, self.step, start_ids, cache, **kwargs)
        settings = {"size": self.beam_size, "num_hypotheses": self.beam_size, **kwargs}
        return find(Beam, self.step, start_ids, cache, **settings)


LENGTHS = [2, 65, 8, 25, -9, 16, 40, 20, 5, 55, 12, 35]

SEARCHES = [(1, True), (1, False), (3, False)]
NAMES = ["greedy", "beam of 1", "beam of 3"]


@pytest.mark.parametrize("lengths", [range(2, 72), LENGTHS, [5, 30], [40]])
def test_a_sentence_that_is_done_does_not_wait_for_many_others(lengths):
    """Of each step's sentences less than half are done, and less than a few."""
    models = Diarist(lengths)
    ends = models.search(rounds=True, greedy=True).lengths.numpy()[:, 0]
    assert len(models.rows) == ends.max() and models.rows[0] == len(ends)
    for position, rows in enumerate(models.rows):
        done = rows - (ends > position).sum()
        assert 0 <= done < min((rows + 1) // 2, MOST_DONE)


def one_graph(models, **kwargs):
    """The search as a graph for any number of rows, and any length."""
    specs = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]

    @tf.function(input_signature=specs)
    def graph(rows, max_length):
        return models.search(rows, max_length=max_length, **kwargs)

    return lambda rows, max_length=L: graph(tf.cast(rows, "int32"), max_length)


@pytest.mark.slow
@pytest.mark.parametrize(("beam_size", "greedy"), SEARCHES, ids=NAMES)
def test_rounds_change_nothing_but_the_work(beam_size, greedy):
    models, plain = Diarist(LENGTHS, beam_size), Diarist(LENGTHS, beam_size)
    expected = plain.search(rounds=False, greedy=greedy)
    assert_same(models.search(rounds=True, greedy=greedy), expected)
    lengths = np.max(expected.lengths, axis=1)
    assert lengths.min() < 8 and lengths.max() > 60, f"choose other lengths than {lengths}"
    assert len(set(models.capacities)) > 4 and len(set(models.rows)) > 4
    assert models.rows == sorted(models.rows, reverse=True)
    assert models.capacities == sorted(models.capacities)
    assert sum(models.rows) < 0.6 * sum(plain.rows)
    assert set(plain.capacities) == {L} and set(plain.rows) == {len(LENGTHS)}


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_cache_follows_its_rows_and_its_length_is_the_capacity(beam_size):
    """Seen by a logits processor, which knows the tokens of each hypothesis and forbids nothing."""
    models, seen = Diarist(LENGTHS, beam_size), []

    def look(ids, position, vocab_size):
        diary, position = np.array(models.cache["diary"]), int(position)
        assert diary.shape == ids.shape
        assert models.compactions[-1] == (len(ids) // beam_size, ids.shape[1])
        assert position < ids.shape[1]
        np.testing.assert_array_equal(diary[:, 0], START)
        np.testing.assert_array_equal(diary[:, 1 : position + 1], ids[:, :position])
        assert not diary[:, position + 1 :].any() and not np.any(ids[:, position:])
        seen.append(position)
        return np.zeros(vocab_size, "bool")

    models.search(rounds=True, logits_processors=[look])
    assert seen == list(range(len(seen))) and len(seen) > 60


@pytest.mark.slow
@pytest.mark.parametrize("only_live", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_limits_penalties_prefixes_processors_and_adjustments_follow_their_sentence(only_live):
    rng, models, count = np.random.default_rng(0), Diarist(LENGTHS, beam_size=3), len(LENGTHS)
    offsets = -rng.random(count).astype("float32")

    def score_adjustment(cache):
        own = tf.cast(cache["diary"][:, 1], "float32") * 0.01  # for the first token
        return tf.reshape(tf.gather(offsets, cache["sentence"]) - own, [-1, 3])

    prefixes = [rng.integers(3, V, n) for n in rng.integers(0, 30, count)]
    limits = rng.integers(1, L, count)
    alphas = rng.uniform(0, 1.5, count).astype("float32")
    kwargs = {
        "max_lengths": limits,
        "length_penalty": alphas,
        "no_repeat_ngram": 3,
        "prefix_ids": np.array([np.pad(prefix, (0, 30 - len(prefix))) for prefix in prefixes]),
        "score_adjustment": score_adjustment,
        "suppress_ids": (5,),
        "min_length": 12,
    }
    expected = models.search(rounds=False, **kwargs)
    graph = one_graph(models, rounds=True, only_live=only_live, **kwargs)
    assert_same(graph(np.arange(count)), expected)
    for row, prefix in enumerate(prefixes):
        for ids, score, log_prob in hypotheses_of(expected, row):
            if not ids:
                continue
            assert list(ids[: len(prefix)]) == prefix.tolist()[: len(ids)]
            assert min(12, limits[row]) <= len(ids) <= limits[row]
            adjustment = offsets[row] - 0.01 * (ids[0] if len(ids) > 1 else 0)
            assert score == pytest.approx(log_prob / penalty(len(ids), alphas[row]) + adjustment)


def test_samples_are_the_same_in_rounds():
    models = Diarist([2, 30, 5, -9, 16, 12])
    kwargs = {"greedy": True, "kind": Sample, "top_k": 4, "seed": 1}
    assert_same(models.search(rounds=True, **kwargs), models.search(rounds=False, **kwargs))


@pytest.mark.slow
@pytest.mark.parametrize(("beam_size", "greedy"), SEARCHES, ids=NAMES)
def test_one_graph_serves_every_batch_and_length(beam_size, greedy):
    models = Diarist(LENGTHS, beam_size)
    graph = one_graph(models, rounds=True, greedy=greedy, only_live=True)
    plain = one_graph(models, rounds=False, greedy=greedy)
    order = np.random.default_rng(3).permutation(len(LENGTHS))
    together = plain(order)
    assert_same(graph(order), together)
    for i, row in enumerate(order):
        assert_same(graph([row]), [field[i : i + 1] for field in together])
    for rows, max_length in (([0, 0, 1, 1, 1], 30), (order, 1), (order, 8), (order, 9), ([4], 2)):
        assert_same(graph(rows, max_length), plain(rows, max_length))


@pytest.mark.slow
@pytest.mark.parametrize("in_graph", [True, False])
@pytest.mark.parametrize(("beam_size", "greedy"), SEARCHES, ids=NAMES)
def test_a_batch_of_none_gives_none(beam_size, greedy, in_graph):
    models, rows = Diarist([5], beam_size), np.zeros(0, "int32")
    kwargs = {"rounds": True, "greedy": greedy}
    result = one_graph(models, **kwargs)(rows) if in_graph else models.search(rows, **kwargs)
    count = (0, beam_size)
    assert [tuple(field.shape) for field in result] == [(*count, L), count, count, count]


def test_only_hypotheses_that_can_still_win_are_given_logits():
    lengths = [2, 30, 5, -9, 16, 12]
    models, plain = Diarist(lengths, beam_size=4), Diarist(lengths, beam_size=4)
    expected = plain.search(rounds=True, num_hypotheses=1)
    assert_same(models.search(rounds=True, num_hypotheses=1, only_live=True), expected)
    assert models.rows == plain.rows
    assert models.live[0] == len(lengths)  # all hypotheses of a sentence begin as one
    assert 0 < min(models.live) and sum(models.live) < 0.9 * 4 * sum(models.rows)


def test_a_sentence_whose_logits_are_no_numbers_is_left_at_once():
    """And takes no other with it, though its rows leave the middle of the batch."""
    models = Diarist([8, 60, 12], beam_size=2)

    def step(token_ids, cache, position):
        logits, cache = models.step(token_ids, cache, position)
        poisoned = (cache["sentence"] == 1)[:, None] & (position > 2)
        return tf.where(poisoned, np.nan, logits), cache

    start_ids, cache = models.start(np.arange(3), 0)
    model = SearchModel(step, compact_cache=models.compact, logits=models.logits)
    result = beam_search(model, start_ids, cache, Beam(size=2), end_id=END, max_length=L)
    assert int(result.lengths[1, 0]) == 0 and len(models.rows) < 40
    expected = models.search([0, 2], rounds=True, num_hypotheses=1)
    assert_same([field[::2] for field in result], expected)


@pytest.mark.slow
def test_the_n_best_of_rounds_are_the_first_of_more():
    models = Diarist([2, 30, 5, -9, 16, 12], beam_size=4)
    expected = models.search(rounds=False)
    for n in (1, 2):
        found = models.search(rounds=True, num_hypotheses=n)
        for row in range(6):
            few, all_four = hypotheses_of(found, row), hypotheses_of(expected, row)
            assert [ids for ids, *_ in few] == [ids for ids, *_ in all_four[:n]]


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[20] * 5, [-9] * 5, [2, 2, 2, 2, 40], [30, 30, 30, 2]])
def test_batches_that_end_together_or_all_but_one(lengths):
    models = Diarist(lengths, beam_size=2)
    assert_same(models.search(rounds=True), models.search(rounds=False))


def test_a_sentence_alone_stops_when_it_is_done():
    models = Diarist([20])
    result = models.search(rounds=True, greedy=True)
    assert len(models.rows) == int(result.lengths[0, 0]) < 40


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("shortest", [1, 8, 16])
def test_capacity_always_grows_until_it_is_all(shortest, size):
    longest = max(shortest, SHORTEST_ROUND_OF_ONE // size)
    for limit in (1, 5, 16, 100, 1000):
        position = 0
        while position < limit:
            capacity = int(next_capacity(position, limit, shortest, size))
            assert position < capacity <= limit
            assert capacity <= max(1.25 * position + 1, position + longest)
            position = capacity
