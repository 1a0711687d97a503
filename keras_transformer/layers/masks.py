"""Every mask of the library: boolean, True = may attend, passed explicitly."""

import inspect

import keras
import numpy as np
from keras import ops

from keras_transformer.type_hints import Tensor, TensorLike


def padding_mask(ids: TensorLike, pad_id: int) -> Tensor:
    """Marks the positions of `ids` that hold a real token.

    Args:
        ids: integer tensor (B, T).
        pad_id: the id of padding.

    Returns:
        Boolean tensor (B, T), True at real tokens.

    Example:
        >>> print(padding_mask(np.array([[5, 3, 0]]), pad_id=0).numpy())
        [[ True  True False]]
    """
    return ops.not_equal(ids, pad_id)


def causal_mask(
    query_length: int | TensorLike,
    key_length: int | TensorLike | None = None,
    first: int | TensorLike = 0,
) -> Tensor:
    """Lets each position attend to itself and to those before it (paper, section 3.2.3).

    Args:
        query_length: T, the number of queries.
        key_length: S, the number of keys; `query_length` by default.
        first: the place of the first query among the keys, for queries that extend a cache.

    Returns:
        Boolean tensor (1, T, S), True where key `s <= first + t`.

    Example:
        >>> print(causal_mask(2).numpy())
        [[[ True False]
          [ True  True]]]
    """
    if query_length is None:
        raise ValueError(
            "query_length is None, since it is not known before the call; give MultiHeadAttention "
            "use_causal_mask=True, or take DecoderLayer, which hides later positions by itself."
        )
    key_length = query_length if key_length is None else key_length
    query_positions = ops.expand_dims(ops.arange(query_length), 1) + first  # (T, 1)
    key_positions = ops.expand_dims(ops.arange(key_length), 0)  # (1, S)
    return ops.expand_dims(key_positions <= query_positions, 0)  # (1, T, S)


def segment_mask(segments):
    """Keeps attention within a segment, for rows that hold several segments.

    Args:
        segments: integer tensor (B, T), the number of each position's segment.

    Returns:
        Boolean tensor (B, T, T), True where query t and key s are in the same segment.
    """
    return ops.equal(ops.expand_dims(segments, 2), ops.expand_dims(segments, 1))


def as_mask(name, mask):
    """Returns a mask as boolean; integers other than 0 are True.

    Args:
        name: the name of the argument, for the error.
        mask: tensor or array of booleans or integers.

    Raises:
        ValueError: for floats: both 0 and 1 have been used in them for "may attend".
    """
    mask = mask if hasattr(mask, "dtype") else np.asarray(mask)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if "float" in dtype:
        raise ValueError(
            f"{name} must be boolean, True = may attend, but is {dtype}; pass `mask == 0` if it "
            "holds 0 and -inf, or `mask > 0` if it holds 1 and 0."
        )
    return ops.cast(mask, "bool")


def combine_masks(*masks: TensorLike | None) -> Tensor | None:
    """Joins masks with "and"; None hides nothing.

    Args:
        *masks: each None, a padding mask of the keys (B, S), or an attention mask that
            broadcasts to (B, T, S); boolean, or integers, where 0 hides.

    Returns:
        Boolean tensor that broadcasts to (B, T, S), or None if every mask is None.

    Raises:
        ValueError: for a mask of floats.

    Example:
        >>> real = padding_mask(np.array([[5, 3, 0]]), pad_id=0)
        >>> ops.shape(combine_masks(real, None, causal_mask(3)))
        (1, 3, 3)
    """
    combined = None
    for mask in masks:
        if mask is None:
            continue
        mask = as_mask("A mask", mask)
        if len(mask.shape) == 2:
            mask = ops.expand_dims(mask, 1)  # (B, 1, S)
        combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def takes_carried_masks(*inputs: str):
    """Lets Keras hand the masks that the inputs of a call carry to `call`, in `**carried`.

    `keras.layers.Embedding(mask_zero=True)` gives its output a mask, which later layers pass on.
    Keras fills an argument that is named `mask` if a call has one tensor, and `<input>_mask` for
    each input if it has several. It looks for these names in the signature of `call`.

    Args:
        *inputs: the names of the inputs in `call`.

    Returns:
        A decorator of `call`, which must take `**carried`.
    """
    names = ("mask", *(f"{name}_mask" for name in inputs))

    def declare(call):
        signature = inspect.signature(call)
        kept = [x for x in signature.parameters.values() if x.kind is not x.VAR_KEYWORD]
        masks = [inspect.Parameter(x, inspect.Parameter.KEYWORD_ONLY, default=None) for x in names]
        call.__signature__ = signature.replace(parameters=[*kept, *masks])
        return call

    return declare


def all_masks(carried, **named):
    """Joins the masks that a call was given with those that its inputs carry.

    Args:
        carried: a mask (B, S), or a nested structure of such masks and None: the tensors of a
            `Memory` carry none.
        **named: masks for `combine_masks` by the names of the call's arguments, for errors.

    Returns:
        Boolean tensor that broadcasts to (B, T, S), or None if every mask is None.
    """
    given = (None if mask is None else as_mask(name, mask) for name, mask in named.items())
    return combine_masks(*given, *keras.tree.flatten(carried))


def full_mask(attention_mask, carried, use_causal_mask, query, keys, first=0):
    """Joins the masks of an attention layer's call: which keys each query may attend to.

    Args:
        attention_mask: boolean, (B, S) or broadcastable to (B, T, S), or None.
        carried: the masks (B, S) that the keys carry, as in `all_masks`.
        use_causal_mask: whether the keys after a query are hidden from it.
        query: tensor (B, H, T, D/H).
        keys: tensor (B, H, S, D/H).
        first: the place of the first query among the keys.

    Returns:
        Boolean tensor that broadcasts to (B, H, T, S), or None if all may attend to all.
    """
    mask = all_masks(carried, attention_mask=attention_mask)  # broadcasts to (B, T, S), or None
    if use_causal_mask:
        causal = causal_mask(ops.shape(query)[2], ops.shape(keys)[2], first)  # (1, T, S)
        mask = combine_masks(mask, causal)  # broadcasts to (B, T, S)
    check_mask(mask, query.shape[0], keys.shape[2])
    return None if mask is None else ops.expand_dims(mask, 1)  # broadcasts to (B, H, T, S)


def check_mask(mask, batch_size, key_length) -> None:
    """Refuses a mask that does not broadcast to (B, T, S), as far as the sizes are known.

    Args:
        mask: boolean tensor from `combine_masks`, or None.
        batch_size: B, or None if it is not known.
        key_length: S, or None if it is not known.
    """
    if mask is None:
        return
    shape = tuple(mask.shape)
    sizes = ((shape[0], batch_size), (shape[-1], key_length))
    if len(shape) != 3 or any(a not in (1, b) and None not in (a, b) for a, b in sizes):
        raise ValueError(
            f"A mask must be (B, S) or broadcast to (B, T, S), with B={batch_size} and "
            f"S={key_length}, but its shape, read as (B, T, S), is {shape}; if the mask is (T, S), "
            "pass mask[None]."
        )
