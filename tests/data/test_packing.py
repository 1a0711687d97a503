"""Windows of text: no token lost or counted twice, and a split that does not move."""

from collections import Counter

import numpy as np
import pytest

from keras_transformer.data.packing import PackedBatches, hold_out
from keras_transformer.data.special_tokens import END_ID

TEXTS = ["a dog runs", "", "the cat sleeps here today", "x", "a dog runs", "two big cats"]


def make(tokenizer, **options):
    return PackedBatches(TEXTS, tokenizer, **{"length": 4, "batch_size": 3, **options})


def tokens_of(tokenizer, text):
    return [*tokenizer.tokenize([text]).to_list()[0], END_ID]


def windows(batches, epoch=0):
    """Ids and labels of an epoch's windows, those that are empty left out."""
    pairs = [pair for ids, labels in batches.epoch(epoch) for pair in zip(ids, labels, strict=True)]
    return [(ids.tolist(), labels.tolist()) for ids, labels in pairs if labels.any()]


def joined(windows):
    """The stream that windows in this order were cut from."""
    return [token for _, labels in windows for token in labels if token]


@pytest.mark.parametrize("length, batch_size", [(4, 3), (5, 1), (1, 2), (100, 2)])
def test_labels_are_all_texts_one_after_another(tokenizer, length, batch_size):
    batches = make(tokenizer, length=length, batch_size=batch_size, shuffle=False)
    expected = [token for text in TEXTS for token in tokens_of(tokenizer, text)]
    assert joined(windows(batches)) == expected
    assert batches.num_tokens == len(expected)
    assert batches.num_windows == len(windows(batches)) == -(-len(expected) // length)


def test_ids_are_the_labels_moved_on_by_one_across_windows(tokenizer):
    found = windows(make(tokenizer, shuffle=False))
    stream = joined(found)
    ids = [token for row, labels in found for token in row[: np.count_nonzero(labels)]]
    assert ids == [END_ID, *stream[:-1]]


def test_shuffled_epochs_hold_each_text_whole_and_each_token_once(tokenizer):
    batches = make(tokenizer, length=3)
    plain = Counter(joined(windows(make(tokenizer, shuffle=False))))
    orders = []
    for epoch in range(4):
        found = windows(batches, epoch)
        assert Counter(joined(found)) == plain
        # The token before a window, its first id, puts the shuffled windows back in their order.
        assert Counter(row[0] for row, _ in found) <= plain + Counter([END_ID])
        pairs = Counter(
            (a, b) for row, labels in found for a, b in zip(row, labels, strict=True) if b
        )
        for text in set(TEXTS):
            text = tokens_of(tokenizer, text)
            inside = Counter(zip(text, text[1:], strict=False))
            assert all(pairs[pair] >= count for pair, count in inside.items())
        orders.append([row for row, _ in found])
    assert len({str(order) for order in orders}) == 4


def test_every_batch_has_one_shape_and_padding_only_at_the_end(tokenizer):
    batches = make(tokenizer, length=7, batch_size=4)
    found = list(batches.epoch(0))
    assert len(found) == batches.num_batches
    for ids, labels in found:
        assert ids.shape == labels.shape == (4, 7) and ids.dtype == labels.dtype == np.int32
        np.testing.assert_array_equal(ids != 0, labels != 0)
    missing = sum(np.count_nonzero(labels == 0) for _, labels in found)
    assert missing == batches.num_batches * 4 * 7 - batches.num_tokens


def test_an_epoch_is_a_function_of_seed_and_index_alone(tokenizer):
    batches, same, other = make(tokenizer), make(tokenizer), make(tokenizer, seed=1)
    assert windows(batches, 2) == windows(same, 2) == windows(batches, 2)
    assert windows(batches, 2) != windows(other, 2)


def test_a_stream_begins_at_any_step_and_goes_on_into_the_next_epoch(tokenizer):
    batches = make(tokenizer)
    expected = [*batches.epoch(1, first_step=1), *batches.epoch(2)]
    assert len(expected) == 2 * batches.num_batches - 1
    stream = batches.stream(1, 1).take(len(expected))
    for found, other in zip(stream, expected, strict=True):
        for a, b in zip(found, other, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)


def test_dataset_goes_on_to_the_next_epoch_with_static_shapes(tokenizer):
    batches = make(tokenizer)
    dataset = batches.dataset(first_epoch=1)
    assert dataset.cardinality() == batches.num_batches
    assert [spec.shape.as_list() for spec in dataset.element_spec] == [[3, 4], [3, 4]]
    for epoch in (1, 2):
        for found, expected in zip(dataset, batches.epoch(epoch), strict=True):
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize(
    "texts, options, message",
    [
        (["", ""], {}, "texts must hold some text, but are empty; give at least one word"),
        ([], {}, "texts must hold some text"),
        (["a"], {"length": 0}, "length must be an integer of at least 1, but is 0"),
        (["a"], {"seed": -1}, "seed must be an integer of at least 0, but is -1"),
        (["a"], {"batch_size": 2.0}, "batch_size must be an integer of at least 1, but is 2.0"),
    ],
)
def test_wrong_arguments_are_named(tokenizer, texts, options, message):
    with pytest.raises(ValueError, match=message):
        PackedBatches(texts, tokenizer, **options)


# Holding out.


def test_a_text_is_on_one_side_whatever_stands_beside_it():
    texts = [f"text {i}" for i in range(200)]
    train, held_out = hold_out(texts, share=0.1)
    assert sorted(train + held_out) == sorted(texts) and len(held_out) == 20
    shuffled = hold_out(np.random.default_rng(0).permutation(texts).tolist(), share=0.1)
    assert set(shuffled.held_out) == set(held_out)
    assert train == [text for text in texts if text in set(train)]  # in the order of the texts
    fewer = hold_out(texts[:100], share=0.1).held_out
    assert len(set(fewer) & set(held_out)) >= 5  # nearly all of them, where chance would have 1


def test_equal_texts_are_on_the_same_side():
    texts = [f"text {i % 7}" for i in range(70)]
    train, held_out = hold_out(texts, share=0.3)
    assert not set(train) & set(held_out) and len(held_out) == 20


@pytest.mark.parametrize("share", [1e-9, 1 - 1e-9])
def test_no_side_is_empty(share):
    train, held_out = hold_out(["a", "b"], share=share)
    assert sorted(train + held_out) == ["a", "b"] and len(train) == 1


@pytest.mark.parametrize(
    "texts, share, message",
    [
        (["a", "b"], 0, "share must be a number between 0 and 1, but is 0"),
        (["a", "b"], 1.0, "share must be a number between 0 and 1, but is 1.0"),
        (["a", "a"], 0.5, "two different texts or more, but there are 1; give more, or cut"),
    ],
)
def test_a_split_that_cannot_be_is_refused(texts, share, message):
    with pytest.raises(ValueError, match=message):
        hold_out(texts, share)


def test_texts_that_come_one_by_one_are_split_like_a_list():
    texts = ["a", "b", "a", "c", "d"]
    assert hold_out(iter(texts)) == hold_out(texts)


def test_what_is_no_list_of_strings_is_refused(tokenizer):
    for take in (hold_out, lambda texts: PackedBatches(texts, tokenizer)):
        with pytest.raises(TypeError, match=r"texts must be a list of strings, but is one: 'a b'"):
            take("a b")
        with pytest.raises(TypeError, match=r"texts\[1\] must be a string, but is None"):
            take(["a", None])
