"""Translates texts while a model trains on JAX, without TensorFlow."""

import numpy as np
from keras import ops

from keras_transformer import pure_steps
from keras_transformer.data.blank_text import visible
from keras_transformer.data.special_tokens import (
    END_ID,
    NUM_SPECIAL_TOKENS,
    START_ID,
    UNWRITTEN,
)
from keras_transformer.data.token_rows import TokenRows
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.strategies import Greedy
from keras_transformer.inference.text_module import EXTRA_TOKENS, TOKENS_PER_SOURCE_TOKEN

# Widths of batches are powers of two from this one on, so that few searches are compiled.
LEAST_WIDTH = 16


class TrainingTranslator:
    """Translates as a greedy `Translator` does, without TensorFlow.

    Args:
        model: a `Transformer`.
        tokenizer: the `Tokenizer` that the model is trained with.
        max_length: the most tokens that are read of a source, and of a translation.
        batch_size: sentences searched at a time.

    Call arguments:
        texts: a list of strings.

    Returns:
        A list of strings, one for each text.
    """

    def __init__(self, model, tokenizer, *, max_length: int = 256, batch_size: int = 128):
        self.model, self.tokenizer = model, tokenizer
        self.max_length, self.batch_size = max_length, batch_size
        unused = range(tokenizer.vocab_size, model.target_vocab_size)
        self.strategy = Greedy(suppress_ids=(*UNWRITTEN, *unused))
        self.search = pure_steps.compiled(self._search, model.variables)

    def __call__(self, texts: list[str]) -> list[str]:
        rows = self.tokenizer.tokenize_rows([visible(text) for text in texts])
        lengths = np.minimum(rows.lengths + 1, self.max_length)  # with the end token
        translations = np.full(len(texts), "", object)
        order = np.argsort(-lengths, kind="stable")
        order = order[lengths[order] > 1]  # others show nothing
        height = max(1, min(self.batch_size, len(texts)))
        for start in range(0, len(order), height):
            chosen = order[start : start + height]
            found = self.search(*padded(rows, chosen, lengths[chosen], height))
            found = ops.convert_to_numpy(found)[: len(chosen)]
            translations[chosen] = self._texts(found)
        return translations.tolist()

    def _texts(self, ids):
        """Joins rows of ids (b, T) to texts, as the graph does."""
        is_real = (ids >= NUM_SPECIAL_TOKENS) & (ids < self.tokenizer.vocab_size)
        offsets = np.append(0, np.cumsum(is_real.sum(axis=1)))
        return self.tokenizer.detokenize_rows(TokenRows(ids[is_real], offsets))

    def _search(self, ids, lengths):
        """Searches the translations (B, T) of ids (B, S), rows of some lengths (B,)."""
        capacity = min(ids.shape[1] * TOKENS_PER_SOURCE_TOKEN + EXTRA_TOKENS, self.max_length)
        cache = self.model.init_cache(ids, max_length=capacity)
        start_ids = ops.full((ids.shape[0],), START_ID, "int32")
        most = ops.minimum(lengths * TOKENS_PER_SOURCE_TOKEN + EXTRA_TOKENS, capacity)
        rows = RowOptions(max_lengths=most)
        options = {"rows": rows, "end_id": END_ID, "max_length": capacity}
        step = self.model.decode_step
        return greedy_search(step, start_ids, cache, self.strategy, **options).ids[:, 0]


def padded(rows, chosen, lengths, height):
    """Returns ids (height, S) of one of few widths S, and the lengths of all rows (height,).

    Args:
        rows: `TokenRows`.
        chosen: the places of those to take, the longest first.
        lengths: their lengths with the end token, after which they are cut off.
        height: the number of rows; those of no text have the end token.
    """
    width = max(LEAST_WIDTH, 1 << int(lengths[0] - 1).bit_length())
    lengths = np.pad(lengths, (0, height - len(chosen)), constant_values=1).astype("int32")
    ids = np.zeros((height, width), "int32")
    ids[: len(chosen)] = rows.padded(chosen, width)
    columns = np.arange(width)
    ids[columns >= lengths[:, None]] = 0
    ids[columns == lengths[:, None] - 1] = END_ID
    return ids, lengths
