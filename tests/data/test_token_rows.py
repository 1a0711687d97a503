import numpy as np
import pytest

from keras_transformer.data.token_rows import TokenPairs, TokenRows, tokenize_rows

TEXTS = ["a dog", "", "the", "two cats sleep", "a"]


def take(*rows):
    offsets = np.cumsum([0, *map(len, rows)])
    return TokenRows(np.concatenate([*rows, []]).astype("int32"), offsets)


def test_token_rows_are_read_across_chunks(tokenizer, monkeypatch):
    monkeypatch.setattr("keras_transformer.data.token_rows.TOKENIZE_CHUNK", 2)
    rows = tokenize_rows(TEXTS, tokenizer)
    expected = tokenizer.tokenize(TEXTS).to_list()
    assert rows.lengths.tolist() == [len(ids) for ids in expected]
    padded = rows.padded(np.arange(5), 40).tolist()
    assert padded == [ids + [0] * (40 - len(ids)) for ids in expected]


def test_rows_are_taken_in_any_order():
    rows = take([4, 5], [], [6], [7, 8, 9], [4])
    assert rows.padded([3, 0, 1, 4], 3).tolist() == [[7, 8, 9], [4, 5, 0], [0, 0, 0], [4, 0, 0]]


@pytest.mark.parametrize("count", [0, 2])
def test_token_rows_of_nothing_are_padding(count):
    rows = take(*[[]] * 2)
    assert rows.padded(list(range(count)), 2).tolist() == [[0, 0]] * count


def test_a_pair_is_as_long_as_its_longer_side_and_the_end():
    pairs = TokenPairs(take([4, 5], [], [6]), take([7], [8], [4, 4, 4]))
    assert pairs.lengths.tolist() == [3, 2, 4]
