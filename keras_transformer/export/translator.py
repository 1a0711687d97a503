"""Text to text: a tokenizer, a model and a search as one object."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.data.special_tokens import (
    END_ID,
    NUM_SPECIAL_TOKENS,
    PAD_ID,
    START_ID,
    UNK_ID,
)
from keras_transformer.decoding.beam_search import beam_search, check_beam
from keras_transformer.decoding.greedy_search import greedy_search
from keras_transformer.decoding.length_penalty import check_length_penalty
from keras_transformer.decoding.rounds import no_room
from keras_transformer.export.saved_model import export_saved_model
from keras_transformer.layers.checks import check_choice, check_positive_int

SEARCHES = ("greedy", "beam")

# A translation may have this many tokens for each source token, plus some: far above any real
# sentence, far below what a model that repeats itself would fill.
TOKENS_PER_SOURCE_TOKEN, EXTRA_TOKENS = 3, 20


class Translations(NamedTuple):
    """Translated texts, and each one's score: log-probability over length penalty."""

    texts: list[str]
    scores: list[float]


class Translator(tf.Module):
    """Translates strings with a trained `Transformer`.

    Tokenization, the search and detokenization are one TensorFlow graph, the same in Python and
    in the exported SavedModel, so both give the same translations. A sentence's translation does
    not depend on the others in its batch. An empty or blank text is translated as "", score 0.

    Args:
        model: a `Transformer`.
        tokenizer: the `Tokenizer` whose ids the model was trained on.
        search: "beam" or "greedy".
        beam_size: hypotheses kept at each step of a beam search.
        length_penalty: alpha of `((5 + n) / 6) ** alpha`.
        max_source_length: source tokens read, the end token included; what follows is cut off.
        max_length: the most tokens of a translation. A translation also ends at three tokens for
            each source token plus 20.
        batch_size: sentences translated at a time when it is called.

    Call arguments:
        texts: a list of strings.

    Returns:
        A list of strings, one for each text.

    Raises:
        ValueError: if an argument is out of range, or tokenizer and model do not fit.
        TypeError: if `texts` is no list of strings.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> model = Transformer(
        ...     num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=tokenizer.vocab_size
        ... )
        >>> translator = Translator(model, tokenizer, search="greedy")
        >>> translator(["", "  "])
        ['', '']
    """

    def __init__(
        self,
        model,
        tokenizer,
        *,
        search="beam",
        beam_size=4,
        length_penalty=0.6,
        max_source_length=256,
        max_length=256,
        batch_size=32,
    ):
        super().__init__(name="translator")
        self.search = check_choice("search", search, SEARCHES)
        check_beam(beam_size, 1)
        self.beam_size = beam_size
        self.length_penalty = check_length_penalty(length_penalty)
        self.max_source_length = check_positive_int("max_source_length", max_source_length)
        self.max_length = check_positive_int("max_length", max_length)
        self.batch_size = check_positive_int("batch_size", batch_size)
        _check_fit(model, tokenizer, max(max_source_length, max_length))
        self.model = model
        self.tokenizer = tokenizer
        self.translate_tensor = tf.function(
            self._translate, input_signature=[tf.TensorSpec([None], tf.string, name="text")]
        )

    def __call__(self, texts) -> list[str]:
        return self.translate(texts).texts

    def translate(self, texts) -> Translations:
        """Translations and their scores, in the order of `texts`.

        Sentences are translated shortest first, `batch_size` at a time, so that little is spent
        on padding.
        """
        return translate_in_batches(_check_texts(texts), self.translate_tensor, self.batch_size)

    def export(self, directory) -> str:
        """Writes `directory/<version>/`, a SavedModel for TensorFlow Serving.

        Args:
            directory: the model's directory; versions count up from 1.

        Returns:
            The path of the new version.
        """
        return export_saved_model(self, directory)

    def _translate(self, text):
        """The whole graph: strings (B,) to a dict of strings (B,) and floats (B,)."""
        text = tf.strings.strip(tf.reshape(text, [-1]))  # (B,)
        source_ids, lengths = self._source_ids(text)  # (B, S), (B,)
        result = self._search(source_ids, lengths)
        ids = result.ids[:, 0]  # (B, L)
        tokens = tf.ragged.boolean_mask(ids, ids >= NUM_SPECIAL_TOKENS)  # (B, None)
        blank = lengths == 1
        return {
            "translation": tf.where(blank, "", self.tokenizer.detokenize(tokens)),
            "score": tf.where(blank, 0.0, result.scores[:, 0]),
        }

    def _source_ids(self, text):
        tokens = self.tokenizer.tokenize(text)[:, : self.max_source_length - 1]  # (B, None)
        end = tf.fill([tokens.nrows(), 1], END_ID)
        ragged = tf.concat([tokens, end], axis=1)
        return ragged.to_tensor(PAD_ID), tf.cast(ragged.row_lengths(), tf.int32)

    def _search(self, source_ids, source_lengths):
        limits = source_lengths * TOKENS_PER_SOURCE_TOKEN + EXTRA_TOKENS
        limits = tf.minimum(limits, self.max_length)  # (B,)
        max_length = tf.reduce_max(tf.concat([limits, [1]], axis=0))
        beam_size = self.beam_size if self.search == "beam" else 1
        arguments = {
            "step_fn": self.model.decode_step,
            "start_ids": tf.fill([tf.shape(source_ids)[0]], START_ID),
            "cache": self.model.init_cache(
                source_ids, max_length=no_room(source_ids), beam_size=beam_size
            ),
            "resize_cache": self.model.resize_cache,
            "end_id": END_ID,
            "max_length": max_length,
            "max_lengths": limits,
            "length_penalty": self.length_penalty,
            "suppress_ids": (PAD_ID, UNK_ID, START_ID),
        }
        if self.search == "greedy":
            return greedy_search(**arguments)
        reorder_cache = self.model.reorder_cache
        return beam_search(**arguments, beam_size=beam_size, reorder_cache=reorder_cache)


