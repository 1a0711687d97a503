"""The cache of a search: the keys of every hypothesis, and which of them each one sees.

The keys and values of all beams of a sentence lie side by side, and a boolean table says which of
them belong to a hypothesis: those it wrote itself or took over from the one it continues. A search
that reorders its beams moves rows of that table and no keys.

A cache is a dict of tensors:

- "layers": a pair of keys and values for each decoder layer, (B, H, M, D/H), M a multiple of K;
- "used": int32 scalar, the number of keys there are;
- "visible": boolean (B, K, M), which keys each of K hypotheses sees;
- "length": int32 scalar, the number of tokens of the search so far;
- "key_indices": int32 (M,), 0, 1, ..., and "first_rows": int32 (B * H,), the first row of each head
  among those that a step writes, see `slice_rows`: both are the same in all steps, so that a loop
  can compute them once;
- and what else the steps of a model read, one row per sentence: "memory", a `Memory` for each
  layer, "source_padding_mask" (B, S), "coverage" (B, K, S), "context_lengths" (B,).
"""

from functools import partial

import keras
from keras import ops

from keras_transformer.backend import batched_gather, slice_rows, take
from keras_transformer.layers.attention_memory import InPlaceKVCache, KVCache


def empty_cache(decoder, batch_size, max_length, beam_size):
    """A cache for `max_length` tokens of each hypothesis, without keys so far."""
    attention = decoder.layers[0].self_attention
    num_keys = max_length * beam_size
    shape = (batch_size, attention.num_heads, num_keys, attention.d_model // attention.num_heads)
    zeros = partial(ops.zeros, shape, attention.compute_dtype)
    cache = {
        "layers": [(zeros(), zeros()) for _ in decoder.layers],
        "used": ops.convert_to_tensor(0, "int32"),
        "visible": ops.zeros((batch_size, beam_size, num_keys), "bool"),
        "length": ops.convert_to_tensor(0, "int32"),
    }
    return with_row_tables(cache)


def with_row_tables(cache):
    """The cache with "key_indices" and "first_rows", which depend on the shapes of its keys."""
    beam_size, num_keys = cache["visible"].shape[1], ops.shape(cache["visible"])[2]
    rows = slice_rows(cache["layers"][0][0], beam_size, 0)
    indices = ops.arange(num_keys, dtype="int32")
    return {**cache, "key_indices": indices, "first_rows": rows}


def layer_caches(cache, in_place=False):
    """A `KVCache` for each layer; with `in_place` they write into the tensors of `cache`."""
    if not in_place:
        return [KVCache(*layer, cache["used"]) for layer in cache["layers"]]
    rows = cache["first_rows"] + cache["used"] // cache["visible"].shape[1]
    places = cache["used"], rows, ops.shape(cache["key_indices"])[0]
    return [InPlaceKVCache(*layer, *places) for layer in cache["layers"]]


def with_new_key(cache):
    """The cache in which each hypothesis sees the key that it writes next."""
    visible = cache["visible"]  # (B, K, M)
    beams = ops.expand_dims(ops.arange(visible.shape[1], dtype="int32"), 1)  # (K, 1)
    # Beam k writes key `used + k`.
    writes = cache["key_indices"] - beams == cache["used"]  # (K, M)
    return {**cache, "visible": ops.logical_or(visible, writes)}


def advance(cache, caches):
    """The cache after one more token of each hypothesis, from the `KVCache` that a step filled."""
    return {
        **cache,
        "layers": [(kv.keys, kv.values) for kv in caches],
        "used": cache["used"] + cache["visible"].shape[1],
        "length": cache["length"] + 1,
    }


def reorder(cache, rows):
    """The cache after each hypothesis has been replaced by a continuation of another.

    Args:
        cache: from `decode_step` of a model.
        rows: integers (B * K,): hypothesis i now continues what was in row `rows[i]`.

    Returns:
        The new cache.
    """
    beam_size = cache["visible"].shape[1]
    origins = ops.reshape(rows % beam_size, (-1, beam_size))  # (B, K), in the same sentence
    tables = {name: cache[name] for name in ("visible", "coverage") if name in cache}  # (B, K, ...)
    return {**cache, **batched_gather(tables, origins)}


def compact(cache, sentences, capacity):
    """The cache of some sentences, for `capacity` tokens, including those so far.

    It drops the keys that no hypothesis sees any more. These are most keys, because after a few
    steps all beams of a sentence continue one or two of them.

    Args:
        cache: from `init_cache` or `decode_step` of a model.
        sentences: integers (b,), those that are kept.
        capacity: integer scalar.

    Returns:
        The new cache.
    """
    visible = take(cache["visible"], sentences)  # (b, K, M)
    kept = kept_keys(visible)  # (b, m)
    missing = (capacity - cache["length"]) * visible.shape[1]
    visible = ops.take_along_axis(visible, ops.expand_dims(kept, 1), axis=2)  # (b, K, m)
    rows = key_rows(cache["layers"][0][0], sentences, kept)  # (b, H, m)
    flat = keras.tree.map_structure(lambda x: ops.reshape(x, (-1, x.shape[3])), cache["layers"])
    of_all = ("layers", "used", "visible", "length", "key_indices", "first_rows")
    by_sentence = {name: value for name, value in cache.items() if name not in of_all}
    layers, by_sentence = take(flat, rows), take(by_sentence, sentences)
    new = {
        "layers": keras.tree.map_structure(lambda x: pad_keys(x, missing), layers),
        "used": ops.shape(kept)[1],
        "visible": ops.pad(visible, ((0, 0), (0, 0), (0, missing))),
    }
    return with_row_tables({**cache, **by_sentence, **new})


def pad_keys(x, missing):
    """Keys or values (B, H, M, D/H), and `missing` more that are 0."""
    return ops.pad(x, ((0, 0), (0, 0), (0, missing), (0, 0)))


def key_rows(keys, sentences, kept):
    """Where the kept keys of these sentences are in `keys` (B, H, M, D/H) as (B * H * M, D/H).

    Args:
        keys: tensor (B, H, M, D/H).
        sentences: integers (b,).
        kept: int32 (b, m), from `kept_keys`.

    Returns:
        int32 (b, H, m).
    """
    num_heads, num_keys = keys.shape[1], ops.shape(keys)[2]
    first = ops.expand_dims(sentences * num_heads, 1) + ops.arange(num_heads)  # (b, H)
    return ops.expand_dims(first * num_keys, 2) + ops.expand_dims(kept, 1)  # (b, H, m)


def kept_keys(visible):
    """Finds the keys that some hypothesis sees.

    Args:
        visible: boolean (b, K, M), M a multiple of K.

    Returns:
        Indices of keys, int32 (b, m), in rising order. All rows have the same m, a multiple of K: a
        row with fewer such keys ends with others.
    """
    beam_size, num_keys = visible.shape[1], ops.shape(visible)[2]
    seen = ops.any(visible, axis=1)  # (b, M)
    indices = ops.arange(num_keys, dtype="int32")  # (M,)
    order = ops.argsort(ops.where(seen, indices, indices + num_keys), axis=1)  # (b, M)
    most = ops.max(ops.sum(ops.cast(seen, "int32"), axis=1), initial=0)
    return ops.cast(order, "int32")[:, : (most + beam_size - 1) // beam_size * beam_size]
