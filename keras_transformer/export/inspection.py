"""All that can be shown of one translation: pieces, scores, the search, attention."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.special_tokens import PAD_ID, START_ID
from keras_transformer.decoding.beam_history import RETURNED, Hypothesis, tokens_of
from keras_transformer.export.search_graph import shift_right
from keras_transformer.export.translation_graph import TranslationGraph
from keras_transformer.models.attention_weights import AttentionWeights


class Inspection(NamedTuple):
    """One sentence, its translations, and how they came about.

    The decoder writes piece t while it reads the pieces before it: `target_pieces` are those that
    it writes, `read_pieces` those that it reads, the start token first.

    Attributes:
        source_ids: int32 (S,), the end token included.
        read_ids: int32 (T,), what the decoder reads to write the best translation.
        source_pieces: S strings.
        read_pieces: T strings.
        target_pieces: T strings, the best translation with its end token.
        log_probs: float32 (T,), of each target piece.
        texts: the hypotheses of the beam, best first.
        scores: of each text.
        history: list of `Hypothesis`, all that the search considered.
        history_pieces: a string for each of them.
        attention: `AttentionWeights`, arrays without the axis of the batch.
    """

    source_ids: Any
    read_ids: Any
    source_pieces: list[str]
    read_pieces: list[str]
    target_pieces: list[str]
    log_probs: Any
    texts: list[str]
    scores: list[float]
    history: list[Hypothesis]
    history_pieces: list[str]
    attention: AttentionWeights

    def maps(self) -> dict:
        """The three uses of attention by name: weights (N, H, T, S), who looks, what at."""
        encoder, decoder, cross = self.attention
        return {
            "Encoder self-attention": (encoder, self.source_pieces, self.source_pieces),
            "Decoder self-attention": (decoder, self.target_pieces, self.read_pieces),
            "Cross-attention": (cross, self.target_pieces, self.source_pieces),
        }


def inspect_translation(translator, text: str) -> Inspection:
    """Translates one text by the search of a `Translator`, and keeps what it did.

    The texts and scores are those of `Translator.nbest`.

    Args:
        translator: a `Translator` with search "beam" or "greedy".
        text: a string that is not blank.

    Returns:
        An `Inspection`.

    Raises:
        ValueError: if the text is blank, the search is "sample", or there is no translation.
    """
    check_text(text)
    settings = translator.settings
    if settings.search == "sample":
        raise ValueError('search="sample" has no tree to show; use search="beam" or "greedy".')
    graph = TranslationGraph(translator.model, translator.tokenizer, settings)
    source_ids, _ = graph.source_ids(tf.constant([text.encode("utf-8", "replace")]))  # (1, S)
    history = graph.beam_history(source_ids, settings.search)
    results = [i for i, node in enumerate(history) if node.fate == RETURNED]
    results.sort(key=lambda i: -history[i].score)
    if not results:
        raise ValueError("The model has no translation of finite probability; is it trained?")
    hypotheses = tf.ragged.constant([tokens_of(history, i) for i in results], tf.int32)
    target_ids = tf.constant([tokens_of(history, results[0])], tf.int32)  # (1, T)
    read_ids = shift_right(target_ids, START_ID)
    weights = translator.model.attention_weights((source_ids, read_ids))
    log_probs = graph.token_log_probs(source_ids, target_ids)
    pieces = translator.tokenizer.pieces
    return Inspection(
        source_ids=source_ids.numpy()[0],
        read_ids=read_ids.numpy()[0],
        source_pieces=pieces(source_ids.numpy()[0]),
        read_pieces=pieces(read_ids.numpy()[0]),
        target_pieces=pieces(target_ids.numpy()[0]),
        log_probs=log_probs.numpy()[0],
        texts=[t.decode() for t in graph.texts(hypotheses.to_tensor(PAD_ID)[None])[0].numpy()],
        scores=[history[i].score for i in results],
        history=history,
        history_pieces=pieces(node.token for node in history),
        attention=AttentionWeights(*(np.asarray(part)[:, 0] for part in weights)),
    )


def check_text(text: str) -> None:
    """A ValueError if a text is blank."""
    if not text.strip():
        raise ValueError(f"The sentence must have words to look at, but is {text!r}.")
