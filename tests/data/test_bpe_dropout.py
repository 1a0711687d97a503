"""BPE-dropout against SentencePiece: the same ids without a drop, the same distribution with."""

import base64
import collections
import io
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from keras_transformer import Tokenizer
from keras_transformer.data.bpe_dropout import _rows
from keras_transformer.data.special_tokens import UNK_ID
from keras_transformer.data.subwords import split_texts_into_ids

SENTENCES = [
    "a small dog runs home through the rain",
    "two cats sleep on the warm roof, the cats and the dogs",
    "ein kleiner Hund läuft durch den Regen nach Hause",
    "der Zug in die Stadt fährt um zehn Uhr",
    "你好世界我们今天学习机器翻译 我们学习",
    "これは日本語の文章ですカタカナも漢字もあります",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "aaaa aaaaaaaa abababab",
]
SPECIAL = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}


def trained(**options):
    """The bytes of a model that SentencePiece has trained itself."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 9),
        model_writer=writer,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"model_type": "bpe", "vocab_size": 400, **SPECIAL, **options},
    )
    return writer.getvalue()


def changed(model, change):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    change(proto)
    return proto.SerializeToString()


def with_equal_scores(proto):
    for piece in proto.pieces:
        piece.score = float(np.round(piece.score / 40))


def with_unused_pieces(proto):
    for piece in proto.pieces[270::3]:
        if piece.type == piece.NORMAL and len(piece.piece) > 1:
            piece.type = piece.UNUSED


MODELS = {
    "own": lambda: Tokenizer.train_on_texts(SENTENCES * 9, vocab_size=500).model,
    "own with symbols": lambda: (
        Tokenizer.train_on_texts(
            SENTENCES * 9, vocab_size=500, user_symbols=["<sep>", "the", "ther", "s", "日本"]
        ).model
    ),
    "SentencePiece's defaults": lambda: trained(),
    "unknown characters": lambda: trained(character_coverage=0.98, vocab_size=200),
    "symbols": lambda: trained(user_defined_symbols=["<sep>", "the", "ther", "s", "ab a", "日本"]),
    "spaces in pieces": lambda: trained(split_by_whitespace=False, byte_fallback=True),
    "spaces at the end": lambda: trained(treat_whitespace_as_suffix=True),
    "runs of spaces": lambda: trained(
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True
    ),
    "equal scores": lambda: changed(MODELS["own"](), with_equal_scores),
    "unused pieces": lambda: changed(MODELS["own"](), with_unused_pieces),
}


@pytest.fixture(scope="module", params=MODELS)
def tokenizer(request):
    return Tokenizer(MODELS[request.param]())


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from("abthesр \u2581\ue000\n\t\0\u3000\ufeff\ufffd<>/日本Aé́1")),
    st.lists(
        st.sampled_from(["<sep>", "the", "ther", "s", "ab a", "日本", " ", "a", *SENTENCES])
    ).map("".join),
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(texts=st.lists(TEXT, max_size=6))
@example(
    texts=[*SENTENCES, "", " ", "  the  the ", "\udfff", "</s><unk><0x41>", "ther" * 30, "xyz 你"]
)
def test_rate_0_gives_the_ids_of_tokenize(tokenizer, texts):
    assert tokenizer.sample(texts, 0.0, 1) == tokenizer.tokenize(texts).to_list()
    rows = split_texts_into_ids(tokenizer.model, texts)  # in words, where that is the same
    assert [ids.tolist() for ids in np.split(rows.values, rows.offsets[1:])[:-1]] == (
        tokenizer.tokenize(texts).to_list()
    )


@settings(derandomize=True, deadline=None, max_examples=30)
@given(texts=st.lists(TEXT, max_size=6), rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
@example(texts=[*SENTENCES, "", " ", "  the  the ", "\udfff", "ther" * 30, "xyz 你"], rate=0.3)
@example(texts=["日本é", "<sep>s", "\U0001f600\U0001f600é"], rate=0.5)
def test_ids_are_split_as_their_text_is(tokenizer, texts, rate):
    plain, sampler = tokenizer.sample(texts, 0.0, 1), tokenizer.bpe_dropout
    rows = _rows(plain)
    if sampler.has_unused:
        with pytest.raises(ValueError, match="needs a vocabulary without unused pieces; train"):
            sampler.sample_ids(rows, rate, 7)
        return
    found = sampler.sample_ids(rows, rate, 7)
    if UNK_ID in rows.values:  # one id may stand for several characters
        assert len(found.offsets) == len(rows.offsets)
        assert (found.values == UNK_ID).sum() == (rows.values == UNK_ID).sum()
        return
    expected = sampler.sample(tokenizer.words(texts), rate, 7)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.offsets, expected.offsets)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=20)
@given(texts=st.lists(TEXT, max_size=4), seed=st.integers(0, 9))
@example(texts=[*SENTENCES, " the  日本<sep>", "xyz 你"], seed=0)
def test_rate_1_gives_characters_and_others_the_same_text(tokenizer, texts, seed):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    escaped = [text.replace("\ue000", "\ue000a").replace("\u2581", "\ue000b") for text in texts]
    sampling = {"enable_sampling": True, "alpha": 1.0, "nbest_size": -1, "num_threads": 1}
    assert tokenizer.sample(texts, 1.0, seed) == processor.encode(escaped, **sampling)
    for ids, plain in zip(
        tokenizer.sample(texts, 0.5, seed), tokenizer.tokenize(texts).to_list(), strict=True
    ):
        assert processor.decode(ids) == processor.decode(plain)


@pytest.mark.parametrize("rate", [0.1, 0.6])
@pytest.mark.parametrize("text", ["through the rain", "abababab", "我们今天学习机器翻译"])
def test_the_distribution_is_that_of_sentencepiece(text, rate):
    """Each split is as frequent as there, up to five standard deviations."""
    draws = 8000
    tokenizer = Tokenizer(MODELS["own"]())
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    sampling = {"enable_sampling": True, "alpha": rate, "nbest_size": -1, "num_threads": 1}
    theirs = processor.encode([text] * draws, **sampling)
    counts = [
        collections.Counter(map(tuple, ids))
        for ids in (tokenizer.sample([text] * draws, rate, 0), theirs)
    ]
    for split in counts[0] | counts[1]:
        mine, other = (count[split] for count in counts)
        assert abs(mine - other) <= 5 * np.sqrt(mine + other) + 3, split


FRESH_PROCESS = """
import base64, json, sys
from keras_transformer.data.bpe_dropout import BpeDropout

