"""Masks, as the layers see them: which position may attend to which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.layers.masks import causal_mask, combine_masks, padding_mask
from keras_transformer.type_hints import Figure
from keras_transformer.visualization import figures


def attention_masks(source_ids: Sequence[int], target_ids: Sequence[int]) -> dict[str, np.ndarray]:
    """Builds the masks of a `Transformer` for one pair of sentences.

    Args:
        source_ids: integers (S,), padded with 0.
        target_ids: integers (T,), padded with 0.

    Returns:
        A dict of boolean arrays, True = may attend: "encoder: padding" (S, S), "decoder: causal"
        (T, T), "decoder: causal and padding" (T, T), "cross-attention: padding" (T, S).

    Example:
        >>> print(attention_masks([5, 6, 0], [2, 5])["encoder: padding"].astype(int))
        [[1 1 0]
         [1 1 0]
         [1 1 0]]
    """
    source_ids, target_ids = (np.asarray(ids)[None] for ids in (source_ids, target_ids))
    size, length = source_ids.shape[1], target_ids.shape[1]
    source = combine_masks(padding_mask(source_ids, PAD_ID))  # (1, 1, S)
    causal = causal_mask(length)  # (1, T, T)
    both = combine_masks(padding_mask(target_ids, PAD_ID), causal)  # (1, T, T)
    masks = {
        "encoder: padding": (source, (size, size)),
        "decoder: causal": (causal, (length, length)),
        "decoder: causal and padding": (both, (length, length)),
        "cross-attention: padding": (source, (length, size)),
    }
    return {
        name: np.broadcast_to(ops.convert_to_numpy(mask)[0], shape)
        for name, (mask, shape) in masks.items()
    }


def mask_maps(
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
) -> Figure:
    """Draws the four masks of a sentence pair: blue where a query (row) may attend to a key.

    Args:
        source_ids: integers (S,), padded with 0.
        target_ids: integers (T,) that the decoder reads: the start token first, padded with 0.
        source_pieces: S strings.
        target_pieces: T strings.

    Returns:
        A matplotlib figure with four axes: the padding mask of the encoder, the causal mask of the
        decoder, that and padding together, and the padding mask of cross-attention.

    Raises:
        ValueError: if there is not one piece per id.
        ImportError: if matplotlib is not installed.

    Example:
        >>> figure = mask_maps([5, 3, 0], [2, 6], ["dog", "</s>", "<pad>"], ["<s>", "Hund"])
        >>> [axes.get_title() for axes in figure.axes][:2]
        ['encoder: padding', 'decoder: causal']
    """
    figures.check_pieces("source_pieces", source_pieces, len(source_ids), "ids")
    figures.check_pieces("target_pieces", target_pieces, len(target_ids), "ids")
    masks = attention_masks(source_ids, target_ids)
    side = figures.map_side(max(len(source_ids), len(target_ids)), 0.2, 2.0, 2)
    margin = 0.8 + figures.label_margin([*source_pieces, *target_pieces])
    figure = figures.new_figure(2 * (side + margin), 2 * (side + margin))
    for axes, (name, mask) in zip(figure.subplots(2, 2).ravel(), masks.items(), strict=True):
        figures.heat_map(axes, mask, limits=(0, 1.6))  # a blue that leaves the grid visible
        figures.draw_grid(axes, mask.shape)
        queries = source_pieces if name.startswith("encoder") else target_pieces
        keys = target_pieces if name.startswith("decoder") else source_pieces
        figures.label_axis(axes.yaxis, queries, side)
        figures.label_axis(axes.xaxis, keys, side)
        axes.set_title(name, fontsize=10)
    return figure