def translate_in_batches(texts, function, batch_size: int = 32) -> Translations:
    """Translates a list of strings, `batch_size` of similar length at a time.

    Args:
        texts: list of strings.
        function: from a string tensor `text` to a dict of "translation" and "score", such as
            `Translator.translate_tensor` or the signature of an exported model.
        batch_size: the number of strings in a batch.

    Returns:
        `Translations`, in the order of `texts`.
    """
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    translations, scores = [""] * len(texts), [0.0] * len(texts)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = tf.constant([texts[i].encode("utf-8", "replace") for i in rows])
        output = function(text=batch)
        results = zip(output["translation"].numpy(), output["score"].numpy(), strict=True)
        for i, (translation, score) in zip(rows, results, strict=True):
            translations[i], scores[i] = translation.decode(), float(score)
    return Translations(translations, scores)


def _check_fit(model, tokenizer, max_length) -> None:
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "A Translator is a TensorFlow graph, but the Keras backend is "
            f"{keras.backend.backend()}; set KERAS_BACKEND=tensorflow and load the weights there."
        )
    for name in ("source_vocab_size", "target_vocab_size"):
        size = getattr(model, name)
        if size != tokenizer.vocab_size:
            raise ValueError(
                f"The model's {name} is {size}, but the tokenizer has {tokenizer.vocab_size} ids; "
                "use the tokenizer that the model was trained with."
            )
    if max_length > model.source_embedding.max_length:
        raise ValueError(
            f"max_source_length and max_length must be at most the model's max_length of "
            f"{model.source_embedding.max_length}, but the larger is {max_length}."
        )


def _check_texts(texts) -> list[str]:
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts must be a list of strings, but is one: {texts!r}; use [text].")
    texts = list(texts.tolist() if isinstance(texts, np.ndarray) else texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{i}] must be a string, but is {text!r}.")
    return texts
