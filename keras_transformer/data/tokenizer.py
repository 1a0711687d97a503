"""Strings to subword ids and back, in the graph."""

import io
import os

import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text

from keras_transformer.checks import check_positive_int, check_texts
from keras_transformer.data.corpus import read_lines
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID

# SentencePiece writes a space as U+2581 and cannot tell it from a typed one. A private character
# escapes the typed one: it becomes ESCAPE + "b", and a typed ESCAPE becomes ESCAPE + "a".
ESCAPE, SPACE_SYMBOL = "\ue000", "\u2581"
# In learning, it leaves out texts of over 4,192 bytes, and those that hold a character of its own.
LEARNT_CHARS, UNLEARNT = 1000, "\u2585"


class Tokenizer(tf.Module):
    """SentencePiece BPE with byte fallback: any text in, the same text out.

    Text is not normalized, runs of spaces are kept, and a character that training did not see is
    spelled in bytes, so no character is lost. Special tokens are ids only: a typed "</s>" is
    ordinary text. It runs as TensorFlow ops and becomes part of an exported SavedModel.

    Sennrich et al. (2016), "Neural Machine Translation of Rare Words with Subword Units"; Kudo and
    Richardson (2018), "SentencePiece".

    Args:
        model: a serialized SentencePiece model whose first ids are padding, unknown, start, end.

    Raises:
        ValueError: if the bytes are no such model.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs", "a dog sleeps"] * 9, vocab_size=300)
        >>> tokenizer.detokenize(tokenizer.tokenize(["a  dog"])).numpy().tolist()
        [b'a  dog']
    """

    def __init__(self, model: bytes):
        super().__init__(name="tokenizer")
        self.model = bytes(model)
        self.vocab_size = _check_model(self.model)

    @classmethod
    def train(cls, files, *, vocab_size: int = 8000) -> "Tokenizer":
        """Learns one vocabulary from text files, one sentence a line, `.gz` by suffix.

        Args:
            files: paths; give both languages for a shared vocabulary.
            vocab_size: the number of ids wanted; small text may yield fewer.

        Returns:
            A `Tokenizer`.

        Raises:
            ValueError: if a file cannot be read or `vocab_size` is too small.
        """
        files = [files] if isinstance(files, (str, os.PathLike)) else list(files)
        texts = (line for file in files for line in read_lines(file, errors="replace"))
        return cls.train_on_texts(texts, vocab_size=vocab_size)

    @classmethod
    def train_on_texts(cls, texts, *, vocab_size: int = 8000) -> "Tokenizer":
        """Learns one vocabulary from an iterable of strings; otherwise as `train`.

        Raises:
            ValueError: if `vocab_size` is too small.
            TypeError: if a text is no string.
        """
        check_positive_int("vocab_size", vocab_size)
        if isinstance(texts, (str, bytes)):
            check_texts("texts", texts)
        writer, failures = io.BytesIO(), []
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_keeping_failures(_parts_to_learn_from(texts), failures),
                model_writer=writer,
                model_type="bpe",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                num_threads=1,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            if failures:  # which SentencePiece has made a text of
                raise failures[0] from None
            reason = str(error).rpartition("] ")[2].partition(" Increase vocab_size")[0]
            reason = reason.rstrip(". ") or "there is no text"
            raise ValueError(
                f"No vocabulary of vocab_size={vocab_size} could be learnt: {reason}. It must "
                "hold 4 special tokens, 256 bytes and every frequent character, and there must be "
                "some text; use a larger vocab_size or more text."
            ) from error
        return cls(writer.getvalue())

    @classmethod
    def load(cls, path) -> "Tokenizer":
        """Reads a model that `save` or SentencePiece wrote.

        Raises:
            ValueError: if the file is no SentencePiece model with the special ids of this library.
            OSError: if it cannot be read.
        """
        with open(path, "rb") as file:
            return cls(file.read())

    def save(self, path) -> None:
        """Writes the model to one file, which SentencePiece's own tools read, too."""
        with open(path, "wb") as file:
            file.write(self.model)

    def tokenize(self, texts):
        """Subword ids of each text, no special ones among them.

        Args:
            texts: strings (N,), a tensor or a list. Bytes that are no UTF-8 become U+FFFD.

        Returns:
            Ragged tensor (N, None), int32.
        """
        texts = tf.reshape(tf.convert_to_tensor(texts, tf.string), [-1])
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        texts = tf.strings.regex_replace(texts, ESCAPE, ESCAPE + "a")
        texts = tf.strings.regex_replace(texts, SPACE_SYMBOL, ESCAPE + "b")
        return self._sentencepiece().tokenize(texts)

    def sample(self, texts, rate, seed) -> list[list[int]]:
        """Subword ids of each text, split at random: BPE-dropout.

        A model that has seen a word in several splits knows its parts better. Provilkov et al.
        (2020), "BPE-Dropout: Simple and Effective Subword Regularization".

        Args:
            texts: list of strings.
            rate: probability that a merge is left out at a place.
            seed: an integer; the same one gives the same ids.

        Returns:
            A list of lists of ids, no special ones among them.
        """
        sentencepiece.set_random_generator_seed(seed)
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        # Each call makes new threads, whose generators start from the seed.
        return processor.encode(
            [_escape(text) for text in texts],
            enable_sampling=True,
            alpha=rate,
            nbest_size=-1,
            num_threads=1,
        )

    def detokenize(self, ids):
        """The text of each row of ids; padding, start and end have none, unknown is " ⁇ ".

        Args:
            ids: integers (N, None), ragged or dense, in [0, vocab_size).

        Returns:
            String tensor (N,), valid UTF-8.
        """
        texts = self._sentencepiece().detokenize(ids)
        texts = tf.strings.regex_replace(texts, ESCAPE + "b", SPACE_SYMBOL)
        return tf.strings.regex_replace(texts, ESCAPE + "a", ESCAPE)

    def _sentencepiece(self):
        # Made anew each time, so that a graph owns the resource it uses: one made outside dies
        # with TensorFlow's kernel cache, which tf.random.set_seed clears. Eagerly the cache
        # itself makes the second one free.
        return tf_text.SentencepieceTokenizer(self.model)

    def pieces(self, ids) -> list[str]:
        """The subwords behind a list of ids, as SentencePiece writes them."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        return [processor.id_to_piece(int(i)) for i in ids]


def _parts_to_learn_from(texts):
    """The texts in parts of which SentencePiece leaves out none."""
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{i}] must be a string, but is {text!r}.")
        for known in _escape(text).split(UNLEARNT):
            for start in range(0, len(known), LEARNT_CHARS):
                part = known[start : start + LEARNT_CHARS]
                if part.strip():
                    yield part


def _keeping_failures(parts, failures):
    """The parts; an exception that stops them is added to the list `failures`."""
    try:
        yield from parts
    except Exception as error:
        failures.append(error)
        raise


def _escape(text: str) -> str:
    return text.replace(ESCAPE, ESCAPE + "a").replace(SPACE_SYMBOL, ESCAPE + "b")


def _check_model(model: bytes) -> int:
    """The vocabulary size of a serialized model; a ValueError if it does not fit."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(f"The tokenizer is no SentencePiece model: {error}") from error
    found = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    expected = [PAD_ID, UNK_ID, START_ID, END_ID]
    if found != expected:
        raise ValueError(
            f"The tokenizer's ids of padding, unknown, start and end are {found}, but must be "
            f"{expected}; train it with Tokenizer.train, or with SentencePiece and "
            "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3."
        )
    return processor.get_piece_size()
