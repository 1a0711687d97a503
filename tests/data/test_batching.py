import hashlib
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data import pair_batches
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.pair_batches import bucket_widths
from keras_transformer.data.shares import Share
from keras_transformer.data.tokenizer import Tokenizer

START, END = 2, 3
FIXED = settings(derandomize=True, deadline=None, max_examples=100)


class NumberTokenizer:
    """Reads "7 12" as the ids 7 and 12."""

    def tokenize(self, texts):
        pieces = tf.strings.split(tf.constant(list(texts), tf.string, shape=[len(texts)]))
        return tf.strings.to_number(pieces, tf.int32)


def text_of(ids):
    return " ".join(map(str, ids))


def random_pairs(count, longest=20, seed=0):
    """Aligned lists of ids, each pair known by its first source token."""
    rng = np.random.default_rng(seed)

    def ids():
        return rng.integers(4, 1000, rng.integers(0, longest)).tolist()

    return [((1000 + i, *ids()), tuple(ids())) for i in range(count)]


def batches_of(pairs, **kwargs):
    sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
    texts = [text_of(ids) for ids in sources], [text_of(ids) for ids in targets]
    return TokenBatches(*texts, NumberTokenizer(), **kwargs)


def unpadded(row):
    return tuple(row[row != 0].tolist())


def pairs_in(batches):
    """The pairs in the order of the batches, with the shift between inputs and labels checked."""
    pairs = []
    for (source_ids, target_ids), labels in batches:
        for source, target, label in zip(source_ids, target_ids, labels, strict=True):
            source, target, label = unpadded(source), unpadded(target), unpadded(label)
            if source == target == label == ():
                continue
            assert target[0] == START and label[-1] == END and source[-1] == END
            assert target[1:] == label[:-1]
            pairs.append((source[:-1], label[:-1]))
    return pairs


def assert_equal_batches(actual, expected):
    actual, expected = list(actual), list(expected)
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
            np.testing.assert_array_equal(x, y)


# Widths


def padding_of(lengths, widths):
    return sum(min(w for w in widths if w >= length) - length for length in lengths)


@FIXED
@given(st.lists(st.integers(1, 15), min_size=1, max_size=20), st.integers(1, 5))
def test_no_other_widths_pad_less(lengths, num_buckets):
    widths = bucket_widths(lengths, num_buckets)
    assert widths == sorted(set(widths))
    assert len(widths) <= num_buckets and widths[-1] == max(lengths)
    shorter = sorted(set(lengths))[:-1]
    least = min(
        padding_of(lengths, [*chosen, max(lengths)])
        for count in range(num_buckets)
        for chosen in itertools.combinations(shorter, count)
    )
    assert padding_of(lengths, widths) == least


def test_hand_worked_widths():
    # One bucket pads 8 + 8 + 8 + 7 + 1 = 32, [3, 10] only 1 + 1 + 1 + 1 = 4.
    assert bucket_widths([2, 2, 2, 3, 9, 10], 2) == [3, 10]
    assert bucket_widths([5] * 9, 4) == [5]
    assert bucket_widths([3, 1, 2], 9) == [1, 2, 3]


# Content


