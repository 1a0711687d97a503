"""Which keys a search keeps: all that a hypothesis sees, and no more than a step needs."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import Transformer
from keras_transformer.models.search_cache import (
    kept_keys,
    reorder,
    with_new_key,
)

K, B = 3, 4


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return Transformer(num_layers=2, d_model=16, num_heads=2, d_ff=16, source_vocab_size=20)


def test_each_beam_sees_its_own_key_and_what_it_took_over():
    """Against a list of the keys that each hypothesis wrote or took over."""
    rng = np.random.default_rng(0)
    visible = ops.zeros((B, K, 7 * K), "bool")
    owners = [[[] for _ in range(K)] for _ in range(B)]
    numbers = ops.arange(7 * K, dtype="int32")
    for step in range(7):
        cache = {"visible": visible, "used": step * K, "key_indices": numbers}
        visible = with_new_key(cache)["visible"]
        owners = [[keys + [step * K + k] for k, keys in enumerate(row)] for row in owners]
        parents = rng.integers(0, K, (B, K))
        rows = (parents + np.arange(B)[:, None] * K).reshape(-1).astype("int32")
        visible = reorder({"visible": visible}, rows)["visible"]
        owners = [[list(owners[b][p]) for p in parents[b]] for b in range(B)]
    found = [[np.flatnonzero(beam).tolist() for beam in row] for row in np.array(visible)]
    assert found == owners


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_kept_keys_are_those_seen_in_order_and_a_multiple_of_the_beam(share):
    visible = np.random.default_rng(1).random((B, K, 5 * K)) < share
    kept = np.array(kept_keys(ops.convert_to_tensor(visible)))
    seen = [np.flatnonzero(row.any(axis=0)) for row in visible]
    assert kept.shape[1] == -(-max(map(len, seen)) // K) * K
    for row, expected, sentence in zip(kept, seen, visible, strict=True):
        np.testing.assert_array_equal(row[: len(expected)], expected)
        assert not sentence[:, row[len(expected) :]].any()


@pytest.mark.parametrize("in_place", [True, False])
def test_steps_after_leaving_out_keys_and_sentences_give_the_same_logits(in_place, model):
    """Reordered so that few keys survive; one cache is resized, the other has its full length."""
    rng = np.random.default_rng(2)
    source_ids = rng.integers(4, 20, (B, 6))
    full = model.init_cache(source_ids, max_length=9, beam_size=K)
    short = model.init_cache(source_ids, max_length=0, beam_size=K)
    short = model.compact_cache(short, np.arange(B, dtype="int32"), 4)
    chosen = np.arange(B)
    for position in range(9):
        if position == 4:
            chosen = np.array([3, 1])
            short = model.compact_cache(short, chosen.astype("int32"), 9)
            assert short["visible"].shape[2] < 9 * K
            assert len(short["source_padding_mask"]) == 2
        tokens = rng.integers(4, 20, (B, K))
        parents = np.minimum(rng.integers(0, K, (B, K)), rng.integers(0, K, (B, K)))
        expected, full = model.decode_step(tokens.reshape(-1), full, position)
        before, keys = short, np.array(short["layers"][0][0])
        flat_tokens = tokens[chosen].reshape(-1)
        found, short = model.decode_step(flat_tokens, short, position, in_place=in_place)
        assert in_place != np.array_equal(before["layers"][0][0], keys)
        expected = np.array(expected).reshape(B, K, -1)[chosen].reshape(len(chosen) * K, -1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        full = model.reorder_cache(full, flat(parents))
        short = model.reorder_cache(short, flat(parents[chosen]))


def flat(parents):
    return (parents + np.arange(len(parents))[:, None] * K).reshape(-1).astype("int32")


@pytest.mark.slow
def test_a_beam_that_agrees_on_its_past_keeps_one_key_a_token(model):
    """So memory and work grow as with a single hypothesis, and not K times as fast."""
    length = 40
    source_ids = np.full((1, 5), 7)
    cache = model.init_cache(source_ids, max_length=0, beam_size=K)
    for position in range(length):
        if position % 10 == 0:
            cache = model.compact_cache(cache, np.array([0], "int32"), position + 10)
        _, cache = model.decode_step(np.full(K, 5), cache, position)
        cache = model.reorder_cache(cache, np.zeros(K, "int32"))
    cache = model.compact_cache(cache, np.array([0], "int32"), length)
    keys = cache["layers"][0][0]
    assert keys.shape[2] == int(cache["used"]) == -(-length // K) * K
