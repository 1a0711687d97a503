"""What a translator computes, tensors to tensors: the graph of Python and of the SavedModel."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from keras_transformer.data.blank_text import NOT_TEXT
from keras_transformer.data.special_tokens import PAD_ID, START_ID
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.strategies import LARGEST_ALPHA, Beam, Greedy, Strategy, of_kind
from keras_transformer.inference.text_module import EXTRA_TOKENS, TOKENS_PER_SOURCE_TOKEN
from keras_transformer.inference.text_search import (
    TextSearch,
    as_scores,
    by_length,
    check_rows,
    detokenize,
    has_ended,
    log_probs_of,
    padded_with_end,
    shift_right,
    signature,
)


@dataclass(frozen=True, eq=False)
class TranslationGraph:
    """Tokenizer, model and search as functions of tensors, with the arguments of `Translator`.

    The first seven methods are the signatures of an exported translator. Every input is a vector of
    B values and every output has B rows, so that a server can join requests into a batch. The two
    after them take the options of `translate`, too; they are for Python.

    Those that translate also answer, as bool:

    - `source_cut`: whether the source is longer than `max_source_length`, so that only its
      beginning is translated;
    - `ended`: whether the translation reached its end token, and not a limit of its length. It is
      true of the "" of a blank text, and false where the model has no translation.
    """

    signatures = ("serving_default", "greedy", "beam", "nbest", "translate", "score", "align")

    model: Any
    tokenizer: Any
    strategy: Strategy
    max_source_length: int
    max_length: int
    batch_size: int
    num_parallel_batches: int

    @signature(text=tf.string)
    def serving_default(self, text):
        """`text` to `translation` and `score`, by the strategy; blank text to "" and 0."""
        return self._translate(text, self.strategy)

    @signature(text=tf.string)
    def greedy(self, text):
        """`serving_default` by `Greedy`, with the settings that it shares with the strategy."""
        return self._translate(text, of_kind(Greedy, self.strategy))

    @signature(text=tf.string)
    def beam(self, text):
        """`serving_default` by `Beam`, with the settings that it shares with the strategy."""
        return self._translate(text, of_kind(Beam, self.strategy))

    @signature(text=tf.string)
    def nbest(self, text):
        """`text` to a beam's `translations`, `scores`, `lengths` and `ended` [B, K], best first."""
        return self._nbest(text)

    @signature(text=tf.string, length_penalty=tf.float32, max_length=tf.int32, prefix=tf.string)
    def translate(self, text, length_penalty, max_length, prefix):
        """`serving_default` with options for each row.

        `max_length` counts tokens; the translation begins with `prefix`. The last word of that may
        go on: "Hu" may become "Hund". After a space at its end the next word begins.
        """
        text, rows = self._row_options(text, length_penalty, max_length, prefix)
        source_ids, lengths, cut = self.source(text)
        return self._best(lengths, cut, self.search(source_ids, lengths, self.strategy, rows))

    @signature(source=tf.string, target=tf.string)
    def score(self, source, target):
        """`source` and `target` to `log_prob`, `token_log_probs` [B, T] and `length`.

        `length` is the number of tokens that were scored, end token included: of a longer target
        the first `max_length`, or `max_source_length` if that is more. `source_cut` and
        `target_cut` say whether either was longer. The "" of a blank source, which is what
        `serving_default` answers, has the log-probability 0 and no tokens.
        """
        source, target = check_rows("source", source, target=target)
        source_ids, source_lengths, source_cut = self.source(source)
        target_ids, lengths, target_cut = self._ids(target, self.max_tokens)
        blank = (source_lengths == 1) & (lengths == 1)
        target_ids = tf.where(blank[:, None], PAD_ID, target_ids)
        lengths = tf.where(blank, 0, lengths)
        scores = as_scores(self.token_log_probs(source_ids, target_ids), lengths)
        return {**scores, "source_cut": source_cut, "target_cut": target_cut}

    @signature(text=tf.string)
    def align(self, text):
        """`text` to `translation`, `score`, and the attention between the pieces of both.

        These are `source_pieces` [B, S], `target_pieces` [B, T] and `attention` [B, T, S]; padding
        is "" and 0.
        """
        return self._align(text)

    @signature(text=tf.string, length_penalty=tf.float32, max_length=tf.int32, prefix=tf.string)
    def nbest_with_options(self, text, length_penalty, max_length, prefix):
        """`nbest` with the options of `translate`."""
        return self._nbest(*self._row_options(text, length_penalty, max_length, prefix))

    @signature(text=tf.string, length_penalty=tf.float32, max_length=tf.int32, prefix=tf.string)
    def align_with_options(self, text, length_penalty, max_length, prefix):
        """`align` with the options of `translate`."""
        return self._align(*self._row_options(text, length_penalty, max_length, prefix))

    def _row_options(self, text, length_penalty, max_length, prefix):
        text, length_penalty, max_length, prefix = check_rows(
            "text", text, length_penalty=length_penalty, max_length=max_length, prefix=prefix
        )
        prefix_tokens = self.tokenizer.tokenize(prefix)[:, : self.max_length]  # (B, None)
        prefix_ids, prefix_text = self.search.prefixes.split(prefix_tokens)  # (B, P), (B,)
        # NaN is not above 0, so it becomes 0.
        alpha = tf.where(length_penalty > 0, tf.minimum(length_penalty, LARGEST_ALPHA), 0.0)
        prefix_text = self.search.prefixes.spans(prefix_text)  # (B, W, 2)
        return text, RowOptions(alpha, max_length, prefix_ids, prefix_text)

    def _nbest(self, text, rows=None):
        source_ids, lengths, cut = self.source(text)
        strategy = of_kind(Beam, self.strategy)
        result = self.search(source_ids, lengths, strategy, rows, strategy.size)
        blank = (lengths == 1)[:, None]
        return {
            "translations": tf.where(blank, "", detokenize(self.tokenizer, result.ids)),
            "scores": tf.where(blank, 0.0, result.scores),
            "lengths": tf.where(blank, 0, result.lengths),
            "source_cut": cut,
            "ended": blank | has_ended(result),
        }

    def _align(self, text, rows=None):
        source_ids, lengths, cut = self.source(text)
        search = self.search.best if rows is None else self.search
        result = search(source_ids, lengths, self.strategy, rows)
        longest = tf.reduce_max(tf.concat([result.lengths[:, 0], [1]], 0))  # 1 without any text
        target_ids = tf.where((lengths == 1)[:, None], PAD_ID, result.ids[:, 0, :longest])  # (B, T)
        pieces = tf.constant(["", *self.tokenizer.pieces(range(1, self.tokenizer.vocab_size))])
        return {
            **self._best(lengths, cut, result),
            "source_pieces": tf.gather(pieces, source_ids),
            "target_pieces": tf.gather(pieces, target_ids),
            "attention": self.attention(source_ids, target_ids),
        }

    def _translate(self, text, strategy):
        source_ids, lengths, cut = self.source(text)
        return self._best(lengths, cut, self.search.best(source_ids, lengths, strategy))

    def _best(self, lengths, cut, result):
        blank = lengths == 1
        return {
            "translation": tf.where(blank, "", detokenize(self.tokenizer, result.ids)[:, 0]),
            "score": tf.where(blank, 0.0, result.scores[:, 0]),
            "source_cut": cut,
            "ended": blank | has_ended(result)[:, 0],
        }

    def source(self, text):
        """Strings (B,) to ids (B, S) with the end token, their lengths (B,), and which were cut.

        Blank text has length 1: the end token alone.
        """
        text = tf.reshape(text, [-1])  # may come as a scalar
        text = tf.strings.regex_replace(text, NOT_TEXT, "")
        return self._ids(text, self.max_source_length)

    def _ids(self, text, length):
        tokens = self.tokenizer.tokenize(text)  # (B, None)
        cut = tokens.row_lengths() >= length  # the end token needs a place
        return *padded_with_end(tokens[:, : length - 1]), cut

    @property
    def max_tokens(self) -> int:
        """The most tokens of a source or a translation."""
        return max(self.max_source_length, self.max_length)

    @cached_property
    def search(self) -> TextSearch:
        """Source ids, lengths and a strategy to a `SearchResult`."""
        return TextSearch(self)

    @property
    def vocab_size(self) -> int:
        """The number of tokens that the model chooses among."""
        return self.model.target_vocab_size

    def most_tokens(self, lengths):
        """The most tokens of the translations of sources of these lengths: int32 (B,)."""
        return lengths * TOKENS_PER_SOURCE_TOKEN + EXTRA_TOKENS

    def start(self, ids, capacity, beam_size, track_coverage):
        """The start tokens and the cache of a search for the translations of `ids` (b, S)."""
        cache = self.model.init_cache(
            ids, max_length=capacity, beam_size=beam_size, track_coverage=track_coverage
        )
        return tf.fill([tf.shape(ids)[0]], START_ID), cache

    def token_log_probs(self, source_ids, target_ids):
        """The log-probability of each token of given translations: float32 (B, T), 0 at padding."""

        def score(source, target, read):
            return log_probs_of(target, self.model((source, read), training=False))

        return self._few_rows_at_a_time(score, source_ids, target_ids, tf.shape(target_ids))

    def attention(self, source_ids, target_ids):
        """How much each target token attends to each source token: float32 (B, T, S).

        The mean of all heads of the last decoder layer's cross-attention. Rows of real tokens sum
        to 1, others are 0.
        """

        def attend(source, target, read):
            scores = self.model.cross_attention_scores((source, read))  # (b, T, S)
            return tf.where((target != PAD_ID)[:, :, None], scores, 0.0)

        shape = tf.concat([tf.shape(target_ids), tf.shape(source_ids)[1:]], axis=0)
        return self._few_rows_at_a_time(attend, source_ids, target_ids, shape)

    def _few_rows_at_a_time(self, function, source_ids, target_ids, shape):
        """`function(source, target, read)` of all rows, padded with 0 to `shape`."""

        def of_rows(rows):
            source, target = take_rows(source_ids, rows), take_rows(target_ids, rows)
            return (function(source, target, shift_right(target, START_ID)),)

        lengths = tf.maximum(num_tokens(source_ids), num_tokens(target_ids))
        return by_length(of_rows, lengths, self.batch_size, (tf.zeros(shape),))[0]


def num_tokens(ids):
    """The tokens of each row of ids (B, T), padded at the end: int32 (B,)."""
    return tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)


def take_rows(ids, rows):
    """Some rows of ids (B, T), as wide as the longest of them: (b, t)."""
    chosen = tf.gather(ids, rows)
    return chosen[:, : tf.maximum(tf.reduce_max(num_tokens(chosen)), 1)]
