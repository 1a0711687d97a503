"""SentencePiece itself: learns a vocabulary and splits texts, without TensorFlow."""

import io
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, count, pairwise

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.checks import (
    check_number,
    check_positive_int,
    check_texts,
    without_surrogates,
)
from keras_transformer.data.blank_text import is_blank
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID
from keras_transformer.data.token_rows import TokenRows, take

# SentencePiece writes a space as U+2581 and cannot tell it from a typed one. A private character
# escapes the typed one: it becomes ESCAPE + "b", and a typed ESCAPE becomes ESCAPE + "a".
ESCAPE, SPACE_SYMBOL = "\ue000", "\u2581"
# The share of a text's characters that are subwords of their own.
COVERAGE = 0.9995
# Training skips texts of over 4,192 bytes, and texts that hold a character of SentencePiece's own.
LEARNT_CHARS, UNLEARNT = 1000, "\u2585"


def escape(text: str) -> str:
    """Returns a text as SentencePiece gets it: valid, and without its own sign for a space."""
    return (
        without_surrogates(text).replace(ESCAPE, ESCAPE + "a").replace(SPACE_SYMBOL, ESCAPE + "b")
    )


def unescape(text: str) -> str:
    """Returns what `escape` was given."""
    return text.replace(ESCAPE + "b", SPACE_SYMBOL).replace(ESCAPE + "a", ESCAPE)


def split_texts_into_ids(model: bytes, texts: Iterable[str]) -> TokenRows:
    """Splits texts as `Tokenizer.tokenize` does, into the same ids.

    Where no piece reaches over a space, each distinct word is split once: three times as fast.

    Args:
        model: the bytes of a SentencePiece model.
        texts: strings.
    """
    processor, texts = _processor(model), [escape(text) for text in texts]
    if not _keeps_words_apart(model):
        return _encoded(processor, texts)
    index = defaultdict(count().__next__)
    found, counts = [], [0]
    for text in texts:
        words = text.split(" ")
        words[0] = " " + words[0]  # marks a word without a space before it
        found += map(index.__getitem__, words)
        counts.append(len(words))
    words = _encoded(processor, [word[1:] if word[:1] == " " else " " + word for word in index])
    found = np.array(found, "int64")
    rows = take(words.values, words.offsets[found], words.lengths_of(found))
    return TokenRows(rows.values, rows.offsets[np.cumsum(counts)])


def _encoded(processor, texts) -> TokenRows:
    rows = processor.encode(texts, out_type=int, num_threads=1)
    offsets = np.append(0, np.cumsum([*map(len, rows)], dtype="int64"))
    return TokenRows(np.fromiter(chain.from_iterable(rows), "int32", offsets[-1]), offsets)


@lru_cache(4)
def _processor(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@lru_cache(4)
def _keeps_words_apart(model) -> bool:
    """Returns whether splitting a text is splitting its words, each with the space before it."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    changes, kind = proto.normalizer_spec, proto.trainer_spec
    is_kept = not (
        changes.precompiled_charsmap
        or changes.add_dummy_prefix
        or changes.remove_extra_whitespaces
        or kind.treat_whitespace_as_suffix
    )
    is_plain = changes.escape_whitespaces and kind.byte_fallback and kind.model_type == kind.BPE
    return is_kept and is_plain and not any(SPACE_SYMBOL in p.piece[1:] for p in proto.pieces)


def join_ids_to_texts(model: bytes, rows: TokenRows) -> list[str]:
    """Joins ids to the texts that they were split from, as `Tokenizer.detokenize` does."""
    ids = [rows.values[i:j].tolist() for i, j in pairwise(rows.offsets.tolist())]
    texts = _processor(model).decode(ids, num_threads=1) if ids else []
    return [unescape(text.replace(SPACE_SYMBOL, " ")) for text in texts]


def learn_model(texts, vocab_size: int, coverage: float = COVERAGE, user_symbols=()) -> bytes:
    """Learns a vocabulary; `Tokenizer.train_on_texts` says what the arguments are.

    Returns:
        The bytes of a SentencePiece model.
    """
    check_positive_int("vocab_size", vocab_size)
    check_number("coverage", coverage, float, "a number in (0, 1]", lambda x: 0 < x <= 1)
    symbols = _checked_symbols(user_symbols)
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
            required_chars=SPACE_SYMBOL,  # also of text with few spaces or none
            character_coverage=coverage,
            user_defined_symbols=symbols,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=START_ID,
            eos_id=END_ID,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        if failures:  # SentencePiece keeps only the text of an exception
            raise failures[0] from None
        raise ValueError(
            f"A vocabulary of vocab_size={vocab_size} could not be learnt: {_reason(error)}. It "
            "must hold 4 special tokens, 256 bytes and every frequent character, and there must be "
            "some text; use a larger vocab_size or more text."
        ) from error
    return writer.getvalue()


def _reason(error) -> str:
    """Says in words why SentencePiece could not learn."""
    if "sentences_.empty()" in str(error):
        return "there is no text"
    if found := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
        return f"the text needs at least {found[1]}"
    return str(error).rpartition("] ")[2].rstrip(". ") or "it is too small"


def _checked_symbols(symbols) -> list[str]:
    """Returns symbols as SentencePiece has them; raises if it could not keep one whole."""
    symbols = check_texts("user_symbols", symbols)
    for i, symbol in enumerate(symbols):
        if not symbol.strip() or symbol != symbol.strip():
            raise ValueError(
                f"user_symbols[{i}] must be text without spaces at its ends, but is {symbol!r}; "
                "leave them out."
            )
        if symbol in symbols[:i]:
            raise ValueError(f"user_symbols[{i}], {symbol!r}, is there twice; leave one out.")
        if "\0" in symbol:
            raise ValueError(
                f"user_symbols[{i}], {symbol!r}, has a NUL, which would cut it short; leave it out."
            )
        if re.fullmatch("<pad>|<unk>|</?s>|<0x[0-9A-F]{2}>", symbol):
            raise ValueError(
                f"user_symbols[{i}], {symbol!r}, is in every vocabulary; leave it out."
            )
    return [escape(symbol).replace(" ", SPACE_SYMBOL) for symbol in symbols]


def _parts_to_learn_from(texts):
    """Cuts the texts into parts that SentencePiece does not skip."""
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{i}] must be a string, but is {text!r}.")
        for known in escape(text).split(UNLEARNT):
            for start in range(0, len(known), LEARNT_CHARS):
                if not is_blank(part := known[start : start + LEARNT_CHARS]):
                    yield part


def _keeping_failures(parts, failures):
    """Yields the parts; adds an exception that stops them to the list `failures`."""
    try:
        yield from parts
    except Exception as error:
        failures.append(error)
        raise


def check_model(model: bytes) -> int:
    """Returns the vocabulary size of a serialized model; raises a ValueError if it does not fit."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(
            "The tokenizer is not a SentencePiece model; give a file that Tokenizer.save, "
            "keras-transformer tokenizer or SentencePiece has written."
        ) from error
    found = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    expected = [PAD_ID, UNK_ID, START_ID, END_ID]
    if found != expected:
        raise ValueError(
            f"The tokenizer's ids of padding, unknown, start and end are {found}, but must be "
            f"{expected}; train it with Tokenizer.train, or with SentencePiece and "
            "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3."
        )
    return processor.get_piece_size()
