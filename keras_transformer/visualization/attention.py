"""Attention as heat maps: all heads of all layers, or everything that one word attends to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.type_hints import Figure, TensorLike
from keras_transformer.visualization import figures

# Inches: the cell of a word, the smallest map, the labels beside it.
CELL, SMALLEST, MARGIN = 0.16, 1.2, 1.3
# A cell beside a label, and the height of a picture that fills one of TensorBoard's cards.
LABELLED, CARD = 0.14, 2.25


def attention_maps(
    scores: TensorLike, queries: Sequence[str], keys: Sequence[str], *, title: str = ""
) -> Figure:
    """Draws one map per head and layer: which word attends to which.

    A row is a query, a column is a key. The darker a cell, the more of the key's value flows into
    the query's output. All maps share one scale.

    Args:
        scores: the attention scores of one sentence, array (N, H, T, S).
        queries: T strings, the pieces that attend.
        keys: S strings, the pieces that they attend to.
        title: the text above the maps.

    Returns:
        A matplotlib figure of N x H axes, layers from top to bottom, heads from left to right.

    Raises:
        ValueError: if the scores and the pieces do not fit.
        ImportError: if matplotlib is not installed.

    Example:
        >>> figure = attention_maps(np.full((2, 4, 1, 2), 0.5), ["it"], ["the", "animal"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['it']
    """
    scores = check_scores(scores, queries, keys)
    num_layers, num_heads = scores.shape[:2]
    width = figures.map_side(len(keys), CELL, SMALLEST, num_heads)
    height = figures.map_side(len(queries), CELL, SMALLEST, num_layers)
    beside, below = figures.label_margin(queries), figures.label_margin(keys)
    figure = figures.new_figure(
        width * num_heads + MARGIN + beside, height * num_layers + MARGIN + below
    )
    grid = figure.subplots(num_layers, num_heads, squeeze=False)
    for layer, head in np.ndindex(num_layers, num_heads):
        axes = grid[layer, head]
        image = figures.heat_map(axes, scores[layer, head], limits=(0, scores.max()))
        figures.label_axis(axes.xaxis, keys if layer == num_layers - 1 else [], width)
        figures.label_axis(axes.yaxis, queries if head == 0 else [], height)
        axes.set_title(f"head {head + 1}" if layer == 0 else "", fontsize=10)
        axes.set_ylabel(f"layer {layer + 1}" if head == 0 else "")
    figure.colorbar(
        image, ax=grid, label="attention score", shrink=min(1.0, 2 / num_layers), pad=0.01
    )
    figures.draw_title(figure, title)
    return figure


def word_attention(
    scores: TensorLike, queries: Sequence[str], keys: Sequence[str], word: int, *, title: str = ""
) -> Figure:
    """Draws what one word attends to: one map per layer, with one row per head.

    The number in each row is the largest score of the head, in percent.

    Args:
        scores: the attention scores of one sentence, array (N, H, T, S).
        queries: T strings, the pieces that attend.
        keys: S strings, the pieces that they attend to.
        word: the index of the word in `queries`.
        title: the text above the maps; by default it names the word.

    Returns:
        A matplotlib figure of N axes, layers from top to bottom.

    Raises:
        ValueError: if the scores and the pieces do not fit, or there is no such word.
        ImportError: if matplotlib is not installed.

    Example:
        >>> scores = np.tile([0.1, 0.9], (2, 4, 1, 1))
        >>> figure = word_attention(scores, ["it"], ["the", "animal"], 0)
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['90', '90', '90', '90']
    """
    scores = check_scores(scores, queries, keys)
    if word not in range(len(queries)):
        raise ValueError(f"word must be an index in [0, {len(queries)}), but is {word!r}.")
    rows = scores[:, :, word]  # (N, H, S)
    num_layers, num_heads = rows.shape[:2]
    width = figures.map_side(len(keys), 3 * CELL, 3 * SMALLEST, 1)
    height = figures.map_side(num_heads, 1.6 * CELL, 0, num_layers)
    below = figures.label_margin(keys)
    figure = figures.new_figure(width + MARGIN, num_layers * (height + 0.25) + MARGIN + below)
    column = figure.subplots(num_layers, 1, squeeze=False)[:, 0]
    for layer, axes in enumerate(column):
        figures.heat_map(axes, rows[layer], limits=(0, 1))
        figures.label_axis(axes.xaxis, keys if layer == num_layers - 1 else [], width)
        figures.label_axis(axes.yaxis, [f"head {head + 1}" for head in range(num_heads)], height)
        axes.set_ylabel(f"layer {layer + 1}")
        for head, best in enumerate(rows[layer].argmax(axis=1)):
            score = rows[layer, head, best]
            color = "white" if score > 0.6 else "black"
            place = {"ha": "center", "va": "center", "fontsize": 8, "color": color}
            axes.text(best, head, f"{100 * score:.0f}", **place)
    title = title or f"What “{queries[word]}” attends to, in percent"
    figures.draw_title(figure, title)
    return figure


def mean_attention(scores: TensorLike, queries: Sequence[str], keys: Sequence[str]) -> Figure:
    """Draws one small map with its words on both axes and its scale: the mean of some heads.

    Args:
        scores: what `Transformer.cross_attention_scores` returns for one pair, array (1, T, S).
        queries: T strings, the pieces that attend.
        keys: S strings, the pieces that they attend to.

    Returns:
        A matplotlib figure, twice as wide as high, which `FigureMonitor` shows.
    """
    ((scores,),) = check_scores(np.asarray(ops.convert_to_numpy(scores))[None], queries, keys)
    beside, below = figures.label_margin(queries), figures.label_margin(keys)
    height = max(LABELLED * len(queries) + MARGIN / 2 + below, CARD)
    width = max(LABELLED * len(keys) + MARGIN + beside, 2 * CARD)
    figure = figures.new_figure(max(width, 2 * height), max(height, width / 2))
    axes = figure.subplots()
    image = figures.heat_map(axes, scores, limits=(0, max(scores.max(), 1e-6)))
    figures.label_axis(axes.xaxis, keys)
    figures.label_axis(axes.yaxis, queries)
    scale = figure.colorbar(image, ax=axes, pad=0.01)
    scale.ax.tick_params(labelsize=8)
    scale.ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    return figure


def check_scores(scores, queries, keys) -> np.ndarray:
    """Returns the scores as an array if they have one row per query and one column per key."""
    scores = np.asarray(ops.convert_to_numpy(scores), "float32")
    if scores.ndim != 4 or scores.shape[2:] != (len(queries), len(keys)) or not scores.size:
        raise ValueError(
            "scores must have the shape (layers, heads, queries, keys), here (N, H, "
            f"{len(queries)}, {len(keys)}), but have {scores.shape}; choose one sentence "
            "of a batch, and leave out its padding."
        )
    if not np.isfinite(scores).all():
        raise ValueError(
            "scores must be finite, but hold NaN or infinity; has the training diverged?"
        )
    return scores
