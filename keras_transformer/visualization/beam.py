"""A beam search as a tree: what it kept, what it dropped, and what won."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from keras_transformer.decoding.history import DEAD, ENDED, RETURNED, UNFINISHED, Hypothesis
from keras_transformer.type_hints import Figure
from keras_transformer.visualization import figures

# Inches: a row, the gap between two columns, and that between a label and a line.
ROW, GAP, SPACE = 0.36, 0.35, 0.06


def beam_tree(history: Sequence[Hypothesis], pieces: Sequence[str], *, num_dead: int = 1) -> Figure:
    """Draws the tree of a beam search: one column per token, log-probabilities below the pieces.

    A line leads from a hypothesis to its continuations. Dark lines lead to the results, which are
    numbered, the best first; an arrow leads from their log-probability to their score. The other
    hypotheses stayed in the beam for a while. A cross marks one that the search dropped, because
    others of the same length were more probable.

    Args:
        history: what `beam_history` returns.
        pieces: one string per hypothesis, the piece of its last token.
        num_dead: how many dropped continuations to draw per hypothesis, the most probable ones.

    Returns:
        A matplotlib figure with one axes; each hypothesis is a text, each continuation a line.

    Raises:
        ValueError: if the history is empty, or does not have one piece per hypothesis.
        ImportError: if matplotlib is not installed.

    Example:
        >>> from keras_transformer import Hypothesis
        >>> history = [
        ...     Hypothesis(-1, 2, 0, 0.0, 0.0, "kept"),
        ...     Hypothesis(0, 3, 1, -0.1, -0.1, "returned"),
        ...     Hypothesis(0, 7, 1, -2.4, -2.4, "dead"),
        ... ]
        >>> figure = beam_tree(history, ["<s>", "</s>", "dog"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['<s>', '</s>  #1\\n-0.10 → -0.10', 'dog ×\\n-2.40']
    """
    figures.check_pieces("pieces", pieces, len(history), "hypotheses")
    if not history:
        raise ValueError("history is empty; give what beam_history returns.")
    rows = tree_rows(history, num_dead)
    winning = {i for i, score in enumerate(best_scores(history)) if score > float("-inf")}
    labels = _labels(history, figures.visible(pieces))
    lefts = _column_lefts(history, {i: labels[i] for i in rows})
    figure = figures.new_figure(lefts[-1] + 0.2, ROW * (max(rows.values()) + 1.4))
    axes = figure.subplots()
    axes.set(xlim=(0, lefts[-1]), ylim=(max(rows.values()) + 0.7, -0.7))
    axes.set_axis_off()
    for i, row in rows.items():
        node = history[i]
        color = figures.INK if i in winning else figures.FAINT
        weight = "bold" if node.fate == RETURNED else "normal"
        style = {"color": color, "fontsize": figures.LABEL_SIZE, "fontweight": weight}
        axes.text(lefts[node.length], row, labels[i], va="center", **style)
        if node.parent >= 0:
            end, start_row = lefts[node.length] - SPACE, rows[node.parent]
            start = lefts[node.length - 1] + figures.text_width(labels[node.parent]) + SPACE
            bend = lefts[node.length] - GAP / 2
            xs, ys = [start, bend, bend, end], [start_row, start_row, row, row]
            axes.plot(xs, ys, color=color, linewidth=1.6 if i in winning else 0.8)
    figures.show_literally(axes.texts)
    return figure


def tree_rows(history, num_dead: int) -> dict:
    """Chooses the row of each hypothesis that is drawn; its column is its length.

    A hypothesis is on the row of its best continuation. The others hang below, as close as they can
    without crossing lines. Those of the longest hypotheses come first: their lines are shortest.

    Args:
        history: list of `Hypothesis`.
        num_dead: how many dropped continuations to draw of each.

    Returns:
        A dict of index to row.
    """
    children = _drawn_children(history, num_dead)

    def block(i):
        """Returns the rows of `i` and all below it, and the cells of columns and gaps they take."""
        line = [i]
        while children[line[-1]]:
            line.append(children[line[-1]][0])
        rows = dict.fromkeys(line, 0)
        taken = {(0, x) for x in range(2 * history[i].length - 1, 2 * history[line[-1]].length + 1)}
        for parent in reversed(line):
            gap, lowest = 2 * history[parent].length + 1, 0
            for child in children[parent][1:]:
                inner_rows, inner_taken = block(child)
                row = lowest + 1
                while any((row + r, x) in taken for r, x in inner_taken):
                    row += 1
                rows |= {j: row + r for j, r in inner_rows.items()}
                taken |= {(row + r, x) for r, x in inner_taken}
                lowest = row
            taken |= {(row, gap) for row in range(1, lowest + 1)}
        return rows, taken

    return block(0)[0]


def best_scores(history) -> list[float]:
    """Returns the score of the best result that each hypothesis leads to, or minus infinity."""
    best = [node.score if node.fate == RETURNED else float("-inf") for node in history]
    for i in range(len(history) - 1, 0, -1):  # children come after their parents
        best[history[i].parent] = max(best[history[i].parent], best[i])
    return best


def _drawn_children(history, num_dead: int) -> list[list[int]]:
    """Lists the continuations to draw of each hypothesis, the way to the best result first."""
    best = best_scores(history)
    children = [[] for _ in history]
    for i, node in enumerate(history[1:], start=1):
        children[node.parent].append(i)
    for siblings in children:
        siblings.sort(key=lambda i: (-best[i], history[i].fate == DEAD, -history[i].log_prob))
        num_alive = sum(history[i].fate != DEAD for i in siblings)
        del siblings[num_alive + num_dead :]  # the dead come last
    return children


def _labels(history, pieces) -> list[str]:
    results = [i for i, node in enumerate(history) if node.fate == RETURNED]
    results.sort(key=lambda i: -history[i].score)
    signs = {DEAD: " ×", UNFINISHED: " …"}
    signs |= {i: f"  #{rank}" for rank, i in enumerate(results, start=1)}
    labels = list(pieces[:1])
    for i, (node, piece) in enumerate(zip(history[1:], pieces[1:], strict=True), start=1):
        sign = signs.get(i, signs.get(node.fate, ""))
        score = f" → {node.score:.2f}" if node.fate in (RETURNED, ENDED) else ""
        labels.append(f"{piece}{sign}\n{node.log_prob:.2f}{score}")
    return labels


def _column_lefts(history, labels) -> list[float]:
    """Returns where each column begins, and where the last one ends, in inches."""
    columns = defaultdict(list)
    for i, label in labels.items():
        columns[history[i].length].append(figures.text_width(label))
    widths = (max(columns[length]) + GAP for length in sorted(columns))
    return list(itertools.accumulate(widths, initial=0.0))
