import gzip
import io

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_transformer import Tokenizer
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID
from keras_transformer.data.text_lines import CorpusError

SENTENCES = [
    "a small dog runs home through the rain",
    "two cats sleep on the warm roof",
    "the train to the city leaves at ten",
    "she reads a long letter in the garden",
    "nobody knows where the old boat went",
    "ein kleiner Hund läuft durch den Regen nach Hause",
    "zwei Katzen schlafen auf dem warmen Dach",
    "der Zug in die Stadt fährt um zehn Uhr",
    "sie liest im Garten einen langen Brief",
    "niemand weiß, wo das alte Boot geblieben ist",
]
VOCAB_SIZE = 340
FIXED = settings(derandomize=True, deadline=None, max_examples=200)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Also much of what has a meaning for SentencePiece or for the escapes.
AWKWARD_TEXT = st.text(
    st.sampled_from("ab \u2581\ue000\n\t\0\r\u2028\u3000\u00a0\ufeff\ufffd\uffff<>/sx0")
)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train_on_texts(SENTENCES, vocab_size=VOCAB_SIZE)


def ids_of(tokenizer, texts):
    return tokenizer.tokenize(texts).to_list()


def round_trip(tokenizer, texts):
    return [text.decode() for text in tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()]


# Any text


@FIXED
@given(st.lists(ANY_TEXT | AWKWARD_TEXT, max_size=4))
@example(["  leading", "trailing  ", "a   b", "   ", ""])
@example(["\u2581", "a\u2581b", " \u2581 ", "\u2581\u2581"])
@example(["\ue000", "\ue000a", "\ue000b", "\ue000\u2581", "\ue000\ue000ab"])
@example(["line\nline\r\n", "\t", "a\0b", "\0", "\ufeffBOM", "\ufffe\uffff"])
@example(["👩‍👩‍👧‍👦 🇩🇪", "日本語", "עִבְרִית", "e\u0301 é ﬁ Ａ ①", "\U0010ffff"])
def test_every_text_comes_back_as_it_was(tokenizer, texts):
    assert round_trip(tokenizer, texts) == texts


