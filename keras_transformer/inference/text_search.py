"""A search for many texts: ids to ids, in batches of similar length, as part of a graph."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import tensorflow as tf

from keras_transformer.checks import without_surrogates
from keras_transformer.data.special_tokens import END_ID, NUM_SPECIAL_TOKENS, PAD_ID, UNWRITTEN
from keras_transformer.decoding.beam import beam_search
from keras_transformer.decoding.beginning import Spelling
from keras_transformer.decoding.compaction import no_capacity
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.history import beam_history
from keras_transformer.decoding.result import SearchResult
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.sampling import seeds_of_rows
from keras_transformer.decoding.search_model import SearchModel
from keras_transformer.decoding.strategies import Beam, Sample, of_kind
from keras_transformer.inference.prefixes import Prefixes

# Scoring text holds the logits of this many tokens at once.
TOKENS_AT_A_TIME = 2048


@dataclass(frozen=True, eq=False)
class TextSearch:
    """Searches for what follows given texts; `TranslationGraph` and `GenerationGraph` hold one.

    Args:
        graph: one of those, which has

            - `model`, `tokenizer`, `max_length`, `batch_size`, `num_parallel_batches`;
            - `vocab_size`, the number of tokens that the model chooses among;
            - `start(ids, capacity, beam_size, track_coverage) -> (start_ids, cache)`: how a search
              for what follows `ids` (b, S) begins;
            - `most_tokens(lengths)`, from the lengths of texts, int32 (B,), to the most tokens of
              what follows each.
    """

    graph: Any

    def __call__(self, ids, lengths, strategy, rows=None, num_hypotheses=1) -> SearchResult:
        """Searches `batch_size` texts of similar length at a time.

        Args:
            ids: int32 (B, S), padded with 0.
            lengths: int32 (B,), of each row of `ids`.
            strategy: `Greedy`, `Beam` or `Sample`.
            rows: `RowOptions`; its `max_lengths` are upper bounds besides those of the search.
            num_hypotheses: N, more than 1 for a `Beam` only.

        Returns:
            A `SearchResult` (B, N, ...).
        """
        strategy = self.own(strategy, num_hypotheses)
        rows = RowOptions() if rows is None else rows
        rows = rows._replace(max_lengths=self._max_lengths(lengths, strategy, rows))
        if isinstance(strategy, Sample):
            rows = rows._replace(seeds=seeds_of_rows(ids))
        capacity = tf.reduce_max(tf.concat([rows.max_lengths, [1]], axis=0))  # 1 without any text

        def search_rows(indices):
            width = tf.reduce_max(tf.gather(lengths, indices))
            options = (None if values is None else tf.gather(values, indices) for values in rows)
            batch = tf.gather(ids, indices)[:, :width]  # (b, S)
            return self._search_batch(batch, strategy, RowOptions(*options))

        shape = [tf.shape(ids)[0], num_hypotheses]
        no_ids = tf.zeros([*shape, capacity], tf.int32)
        no_ids = tf.ensure_shape(no_ids, [None, num_hypotheses, None])
        zeros = tf.ensure_shape(tf.zeros(shape), [None, num_hypotheses])
        results = no_ids, tf.cast(zeros, tf.int32), zeros, zeros
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)
        batches = self.graph.num_parallel_batches, self.graph.batch_size
        return SearchResult(*in_parallel_batches(search_rows, order, *batches, results))

    @tf.function(autograph=False)
    def best(self, ids, lengths, strategy, rows=None) -> SearchResult:
        """The best that follows each text: `SearchResult` with N = 1.

        Each strategy is traced once, into one function that several signatures call.
        """
        return self(ids, lengths, strategy, rows)

    def history(self, ids, strategy):
        """All that the search for one text, (1, S), considers: `decoding.history`.

        It returns all hypotheses of the beam; that of `Greedy` is one.
        """
        beam = strategy if isinstance(strategy, Beam) else replace(of_kind(Beam, strategy), size=1)
        beam = self.own(beam, beam.size)
        max_length = int(self._max_lengths(tf.shape(ids)[1:], beam, RowOptions())[0])
        start_ids, cache = self._start(ids, max_length, beam)
        return beam_history(
            self.graph.model, start_ids, cache, beam, end_id=END_ID, max_length=max_length
        )

    def own(self, strategy, num_hypotheses=1):
        """The strategy with the tokens that no text has suppressed, and `num_hypotheses`."""
        unused = range(self.graph.tokenizer.vocab_size, self.graph.vocab_size)
        suppress_ids = (*strategy.suppress_ids, *UNWRITTEN, *unused)
        count = {"num_hypotheses": num_hypotheses} if isinstance(strategy, Beam) else {}
        return replace(strategy, suppress_ids=suppress_ids, **count)

    def _max_lengths(self, lengths, strategy, rows):
        """The most tokens of what follows each text, its prefix included: int32 (B,)."""
        max_lengths = self.graph.most_tokens(lengths)
        if rows.prefix_ids is not None:
            max_lengths += tf.reduce_sum(tf.cast(rows.prefix_ids != PAD_ID, tf.int32), axis=1)
        if rows.prefix_text is not None:  # a token spells at least one byte
            nodes = rows.prefix_text[:, :, 0]  # (B, W)
            max_lengths += tf.reduce_sum(tf.cast(nodes > 0, tf.int32), axis=1)
        max_lengths = tf.maximum(max_lengths, strategy.min_length)
        if rows.max_lengths is not None:
            max_lengths = tf.minimum(max_lengths, tf.maximum(rows.max_lengths, 1))
        return tf.minimum(max_lengths, self.graph.max_length)

    def _search_batch(self, ids, strategy, rows) -> SearchResult:
        """Searches all rows at once."""
        model = SearchModel(
            partial(self.graph.model.decode_states, in_place=True),
            logits=self.graph.model.logits,
            reorder_cache=self.graph.model.reorder_cache,
            compact_cache=self.graph.model.compact_cache,
            spelling=None if rows.prefix_text is None else self.spelling,
        )
        options = {"rows": rows, "end_id": END_ID, "max_length": tf.reduce_max(rows.max_lengths)}
        start_ids, cache = self._start(ids, no_capacity(ids), strategy)
        search = beam_search if isinstance(strategy, Beam) else greedy_search
        return search(model, start_ids, cache, strategy, **options)

    @cached_property
    def prefixes(self) -> Prefixes:
        """How texts begin that a search writes."""
        return Prefixes(self.graph.tokenizer)

    @cached_property
    def spelling(self) -> Spelling:
        """What the tokens of the model spell."""
        return self.prefixes.spelling(self.graph.vocab_size)

    def _start(self, ids, capacity, strategy):
        return self.graph.start(ids, capacity, strategy.size, strategy.coverage_penalty > 0)


def as_tensor(texts):
    """A list of strings as a string tensor; lone surrogates become U+FFFD."""
    return tf.constant([without_surrogates(text) for text in texts], tf.string)


def ask_in_batches(function, texts, outputs, batch_size, **options) -> list[tuple]:
    """What a signature answers to each text, in the order of `texts`.

    Args:
        function: from a string tensor `text`, and those of `options`, to a dict of tensors.
        texts: list of strings.
        outputs: names of tensors in that dict.
        batch_size: the number of texts in a call; those of similar length go together.
        options: lists of one value for each text.

    Returns:
        For each text a tuple of its row of each output, of NumPy.
    """
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    answers = [()] * len(texts)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        inputs = {name: tf.constant([values[i] for i in rows]) for name, values in options.items()}
        output = function(text=as_tensor([texts[i] for i in rows]), **inputs)
        values = zip(*(output[name].numpy() for name in outputs), strict=True)
        for i, answer in zip(rows, values, strict=True):
            answers[i] = answer
    return answers


def in_batches(function, order, batch_size, results):
    """Calls `function` on `batch_size` rows at a time and puts the answers in their places.

    Args:
        function: from the indices of some rows, int32 (b,), to tensors like `results`, of b rows.
            Other axes may be shorter; they are padded with 0.
        order: int32 (B,), the indices of all rows, in the order in which they are taken.
        batch_size: the most rows at a time; or a function from the index of the first row to it.
        results: tuple of tensors (B, ...), which are filled.

    Returns:
        The filled tuple.
    """
    total = tf.shape(order)[0]

    def more(start, *_):
        return start < total

    def next_batch(start, *results):
        size = batch_size(order[start]) if callable(batch_size) else batch_size
        rows = order[start : start + size]  # (b,)
        filled = [
            tf.tensor_scatter_nd_update(old, rows[:, None], pad_like(new, old))
            for old, new in zip(results, function(rows), strict=True)
        ]
        return (start + size, *filled)

    invariants = (tf.TensorShape([]), *(tensor.shape for tensor in results))
    loop_vars = (tf.constant(0), *results)
    return tf.while_loop(more, next_batch, loop_vars, shape_invariants=invariants)[1:]


def in_parallel_batches(function, order, num_parallel, batch_size, results):
    """`in_batches`, several batches at the same time.

    TensorFlow runs independent operations at the same time, so each share of the rows has a thread.
    To cut each step between threads would be slower: a step is short, and they would wait.

    Args:
        function, order, batch_size: as `in_batches`.
        num_parallel: how many shares; each takes every `num_parallel`-th row.
        results: as `in_batches`; zeros.

    Returns:
        The filled tuple.
    """

    # Not inlined, so that TensorFlow optimizes it once and not for each share.
    @tf.function(autograph=False, experimental_attributes={"_noinline": True})
    def share(order, *results):
        return in_batches(function, order, batch_size, results)

    filled = [share(order[i::num_parallel], *results) for i in range(num_parallel)]
    # Each share is 0 outside of its own rows.
    return tuple(tf.add_n(parts) for parts in zip(*filled, strict=True))


def pad_like(tensor, other):
    """`tensor` padded with 0 to the shape of `other` on every axis but the first."""
    missing = (tf.shape(other) - tf.shape(tensor))[1:]
    widths = tf.concat([[[0, 0]], tf.stack([tf.zeros_like(missing), missing], 1)], 0)
    return tf.pad(tensor, widths)


def by_length(function, lengths, most_rows, results):
    """`in_batches` of all rows, the longest first: few long rows at a time, or many short ones.

    Args:
        function, results: as in `in_batches`.
        lengths: int32 (B,), the tokens of each row.
        most_rows: the most rows at a time.
    """

    def size(row):
        fitting = TOKENS_AT_A_TIME // tf.maximum(lengths[row], 1)
        return tf.clip_by_value(fitting, 1, most_rows)

    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    return in_batches(function, order, size, results)


def detokenize(tokenizer, ids):
    """Ids (B, N, L) to strings (B, N)."""
    flat = tf.reshape(ids, [-1, tf.shape(ids)[2]])  # (B * N, L)
    real = (flat >= NUM_SPECIAL_TOKENS) & (flat < tokenizer.vocab_size)
    texts = tokenizer.detokenize(tf.ragged.boolean_mask(flat, real))  # (B * N,)
    return tf.reshape(texts, [-1, ids.shape[1]])


def has_ended(result):
    """Whether each hypothesis of a `SearchResult` reached its end token: bool (B, N)."""
    return tf.reduce_any(result.ids == END_ID, axis=2)


def padded(tokens):
    """Ragged ids as a matrix (B, S), padded with 0, and the lengths of its rows, int32 (B,)."""
    return tokens.to_tensor(PAD_ID), tf.cast(tokens.row_lengths(), tf.int32)


def padded_with_end(tokens):
    """`padded`, with the end token after each row."""
    ids, lengths = padded(tokens)
    ids = tf.pad(ids, [[0, 0], [0, 1]])  # (B, S)
    return tf.where(tf.range(tf.shape(ids)[1]) == lengths[:, None], END_ID, ids), lengths + 1


def shift_right(ids, first_id):
    """What a model reads to predict `ids` (B, T): the same, after `first_id`."""
    first = tf.fill([tf.shape(ids)[0], 1], first_id)
    return tf.concat([first, ids[:, :-1]], axis=1)


def log_probs_of(labels, logits):
    """The log-probability of each label (b, T) by logits (b, T, V); 0 at padding."""
    log_probs = tf.nn.log_softmax(logits)
    chosen = tf.gather(log_probs, labels[:, :, None], batch_dims=2)[:, :, 0]  # (b, T)
    return tf.where(labels != PAD_ID, chosen, 0.0)


def as_scores(log_probs, lengths) -> dict:
    """The answer of a signature `score`, from the log-probability of each token (B, T)."""
    total = tf.reduce_sum(log_probs, axis=1)  # (B,)
    return {"log_prob": total, "token_log_probs": log_probs, "length": lengths}


def check_rows(name, first, **others):
    """The vectors of a request, which must all be of one length."""
    first = tf.reshape(first, [-1])
    others = {other: tf.reshape(values, [-1]) for other, values in others.items()}
    checks = [
        tf.debugging.assert_equal(
            tf.size(values), tf.size(first), f"{other} must have one value for each {name}."
        )
        for other, values in others.items()
    ]
    with tf.control_dependencies(checks):
        return [tf.identity(first), *map(tf.identity, others.values())]


def signature(**dtypes):
    """Makes a method a signature with inputs of these dtypes, each a vector of B values."""
    specs = [tf.TensorSpec([None], dtype, name) for name, dtype in dtypes.items()]
    return tf.function(input_signature=specs, autograph=False)
