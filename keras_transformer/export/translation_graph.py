"""What a translator computes, tensors to tensors: the graph of Python and of the SavedModel."""

import tensorflow as tf

from keras_transformer.data.special_tokens import PAD_ID, START_ID
from keras_transformer.decoding.coverage_penalty import coverage_penalty
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.export.search_graph import (
    SearchGraph,
    log_probs_of,
    padded_with_end,
    shift_right,
)
from keras_transformer.export.search_settings import SEARCHES

# A translation may have this many tokens for each source token, plus some: far above any real
# sentence, far below what a model that repeats itself would fill.
TOKENS_PER_SOURCE_TOKEN, EXTRA_TOKENS = 3, 20
# What Python's `str.strip` removes.
BLANKS = r"[\s\v\x1c-\x1f\x{85}\pZ]+"


class TranslationGraph(SearchGraph):
    """A `SearchGraph` for translations of source text; arguments as there."""

    def __init__(self, model, tokenizer, settings, weights=None):
        super().__init__(model, tokenizer, settings, weights)
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
        text = tf.reshape(text, [-1])  # may come as a scalar
        text = tf.strings.regex_replace(text, f"^{BLANKS}|{BLANKS}$", "")
        return self._ids(text, self.settings.max_source_length)

    def target_ids(self, text):
        """As `source_ids`, of translations that are given: blanks are kept."""
        return self._ids(text, self.settings.longest)

    def _ids(self, text, length):
        return padded_with_end(self.tokenizer.tokenize(text)[:, : length - 1])

    def translations(self, source_ids, source_lengths, search):
        """The best translation of each sentence: a `SearchResult` with N = 1, traced only once."""
        return SearchResult(*self._searches[search](source_ids, source_lengths))

    def start(self, ids, search, room, beam_size, weights):
        has_coverage = self.settings.coverage_penalty > 0 and search == "beam"
        cache = self.model.init_cache(
            ids,
            max_length=room,
            beam_size=beam_size,
            weights=weights,
            track_coverage=has_coverage,
        )
        arguments = {"start_ids": tf.fill([tf.shape(ids)[0]], START_ID), "cache": cache}
        return {**arguments, "bonus_fn": self._coverage_bonus} if has_coverage else arguments

    def limits(self, lengths):
        return lengths * TOKENS_PER_SOURCE_TOKEN + EXTRA_TOKENS

    def vocab_size(self):
        return self.model.target_vocab_size

    def _coverage_bonus(self, cache):
        mask = cache["source_padding_mask"]
        return -coverage_penalty(cache["coverage"], mask, self.settings.coverage_penalty)

    def token_log_probs(self, source_ids, target_ids):
        """The log-probability of each token of given translations: float32 (B, T), 0 at padding."""

        def score_rows(rows):
            source, labels = rows_of(source_ids, rows), rows_of(target_ids, rows)
            logits = self.model((source, shift_right(labels, START_ID)), training=False)
            return (log_probs_of(labels, logits),)

        lengths = tf.maximum(num_tokens(source_ids), num_tokens(target_ids))
        zeros = tf.zeros(tf.shape(target_ids))
        return self.by_length(score_rows, lengths, (zeros,))[0]

    def attention(self, source_ids, target_ids):
        """What each target token was read from: float32 (B, T, S), rows of real tokens sum to 1.

        The mean of all heads of the last decoder layer's cross-attention.
        """
        size, length = tf.shape(target_ids)[0], tf.shape(target_ids)[1]

        def attend_rows(rows):
            source, target = rows_of(source_ids, rows), rows_of(target_ids, rows)
            weights = self.model.cross_attention_weights(
                (source, shift_right(target, START_ID))
            )  # (b, T, S)
            return (tf.where((target != PAD_ID)[:, :, None], weights, 0.0),)

        lengths = tf.maximum(num_tokens(source_ids), num_tokens(target_ids))
        zeros = tf.zeros([size, length, tf.shape(source_ids)[1]])
        return self.by_length(attend_rows, lengths, (zeros,))[0]


def num_tokens(ids):
    """The tokens of each row of ids (B, T), padded at the end: int32 (B,)."""
    return tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)


def rows_of(ids, rows):
    """Some rows of ids (B, T), as wide as the longest of them: (b, t)."""
    chosen = tf.gather(ids, rows)
    return chosen[:, : tf.maximum(tf.reduce_max(num_tokens(chosen)), 1)]
