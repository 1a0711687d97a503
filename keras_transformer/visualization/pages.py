"""Pages of HTML that hold everything they show: no other file, no network."""

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np

from keras_transformer._typing import Tensor
from keras_transformer.visualization.attention import check_scores
from keras_transformer.visualization.figures import as_svg, visible


def attention_page(
    maps: Mapping[str, tuple[Tensor, Sequence[str], Sequence[str]]],
    *,
    title: str = "Attention",
    shown: tuple[str, int] | None = None,
) -> str:
    """Makes a page where you point at a word and see what it attends to.

    It works by mouse, finger and keyboard. You choose the layer and a head, or the mean of all
    heads. The page holds the scores as JSON, in thousandths.

    Args:
        maps: a dict of names to `(scores, queries, keys)`, the arguments of `attention_maps`.
        title: the heading.
        shown: the word to show first: the name of a map and an index of its queries.

    Returns:
        The page, a string. Write it to a file in UTF-8 and open that in a browser.

    Raises:
        ValueError: if there is no map or no such word, or scores and pieces do not fit.

    Example:
        >>> scores = np.full((2, 4, 1, 2), 0.5)
        >>> attention_page({"encoder": (scores, ["it"], ["the", "animal"])})[:15]
        '<!doctype html>'
    """
    return page(title, [attention_part(maps, shown)])


def attention_part(maps, shown=None) -> str:
    """Makes the part of a `page` that `attention_page` shows below its heading."""
    if not maps:
        raise ValueError("maps is empty; give at least one name with (scores, queries, keys).")
    name, word = shown or (next(iter(maps)), 0)
    if name not in maps or not 0 <= word < len(maps[name][1]):
        raise ValueError(
            f"shown must be the name of a map and an index of its queries, but is {shown!r}; the "
            f"maps are {', '.join(maps)}."
        )
    data = [
        {
            "name": name,
            "queries": visible(queries),
            "keys": visible(keys),
            "scores": np.rint(1000 * check_scores(scores, queries, keys)).astype(int).tolist(),
        }
        for name, (scores, queries, keys) in maps.items()
    ]
    shown = {"map": list(maps).index(name), "word": word}
    return _template("attention.html", data=script_json({"maps": data, "shown": shown}))


def page(title: str, parts) -> str:
    """Makes a whole page.

    Args:
        title: any text.
        parts: strings of HTML, from the functions of this file.
    """
    return _template("page.html", title=html.escape(title), body="\n".join(parts))


def heading(text: str, explanation: str = "") -> str:
    """Makes a section's heading and a paragraph below it, both from any text."""
    paragraph = f"\n<p>{html.escape(explanation)}</p>" if explanation else ""
    return f"<h2>{html.escape(text)}</h2>{paragraph}"


def picture(figure, description: str) -> str:
    """Makes a picture of a matplotlib figure; a screen reader reads the description."""
    data = base64.b64encode(as_svg(figure).encode()).decode()
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return (
        f'<figure tabindex="0"><img src="data:image/svg+xml;base64,{data}" '
        f'width="{width}" height="{height}" alt="{html.escape(description)}"></figure>'
    )


def table(header, rows) -> str:
    """Makes a table of any text and numbers; floats are rounded to two digits."""
    cells = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    lines = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table>\n<thead><tr>{cells}</tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )


def pieces_with_notes(pieces, notes) -> str:
    """Shows the pieces of a sentence in a row, with a short note below each."""
    items = "".join(
        f"<li><bdi>{html.escape(piece)}</bdi><small>{html.escape(note)}</small></li>"
        for piece, note in zip(visible(pieces), notes, strict=True)
    )
    return f'<ol class="pieces">{items}</ol>'


def script_json(value) -> str:
    """Returns JSON that is safe in a script of a page, whatever text it holds: ASCII, no tags."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cell(value) -> str:
    if isinstance(value, str):
        return f'<td dir="auto">{html.escape(visible([value])[0])}</td>'
    return f'<td class="number">{value if isinstance(value, int) else f"{value:.2f}"}</td>'


def _template(name: str, **texts) -> str:
    """Fills the places `{{name}}` of a file in this folder."""
    template = files(__package__).joinpath(name).read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: texts[match[1]], template)
