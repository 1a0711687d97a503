"""Which words belong together: pieces to words, attention to pairs."""

import numpy as np
import pytest

from keras_transformer.inference.word_alignment import pharaoh, word_of_each, word_pairs


@pytest.mark.parametrize(
    "pieces, words",
    [
        (["a", "▁do", "g", "</s>"], [0, 1, 1, -1]),
        (["▁a", "▁", "dog", "▁▁", "runs"], [0, -1, 1, -1, 2]),
        (["▁", "<0xF0>", "<0x9F>", "▁x"], [-1, 0, 0, 1]),
        (["</s>"], [-1]),
        ([], []),
    ],
)
def test_words_are_what_spaces_separate(pieces, words):
    assert word_of_each(pieces) == words


def test_a_word_attends_with_all_of_its_pieces():
    source, target = ["▁the", "▁d", "og", "</s>"], ["▁H", "und", "▁der", "</s>"]
    attention = np.array(
        [[0.5, 0.3, 0.2, 0], [0.2, 0.1, 0.3, 0.4], [0.3, 0.1, 0.1, 0.5], [0, 0, 0, 1]]
    )
    assert word_pairs(attention, source, target) == [(0, 1), (1, 0)]
    assert pharaoh([(0, 1), (1, 0)]) == "0-1 1-0"


def test_nothing_belongs_to_nothing():
    assert word_pairs(np.zeros((0, 1)), ["</s>"], []) == []
    assert word_pairs(np.ones((1, 1)), ["</s>"], ["▁x"]) == []
    assert word_pairs(np.ones((1, 2)), ["▁x", "</s>"], ["</s>"]) == []
