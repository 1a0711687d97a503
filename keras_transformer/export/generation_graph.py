"""What a text generator computes, tensors to tensors: the graph of Python and of the SavedModel."""

import tensorflow as tf

from keras_transformer.data.special_tokens import END_ID, PAD_ID
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.export.row_batches import in_batches
from keras_transformer.export.search_graph import (
    TOKENS_AT_A_TIME,
    SearchGraph,
    log_probs_of,
    padded,
    padded_with_end,
    shift_right,
)
from keras_transformer.models.language_model import split_prompts


class GenerationGraph(SearchGraph):
    """A `SearchGraph` for continuations of prompts, and scores of text; arguments as there."""

    def __init__(self, model, tokenizer, settings, weights=None):
        super().__init__(model, tokenizer, settings, weights)
        row = tf.TensorSpec([None], tf.int32)
        self._search = tf.function(
            lambda ids, lengths, max_length: tuple(
                self.search(ids, lengths, settings.search, max_length=max_length)
            ),
            input_signature=[tf.TensorSpec([None, None], tf.int32), row, row],
            autograph=False,
        )

    def prompt_ids(self, text):
        """Strings (B,) to the last tokens of each, (B, P), and their number (B,)."""
        tokens = self.tokenizer.tokenize(tf.reshape(text, [-1]))  # (B, None)
        return padded(tokens[:, self.settings.max_length - self.model.max_length :])

    def text_ids(self, text):
        """Strings (B,) to ids (B, T) with the end token, and their lengths (B,)."""
        return padded_with_end(self.tokenizer.tokenize(tf.reshape(text, [-1])))

    def continuations(self, prompt_ids, lengths, max_length=None):
        """The continuation of each prompt: a `SearchResult` with N = 1, traced only once.

        Args:
            prompt_ids: int32 (B, P).
            lengths: int32 (B,).
            max_length: int32 (B,), an upper bound of its own for each; None for none.
        """
        max_length = self.limits(lengths) if max_length is None else max_length
        return SearchResult(*self._search(prompt_ids, lengths, max_length))

    def start(self, ids, search, room, beam_size, weights):
        context_ids, start_ids = split_prompts(ids)
        cache = self.model.init_cache(
            context_ids,
            max_length=room,
            beam_size=beam_size,
        )
        return {"start_ids": start_ids, "cache": cache}

    def limits(self, lengths):
        return tf.fill(tf.shape(lengths), self.settings.max_length)

    def vocab_size(self):
        return self.model.vocab_size

    def token_log_probs(self, ids):
        """The log-probability of each token of given texts: float32 (B, T), 0 at padding.

        A text longer than the model reads at a time is scored in windows that overlap by half, so
        each token is predicted from all those before it or at least half a window of them.
        """
        size, length = tf.shape(ids)[0], tf.shape(ids)[1]
        width = tf.minimum(length, self.model.max_length)
        stride = tf.maximum(width // 2, 1)
        count = 1 + (length - width + stride - 1) // stride
        index = stride * tf.range(count)[:, None] + tf.range(width)  # (N, W)

        def windows(x):
            x = tf.pad(x, [[0, 0], [0, stride * (count - 1) + width - length]])
            return tf.reshape(tf.gather(x, index, axis=1), [-1, width])  # (B * N, W)

        labels, inputs = windows(ids), windows(shift_right(ids, END_ID))

        def score_rows(rows):
            logits = self.model(tf.gather(inputs, rows), training=False)  # (b, W, V)
            return (log_probs_of(tf.gather(labels, rows), logits),)

        real = tf.cast(tf.where(tf.reduce_any(labels != PAD_ID, axis=1))[:, 0], tf.int32)
        rows_at_a_time = tf.maximum(TOKENS_AT_A_TIME // tf.maximum(width, 1), 1)
        (scores,) = in_batches(score_rows, real, rows_at_a_time, (tf.zeros(tf.shape(labels)),))
        scores = tf.reshape(scores, [size, count, width])
        new = tf.reshape(scores[:, 1:, width - stride :], [size, stride * (count - 1)])
        return tf.concat([scores[:, 0], new], axis=1)[:, :length]  # (B, T)
