"""What a text generator computes, tensors to tensors: the graph of Python and of the SavedModel."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from keras_transformer.data.special_tokens import END_ID, PAD_ID
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.strategies import Strategy
from keras_transformer.inference.prefixes import SPACE
from keras_transformer.inference.text_search import (
    TOKENS_AT_A_TIME,
    TextSearch,
    as_scores,
    check_rows,
    detokenize,
    has_ended,
    in_batches,
    log_probs_of,
    padded,
    padded_with_end,
    shift_right,
    signature,
)
from keras_transformer.models.language_model import split_prompts


@dataclass(frozen=True, eq=False)
class GenerationGraph:
    """Tokenizer, model and search as functions of tensors; arguments as of `TextGenerator`.

    The first three methods are the signatures of an exported generator. Every input is a vector of
    B values and every output has B rows, so that a server can join requests into a batch.

    Those that generate also answer, as bool:

    - `prompt_cut`: whether the prompt is longer than the model reads, so that only its end counts;
    - `ended`: whether the continuation reached its end token, and not a limit of its length.
    """

    signatures = ("serving_default", "generate", "score")

    model: Any
    tokenizer: Any
    strategy: Strategy
    max_length: int
    batch_size: int
    num_parallel_batches: int

    @signature(text=tf.string)
    def serving_default(self, text):
        """Prompts, `text`, to prompts with what follows, `text`, `continuation` and `score`.

        The pieces of a prompt stay as they are, but for a space at its end: that belongs to the
        word that follows.
        """
        return self._continued(text, tf.fill([tf.size(text)], self.max_length))

    @signature(text=tf.string, max_length=tf.int32)
    def generate(self, text, max_length):
        """`serving_default` with `max_length`, the most tokens of each continuation."""
        text, max_length = check_rows("text", text, max_length=max_length)
        return self._continued(text, max_length)

    @signature(text=tf.string)
    def score(self, text):
        """`text` to `log_prob`, `token_log_probs` [B, T] and `length`, its tokens and the end."""
        ids, lengths = self.text_ids(text)
        return as_scores(self.token_log_probs(ids), lengths)

    def _continued(self, text, max_length):
        ids, lengths, space, cut = self.prompt(text)
        prefix = self.search.prefixes.spans(space)
        rows = RowOptions(max_lengths=max_length, prefix_text=prefix)
        result = self.search.best(ids, lengths, self.strategy, rows)
        written = detokenize(self.tokenizer, result.ids)[:, 0]  # (B,)
        without_space = tf.strings.regex_replace(written, "^ ", "")
        continuation = tf.where(space == "", written, without_space)  # (B,)
        prompt = tf.strings.unicode_transcode(tf.reshape(text, [-1]), "UTF-8", "UTF-8")
        return {
            "text": tf.strings.join([prompt, continuation]),
            "continuation": continuation,
            "score": result.scores[:, 0],
            "prompt_cut": cut,
            "ended": has_ended(result)[:, 0],
        }

    def prompt(self, text):
        """What is read of prompts, strings (B,).

        A space at the end of a prompt belongs to the word that follows: it is not read, but the
        continuation begins with it.

        Returns:
            The last tokens, int32 (B, P), their number (B,), the space after them, strings (B,),
            and whether there are more before them, bool (B,).
        """
        tokens = self.tokenizer.tokenize(tf.reshape(text, [-1]))  # (B, None)
        room = self.model.max_length - self.max_length
        # A space has as many tokens as bytes, or fewer. It takes no room from the prompt.
        last = tokens[:, -room - len(SPACE) :]
        ids, end = self.search.prefixes.split(last, len(SPACE))
        has_space = end == SPACE  # (B,)
        ids = tf.where(has_space[:, None], ids, last.to_tensor(PAD_ID))  # (B, room + 3)
        lengths = tf.math.count_nonzero(ids, axis=1)
        cut = tokens.row_lengths() - last.row_lengths() + lengths > room
        ids, lengths = padded(tf.RaggedTensor.from_tensor(ids, lengths)[:, -room:])
        return ids, lengths, tf.where(has_space, end, ""), cut

    def text_ids(self, text):
        """Strings (B,) to ids (B, T) with the end token, and their lengths (B,)."""
        return padded_with_end(self.tokenizer.tokenize(tf.reshape(text, [-1])))

    @property
    def max_tokens(self) -> int:
        """The longest sequence that the model reads, in tokens."""
        return self.model.max_length

    @cached_property
    def search(self) -> TextSearch:
        """Prompt ids, lengths and a strategy to a `SearchResult`."""
        return TextSearch(self)

    @property
    def vocab_size(self) -> int:
        """The number of tokens that the model chooses among."""
        return self.model.vocab_size

    def most_tokens(self, lengths):
        """The most tokens of the continuations of prompts of these lengths: int32 (B,)."""
        return tf.fill(tf.shape(lengths), self.max_length)

    def start(self, ids, capacity, beam_size, track_coverage):
        """The last token of each prompt of `ids` (b, P), and a cache that has read the others."""
        context_ids, start_ids = split_prompts(ids)
        cache = self.model.init_cache(context_ids, max_length=capacity, beam_size=beam_size)
        return start_ids, cache

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