@FIXED
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=4))
@example([b"gr\xfcn", b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x96"])
def test_any_bytes_give_ids_and_valid_utf8(tokenizer, texts):
    ids = tokenizer.tokenize(texts)
    for text, result in zip(texts, tokenizer.detokenize(ids).numpy(), strict=True):
        is_utf8 = text.decode(errors="ignore").encode() == text
        assert result == text if is_utf8 else "\ufffd" in result.decode()
    assert ids.flat_values.numpy().max(initial=END_ID + 1) < tokenizer.vocab_size


@FIXED
@given(st.lists(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=8), min_size=1, max_size=4))
def test_any_ids_give_valid_utf8(tokenizer, ids):
    texts = tokenizer.detokenize(tf.ragged.constant(ids, tf.int32, ragged_rank=1)).numpy()
    assert [text.decode() for text in texts]


@FIXED
@given(st.lists(ANY_TEXT | AWKWARD_TEXT, min_size=1, max_size=4))
@example(["</s>", "<s>", "<pad>", "<unk>", " </s> a", "a</s>", "<s></s><pad><unk>"])
@example(["<0x41>", "▁", " ⁇ "])
def test_no_text_spells_a_special_token(tokenizer, texts):
    ids = tokenizer.tokenize(texts).flat_values.numpy()
    assert not set(ids.tolist()) & {PAD_ID, UNK_ID, START_ID, END_ID}
    assert np.all((ids >= 0) & (ids < tokenizer.vocab_size))


def test_typed_bytes_and_special_tokens_stay_text(tokenizer):
    typed = ["<0x41>", "</s>", "a <s> b", "<unk>"]
    assert round_trip(tokenizer, typed) == typed


def test_padding_start_and_end_have_no_text_and_unknown_is_a_sign(tokenizer):
    (ids,) = ids_of(tokenizer, ["a small dog"])
    dense = [[START_ID, *ids, END_ID, PAD_ID, PAD_ID], [PAD_ID] * (len(ids) + 4)]
    assert tokenizer.detokenize(dense).numpy().tolist() == [b"a small dog", b""]
    assert tokenizer.detokenize([[UNK_ID]]).numpy()[0].decode() == " \u2047 "


def test_pieces_show_the_subwords(tokenizer):
    (ids,) = ids_of(tokenizer, ["the dog"])
    assert "".join(tokenizer.pieces(ids)).replace("\u2581", " ") == "the dog"
    assert tokenizer.pieces([PAD_ID, UNK_ID, START_ID, END_ID]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_words_of_the_training_text_are_short(tokenizer):
    lengths = [len(ids) for ids in ids_of(tokenizer, SENTENCES)]
    assert sum(lengths) < sum(map(len, SENTENCES)) * 0.8


def test_characters_that_need_an_escape_are_learnt_like_others():
    trained = Tokenizer.train_on_texts(["x\u2581y\ue000z"] * 9, vocab_size=300)
    (ids,) = ids_of(trained, ["x\u2581y\ue000z"])
    assert len(ids) <= 5
    assert round_trip(trained, ["x\u2581y\ue000z"]) == ["x\u2581y\ue000z"]


# Spaces and texts of every corpus

SCRIPTS = {
    "Chinese": "你好世界我们今天学习机器翻译",
    "Japanese": "これは日本語の文章ですカタカナも漢字もあります",
    "Thai": "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "Arabic": "اللغةالعربيةجميلة",
    "emoji": "👩‍👩‍👧‍👦🇩🇪❤️😀🏽",
    "digits": "0123456789",
    "one character": "x",
    "a symbol for the space": "\u2581",
    "the escape": "\ue000b\ue000a",
}
# As they are written anywhere, whatever the vocabulary has learnt.
TEXTS = [
    "iPhone 15",
    " a",
    "a ",
    "  a   b  ",
    " ",
    "   ",
    "\t",
    "a\tb \t",
    "\u00a0 \u00a0",
    "\u2581",
]
TEXTS += [
    "\u2581 \u2581",
    " \u2581",
    "\ue000b",
    "\ue000 b",
    "\0 \x01",
    "",
    "x",
    "你 好",
    "\u200b \ufeff",
]


@pytest.mark.parametrize("vocab_size", [310, 8000])
@pytest.mark.parametrize("script", SCRIPTS)
def test_spaces_come_back_from_a_vocabulary_without_any(script, vocab_size):
    trained = Tokenizer.train_on_texts([SCRIPTS[script]] * 20, vocab_size=vocab_size)
    texts = [*TEXTS, *SCRIPTS.values(), " ".join(SCRIPTS.values())]
    assert round_trip(trained, texts) == texts
    assert [len(ids) for ids in ids_of(trained, [" ", "  "])] == [1, 2]  # pieces, not bytes
    rows = tf.ragged.constant(trained.sample(texts, 0.5, 1), tf.int32, ragged_rank=1)
    assert [text.decode() for text in trained.detokenize(rows).numpy()] == texts


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.lists(
        ANY_TEXT | AWKWARD_TEXT | st.sampled_from([*SCRIPTS.values()]), min_size=1, max_size=6
    ),
    st.lists(ANY_TEXT | AWKWARD_TEXT, max_size=6),
    st.sampled_from([400, 1000]),
)
def test_every_text_comes_back_from_every_corpus(corpus, texts, vocab_size):
    trained = Tokenizer.train_on_texts([*corpus, "x"], vocab_size=vocab_size)
    assert round_trip(trained, [*corpus, *texts]) == [*corpus, *texts]


def test_a_vocabulary_of_an_older_version_spells_spaces_in_bytes():
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["你好世界"] * 20),
        model_writer=writer,
        model_type="bpe",
        vocab_size=320,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        **{"remove_extra_whitespaces": False, "add_dummy_prefix": False, "minloglevel": 2},
        **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
    )
    older = Tokenizer(writer.getvalue())
    assert older.tokenize([" "]).row_lengths().numpy().tolist() == [3]
    assert round_trip(older, TEXTS) == TEXTS


@pytest.mark.parametrize(
    "texts, expected",
    [
        (["a \ud800 b", "c"], ["a \ufffd b", "c"]),
        ("\udfff", ["\ufffd"]),
        (["\ud83d\ude00", b"\xff"], ["\ufffd\ufffd", "\ufffd"]),
        (np.array(["\ud800", "b"]), ["\ufffd", "b"]),
    ],
)
def test_a_lone_surrogate_is_a_replacement_character(tokenizer, texts, expected):
    assert round_trip(tokenizer, texts) == expected
    texts = [text for text in ([texts] if isinstance(texts, str) else texts) if text != b"\xff"]
    rows = tf.ragged.constant(tokenizer.sample(texts, 0.0, 1), tf.int32, ragged_rank=1)
    assert [text.decode() for text in tokenizer.detokenize(rows).numpy()] == expected[: len(texts)]