@settings(FIXED, max_examples=30)
@given(
    count=st.integers(1, 120),
    batch_tokens=st.integers(1, 400),
    num_buckets=st.integers(1, 5),
    shuffle=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_pair_appears_exactly_once_an_epoch(count, batch_tokens, num_buckets, shuffle, seed):
    pairs = random_pairs(count, seed=seed)
    sizes = {"batch_tokens": batch_tokens, "num_buckets": num_buckets}
    batches = batches_of(pairs, shuffle=shuffle, seed=seed, **sizes)
    for epoch in (0, 1):
        assert sorted(pairs_in(batches.epoch(epoch))) == sorted(pairs)


def test_a_batch_by_hand():
    pairs = [((7, 8, 9), (5,)), ((6,), (4, 5))]
    batches = batches_of(pairs, shuffle=False, batch_tokens=8, num_buckets=1)
    (((source_ids, target_ids), labels),) = batches.epoch(0)
    assert source_ids[:2].tolist() == [[7, 8, 9, END], [6, END, 0, 0]]
    assert target_ids[:2].tolist() == [[START, 5, 0, 0], [START, 4, 5, 0]]
    assert labels[:2].tolist() == [[5, END, 0, 0], [4, 5, END, 0]]
    assert source_ids.shape == (8, 4)
    assert not source_ids[2:].any() and not target_ids[2:].any() and not labels[2:].any()


def test_empty_rows_are_nothing_but_padding_and_come_after_the_real_ones():
    batches = batches_of(random_pairs(83), batch_tokens=200)
    num_rows = 0
    for (source_ids, target_ids), labels in batches.epoch(0):
        real = (labels != 0).any(1)
        num_rows += real.sum()
        assert real.tolist() == sorted(real.tolist(), reverse=True)
        assert not source_ids[~real].any() and not target_ids[~real].any()
    assert num_rows == 83


def test_num_target_tokens_counts_the_labels():
    batches = batches_of(random_pairs(70), max_pair_length=12)
    assert batches.num_too_long > 0
    counted = sum(int((labels != 0).sum()) for _, labels in batches.epoch(3))
    assert batches.num_target_tokens == counted


def test_an_empty_side_is_only_its_end():
    pairs = [((7,), ()), ((8, 9), ())]
    batches = batches_of(pairs, shuffle=False, num_buckets=1)
    (((source_ids, target_ids), labels),) = batches.epoch(0)
    assert source_ids[:2].tolist() == [[7, END, 0], [8, 9, END]]
    assert target_ids[:2].tolist() == [[START, 0, 0]] * 2
    assert labels[:2].tolist() == [[END, 0, 0]] * 2


# Shapes


@pytest.mark.parametrize("batch_tokens", [100, 256, 1000])
def test_shapes_are_few_static_and_near_the_budget(batch_tokens):
    batches = batches_of(random_pairs(500, longest=40), batch_tokens=batch_tokens, num_buckets=4)
    shapes = set()
    for epoch in range(3):
        for (source_ids, target_ids), labels in batches.epoch(epoch):
            assert source_ids.shape == target_ids.shape == labels.shape
            assert source_ids.dtype == target_ids.dtype == labels.dtype == "int32"
            shapes.add(labels.shape)
    assert len(shapes) <= 4
    assert {width for _, width in shapes} <= set(batches.widths)
    for height, width in shapes:
        assert height % 8 == 0  # so that 2, 4 or 8 devices get equal shares
        assert height * width <= batch_tokens or height == 8
        assert (height + 8) * width > batch_tokens


def test_more_buckets_pad_less():
    pairs = random_pairs(1000, longest=40)
    one, eight = (
        sum(
            labels.size for _, labels in batches_of(pairs, num_buckets=n, batch_tokens=400).epoch(0)
        )
        for n in (1, 8)
    )
    assert eight < 0.85 * one


def test_a_pair_of_max_pair_length_is_kept_and_a_longer_one_is_left_out_and_counted():
    kept = [((7,) * 4, (8,)), ((7,), (8,) * 4)]  # 5 with the end token
    dropped = [((7,) * 5, (8,)), ((7,), (8,) * 5), ((7,) * 9, (8,) * 9)]
    batches = batches_of([dropped[0], kept[0], *dropped[1:], kept[1]], max_pair_length=5)
    assert sorted(pairs_in(batches.epoch(0))) == sorted(kept)
    assert batches.num_too_long == 3
    assert batches.widths == [5]


def test_few_pairs_make_a_batch_no_larger_than_they_need():
    ((_, labels),) = batches_of(random_pairs(9), num_buckets=1, batch_tokens=4096).epoch(0)
    assert labels.shape[0] == 16


# Order


def test_the_order_is_a_function_of_the_seed_and_the_epoch():
    pairs = random_pairs(100)
    sizes = {"batch_tokens": 120, "num_buckets": 3}
    batches = batches_of(pairs, seed=1, **sizes)
    orders = [pairs_in(batches.epoch(i)) for i in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert pairs_in(batches_of(pairs, seed=1, **sizes).epoch(1)) == orders[1]
    assert pairs_in(batches_of(pairs, seed=2, **sizes).epoch(1)) != orders[1]


def test_a_batch_has_other_company_in_another_epoch():
    batches = batches_of(random_pairs(100), batch_tokens=120, num_buckets=2)
    companies = [
        {frozenset(pairs_in([batch])) for batch in batches.epoch(epoch)} for epoch in (0, 1)
    ]
    assert len(companies[0] & companies[1]) < len(companies[0]) / 4


def test_short_and_long_batches_alternate_only_if_shuffled():
    pairs = random_pairs(400)
    for shuffle in (True, False):
        batches = batches_of(pairs, shuffle=shuffle, batch_tokens=120, num_buckets=5)
        widths = [labels.shape[1] for _, labels in batches.epoch(0)]
        assert (widths == sorted(widths)) is not shuffle


def test_without_shuffling_every_epoch_is_the_order_of_the_file_within_a_shape():
    batches = batches_of(random_pairs(100), shuffle=False, batch_tokens=120, num_buckets=1)
    orders = [pairs_in(batches.epoch(i)) for i in (0, 1)]
    assert orders[0] == orders[1] == random_pairs(100)


def digest_of(batches):
    """The SHA-256 of every array of three epochs."""
    digest = hashlib.sha256()
    for epoch in (0, 1, 5):
        for (source_ids, target_ids), labels in batches.epoch(epoch):
            for ids in (source_ids, target_ids, labels):
                digest.update(repr(ids.shape).encode() + ids.astype("<i4").tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize(
    ("options", "digest"),
    [
        ({"batch_tokens": 300, "num_buckets": 5, "seed": 7}, "e061683c1aaad20b"),
        (
            {"batch_tokens": 500, "num_buckets": 3, "max_pair_length": 25, "shuffle": False},
            "c81d7bf478e03013",
        ),
    ],
)
def test_a_seed_gives_the_batches_that_it_has_always_given(options, digest):
    """Otherwise a run of an earlier version would go on with another text."""
    assert digest_of(batches_of(random_pairs(700, longest=40, seed=3), **options)) == digest


# Steps


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.3])
def test_an_epoch_can_begin_at_any_step(sentences, tokenizer, bpe_dropout):
    sizes = {"batch_tokens": 64, "num_buckets": 3, "seed": 4}
    texts = (side * 9 for side in sentences)
    batches = TokenBatches(*texts, tokenizer, **sizes, bpe_dropout=bpe_dropout)
    all_of_them = list(batches.epoch(1))
    assert len(all_of_them) > 3
    for step in range(len(all_of_them) + 1):
        assert_equal_batches(batches.epoch(1, step), all_of_them[step:])


def test_a_batch_is_made_without_those_before_it(monkeypatch):
    made, batches = [], batches_of(random_pairs(400), batch_tokens=120)
    make = pair_batches._batch
    monkeypatch.setattr(pair_batches, "_batch", lambda *args: made.append(args) or make(*args))
    next(batches.epoch(0, 20))
    batches.plan(3).batch(17)
    assert len(made) == 2


def test_a_sequence_has_the_batches_of_the_dataset_as_arrays():
    batches = batches_of(random_pairs(100), batch_tokens=120)
    sequence = batches.sequence(1)
    for epoch in (1, 2):
        assert len(sequence) == batches.num_batches
        found = [sequence[i] for i in range(len(sequence))]
        assert_equal_batches(found, batches.epoch(epoch))
        sequence.on_epoch_end()


@pytest.mark.parametrize(("processes", "multiple"), [(1, 1), (4, 4), (2, 16), (3, 3)])
def test_processes_share_each_batch_in_equal_parts(processes, multiple):
    batches = batches_of(random_pairs(200), batch_tokens=200)
    shares = [Share(i, processes, multiple) for i in range(processes)]
    for whole in map(tf.nest.flatten, batches.epoch(1)):
        parts = [share.of(whole) for share in shares]
        assert len({ids.shape for part in parts for ids in part}) == 1
        rows = len(whole[0])
        for ids, *found in zip(whole, *parts, strict=True):
            joined = np.concatenate(found)
            assert len(joined) % multiple == 0 and len(joined) - rows < multiple
            np.testing.assert_array_equal(joined[:rows], ids)
            assert not joined[rows:].any()


# Datasets


def test_a_dataset_is_an_epoch_and_iterating_again_the_next():
    batches = batches_of(random_pairs(60), batch_tokens=120)
    dataset = batches.dataset()
    assert int(dataset.cardinality()) == batches.num_batches
    for epoch in range(3):
        assert_equal_batches(dataset, batches.epoch(epoch))
    assert_equal_batches(batches.dataset(), batches.epoch(0))


def test_an_epoch_begins_at_any_step_and_a_stream_goes_on_into_the_next():
    batches = batches_of(random_pairs(60), batch_tokens=120)
    whole = [batch for epoch in (3, 4) for batch in batches.epoch(epoch)]
    number = batches.num_batches
    for step in (0, 1, number - 1, number):
        assert_equal_batches(list(batches.epoch(3, step)), whole[step:number])
    left = len(whole) - 2
    assert_equal_batches(batches.stream(3, 2).take(left), whole[2:])
    begun, make = [], batches.epoch
    batches.epoch = lambda index, first_step=0: begun.append(index) or make(index, first_step)
    assert_equal_batches(batches.stream(3, 0, number).take(number), whole[:number])
    assert begun == [3]  # and none ahead
    dataset = batches.stream(4)
    assert int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    for _ in range(2):  # Keras may begin again
        assert_equal_batches(dataset.take(3), whole[number : number + 3])


def test_reading_only_the_first_batches_uses_up_no_epoch():
    batches = batches_of(random_pairs(400), batch_tokens=120)
    assert batches.num_batches > 12
    dataset = batches.dataset()
    next(iter(dataset))
    assert_equal_batches(dataset, batches.epoch(0))


@pytest.mark.parametrize("count", [3, 5])
def test_peeking_at_a_small_epoch_uses_it_up_neither(count, monkeypatch):
    pairs = [((i,), (i,)) for i in range(10, 10 + 8 * count)]
    batches = batches_of(pairs, batch_tokens=8)
    assert batches.num_batches == count
    generate, last_is_made = batches.epoch, threading.Event()

    def epoch(index, first_step):
        for i, batch in enumerate(generate(index, first_step), start=1):
            if i == count:
                last_is_made.set()
            yield batch

    monkeypatch.setattr(batches, "epoch", epoch)
    dataset = batches.dataset()
    iterator = iter(dataset)
    next(iterator)
    assert not last_is_made.wait(timeout=0.5)
    assert_equal_batches(dataset, generate(0))


def test_one_batch_is_made_ahead(monkeypatch):
    batches = batches_of(random_pairs(400), batch_tokens=120)
    generate, made = batches.epoch, []

    def epoch(index, first_step):
        for i, batch in enumerate(generate(index, first_step), start=1):
            made.append(i)
            yield batch

    monkeypatch.setattr(batches, "epoch", epoch)
    iterator = iter(batches.dataset())
    for i in range(1, 9):
        next(iterator)
        assert len(made) in (i, i + 1)


@pytest.mark.slow
def test_an_iterator_that_is_kept_does_not_hold_up_the_end_of_a_script():
    """A batch is being made when the interpreter ends."""
    script = """
import time
from keras_transformer import TokenBatches, Tokenizer
tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
batches = TokenBatches(["a dog"] * 800, ["a dog runs"] * 800, tokenizer, batch_tokens=64)
generate = batches.epoch
def epoch(index, first_step):
    for batch in generate(index, first_step):
        time.sleep(0.2)
        yield batch
batches.epoch = epoch
iterator = iter(batches.dataset())
next(iterator)
print("end", flush=True)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=200)
    assert (run.returncode, run.stdout) == (0, b"end\n")


def test_an_abandoned_epoch_leaves_no_tuning_thread_to_wait_for():
    dataset = batches_of(random_pairs(60), batch_tokens=120).dataset()
    assert dataset.options().autotune.enabled is False


def test_every_epoch_has_as_many_batches():
    batches = batches_of(random_pairs(99), batch_tokens=100)
    assert {len(list(batches.epoch(i))) for i in range(4)} == {batches.num_batches}


# Errors


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_tokens": 0}, "batch_tokens must be an integer of at least 1, but is 0"),
        ({"num_buckets": 0}, "num_buckets must be an integer of at least 1, but is 0"),
        ({"max_pair_length": 1}, "max_pair_length must be an integer of at least 2, but is 1"),
        ({"seed": -1}, "seed must be an integer of at least 0, but is -1"),
        ({"batch_tokens": 64.0}, "batch_tokens must be an integer of at least 1, but is 64.0"),
    ],
)
def test_a_size_out_of_range_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        batches_of(random_pairs(3), **wrong)


def test_sides_of_different_numbers_are_refused():
    with pytest.raises(ValueError, match="aligned, but there are 2 sources and 1 targets"):
        TokenBatches(["4", "5"], ["6"], NumberTokenizer())


def test_pairs_that_are_all_too_long_are_refused():
    with pytest.raises(
        ValueError, match="all 2 are longer than max_pair_length=3 tokens; raise .*--max-length"
    ):
        batches_of([((4, 5, 6), (7,))] * 2, max_pair_length=3)


def test_no_pairs_at_all_are_refused():
    with pytest.raises(ValueError, match="no sentence pairs: sources and targets are empty"):
        batches_of([])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("4 5", ["6"]), r"sources must be a list of strings, but is one: '4 5'; make it a list"),
        ((["4"], [None]), r"targets\[0\] must be a string, but is None"),
        ((["4", float("nan")], ["5", "6"]), r"sources\[1\] must be a string, but is nan"),
    ],
)
def test_what_is_no_list_of_strings_is_refused(texts, message):
    with pytest.raises(TypeError, match=message):
        TokenBatches(*texts, NumberTokenizer())


# BPE-dropout


def labels_of(batches, epoch):
    """The real labels of an epoch, row by row."""
    return [unpadded(row) for _, labels in batches.epoch(epoch) for row in labels if row.any()]


@pytest.fixture(scope="module")
def sampled(sentences, tokenizer):
    return TokenBatches(*sentences, tokenizer, batch_tokens=64, num_buckets=3, bpe_dropout=0.3)


def test_each_epoch_splits_the_same_sentences_anew(sampled, sentences, tokenizer):
    first, second = labels_of(sampled, 0), labels_of(sampled, 1)
    assert first == labels_of(sampled, 0)
    assert sorted(first) != sorted(second)
    for labels in (first, second):
        rows = tf.ragged.constant([row[:-1] for row in labels], dtype=tf.int32)
        shown = {text.decode() for text in tokenizer.detokenize(rows).numpy()}
        assert shown == set(sentences[1])


def test_epochs_that_are_read_side_by_side_are_those_read_alone(sampled):
    alone = [list(sampled.epoch(i)) for i in range(2)]
    first = sampled.epoch(0)
    start = [next(first)]
    assert_equal_batches(sampled.epoch(1), alone[1])
    assert_equal_batches(start + list(first), alone[0])


def test_every_epoch_keeps_to_the_shapes_of_the_first(sampled):
    shapes = [{ids.shape for _, ids in sampled.epoch(epoch)} for epoch in range(8)]
    allowed = set(zip(sampled.batch_sizes, sampled.widths, strict=True))
    assert all(found <= allowed for found in shapes)


def test_a_dataset_goes_on_at_an_epoch(sampled):
    start = [labels.numpy().tolist() for _, labels in sampled.dataset(first_epoch=2)]
    assert start == [labels.tolist() for _, labels in sampled.epoch(2)]
    dataset = sampled.dataset()
    for _ in range(2):
        list(dataset)
    assert [labels.numpy().tolist() for _, labels in dataset] == start


def test_a_stream_goes_on_at_a_step(sampled):
    whole = [*sampled.epoch(1), *sampled.epoch(2)]
    assert_equal_batches(sampled.stream(1, 1).take(len(whole) - 1), whole[1:])


def test_the_tokens_of_an_epoch_are_counted(sampled):
    for epoch in range(3):
        assert sum(map(len, labels_of(sampled, epoch))) == sampled.num_target_tokens
        assert len(list(sampled.epoch(epoch))) == sampled.num_batches


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_rate_is_refused(sentences, tokenizer, rate):
    with pytest.raises(ValueError, match="bpe_dropout must be a number in"):
        TokenBatches(*sentences, tokenizer, bpe_dropout=rate)


def test_a_lone_surrogate_is_batched_as_a_replacement_character():
    tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
    lone, replaced = (
        next(TokenBatches([f"a {c}"], [f"{c} dog"], tokenizer, bpe_dropout=0.5).epoch(0))
        for c in ("\ud800", "\ufffd")
    )
    for ids, expected in zip([*lone[0], lone[1]], [*replaced[0], replaced[1]], strict=True):
        np.testing.assert_array_equal(ids, expected)
