"""Pages of HTML that hold all they show: no file beside them, no network."""

import base64
import html
import json
import re
from importlib.resources import files

import numpy as np

from keras_transformer.visualization.attention import check_weights
from keras_transformer.visualization.figures import as_svg, visible


def attention_page(maps, *, title: str = "Attention", shown=None) -> str:
    """A page on which a reader points at a word and sees what it looks at.

    By mouse, finger or keyboard; with choosers for the layer and the head, or the mean of all
    heads. The weights stand in the page as JSON, in thousandths.

    Args:
        maps: a dict of a name to `(weights, queries, keys)`, the arguments of `attention_maps`.
        title: the heading.
        shown: a name and an index of its queries: the word that is shown first.

    Returns:
        The page, a string: write it to a file, in UTF-8, and open that in a browser.

    Raises:
        ValueError: if there is no map or no such word, or weights and pieces do not fit.

    Example:
        >>> weights = np.full((2, 4, 1, 2), 0.5)
        >>> attention_page({"encoder": (weights, ["it"], ["the", "animal"])})[:15]
        '<!doctype html>'
    """
    return page(title, [attention_part(maps, shown)])


def attention_part(maps, shown=None) -> str:
    """What `attention_page` shows below its heading, as a part of a larger `page`."""
    if not maps:
        raise ValueError("maps is empty; give at least one name with (weights, queries, keys).")
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
            "weights": np.rint(1000 * check_weights(weights, queries, keys)).astype(int).tolist(),
        }
        for name, (weights, queries, keys) in maps.items()
    ]
    shown = {"map": list(maps).index(name), "word": word}
    return _template("attention.html", data=script_json({"maps": data, "shown": shown}))


def page(title: str, parts) -> str:
    """A whole page.

    Args:
        title: any text.
        parts: strings of HTML, from the functions of this file.
    """
    return _template("page.html", title=html.escape(title), body="\n".join(parts))


def heading(text: str, explanation: str = "") -> str:
    """The beginning of a section: any text, and a paragraph of any text."""
    paragraph = f"\n<p>{html.escape(explanation)}</p>" if explanation else ""
    return f"<h2>{html.escape(text)}</h2>{paragraph}"


def picture(figure, description: str) -> str:
    """A matplotlib figure; the description is what is read out instead."""
    data = base64.b64encode(as_svg(figure).encode()).decode()
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return (
        f'<figure tabindex="0"><img src="data:image/svg+xml;base64,{data}" '
        f'width="{width}" height="{height}" alt="{html.escape(description)}"></figure>'
    )


def table(header, rows) -> str:
    """A table: any text, or numbers, which are rounded to two digits."""
    cells = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    lines = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table>\n<thead><tr>{cells}</tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )


def pieces_with_notes(pieces, notes) -> str:
    """The pieces of a sentence in a row, below each a short note: any text."""
    items = "".join(
        f"<li><bdi>{html.escape(piece)}</bdi><small>{html.escape(note)}</small></li>"
        for piece, note in zip(visible(pieces), notes, strict=True)
    )
    return f'<ol class="pieces">{items}</ol>'


def script_json(value) -> str:
    """JSON that can stand inside a script of a page, whatever text it holds: ASCII, no tags."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cell(value) -> str:
    if isinstance(value, str):
        return f'<td dir="auto">{html.escape(visible([value])[0])}</td>'
    return f'<td class="number">{value if isinstance(value, int) else f"{value:.2f}"}</td>'


def _template(name: str, **texts) -> str:
    """A file of this folder with the texts at the places `{{name}}`."""
    template = files(__package__).joinpath(name).read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: texts[match[1]], template)
