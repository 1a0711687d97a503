"""All that can be shown of one translation: pieces, scores, the search, attention."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.checks import check_has
from keras_transformer.data.blank_text import is_blank
from keras_transformer.data.special_tokens import PAD_ID, START_ID
from keras_transformer.decoding.history import RETURNED, Hypothesis, tokens_of
from keras_transformer.decoding.strategies import Sample
from keras_transformer.inference.text_search import as_tensor, detokenize, shift_right
from keras_transformer.inference.translator import Translator, warn_of_cuts
from keras_transformer.models.transformer import AttentionScores
from keras_transformer.type_hints import Floats, Integers, Tensor

ENCODER, DECODER, CROSS = "Encoder self-attention", "Decoder self-attention", "Cross-attention"


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
        attention: `AttentionScores`, arrays without the axis of the batch.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
        >>> inspection = inspect_translation(Translator(model, tokenizer, Beam(size=2)), "a dog")
        >>> sorted(inspection.maps())
        ['Cross-attention', 'Decoder self-attention', 'Encoder self-attention']
    """

    source_ids: Integers
    read_ids: Integers
    source_pieces: list[str]
    read_pieces: list[str]
    target_pieces: list[str]
    log_probs: Floats
    texts: list[str]
    scores: list[float]
    history: list[Hypothesis]
    history_pieces: list[str]
    attention: AttentionScores

    def maps(self) -> dict[str, tuple[Tensor, list[str], list[str]]]:
        """The three uses of attention by name: scores (N, H, T, S), who looks, what at."""
        encoder, decoder, cross = self.attention
        return {
            ENCODER: (encoder, self.source_pieces, self.source_pieces),
            DECODER: (decoder, self.target_pieces, self.read_pieces),
            CROSS: (cross, self.target_pieces, self.source_pieces),
        }


def inspect_translation(translator: Translator, text: str) -> Inspection:
    """Translates one text by the search of a `Translator`, and keeps what it did.

    The texts and scores are those of `Translator.nbest`; of `Greedy` there is one.

    Args:
        translator: a `Translator` with the strategy `Beam` or `Greedy`.
        text: a string that is not blank.

    Returns:
        An `Inspection`.

    Raises:
        ValueError: if the text is blank, the strategy is a `Sample`, or there is no translation.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
        >>> translator = Translator(model, tokenizer, Beam(size=2), max_length=5)
        >>> inspection = inspect_translation(translator, "a dog")
        >>> len(inspection.texts), inspection.source_pieces[-1]
        (2, '</s>')
    """
    check_text(text)
    check_has(
        "translator.model",
        "Transformer",
        translator.model,
        ("attention_scores",),
        "inspect the members of an Ensemble one by one",
    )
    graph = translator.graph
    if isinstance(graph.strategy, Sample):
        raise ValueError("Sample(...) has no tree to show; use Beam(...) or Greedy(...).")
    source_ids, _, cut = graph.source(as_tensor([text]))  # (1, S), (1,), (1,)
    warn_of_cuts(cut.numpy(), graph, stacklevel=3)
    history = graph.search.history(source_ids, graph.strategy)
    results = [i for i, node in enumerate(history) if node.fate == RETURNED]
    results.sort(key=lambda i: -history[i].score)
    if not results:
        raise ValueError("The model has no translation of finite probability; is it trained?")
    hypotheses = tf.ragged.constant([tokens_of(history, i) for i in results], tf.int32)
    target_ids = tf.constant([tokens_of(history, results[0])], tf.int32)  # (1, T)
    read_ids = shift_right(target_ids, START_ID)
    scores = translator.model.attention_scores((source_ids, read_ids))
    log_probs = graph.token_log_probs(source_ids, target_ids)
    texts = detokenize(graph.tokenizer, hypotheses.to_tensor(PAD_ID)[None])  # (1, N)
    pieces = graph.tokenizer.pieces
    return Inspection(
        source_ids=source_ids.numpy()[0],
        read_ids=read_ids.numpy()[0],
        source_pieces=pieces(source_ids.numpy()[0]),
        read_pieces=pieces(read_ids.numpy()[0]),
        target_pieces=pieces(target_ids.numpy()[0]),
        log_probs=log_probs.numpy()[0],
        texts=[t.decode() for t in texts[0].numpy()],
        scores=[history[i].score for i in results],
        history=history,
        history_pieces=pieces(node.token for node in history),
        attention=AttentionScores(*(np.asarray(part)[:, 0] for part in scores)),
    )


def check_text(text: str) -> None:
    """A ValueError if a text is blank."""
    if is_blank(text):
        raise ValueError(f"The sentence must have words to look at, but is {text!r}.")
