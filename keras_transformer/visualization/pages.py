"""Pages of HTML that hold everything they show: no other file, no network."""

import base64
import html
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np

from keras_transformer.type_hints import TensorLike
from keras_transformer.visualization.attention import check_scores
from keras_transformer.visualization.figures import as_svg, visible

WORD_START = "\u2581"  # with which SentencePiece begins a piece that follows a space
SPECIAL = {"<s>", "</s>", "<pad>", "<unk>"}


def attention_page(
    maps: Mapping[str, tuple[TensorLike, Sequence[str], Sequence[str]]],
    *,
    title: str = "Attention",
    shown: tuple[str, int] | None = None,
) -> str:
    """Makes a page where you point at a word and see what it attends to.

    It works by mouse, finger and keyboard. You choose the layer and a head, or the mean of all
    heads, and words or the pieces of SentencePiece that they consist of. A word looks at another
    with the mean of its pieces, at the sum of that one's pieces. The page holds the scores as
    JSON, in thousandths.

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
            "queryWords": words_of(queries),
            "keyWords": words_of(keys),
            "scores": np.rint(1000 * check_scores(scores, queries, keys)).astype(int).tolist(),
        }
        for name, (scores, queries, keys) in maps.items()
    ]
    shown = {"map": list(maps).index(name), "word": word}
    return _template("attention.html", data=script_json({"maps": data, "shown": shown}))


def words_of(pieces) -> list[list[int]]:
    """Groups the indices of pieces by words.

    A word begins after a space. A special token is a word, and so is a piece of a script that
    writes no spaces.
    """
    words, has_spaces = [], any(piece.startswith(WORD_START) for piece in pieces)
    for i, piece in enumerate(pieces):
        before = pieces[i - 1] if i else ""
        begins = piece.startswith(WORD_START) or {piece, before} & SPECIAL
        if words and has_spaces and not (begins or _is_wide(piece[:1]) or _is_wide(before[-1:])):
            words[-1].append(i)
        else:
            words.append([i])
    return words


def word_text(pieces) -> str:
    """Returns the word that some pieces spell; a space alone stays as its piece."""
    return "".join(pieces).replace(WORD_START, " ").strip() or "".join(pieces)


def _is_wide(character) -> bool:
    return bool(character) and unicodedata.east_asian_width(character) in "WF"


def page(title: str, parts) -> str:
    """Makes a whole page.

    Args:
        title: any text.
        parts: strings of HTML, from the functions of this file.
    """
    return _template("page.html", title=html.escape(title), body="\n".join(parts))


def note(text: str) -> str:
    """Makes a paragraph that a reader should not miss, from any text."""
    return f'<p class="note" role="status">{html.escape(text)}</p>'


def form(text: str = "") -> str:
    """Makes a form that asks the page's server for another sentence."""
    return (
        '<form action="/" method="get"><label for="text">Sentence</label>\n'
        f'<input id="text" name="text" dir="auto" required value="{html.escape(text)}">'
        "\n<button>Translate</button></form>"
    )


def section(name: str, explanation: str, part: str, *, is_wide: bool = True) -> str:
    """Makes a section of a page; one that is not wide may stand beside another."""
    kind = ' class="wide"' if is_wide else ""
    return f"<section{kind}>{heading(name, explanation)}\n{part}</section>"


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


def words_with_notes(pieces, notes, word_notes) -> str:
    """Shows the words of a sentence in a row, a note below each, and its pieces with their notes.

    Args:
        pieces: strings.
        notes: a string for each piece.
        word_notes: a string for each word of `words_of(pieces)`.
    """
    shown, items = visible(pieces), []
    for word, note in zip(words_of(pieces), word_notes, strict=True):
        text = html.escape(word_text([shown[i] for i in word]))
        parts = "".join(
            f"<small><bdi>{html.escape(shown[i])}</bdi> {html.escape(notes[i])}</small>"
            for i in word
        )
        parts = f'<span class="parts">{parts}</span>' if len(word) > 1 else ""
        items.append(f"<li><bdi>{text}</bdi><small>{html.escape(note)}</small>{parts}</li>")
    return f'<ol class="pieces">{"".join(items)}</ol>'


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
