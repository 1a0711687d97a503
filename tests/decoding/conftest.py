"""Random models and arithmetic that the tests of the searches share."""

import itertools

import numpy as np
import tensorflow as tf

from keras_transformer import Beam, Greedy, beam_search, greedy_search
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.search_model import SearchModel

END, START = 2, 1


class PrefixModels:
    """Random models whose next-token logits depend on every token so far.

    The cache spells the prefix of each row as a number in base V, and names the row's model: a
    cache row that lands at the wrong hypothesis gives other logits.
    """

    def __init__(self, count, vocab_size=5, max_length=5, end_logit=0.0, seed=0):
        self.vocab_size, self.max_length = vocab_size, max_length
        shape = (count, 2 * vocab_size**max_length, vocab_size)
        logits = np.random.default_rng(seed).normal(0, 1.5, shape)
        logits[:, :, END] += end_logit
        self.logits = logits.astype("float32")
        self.log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def __len__(self):
        return len(self.logits)

    def start(self, rows, beam_size):
        rows = tf.cast(rows, "int32")
        repeated = tf.repeat(rows, beam_size)
        cache = {"model": repeated, "history": [tf.zeros_like(repeated)]}
        return tf.fill(tf.shape(rows), START), cache

    def step(self, token_ids, cache, position):
        prefix = cache["history"][0] * self.vocab_size + token_ids
        logits = tf.gather_nd(self.logits, tf.stack([cache["model"], prefix], axis=1))
        return logits, {"model": cache["model"], "history": [prefix]}

    def log_prob(self, model, ids):
        """The log-probability of a hypothesis, token by token."""
        prefix, total = START, 0.0
        for token in ids:
            total += self.log_probs[model, prefix, token]
            prefix = prefix * self.vocab_size + token
        return total

    def search(self, rows=None, *, beam_size=4, step_fn=None, **kwargs):
        rows = np.arange(len(self)) if rows is None else rows
        start_ids, cache = self.start(rows, beam_size)
        kwargs = {"max_length": self.max_length, "size": beam_size, **kwargs}
        return find(Beam, step_fn or self.step, start_ids, cache, **kwargs)

    def greedy_search(self, rows=None, *, kind=Greedy, step_fn=None, **kwargs):
        rows = np.arange(len(self)) if rows is None else rows
        kwargs = {"max_length": self.max_length, **kwargs}
        return find(kind, step_fn or self.step, *self.start(rows, 1), **kwargs)


def find(kind, step, start_ids, cache, *, end_id=END, max_length, search=None, **options):
    """A search by a strategy of class `kind`; `options` are fields of whatever has such a field."""
    search = search or (beam_search if kind is Beam else greedy_search)
    rows = {name: options.pop(name) for name in RowOptions._fields if np.ndim(options.get(name, 0))}
    rows |= {name: options.pop(name) for name in ("max_lengths", "prefix_ids") if name in options}
    model = {name: options.pop(name) for name in SearchModel._fields if name in options}
    return search(
        SearchModel(step, **model),
        start_ids,
        cache,
        kind(**options),
        rows=RowOptions(**rows),
        end_id=end_id,
        max_length=max_length,
    )


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def hypotheses_of(result, row):
    """(ids, score, log_prob) of each hypothesis of a row, with its padding checked."""
    ids, lengths, scores, log_probs = (np.asarray(field)[row] for field in result)
    assert all(not ids[n, length:].any() for n, length in enumerate(lengths))
    return [
        (tuple(ids[n, :length].tolist()), scores[n], log_probs[n])
        for n, length in enumerate(lengths)
    ]


def assert_same(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def every_hypothesis(vocab_size, max_length):
    """All that end in the end token, and all that the limit cuts off."""
    for length in range(1, max_length + 1):
        for ids in itertools.product(range(vocab_size), repeat=length):
            if END not in ids[:-1] and (ids[-1] == END or length == max_length):
                yield ids
