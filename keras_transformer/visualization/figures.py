"""What all pictures share: the matplotlib figure, heat maps, and the pieces on their axes."""

import functools
import io
import re
import textwrap
import unicodedata
import warnings

import numpy as np

# White is 0, so a picture prints well and you see at once where something is.
SCORE_COLORS, SIGNED_COLORS = "Blues", "RdBu_r"
INK, ACCENT, FAINT = "#1f2933", "#b3261e", "#667080"

# The width of a character of a label, in inches.
CHARACTER = 0.074

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
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil"),
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


def label_axis(axis, labels) -> None:
    """Names the rows or columns of a heat map, each label taken literally.

    Args:
        axis: `axes.xaxis`, whose labels stand upright, or `axes.yaxis`.
        labels: strings; what looks like a formula is shown as it is.
    """
    upright = {"rotation": 90} if axis.axis_name == "x" else {}
    axis.set_ticks(range(len(labels)), visible(labels), fontsize=8, **upright)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)
        label.set_fontfamily(font_families())
    axis.set_tick_params(length=0)


@functools.cache
def font_families() -> list[str]:
    """Lists matplotlib's own font, and the installed ones that have other scripts."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return ["DejaVu Sans", *(font for font in FONTS if font in installed)]


def visible(labels) -> list[str]:
    """Returns the labels with a visible sign for each control character, such as a line break."""
    return [str(label).translate(CONTROL_SIGNS) for label in labels]


def text_width(text: str) -> float:
    """Estimates the width of a text, in inches: characters of the Far East count twice."""
    return CHARACTER * max(
        sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in line)
        for line in text.split("\n")
    )


def label_margin(labels) -> float:
    """Returns how many more inches the labels need beside a map than a short word."""
    return max(0.0, max(text_width(label) for label in visible(labels)) - 0.75)


def draw_title(figure, title: str) -> None:
    """Draws a title above a figure, in as many lines as it needs; the figure grows by them."""
    (title,) = visible([title])
    width = 1.5 * text_width(title)  # its characters are larger than a label's
    fitting = int(len(title) * figure.get_figwidth() / max(width, CHARACTER))
    lines = textwrap.wrap(title, max(fitting, 1)) or [""]
    figure.set_figheight(figure.get_figheight() + 0.2 * (len(lines) - 1))
    figure.suptitle("\n".join(lines), parse_math=False)


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
            "fonts-noto-cjk for Chinese, Japanese and Korean.",
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
