"""Some translations to read, as a picture: TensorBoard's first screen shows no text."""

from __future__ import annotations

from collections.abc import Sequence

from keras_transformer.type_hints import Figure
from keras_transformer.visualization import figures

# Points of a line, lines of a text; inches of a picture that fills one of TensorBoard's cards.
SIZE, MOST_LINES = 7.5, 2
WIDTH, HEIGHT, LINE_HEIGHT = 4.6, 2.25, 0.155
# Less than there is: with few pixels, a line may be a twentieth wider than in its font.
LINE_WIDTH = 3.7
# The mark at the left and the color of a source, its translation and a reference.
KINDS = (("source", figures.FAINT), ("model", figures.INK), ("reference", figures.FAINT))


def samples_figure(samples: Sequence[tuple[str, str, str]]) -> Figure:
    """Draws translations below their sources and above their references.

    Args:
        samples: tuples of source, translation and reference; two fill a card of TensorBoard.

    Returns:
        A matplotlib figure; each line is a text.
    """
    rows = []
    for sample in samples:
        for (mark, color), text in zip(KINDS, sample, strict=True):
            lines = shortened(text)
            rows += [(mark if i == 0 else "", color, line) for i, line in enumerate(lines)]
        rows.append(("", figures.INK, ""))
    figure = figures.new_figure(WIDTH, max(HEIGHT, LINE_HEIGHT * len(rows)))
    figure.set_layout_engine("none")
    for i, (mark, color, line) in enumerate(rows):
        y = 1 - (0.08 + LINE_HEIGHT * i) / figure.get_figheight()
        weight = "bold" if color == figures.INK else "normal"
        figure.text(0.015, y, mark, color=figures.FAINT, fontsize=7, va="top")
        figure.text(0.14, y, line, color=color, fontweight=weight, fontsize=SIZE, va="top")
    figures.show_literally(figure.texts)
    return figure


def shortened(text: str) -> list[str]:
    """Returns a text in lines, the last one with a sign if there would be too many."""
    lines = figures.wrapped(text, LINE_WIDTH, SIZE) or ["(empty)"]
    shown = lines[:MOST_LINES]
    return shown if len(lines) <= MOST_LINES else [*shown[:-1], f"{shown[-1][:-2]} \u2026"]
