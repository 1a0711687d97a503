"""The positional encoding as a picture, and how similar two positions are."""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.type_hints import Figure, TensorLike
from keras_transformer.visualization.figures import (
    ACCENT,
    SIGNED_COLORS,
    heat_map,
    marker,
    new_figure,
    whole_ticks,
)


def position_map(positions: TensorLike) -> Figure:
    """Draws the encoding of each position as a row: fast waves on the left, slow ones right.

    Args:
        positions: array (T, D), for example `sinusoidal_positions(T, D)`.

    Returns:
        A matplotlib figure whose first axes hold the map.

    Raises:
        ValueError: if `positions` is not a matrix.
        ImportError: if matplotlib is not installed.

    Example:
        >>> from keras_transformer import sinusoidal_positions
        >>> figure = position_map(sinusoidal_positions(50, 64))
        >>> figure.axes[0].images[0].get_array().shape
        (50, 64)
    """
    positions = _check_positions(positions)
    figure = new_figure(7, 4)
    axes = figure.subplots()
    largest = np.abs(positions).max()
    image = heat_map(axes, positions, limits=(-largest, largest), colors=SIGNED_COLORS)
    axes.set(xlabel="dimension", ylabel="position")
    whole_ticks(axes)
    figure.colorbar(image, ax=axes, label="value")
    return figure


def position_similarity(positions: TensorLike) -> Figure:
    """Draws how similar the encodings of two positions are: their cosine.

    The line on the right is one row of the map: the middle position and all others. With sinusoids
    it depends only on the distance, because `PE(a) . PE(b)` is a sum of
    `cos((a - b) * frequency)`.

    Args:
        positions: array (T, D), for example `sinusoidal_positions(T, D)`.

    Returns:
        A matplotlib figure with two axes: a map (T, T) and a line.

    Raises:
        ValueError: if `positions` is not a matrix.
        ImportError: if matplotlib is not installed.

    Example:
        >>> from keras_transformer import sinusoidal_positions
        >>> figure = position_similarity(sinusoidal_positions(50, 64))
        >>> figure.axes[0].images[0].get_array().shape
        (50, 50)
    """
    positions = _check_positions(positions)
    unit = positions / np.maximum(np.linalg.norm(positions, axis=1, keepdims=True), 1e-9)
    similarity = unit @ unit.T  # (T, T)
    middle = len(positions) // 2
    figure = new_figure(9, 4)
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1])
    image = heat_map(left, similarity, limits=(min(0, similarity.min()), 1))
    left.set(xlabel="position", ylabel="position")
    whole_ticks(left)
    left.axhline(middle, color=ACCENT, linewidth=1)
    figure.colorbar(image, ax=left, label="cosine")
    distances = np.arange(len(positions)) - middle
    right.plot(distances, similarity[middle], color=ACCENT, marker=marker(distances))
    right.set(xlabel=f"distance from position {middle}", ylabel="cosine", ylim=(None, 1.05))
    right.grid(alpha=0.3)
    whole_ticks(right, "x")
    return figure


def _check_positions(positions) -> np.ndarray:
    positions = np.asarray(ops.convert_to_numpy(positions), "float32")
    if positions.ndim != 2 or 0 in positions.shape:
        raise ValueError(
            "positions must have the shape (positions, dimensions), but have "
            f"{positions.shape}; sinusoidal_positions(50, 128) makes some."
        )
    return positions
