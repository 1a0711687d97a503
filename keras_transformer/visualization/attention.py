"""Attention as heat maps: all heads of all layers, and all that one word looks at."""

import numpy as np
from keras import ops

from keras_transformer.visualization.figures import (
    draw_title,
    heat_map,
    label_axis,
    label_room,
    new_figure,
)

# Inches: of a word in a map, of the smallest map, of the labels beside it.
CELL, SMALLEST, MARGIN = 0.16, 1.2, 1.3


def attention_maps(weights, queries, keys, *, title=""):
    """One map for each head of each layer: who looks at whom.

    A row is a word that looks, a column one that is looked at, and the darker their crossing, the
    more of the column's value flows into the row. All maps share one scale.

    Args:
        weights: array (N, H, T, S), a sentence of `Transformer.attention_weights`.
        queries: T strings, the pieces that look.
        keys: S strings, the pieces looked at.
        title: stands above the maps.

    Returns:
        A matplotlib figure of N x H axes, layers from top to bottom, heads from left to right.

    Raises:
        ValueError: if the weights and the pieces do not fit.
        ImportError: if the extra `[plots]` is not installed.

    Example:
        >>> figure = attention_maps(np.full((2, 4, 1, 2), 0.5), ["it"], ["the", "animal"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['it']
    """
    weights = check_weights(weights, queries, keys)
    num_layers, num_heads = weights.shape[:2]
    width = max(CELL * len(keys), SMALLEST) * num_heads + MARGIN
    height = max(CELL * len(queries), SMALLEST) * num_layers + MARGIN
    figure = new_figure(width + label_room(queries), height + label_room(keys))
    grid = figure.subplots(num_layers, num_heads, squeeze=False)
    for layer, head in np.ndindex(num_layers, num_heads):
        axes = grid[layer, head]
        image = heat_map(axes, weights[layer, head], limits=(0, weights.max()))
        label_axis(axes.xaxis, keys if layer == num_layers - 1 else [])
        label_axis(axes.yaxis, queries if head == 0 else [])
        axes.set_title(f"head {head + 1}" if layer == 0 else "", fontsize=10)
        axes.set_ylabel(f"layer {layer + 1}" if head == 0 else "")
    figure.colorbar(image, ax=grid, label="weight", shrink=min(1.0, 2 / num_layers), pad=0.01)
    draw_title(figure, title)
    return figure


def word_attention(weights, queries, keys, word: int, *, title=""):
    """What one word looks at: a map for each layer, a row for each of its heads.

    The number in each row is the share of the word that the head looks at most.

    Args:
        weights: array (N, H, T, S).
        queries: T strings, the pieces that look.
        keys: S strings, the pieces looked at.
        word: the index of the word among `queries`.
        title: stands above the maps; names the word by default.

    Returns:
        A matplotlib figure of N axes, layers from top to bottom.

    Raises:
        ValueError: if the weights and the pieces do not fit, or there is no such word.
        ImportError: if the extra `[plots]` is not installed.

    Example:
        >>> weights = np.tile([0.1, 0.9], (2, 4, 1, 1))
        >>> figure = word_attention(weights, ["it"], ["the", "animal"], 0)
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['90', '90', '90', '90']
    """
    weights = check_weights(weights, queries, keys)
    if word not in range(len(queries)):
        raise ValueError(f"word must be an index in [0, {len(queries)}), but is {word!r}.")
    rows = weights[:, :, word]  # (N, H, S)
    num_layers, num_heads = rows.shape[:2]
    width = max(3 * CELL * len(keys), 3 * SMALLEST) + MARGIN
    height = num_layers * (1.6 * CELL * num_heads + 0.25) + MARGIN
    figure = new_figure(width, height + label_room(keys))
    column = figure.subplots(num_layers, 1, squeeze=False)[:, 0]
    for layer, axes in enumerate(column):
        heat_map(axes, rows[layer], limits=(0, 1))
        label_axis(axes.xaxis, keys if layer == num_layers - 1 else [])
        label_axis(axes.yaxis, [f"head {head + 1}" for head in range(num_heads)])
        axes.set_ylabel(f"layer {layer + 1}")
        for head, best in enumerate(rows[layer].argmax(axis=1)):
            weight = rows[layer, head, best]
            color = "white" if weight > 0.6 else "black"
            place = {"ha": "center", "va": "center", "fontsize": 8, "color": color}
            axes.text(best, head, f"{100 * weight:.0f}", **place)
    title = title or f"What “{queries[word]}” looks at, in percent"
    draw_title(figure, title)
    return figure


def check_weights(weights, queries, keys) -> np.ndarray:
    """The weights as an array, if they have a row for each query and a column for each key."""
    weights = np.asarray(ops.convert_to_numpy(weights), "float32")
    if weights.ndim != 4 or weights.shape[2:] != (len(queries), len(keys)) or not weights.size:
        raise ValueError(
            "weights must have the shape (layers, heads, queries, keys), here (N, H, "
            f"{len(queries)}, {len(keys)}), but have {weights.shape}; of a batch, choose one "
            "sentence without its padding."
        )
    if not np.isfinite(weights).all():
        raise ValueError(
            "weights must be finite, but hold NaN or infinity; has the training diverged?"
        )
    return weights