request = json.load(sys.stdin)
dropout = BpeDropout(base64.b64decode(request["model"]))
words = dropout.words(request["texts"])
rows = [dropout.sample(words, 0.3, seed) for seed in range(2)]
assert "tensorflow" not in sys.modules
print(json.dumps([[r.values.tolist(), r.offsets.tolist()] for r in rows]))
"""


def test_a_fresh_process_draws_the_same():
    model = MODELS["own"]()
    request = {"model": base64.b64encode(model).decode(), "texts": SENTENCES}
    process = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS],
        input=json.dumps(request),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    for seed, (values, offsets) in enumerate(json.loads(process.stdout)):
        ids = Tokenizer(model).sample(SENTENCES, 0.3, seed)
        assert ids == [values[i:j] for i, j in zip(offsets[:-1], offsets[1:], strict=True)]


def test_words_are_drawn_again_without_a_change(tokenizer):
    words = tokenizer.words(SENTENCES)
    first, other, again = (tokenizer.bpe_dropout.sample(words, 0.4, seed) for seed in (0, 1, 0))
    np.testing.assert_array_equal(first.values, again.values)
    assert first.values.tolist() != other.values.tolist()


def test_no_text_has_no_ids(tokenizer):
    assert tokenizer.sample([], 0.5, 1) == []
    assert tokenizer.sample(["", ""], 0.5, 1) == [[], []]


def test_a_long_text_without_spaces_takes_no_longer_than_its_parts():
    tokenizer = Tokenizer(MODELS["own"]())
    text = "我们今天学习机器翻译" * 3000
    start = time.process_time()
    ids = tokenizer.sample([text, "ab" * 2000], 0.1, 0)
    assert time.process_time() - start < 10
    assert "".join(tokenizer.pieces(ids[0])) == text


@pytest.mark.parametrize("kind", ["unigram", "char"])
def test_another_type_of_model_is_refused(kind):
    tokenizer = Tokenizer(trained(model_type=kind, vocab_size=90))
    message = f"needs a SentencePiece model of the type BPE, but .* {kind.upper()}; train it"
    with pytest.raises(ValueError, match=message):
        tokenizer.sample(["a"], 0.1, 0)


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan"), "0.1"])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match=r"rate must be a number in \[0, 1\], but is"):
        Tokenizer(MODELS["own"]()).sample(["a"], rate, 0)
