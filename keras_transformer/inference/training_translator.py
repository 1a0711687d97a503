"""Translates texts while a model trains on JAX, where no graph holds tokenizer and search."""

import numpy as np
from keras import ops

from keras_transformer import pure_steps
from keras_transformer.data.special_tokens import END_ID, START_ID
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.strategies import Greedy, RowOptions
from keras_transformer.inference.text_search import as_tensor, detokenize
from keras_transformer.inference.translation_graph import TranslationGraph

# Widths of batches are powers of two from this one on, so that few searches are compiled.
LEAST_WIDTH = 16


class TrainingTranslator:
    """Gives the translations of a greedy `Translator`; only its search runs on JAX.

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
        numbers = max_length, max_length, batch_size, 1
        self.graph = TranslationGraph(model, tokenizer, Greedy(), *numbers)
        self.strategy = self.graph.search.own(Greedy())
        self.search = pure_steps.compiled(self._search, model.variables)

    def __call__(self, texts: list[str]) -> list[str]:
        ids, lengths, _ = (x.numpy() for x in self.graph.source(as_tensor(texts)))
        translations = np.full(len(texts), "", object)
        order = np.argsort(-lengths, kind="stable")
        order = order[lengths[order] > 1]  # others show nothing
        height = min(self.graph.batch_size, len(texts))
        for start in range(0, len(order), height):
            rows = order[start : start + height]
            found = self.search(*padded(ids[rows], lengths[rows], height))
            found = ops.convert_to_numpy(found)[: len(rows)]
            translated = detokenize(self.graph.tokenizer, found[:, None]).numpy()[:, 0]
            translations[rows] = [text.decode() for text in translated]
        return translations.tolist()

    def _search(self, ids, lengths):
        """Searches the translations (B, T) of ids (B, S), rows of some lengths (B,)."""
        graph, most = self.graph, self.graph.max_length
        capacity = min(graph.most_tokens(ids.shape[1]), most)
        cache = graph.model.init_cache(ids, max_length=capacity)
        start_ids = ops.full((ids.shape[0],), START_ID, "int32")
        rows = RowOptions(max_lengths=ops.minimum(graph.most_tokens(lengths), most))
        options = {"rows": rows, "end_id": END_ID, "max_length": capacity}
        step = graph.model.decode_step
        return greedy_search(step, start_ids, cache, self.strategy, **options).ids[:, 0]


def padded(ids, lengths, height):
    """Pads ids (b, S) and their lengths, the longest first, to `height` rows of one of few widths.

    Rows of no text have the end token.
    """
    width = max(LEAST_WIDTH, 1 << int(lengths[0] - 1).bit_length())
    rows = np.zeros((height, width), "int32")
    rows[:, 0] = END_ID
    kept = min(width, ids.shape[1])
    rows[: len(ids), :kept] = ids[:, :kept]
    return rows, np.pad(lengths, (0, height - len(ids)), constant_values=1)
