"""What a translator computes, tensors to tensors: the graph of Python and of the SavedModel."""

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
from keras_transformer.decoding.coverage_penalty import coverage_penalty
from keras_transformer.decoding.greedy_search import greedy_search
from keras_transformer.decoding.rounds import no_room
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.export.row_batches import in_batches, in_streams
from keras_transformer.export.search_settings import SEARCHES

# A translation may have this many tokens for each source token, plus some: far above any real
# sentence, far below what a model that repeats itself would fill.
TOKENS_PER_SOURCE_TOKEN, EXTRA_TOKENS = 3, 20


class TranslationGraph:
    """Tokenizer, model and search settings, as functions of tensors.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`.
        settings: the `SearchSettings` of a translator.
        weights: what `model.decoding_weights()` returned, or variables of the same structure;
            computed in each call by default.
    """

    def __init__(self, model, tokenizer, settings, weights=None):
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        self.weights = weights
        self._searches = {search: self._traced(search) for search in SEARCHES}

    def _traced(self, search):
        """`search` with its settings, as one function of the graph that several signatures call."""
        specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
        return tf.function(
            lambda source_ids, lengths: tuple(self.search(source_ids, lengths, search)),
            input_signature=specs,
            autograph=False,
        )

    def source_ids(self, text):
        """Strings (B,) to ids (B, S) with the end token, and their lengths (B,).

        Blank text has length 1: the end token alone.
        """
        return self.target_ids(tf.strings.strip(tf.reshape(text, [-1])))  # may come as a scalar

    def target_ids(self, text):
        """As `source_ids`, of translations that are given: blanks are kept."""
        tokens = self.tokenizer.tokenize(text)  # (B, None)
        tokens = tokens[:, : self.settings.max_source_length - 1]
        end = tf.fill([tokens.nrows(), 1], END_ID)
        ragged = tf.concat([tokens, end], axis=1)
        return ragged.to_tensor(PAD_ID), tf.cast(ragged.row_lengths(), tf.int32)

    def texts(self, ids):
        """Ids (B, N, L) to strings (B, N)."""
        flat = tf.reshape(ids, [-1, tf.shape(ids)[2]])  # (B * N, L)
        real = (flat >= NUM_SPECIAL_TOKENS) & (flat < self.tokenizer.vocab_size)
        texts = self.tokenizer.detokenize(tf.ragged.boolean_mask(flat, real))  # (B * N,)
        return tf.reshape(texts, [-1, ids.shape[1]])

    def translations(self, source_ids, source_lengths, search):
        """The best translation of each sentence: a `SearchResult` with N = 1, traced only once."""
        return SearchResult(*self._searches[search](source_ids, source_lengths))

    def search(
        self,
        source_ids,
        source_lengths,
        search,
        *,
        num_hypotheses=1,
        length_penalty=None,
        max_length=None,
        prefix_ids=None,
    ):
        """Searches `batch_size` sentences of similar length at a time.

        Args:
            source_ids: int32 (B, S).
            source_lengths: int32 (B,).
            search: "greedy", "beam" or "sample".
            num_hypotheses: N.
            length_penalty: float32 (B,); that of the settings by default.
            max_length: int32 (B,), an upper bound of its own for each; None for none.
            prefix_ids: int32 (B, P), padded with 0, how each translation begins; None for free.

        Returns:
            A `SearchResult` (B, N, ...).
        """
        limits = self._limits(source_lengths, max_length, prefix_ids)  # (B,)
        longest = tf.reduce_max(tf.concat([limits, [1]], axis=0))

        def search_rows(rows):
            lengths = tf.gather(source_lengths, rows)
            width = tf.reduce_max(lengths)
            options = {"max_lengths": tf.gather(limits, rows)}
            if length_penalty is not None:
                options["length_penalty"] = tf.gather(length_penalty, rows)
            if prefix_ids is not None:
                options["prefix_ids"] = tf.gather(prefix_ids, rows)
            ids = tf.gather(source_ids, rows)[:, :width]  # (b, S)
            return self._search_batch(ids, search, num_hypotheses, **options)

        shape = [tf.shape(source_ids)[0], num_hypotheses]
        ids = tf.ensure_shape(tf.zeros([*shape, longest], tf.int32), [None, num_hypotheses, None])
        zeros = tf.ensure_shape(tf.zeros(shape), [None, num_hypotheses])
        results = ids, tf.cast(zeros, tf.int32), zeros, zeros
        order = tf.argsort(source_lengths, direction="DESCENDING", stable=True)
        streams, size = self.settings.num_streams, self.settings.batch_size
        return SearchResult(*in_streams(search_rows, order, streams, size, results))

    def _limits(self, source_lengths, max_length, prefix_ids):
        limits = source_lengths * TOKENS_PER_SOURCE_TOKEN + EXTRA_TOKENS
        if prefix_ids is not None:
            limits += tf.reduce_sum(tf.cast(prefix_ids != PAD_ID, tf.int32), axis=1)
        limits = tf.maximum(limits, self.settings.min_length)
        if max_length is not None:
            limits = tf.minimum(limits, tf.maximum(max_length, 1))
        return tf.minimum(limits, self.settings.max_length)  # (B,)

    def _search_batch(self, source_ids, search, num_hypotheses, **options):
        """One batch, as it is; its `SearchResult`."""
        arguments = {
            **self._arguments(source_ids, search, no_room(source_ids)),
            "max_length": tf.reduce_max(options["max_lengths"]),
            "resize_cache": self.model.resize_cache,
            **options,
        }
        if search != "beam":
            choose = self.settings.sampler if search == "sample" else None
            return greedy_search(**arguments, choose=choose)
        return beam_search(
            **arguments, **self._beam_arguments(search), num_hypotheses=num_hypotheses
        )

    def beam_history(self, source_ids, search="beam"):
        """All that the search for one sentence, (1, S), considers: `decoding.beam_history`.

        It returns all hypotheses of the beam; with "greedy" that is one.
        """
        limit = int(self._limits(tf.shape(source_ids)[1:], None, None)[0])
        beam = self._beam_arguments(search)
        return beam_history(
            **self._arguments(source_ids, search, limit),
            **beam,
            max_length=limit,
            num_hypotheses=beam["beam_size"],
        )

    def _arguments(self, source_ids, search, room):
        """What every search is given; the cache has room for `room` tokens."""
        settings, model = self.settings, self.model
        ngram = settings.no_repeat_ngram
        return {
            "step_fn": model.decode_step,
            "start_ids": tf.fill([tf.shape(source_ids)[0]], START_ID),
            "cache": model.init_cache(
                source_ids,
                max_length=room,
                beam_size=self._beam_size(search),
                weights=self.weights,
                track_coverage=settings.coverage_penalty > 0 and search == "beam",
            ),
            "end_id": END_ID,
            "length_penalty": settings.length_penalty,
            "suppress_ids": self._never_chosen(),
            "min_length": settings.min_length,
            "constraints": [no_repeat_ngram(ngram)] if ngram else [],
        }

    def _beam_arguments(self, search):
        has_bonus = self.settings.coverage_penalty > 0 and search == "beam"
        return {
            "beam_size": self._beam_size(search),
            "bonus_fn": self._coverage_bonus if has_bonus else None,
            "reorder_cache": self.model.reorder_cache,
        }

    def _beam_size(self, search):
        return self.settings.beam_size if search == "beam" else 1

    def _coverage_bonus(self, cache):
        mask = cache["source_padding_mask"]
        return -coverage_penalty(cache["coverage"], mask, self.settings.coverage_penalty)

    def _never_chosen(self):
        padding = range(self.tokenizer.vocab_size, self.model.target_vocab_size)
        return (PAD_ID, UNK_ID, START_ID, *padding)

    def token_log_probs(self, source_ids, target_ids):
        """The log-probability of each token of given translations: float32 (B, T), 0 at padding."""

        def score_rows(rows):
            logits = self.model(
                (tf.gather(source_ids, rows), shift_right(tf.gather(target_ids, rows))),
                training=False,
            )  # (b, T, V)
            log_probs = tf.nn.log_softmax(logits)
            labels = tf.gather(target_ids, rows)[:, :, None]
            chosen = tf.gather(log_probs, labels, batch_dims=2)[:, :, 0]  # (b, T)
            return (tf.where(labels[:, :, 0] != PAD_ID, chosen, 0.0),)

        zeros = tf.zeros(tf.shape(target_ids))
        return self._in_order(score_rows, (zeros,))[0]

    def attention(self, source_ids, target_ids):
        """What each target token was read from: float32 (B, T, S), rows of real tokens sum to 1.

        The mean of all heads of the last decoder layer's cross-attention.
        """
        size, length = tf.shape(target_ids)[0], tf.shape(target_ids)[1]

        def attend_rows(rows):
            target = tf.gather(target_ids, rows)
            weights = self.model.cross_attention_weights(
                (tf.gather(source_ids, rows), shift_right(target))
            )  # (b, T, S)
            return (tf.where((target != PAD_ID)[:, :, None], weights, 0.0),)

        zeros = tf.zeros([size, length, tf.shape(source_ids)[1]])
        return self._in_order(attend_rows, (zeros,))[0]

    def _in_order(self, function, results):
        order = tf.range(tf.shape(results[0])[0])
        return in_batches(function, order, self.settings.batch_size, results)


def shift_right(target_ids):
    """What the decoder reads to predict `target_ids` (B, T): the same, after the start token."""
    start = tf.fill([tf.shape(target_ids)[0], 1], START_ID)
    return tf.concat([start, target_ids[:, :-1]], axis=1)