def test_lone_surrogates_are_learnt_as_replacement_characters():
    trained = Tokenizer.train_on_texts(["a\ud800b"] * 9, vocab_size=300)
    assert len(ids_of(trained, ["a\ufffdb"])[0]) == 3  # a piece each, no bytes


# Shapes and graphs


def test_a_single_string_and_no_string_are_batches(tokenizer):
    assert ids_of(tokenizer, "a dog") == ids_of(tokenizer, ["a dog"])
    assert ids_of(tokenizer, []) == []
    assert tokenizer.tokenize(["a"]).dtype == tf.int32
    assert tokenizer.detokenize(tf.zeros([0, 3], tf.int32)).shape == (0,)


def test_a_graph_gives_the_same_ids_and_texts(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def graph(texts):
        ids = tokenizer.tokenize(texts)
        return ids, tokenizer.detokenize(ids)

    for texts in (SENTENCES, ["\u2581\ue000  x"], []):
        ids, result = graph(tf.constant(texts, tf.string))
        assert ids.to_list() == ids_of(tokenizer, texts)
        assert [text.decode() for text in result.numpy()] == texts


# Files


def test_a_saved_tokenizer_loads_with_the_same_ids(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.model")
    loaded = Tokenizer.load(tmp_path / "tokenizer.model")
    texts = [*SENTENCES, "unseen ж \u2581 \ue000"]
    assert loaded.vocab_size == tokenizer.vocab_size
    assert ids_of(loaded, texts) == ids_of(tokenizer, texts)
    sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))


def test_plain_and_gzipped_files_train_what_their_lines_train(tokenizer, tmp_path):
    plain, zipped = tmp_path / "text.en", tmp_path / "text.de.gz"
    plain.write_text("\n".join(SENTENCES[:5]) + "\n\n", encoding="utf-8")
    zipped.write_bytes(gzip.compress("\n".join(SENTENCES[5:]).encode()))
    trained = Tokenizer.train([plain, str(zipped)], vocab_size=VOCAB_SIZE)
    assert ids_of(trained, SENTENCES) == ids_of(tokenizer, SENTENCES)
    alone = Tokenizer.train(zipped, vocab_size=VOCAB_SIZE)
    assert round_trip(alone, SENTENCES) == SENTENCES


def test_training_is_repeatable(tokenizer):
    assert Tokenizer.train_on_texts(SENTENCES, vocab_size=VOCAB_SIZE).model == tokenizer.model


def test_the_vocabulary_has_the_size_asked_for_or_less_on_little_text(tokenizer):
    assert tokenizer.vocab_size == VOCAB_SIZE
    assert Tokenizer.train_on_texts(SENTENCES, vocab_size=310).vocab_size == 310
    little = Tokenizer.train_on_texts(["a dog runs"], vocab_size=8000)
    assert 260 < little.vocab_size < 300
    assert round_trip(little, ["another dog"]) == ["another dog"]


# Errors


@pytest.mark.parametrize("vocab_size", [1, 10, 262])
def test_a_vocabulary_that_is_too_small_is_refused(vocab_size):
    with pytest.raises(ValueError, match=f"vocab_size={vocab_size!r}.*use a larger vocab_size"):
        Tokenizer.train_on_texts(SENTENCES, vocab_size=vocab_size)


@pytest.mark.parametrize("vocab_size", [0, -1, 300.0, "300", True])
def test_a_size_that_is_none_is_refused(vocab_size):
    message = f"vocab_size must be an integer of at least 1, but is {vocab_size!r}"
    with pytest.raises(ValueError, match=message):
        Tokenizer.train_on_texts(SENTENCES, vocab_size=vocab_size)


def test_what_is_no_list_of_strings_is_refused():
    with pytest.raises(TypeError, match="texts must be a list of strings, but is one: 'a dog'"):
        Tokenizer.train_on_texts("a dog", vocab_size=300)
    with pytest.raises(TypeError, match=r"texts\[1\] must be a string, but is None"):
        Tokenizer.train_on_texts(iter(["a dog", None]), vocab_size=300)


