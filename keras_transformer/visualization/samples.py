"""Some translations to read, as a picture: TensorBoard's first screen shows no text."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

from keras_transformer.type_hints import Figure
from keras_transformer.visualization import figures

# Characters of a line, lines of a text; inches of a picture that fills one of TensorBoard's cards.
LINE, MOST_LINES = 60, 2
WIDTH, HEIGHT, LINE_HEIGHT = 4.6, 2.25, 0.155
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
            lines = wrapped(text)
            rows += [(mark if i == 0 else "", color, line) for i, line in enumerate(lines)]
        rows.append(("", figures.INK, ""))
    figure = figures.new_figure(WIDTH, max(HEIGHT, LINE_HEIGHT * len(rows)))
    figure.set_layout_engine("none")
    style = {"va": "top", "parse_math": False, "fontfamily": figures.font_families()}
    for i, (mark, color, line) in enumerate(rows):
        y = 1 - (0.08 + LINE_HEIGHT * i) / figure.get_figheight()
        weight = "bold" if color == figures.INK else "normal"
        figure.text(0.015, y, mark, color=figures.FAINT, fontsize=7, **style)
        figure.text(0.14, y, line, color=color, fontweight=weight, fontsize=7.5, **style)
    return figure


def wrapped(text: str) -> list[str]:
    """Returns a text in lines, the last one with a sign if there would be too many."""
    (text,) = figures.visible([text])
    is_wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text) > len(text) / 3
    lines = textwrap.wrap(text, LINE // 2 if is_wide else LINE) or ["(empty)"]
    shown = lines[:MOST_LINES]
    return shown if len(lines) <= MOST_LINES else [*shown[:-1], f"{shown[-1][:-2]} \u2026"]
