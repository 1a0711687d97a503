"""What may follow inside a prefix, against a comparison of its text with each token's."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.beginning import Beginning, not_a_beginning
from keras_transformer.inference.prefixes import MOST_BYTES, SPACE, Prefixes

PIECES = [
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "<0x61>",
    "<0xE2>",
    "<0x96>",
    "<0x81>",
    "\u2581",
    "a",
    "b",
]
PIECES += [
    "ab",
    "abb",
    "ba",
    "\u2581a",
    "\u2581ab",
    "\u2581ba",
    "\u00e9",
    "<0xC3>",
    "<0xA9>",
    "bb\u00e9",
]


class SomePieces:
    vocab_size = len(PIECES)

    def pieces(self, ids):
        return [PIECES[i] for i in ids]


@pytest.fixture(scope="module")
def prefixes():
    return Prefixes(SomePieces())


def refused_after(prefixes, texts, ids):
    """Boolean (B, V) of texts (B,) and the tokens that are written of each, (B, L)."""
    spans = prefixes.spans(tf.constant(texts))
    beginning = Beginning(tf.zeros([len(texts), 0], tf.int32), spans)
    nothing = tf.zeros([len(PIECES) + 2], "bool")
    spelling = prefixes.spelling(len(PIECES) + 2)
    return np.array(not_a_beginning(beginning, spelling, ids, ids.shape[1], nothing))


def test_those_may_follow_that_spell_a_part_of_the_rest_or_all_of_it_and_more(prefixes):
    rng = np.random.default_rng(0)
    texts, ids, rests = [], np.zeros((300, 4), "int32"), []
    for row in ids:
        written = rng.choice(np.arange(4, len(PIECES)), rng.integers(0, 4))
        row[: len(written)] = written
        rest = "".join(rng.choice([*"ab", "\u2581", "\u00e9"], rng.integers(1, 5))).encode()
        texts.append(b"".join(prefixes.texts[i] for i in written) + rest)
        rests.append(rest)
    for rest, refused in zip(rests, refused_after(prefixes, texts, ids), strict=True):
        for token, text in enumerate([*prefixes.texts, b"", b""]):
            fits = text != b"" and (rest.startswith(text) or text.startswith(rest))
            assert refused[token] == (not fits), (rest, text)


def test_after_the_text_everything_may_follow_but_a_second_space(prefixes):
    texts = [b"ab", SPACE, b"", b"a" + SPACE]  # the last went beyond its space
    ids = np.array([[11, 0], [8, 0], [0, 0], [9, 14]], "int32")
    refused = refused_after(prefixes, texts, ids)
    assert not refused[[0, 2, 3]].any()
    begins = [text.startswith(SPACE) for text in [*prefixes.texts, b"", b""]]
    assert refused[1].tolist() == begins


def test_words_but_the_last_stay_in_their_pieces(prefixes):
    rows = [[14, 9, 16, 10], [9, 10, 8], [], [9] * 40, [14]]
    ids, texts = prefixes.split(tf.ragged.constant(rows, tf.int32, ragged_rank=1))
    assert ids.numpy()[:, :4].tolist() == [
        [14, 9, 0, 0],
        [9, 10, 0, 0],
        [0] * 4,
        [9] * 4,
        [0] * 4,
    ]
    expected = ["\u2581bab", "\u2581", "", "a" * MOST_BYTES, "\u2581a"]
    assert [text.decode() for text in texts.numpy()] == expected
    assert (ids.numpy()[3] > 0).sum() == 40 - MOST_BYTES


def test_prefixes_of_nothing_have_no_width(prefixes):
    assert prefixes.spans(tf.constant(["", ""])).shape == (2, 0, 2)
    assert prefixes.spans(tf.constant([], tf.string)).shape == (0, 0, 2)
    ids, texts = prefixes.split(tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [0, 0]))
    assert ids.shape == (2, 0) and texts.numpy().tolist() == [b"", b""]
