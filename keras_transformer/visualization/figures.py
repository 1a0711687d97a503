"""What all pictures share: the matplotlib figure, heat maps, and the pieces on their axes."""

import functools
import io
import math
import re
import unicodedata
import warnings

import numpy as np

# White is 0, so a picture prints well and you see at once where something is.
SCORE_COLORS, SIGNED_COLORS = "Blues", "RdBu_r"
INK, ACCENT, FAINT = "#1f2933", "#b3261e", "#667080"

# Points: a label, a title. Inches: the narrowest row of a label, the longest side of all maps.
LABEL_SIZE, TITLE_SIZE = 8, 12
LABEL_ROW, LONGEST = 0.11, 58

# Unicode has a sign for each control character, but few fonts have them. The two that occur in text
# get signs that all fonts have.
CONTROL_SIGNS = {**{i: chr(0x2400 + i) for i in range(32)}, 127: "\u2421"}
CONTROL_SIGNS |= {ord("\n"): "↵", ord("\t"): "⇥"}
# XML, and so SVG, must not hold these.
CONTROL_SIGNS |= dict.fromkeys([*range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
# Fonts for scripts that matplotlib's own font lacks; the installed ones are used.
FONTS = (
    *(f"Noto Sans CJK {region}" for region in ("JP", "SC", "TC", "KR")),
    *("Source Han Sans", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "IPAexGothic", "IPAGothic"),
    *("Hiragino Sans", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic", "Arial Unicode MS"),
    *(f"Noto Sans {script}" for script in ("Devanagari", "Thai", "Bengali", "Tamil", "Telugu")),
    *(f"Noto Sans {script}" for script in ("Gujarati", "Gurmukhi", "Kannada", "Malayalam")),
    *(f"Noto Sans {script}" for script in ("Sinhala", "Khmer", "Lao", "Myanmar", "Ethiopic")),
    *("FreeSans", "Unifont"),
)


def new_figure(width: float, height: float):
    """Makes an empty figure, sizes in inches, without a window or global state.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need the package matplotlib: pip install matplotlib."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def heat_map(axes, values, *, limits, colors=SCORE_COLORS):
    """Draws a matrix, its first row on top; returns the image, for a color bar.

    Args:
        axes: the matplotlib axes.
        values: array (T, S).
        limits: the values at both ends of the colors.
        colors: the name of a matplotlib color map.
    """
    values, (low, high) = np.asarray(values, "float32"), limits
    cells = {"aspect": "auto", "interpolation": "none"}
    return axes.imshow(values, cmap=colors, vmin=low, vmax=high, **cells)


def draw_grid(axes, shape) -> None:
    """Draws thin lines between the cells of a heat map of this shape."""
    rows, columns = shape
    axes.hlines([row + 0.5 for row in range(rows - 1)], -0.5, columns - 0.5, color=FAINT, lw=0.4)
    axes.vlines([col + 0.5 for col in range(columns - 1)], -0.5, rows - 0.5, color=FAINT, lw=0.4)


def map_side(num_cells: int, cell: float, smallest: float, num_maps: int) -> float:
    """Returns the side of a map in inches; cells get smaller where all maps would be too long."""
    return min(max(cell * num_cells, smallest), LONGEST / num_maps)


def label_axis(axis, labels, side: float = math.inf) -> None:
    """Names the rows or columns of a heat map, each label taken literally.

    Args:
        axis: `axes.xaxis`, whose labels stand upright, or `axes.yaxis`.
        labels: strings; what looks like a formula is shown as it is.
        side: the length of the axis in inches; where rows are too narrow, some have no label.
    """
    upright = {"rotation": 90} if axis.axis_name == "x" else {}
    step = max(1, math.ceil(LABEL_ROW * len(labels) / side))
    places = range(0, len(labels), step)
    axis.set_ticks(places, visible(labels[::step]), fontsize=LABEL_SIZE, **upright)
    show_literally(axis.get_ticklabels())
    axis.set_tick_params(length=0)


def show_literally(texts) -> None:
    """Shows matplotlib texts as they are, in any script: what looks like a formula is none."""
    families = font_families()
    for text in texts:
        text.set(parse_math=False, fontfamily=families)


def whole_ticks(axes, axis: str = "both") -> None:
    """Numbers an axis in integers."""
    # With the usual minimum of 2 ticks, a single position gets fractions.
    axes.locator_params(axis, integer=True, min_n_ticks=1)


def marker(points) -> str:
    """Returns the marker of a line: a dot where it has too few points to be seen as one."""
    return "o" if len(points) < 3 else ""


def font_families() -> list[str]:
    """Lists matplotlib's own font, and the installed ones that have other scripts."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return ["DejaVu Sans", *(font for font in FONTS if font in installed)]


def visible(labels) -> list[str]:
    """Returns the labels with a visible sign for each control character, such as a line break."""
    return [str(label).translate(CONTROL_SIGNS) for label in labels]


def text_width(text: str, size: float = LABEL_SIZE) -> float:
    """Returns the width of a text in inches, as if it were bold."""
    return size / 72 * max(sum(map(_character_width, line)) for line in text.split("\n"))


@functools.cache
def _character_width(character: str) -> float:
    """Returns the width of a bold character, where its height is 1.

    What matplotlib's own font lacks is like a box in the scripts of the Far East, else a digit.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight="bold")))
    if not font.get_char_index(ord(character)):
        return 1.15 if unicodedata.east_asian_width(character) in "WF" else _character_width("0")
    font.set_size(100, 72)
    return font.load_char(ord(character)).linearHoriAdvance / 2**16 / 100


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Returns a text in lines of at most `width` inches, broken at spaces where there are some."""
    (text,) = visible([text])
    if text_width(text, size) <= width:
        return [text] if text.strip() else []
    lines = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size) <= width:
            lines[-1] = joined
        else:
            lines += _pieces(word, width, size)
    return lines


def _pieces(word: str, width: float, size: float) -> list[str]:
    """Cuts a word into pieces of at most `width` inches, but of at least a character."""
    pieces = [""]
    for character in word:
        longer = pieces[-1] + character
        fits = not pieces[-1] or text_width(longer, size) <= width
        pieces[-1:] = [longer] if fits else [pieces[-1], character]
    return pieces


def label_margin(labels) -> float:
    """Returns how many more inches the labels need beside a map than a short word."""
    return max([0.0, *(text_width(label) - 0.75 for label in visible(labels))])


def draw_title(figure, title: str) -> None:
    """Draws a title above a figure, in as many lines as it needs; the figure grows by them."""
    lines = wrapped(title, figure.get_figwidth(), TITLE_SIZE) or [""]
    figure.set_figheight(figure.get_figheight() + 0.2 * (len(lines) - 1))
    show_literally([figure.suptitle("\n".join(lines), fontsize=TITLE_SIZE)])


def check_pieces(name: str, pieces, count: int, of: str) -> None:
    """Raises a ValueError if there is not one piece for each of `count` ids or hypotheses."""
    if len(pieces) != count:
        raise ValueError(
            f"{name} must be one string for each of the {count} {of}, but there are {len(pieces)}; "
            "padding and the end token need a piece, too."
        )


def as_svg(figure) -> str:
    """Returns the figure as SVG. Its text stays text, so a browser finds a font for any script."""
    from matplotlib import rc_context

    # The same figure always gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "keras_transformer"}):
        return _saved(figure, format="svg", metadata={"Date": None})[0].decode()


def as_png(figure, dpi: int = 100) -> bytes:
    """Returns the figure as PNG; a warning names the characters that no installed font has."""
    image, missing = _saved(figure, format="png", dpi=dpi)
    if missing:
        warnings.warn(
            f"No installed font has {missing}, drawn as boxes; install one, such as the package "
            "fonts-noto-cjk for Chinese, Japanese and Korean, fonts-noto-core for other scripts.",
            stacklevel=2,
        )
    return image


def _saved(figure, **options) -> tuple[bytes, str]:
    """Returns the file, and the characters for which matplotlib found no font."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(buffer, facecolor="white", **options)
    missing = set()
    for warning in caught:
        glyph = re.match(r"Glyph (\d+) .*missing from", str(warning.message), re.DOTALL)
        if glyph:
            missing.add(chr(int(glyph[1])))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return buffer.getvalue(), " ".join(sorted(missing))
