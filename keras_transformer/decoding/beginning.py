"""How a hypothesis must begin: with given tokens, then with text that may end inside a token."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.type_hints import TensorLike


class Spelling(NamedTuple):
    """What the tokens spell, as a tree: a node for each beginning of a token, byte by byte.

    The nodes are numbered in the order of their texts, so that those below a node follow it. The
    root, the empty text, is 0.

    Attributes:
        nodes: int32 (V,), the node of each token's text; 0 for a token without any.
        ends: int32 (V,), the first node that is not below it; 0 for a token without any.
        lengths: int32 (V,), the bytes of each token's text.
    """

    nodes: TensorLike
    ends: TensorLike
    lengths: TensorLike


class Beginning(NamedTuple):
    """How hypotheses must begin; R of them.

    Attributes:
        prefix_ids: int32 (R, P), tokens, padded with 0.
        prefix_text: int32 (R, W, 2), padded with 0: the text that follows them, in the pieces that
            the search chooses. Of what is left of it from each byte on: the node of the longest
            beginning in the tree; and, if that is all that is left, the first node that is not
            below it, else the node again. A negative node -n says that no token below n may stand
            here.
    """

    prefix_ids: Any
    prefix_text: Any


def not_a_beginning(beginning, spelling, ids, position, forbidden):
    """Finds the tokens that may not come next, inside a beginning or after it.

    Inside the tokens of a beginning only the next one may come, even if it is forbidden elsewhere.
    Inside its text a token must spell a part of the rest, or all of it and more.

    Args:
        beginning: `Beginning`.
        spelling: `Spelling`, or None if there is no text.
        ids: int32 (R, L), the tokens so far, padded with 0.
        position: integer scalar, the number of tokens so far.
        forbidden: boolean (V,) or (R, V), what is forbidden outside of a beginning.

    Returns:
        Boolean (R, V).
    """
    prefix_ids, prefix_text = beginning
    here = ops.arange(ops.shape(prefix_ids)[1]) == position  # (P,)
    wanted = ops.sum(ops.where(here, prefix_ids, 0), axis=1, keepdims=True)  # (R, 1)
    tokens = ops.arange(forbidden.shape[-1], dtype="int32")  # (V,)
    refused = ops.where(wanted > 0, tokens != wanted, forbidden)  # (R, V)
    if spelling is None or prefix_text.shape[1] == 0:
        return refused
    count = ops.sum(ops.cast(prefix_ids > 0, "int32"), axis=1, keepdims=True)  # (R, 1)
    after = ops.arange(ops.shape(ids)[1]) >= count  # (R, L)
    sizes = ops.where(after, ops.take(spelling.lengths, ids), 0)  # (R, L)
    written = ops.sum(sizes, axis=1, keepdims=True)  # (R, 1)
    here = ops.arange(ops.shape(prefix_text)[1]) == written  # (R, W)
    here = ops.logical_and(here, position >= count)
    node, end = (
        ops.sum(ops.where(here, prefix_text[:, :, i], 0), axis=1, keepdims=True) for i in (0, 1)
    )  # (R, 1) each
    first, last = spelling.nodes, spelling.ends  # (V,)
    is_part = ops.logical_and(first <= node, node < last)  # (R, V)
    is_all = ops.logical_and(node <= first, first < end)
    is_avoided = ops.logical_and(-node <= first, first < end)
    refused = ops.where(node > 0, ops.logical_not(ops.logical_or(is_part, is_all)), refused)
    return ops.logical_or(refused, ops.logical_and(node < 0, is_avoided))
