"""What a search from text to text computes, whatever the model: tensors to tensors."""

from functools import partial

import tensorflow as tf

from keras_transformer.data.special_tokens import (
    END_ID,
    NUM_SPECIAL_TOKENS,
    PAD_ID,
    START_ID,
    UNK_ID,
)
from keras_transformer.decoding.beam_history import beam_history
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.constraints import no_repeat_ngram
from keras_transformer.decoding.greedy_search import greedy_search
from keras_transformer.decoding.rounds import no_room
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.export.row_batches import in_batches, in_streams
from keras_transformer.models.search_cache import owned, widened

# Of whose logits there is a table at a time, when text is scored.
TOKENS_AT_A_TIME = 2048


class SearchGraph:
    """Tokenizer, model and search settings, as functions of tensors.

    A subclass says how a search begins: see `start`.

    Args:
        model: a `Transformer` or a `LanguageModel`.
        tokenizer: its `Tokenizer`.
        settings: the settings of a `Translator` or a `TextGenerator`.
        weights: what `model.decoding_weights()` returned, or variables of the same structure;
            computed in each call by default.
    """

    def __init__(self, model, tokenizer, settings, weights=None):
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        self.weights = weights

    def start(self, ids, search, room, beam_size, weights):
        """How a search for what follows `ids` (b, S) begins.

        Args:
            ids: int32 (b, S), padded with 0.
            search: "greedy", "beam" or "sample".
            room: how many tokens the cache has room for.
            beam_size: how many hypotheses of each text it is for.
            weights: what the model multiplies with, from its `decoding_weights`.

        Returns:
            A dict of arguments of the search: "start_ids" (b,), "cache", and others of its own.
        """
        raise NotImplementedError

    def limits(self, lengths):
        """The most tokens to search for, int32 (B,), for texts of so many tokens."""
        raise NotImplementedError

    def texts(self, ids):
        """Ids (B, N, L) to strings (B, N)."""
        flat = tf.reshape(ids, [-1, tf.shape(ids)[2]])  # (B * N, L)
        real = (flat >= NUM_SPECIAL_TOKENS) & (flat < self.tokenizer.vocab_size)
        texts = self.tokenizer.detokenize(tf.ragged.boolean_mask(flat, real))  # (B * N,)
        return tf.reshape(texts, [-1, ids.shape[1]])

    def search(
        self,
        ids,
        lengths,
        search,
        *,
        num_hypotheses=1,
        length_penalty=None,
        max_length=None,
        prefix_ids=None,
    ):
        """Searches `batch_size` texts of similar length at a time.

        Args:
            ids: int32 (B, S), padded with 0.
            lengths: int32 (B,), of each row of `ids`.
            search: "greedy", "beam" or "sample".
            num_hypotheses: N.
            length_penalty: float32 (B,); that of the settings by default.
            max_length: int32 (B,), an upper bound of its own for each; None for none.
            prefix_ids: int32 (B, P), padded with 0, how each result begins; None for free.

        Returns:
            A `SearchResult` (B, N, ...).
        """
        limits = self._row_limits(lengths, max_length, prefix_ids)  # (B,)
        longest = tf.reduce_max(tf.concat([limits, [1]], axis=0))

        def search_rows(rows):
            width = tf.reduce_max(tf.gather(lengths, rows))
            options = {"max_lengths": tf.gather(limits, rows)}
            if length_penalty is not None:
                options["length_penalty"] = tf.gather(length_penalty, rows)
            if prefix_ids is not None:
                options["prefix_ids"] = tf.gather(prefix_ids, rows)
            row_ids = tf.gather(ids, rows)[:, :width]  # (b, S)
            return self._search_batch(row_ids, search, num_hypotheses, **options)

        shape = [tf.shape(ids)[0], num_hypotheses]
        no_ids = tf.zeros([*shape, longest], tf.int32)
        no_ids = tf.ensure_shape(no_ids, [None, num_hypotheses, None])
        zeros = tf.ensure_shape(tf.zeros(shape), [None, num_hypotheses])
        results = no_ids, tf.cast(zeros, tf.int32), zeros, zeros
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)
        streams, size = self.settings.num_streams, self.settings.batch_size
        return SearchResult(*in_streams(search_rows, order, streams, size, results))

    def _row_limits(self, lengths, max_length, prefix_ids):
        limits = self.limits(lengths)
        if prefix_ids is not None:
            limits += tf.reduce_sum(tf.cast(prefix_ids != PAD_ID, tf.int32), axis=1)
        limits = tf.maximum(limits, self.settings.min_length)
        if max_length is not None:
            limits = tf.minimum(limits, tf.maximum(max_length, 1))
        return tf.minimum(limits, self.settings.max_length)  # (B,)

    def _search_batch(self, ids, search, num_hypotheses, **options):
        """One batch, as it is; its `SearchResult`."""
        options |= {
            "max_length": tf.reduce_max(options["max_lengths"]),
            "resize_cache": self.model.resize_cache,
        }
        if search != "beam":
            arguments = self._arguments(ids, search, no_room(ids), 1) | options
            arguments["cache"] = owned(arguments["cache"])
            choose = self.settings.sampler if search == "sample" else None
            return greedy_search(**arguments, choose=choose)
        arguments = self._arguments(ids, search, no_room(ids) + 1, 1) | options
        start_ids, cache = arguments["start_ids"], arguments["cache"]
        start_logits, cache = arguments["step_fn"](start_ids, cache, 0)  # (b, V)
        arguments["cache"] = owned(widened(cache, self.settings.beam_size))
        return beam_search(
            **arguments,
            beam_size=self.settings.beam_size,
            num_hypotheses=num_hypotheses,
            reorder_cache=self.model.reorder_cache,
            start_logits=start_logits,
            only_live=True,
        )

    def beam_history(self, ids, search="beam"):
        """All that the search for one text, (1, S), considers: `decoding.beam_history`.

        It returns all hypotheses of the beam; with "greedy" that is one.
        """
        limit = int(self._row_limits(tf.shape(ids)[1:], None, None)[0])
        beam_size = self.settings.beam_size if search == "beam" else 1
        return beam_history(
            **self._arguments(ids, search, limit, beam_size),
            max_length=limit,
            beam_size=beam_size,
            num_hypotheses=beam_size,
            reorder_cache=self.model.reorder_cache,
        )

    def _arguments(self, ids, search, room, beam_size):
        """What every search is given; see `start`."""
        settings = self.settings
        ngram = settings.no_repeat_ngram
        weights = self.model.decoding_weights() if self.weights is None else self.weights
        return {
            "step_fn": partial(self.model.decode_step, weights=weights),
            "end_id": END_ID,
            "length_penalty": settings.length_penalty,
            "suppress_ids": self._never_chosen(),
            "min_length": settings.min_length,
            "constraints": [no_repeat_ngram(ngram)] if ngram else [],
            **self.start(ids, search, room, beam_size, weights),
        }

    def _never_chosen(self):
        padding = range(self.tokenizer.vocab_size, self.vocab_size())
        return (PAD_ID, UNK_ID, START_ID, *padding)

    def vocab_size(self):
        """V, the number of ids that the model chooses among."""
        raise NotImplementedError

    def by_length(self, function, lengths, results):
        """`in_batches` of all rows, the longest first, few long ones or many short ones at a time.

        Args:
            function, results: as `in_batches`.
            lengths: int32 (B,), the tokens of each row.
        """

        def size(row):
            fitting = TOKENS_AT_A_TIME // tf.maximum(lengths[row], 1)
            return tf.clip_by_value(fitting, 1, self.settings.batch_size)

        order = tf.argsort(lengths, direction="DESCENDING", stable=True)
        return in_batches(function, order, size, results)


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
