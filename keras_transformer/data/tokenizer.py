"""From strings to subword ids and back, as operations of a TensorFlow graph or without one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece

from keras_transformer.checks import (
    check_number,
    check_seed,
    check_texts,
    without_surrogates,
)
from keras_transformer.data.bpe_dropout import BpeDropout, Words
from keras_transformer.data.subwords import (
    ESCAPE,
    SPACE_SYMBOL,
    check_model,
    escape,
    join_ids_to_texts,
    learn_model,
    split_texts_into_ids,
)
from keras_transformer.data.text_lines import iterate_lines
from keras_transformer.data.token_rows import TokenRows
from keras_transformer.type_hints import StrPath, Tensor, TensorLike

if TYPE_CHECKING:
    import tensorflow as tf


class Tokenizer:
    """SentencePiece BPE with byte fallback: any text in, the same text out.

    It loses no character: it does not normalize text, it keeps runs of spaces, and it spells a
    character that training did not see in bytes. Special tokens are ids only: a typed "</s>" is
    ordinary text. `tokenize` and `detokenize` are TensorFlow ops, so they become part of an
    exported SavedModel; all else needs no TensorFlow. Make one with `train`, `train_on_texts` or
    `load`.

    Sennrich et al. (2016), "Neural Machine Translation of Rare Words with Subword Units"; Kudo and
    Richardson (2018), "SentencePiece".

    Args:
        model: the bytes of a SentencePiece model. Its first ids are padding, unknown, start, end.

    Raises:
        ValueError: if the bytes are not such a model.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs", "a dog sleeps"] * 9, vocab_size=300)
        >>> tokenizer.detokenize(tokenizer.tokenize(["a  dog"])).numpy().tolist()
        [b'a  dog']
    """

    def __init__(self, model: bytes):
        self.model = bytes(model)
        self.vocab_size = check_model(self.model)

    @classmethod
    def train(
        cls, files: StrPath | Iterable[StrPath], *, vocab_size: int = 8000, **options
    ) -> Tokenizer:
        """Learns one vocabulary from text files with one sentence per line.

        Args:
            files: paths, compressed if the name ends in .gz. Give both languages for a shared
                vocabulary.
            vocab_size: the number of ids you want; little text may yield fewer.
            options: `coverage` and `user_symbols`, as for `train_on_texts`.

        Returns:
            A `Tokenizer`.

        Raises:
            ValueError: if a file cannot be read or `vocab_size` is too small.
        """
        files = [files] if isinstance(files, StrPath) else list(files)
        texts = (line for file in files for line in iterate_lines(file, errors="replace"))
        return cls.train_on_texts(texts, vocab_size=vocab_size, **options)

    @classmethod
    def train_on_texts(
        cls,
        texts: Iterable[str],
        *,
        vocab_size: int = 8000,
        coverage: float = 0.9995,
        user_symbols: Iterable[str] = (),
    ) -> Tokenizer:
        """Learns one vocabulary from strings; otherwise like `train`.

        Args:
            texts: strings, of both languages for a shared vocabulary.
            vocab_size: as for `train`.
            coverage: the share of the text's characters that become ids of their own; the others
                are spelled in bytes.
            user_symbols: strings that are never split, such as "<en>", one id each.

        Returns:
            A `Tokenizer`.

        Raises:
            ValueError: if `vocab_size` is too small, `coverage` is not in (0, 1], or a symbol is
                empty or there twice.
            TypeError: if a text is not a string.
        """
        return cls(learn_model(texts, vocab_size, coverage, user_symbols))

    @classmethod
    def load(cls, path: StrPath) -> Tokenizer:
        """Reads a model that `save` or SentencePiece wrote.

        Raises:
            ValueError: if the file is not a SentencePiece model with this library's special ids.
            OSError: if it cannot be read.
        """
        with open(path, "rb") as file:
            return cls(file.read())

    def save(self, path: StrPath) -> None:
        """Writes the model to one file; SentencePiece's own tools can read it."""
        with open(path, "wb") as file:
            file.write(self.model)

    def tokenize(self, texts: TensorLike | list[str]) -> tf.RaggedTensor:
        """Splits every text into subword ids, without special tokens.

        Args:
            texts: strings (N,), a tensor or a list. Bytes that are not UTF-8 and lone surrogates
                become U+FFFD.

        Returns:
            Ragged tensor (N, None), int32.
        """
        import tensorflow as tf

        texts = _as_tensor(texts)
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        texts = tf.strings.regex_replace(texts, ESCAPE, ESCAPE + "a")
        texts = tf.strings.regex_replace(texts, SPACE_SYMBOL, ESCAPE + "b")
        return self._sentencepiece().tokenize(texts)

    def tokenize_rows(self, texts: list[str]) -> TokenRows:
        """Splits every text into the ids of `tokenize`, without TensorFlow and faster.

        Args:
            texts: list of strings; lone surrogates become U+FFFD.

        Returns:
            `TokenRows`, arrays of NumPy.
        """
        return split_texts_into_ids(self.model, texts)

    def detokenize_rows(self, rows: TokenRows) -> list[str]:
        """Joins every row of ids to the text of `detokenize`, without TensorFlow."""
        return join_ids_to_texts(self.model, rows)

    def sample(self, texts: list[str], rate: float, seed: int) -> list[list[int]]:
        """Splits every text into subword ids at random: BPE-dropout.

        A model that has seen a word in several splits learns its parts better. Provilkov et al.
        (2020), "BPE-Dropout: Simple and Effective Subword Regularization".

        Args:
            texts: list of strings; lone surrogates become U+FFFD.
            rate: the probability that a merge is skipped, in [0, 1]. 0 gives the ids of
                `tokenize`, 1 gives characters.
            seed: an integer; the same texts and the same seed give the same ids, in every process.
                The ids of a text depend on its place in the list, and on the other texts.

        Returns:
            A list of ids per text, without special tokens.

        Raises:
            ValueError: if the tokenizer's model is not of SentencePiece's type BPE, or an argument
                is out of range.
            TypeError: if a text is not a string.
        """
        check_number("rate", rate, float, "a number in [0, 1]", lambda x: 0 <= x <= 1)
        words = self.words(check_texts("texts", texts))
        rows = self.bpe_dropout.sample(words, rate, check_seed(seed))
        values, offsets = rows.values.tolist(), rows.offsets.tolist()
        return [values[start:end] for start, end in itertools.pairwise(offsets)]

    @functools.cached_property
    def bpe_dropout(self) -> BpeDropout:
        """The sampler behind `sample`, made when it is first used."""
        return BpeDropout(self.model)

    def words(self, texts: Iterable[str]) -> Words:
        """Cuts texts into words once, for many calls of `bpe_dropout.sample`.

        Args:
            texts: strings; lone surrogates become U+FFFD.

        Returns:
            `Words`. They take 4 bytes per word of the texts, and about 100 per distinct word.

        Raises:
            ValueError: if the tokenizer's model is not of SentencePiece's type BPE.
        """
        return self.bpe_dropout.words(escape(text) for text in texts)

    def detokenize(self, ids: TensorLike | tf.RaggedTensor) -> Tensor:
        """Joins every row of ids to its text; padding, start and end vanish, unknown is " ⁇ ".

        Args:
            ids: integers (N, None), ragged or dense, in [0, vocab_size).

        Returns:
            String tensor (N,), valid UTF-8.
        """
        import tensorflow as tf

        texts = self._sentencepiece().detokenize(ids)
        # A vocabulary of older versions may have no piece for a space, and spells it in bytes.
        texts = tf.strings.regex_replace(texts, SPACE_SYMBOL, " ")
        texts = tf.strings.regex_replace(texts, ESCAPE + "b", SPACE_SYMBOL)
        return tf.strings.regex_replace(texts, ESCAPE + "a", ESCAPE)

    def _sentencepiece(self):
        # Made in every call, so that a graph owns the resource it uses. One made outside dies with
        # TensorFlow's kernel cache, which tf.random.set_seed clears. In eager mode that cache
        # makes the second call free.
        import tensorflow_text as tf_text

        return tf_text.SentencepieceTokenizer(self.model)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the subwords of a list of ids as SentencePiece writes them: U+2581 is a space."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        return [processor.id_to_piece(int(i)) for i in ids]


def _as_tensor(texts):
    """Strings as a tensor (N,); lone surrogates, which TensorFlow refuses, become U+FFFD."""
    import tensorflow as tf

    if not tf.is_tensor(texts):
        texts = np.ravel(np.array(texts, object))
        texts = [without_surrogates(text) if isinstance(text, str) else text for text in texts]
    return tf.reshape(tf.convert_to_tensor(texts, tf.string), [-1])