@pytest.mark.parametrize("texts", [[], ["", "  ", "\n"]])
def test_no_text_is_refused(texts):
    with pytest.raises(
        ValueError, match="could not be learnt: there is no text.*must be some text"
    ):
        Tokenizer.train_on_texts(texts, vocab_size=300)


def test_a_vocabulary_that_is_too_small_says_what_is_needed():
    for size, reason in ((3, "it is too small"), (250, r"the text needs at least \d+")):
        with pytest.raises(ValueError, match=f"vocab_size={size} could not be learnt: {reason}"):
            Tokenizer.train_on_texts(SENTENCES, vocab_size=size)


@pytest.mark.parametrize("garbage", [b"garbage", b"\x00" * 50, b"\xff" * 50])
def test_bytes_that_are_no_model_are_refused(garbage):
    with pytest.raises(ValueError, match="The tokenizer is not a SentencePiece model"):
        Tokenizer(garbage)


def test_a_model_of_other_special_ids_is_refused():
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=writer, vocab_size=60, minloglevel=2
    )
    with pytest.raises(ValueError, match=r"are \[-1, 0, 1, 2\], but must be \[0, 1, 2, 3\]"):
        Tokenizer(writer.getvalue())
    with pytest.raises(ValueError, match=r"are \[-1, -1, -1, -1\], but must be"):
        Tokenizer(b"")  # to SentencePiece a model of nothing


def test_a_missing_file_is_named(tmp_path):
    there = tmp_path / "there.en"
    there.write_text("a dog runs\n")
    for files in (tmp_path / "missing.en", [there, tmp_path / "missing.en"]):
        with pytest.raises(CorpusError, match="missing.en: cannot be read.*check the path"):
            Tokenizer.train(files, vocab_size=300)
    with pytest.raises(FileNotFoundError, match="missing.model"):
        Tokenizer.load(tmp_path / "missing.model")


# BPE-dropout


def test_a_sampled_split_is_of_the_same_text(tokenizer):
    texts = ["a small dog runs home", "zwei große Katzen", "", "x \u2581 \ue000 y"]
    for seed in range(5):
        ids = tokenizer.sample(texts, 0.5, seed)
        rows = tf.ragged.constant(ids, dtype=tf.int32)
        shown = [text.decode() for text in tokenizer.detokenize(rows).numpy()]
        assert shown == texts


def test_splits_differ_between_seeds_and_texts_are_split_finer_the_higher_the_rate(tokenizer):
    texts = ["a small dog runs home"] * 50
    assert tokenizer.sample(texts, 0.3, 1) == tokenizer.sample(texts, 0.3, 1)
    assert tokenizer.sample(texts, 0.3, 1) != tokenizer.sample(texts, 0.3, 2)
    assert len({tuple(ids) for ids in tokenizer.sample(texts, 0.3, 1)}) > 1
    plain = tokenizer.tokenize(texts).to_list()
    low, high = (sum(map(len, tokenizer.sample(texts, rate, 1))) for rate in (0.1, 0.6))
    assert sum(map(len, plain)) < low < high
    assert tokenizer.sample(texts, 0.0, 1) == plain


def test_texts_with_a_character_that_sentencepiece_reserves_are_learnt_from():
    plain = Tokenizer.train_on_texts(["the elephant sleeps"] * 50, vocab_size=400)
    reserved = Tokenizer.train_on_texts(["\u2585the elephant sleeps\u2585"] * 50, vocab_size=400)
    assert len(reserved.tokenize(["elephant"])[0]) == len(plain.tokenize(["elephant"])[0]) < 4
    assert round_trip(reserved, ["\u2585 elephant"]) == ["\u2585 elephant"]


def test_a_long_text_is_learnt_like_its_sentences():
    words = ["weather", "station", "measures", "rain"] * 300
    long = Tokenizer.train_on_texts([" ".join(words)], vocab_size=290)
    short = Tokenizer.train_on_texts([" ".join(words[:4])] * 300, vocab_size=290)
    text = ["the station measures weather"]
    assert len(long.tokenize(text)[0]) == len(short.tokenize(text)[0]) < 15
