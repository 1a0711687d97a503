"""The plots of docs/why_self_attention.md, from the figures as they are in the JSON file."""

import io

from PIL import Image
from self_attention.distance import LEARNT, NUM_ANSWERS, VOCAB_SIZE

from keras_transformer.visualization.figures import FAINT, as_png, new_figure

COLORS = {
    "self-attention": "#1f5fa8",
    "LSTM": "#b3261e",
    "convolution": "#2e7d32",
    "dot product / sqrt(d_k)": "#1f5fa8",
    "dot product": "#b3261e",
    "additive": "#7b4fa3",
}
SOLID = {"linestyle": "-", "marker": "o"}
DASHED = {"linestyle": "--", "marker": "o", "markersize": 4, "markerfacecolor": "white"}


def save_plots(results, directory):
    directory.mkdir(parents=True, exist_ok=True)
    draw = {"layers": costs, "scores": costs, "distance": distance, "scale": scale}
    for part in draw.keys() & results.keys():
        picture = Image.open(io.BytesIO(as_png(draw[part](results[part]), dpi=90)))
        # 64 colors: a third of the bytes, and no eye sees the difference.
        picture = picture.convert("RGB").quantize(64)
        picture.save(directory / f"why_self_attention_{part}.png", optimize=True)


def costs(results):
    """Time a token and memory over the length of the sequence."""
    figure = new_figure(9.5, 3.8)
    time, memory = figure.subplots(1, 2)
    for name, rows in results.items():
        lengths = [int(length) for length in rows]
        for kind, line in {"training": SOLID, "forward": DASHED}.items():
            look = {**line, "color": COLORS[name], "label": name if line is SOLID else None}
            time.plot(lengths, [row[kind] for row in rows.values()], **look)
            memory.plot(lengths, [row[f"{kind}_mib"] for row in rows.values()], **look)
    time.set(ylabel="microseconds a token")
    memory.set(ylabel="peak of 2,048 tokens, MiB")
    for axes in (time, memory):
        axes.set(xlabel="tokens in a sequence", yscale="log")
        sizes_on_x(axes, lengths)
    memory.plot([], [], **SOLID, color=FAINT, label="forward and backward")
    memory.plot([], [], **DASHED, color=FAINT, label="forward")
    memory.legend(fontsize=8, handlelength=3.5)
    return figure


def distance(results):
    """The share of tokens repeated rightly over their distance."""
    figure = new_figure(7, 3.6)
    axes = figure.subplots()
    every = sorted({int(d) for row in results.values() for d in row["tried"]})
    for name, row in results.items():
        accuracies = [figures["accuracy"] for figures in row["tried"].values()]
        tried = [int(d) for d in row["tried"]]
        axes.plot(tried, accuracies, "-o", color=COLORS[name], label=name)
    axes.axhline(LEARNT, color=FAINT, lw=0.8, ls="--")
    axes.text(every[-1], LEARNT - 0.02, "learnt", ha="right", va="top", color=FAINT, fontsize=8)
    axes.axhline(1 / VOCAB_SIZE, color=FAINT, lw=0.8, ls="--")
    axes.text(every[-1], 0.08, "guessed", ha="right", color=FAINT, fontsize=8)
    axes.set(xlabel="distance, tokens", ylabel=f"share right of {NUM_ANSWERS}", ylim=(0, 1.03))
    sizes_on_x(axes, every)
    axes.legend(loc="center right")
    return figure


def scale(results):
    """Entropy and gradients of softmax over d_k, with what is expected as crosses."""
    figure = new_figure(10.5, 3.8)
    entropy, at_scores, at_queries = figure.subplots(1, 3)
    for name, row in results.items():
        sizes = [int(d_k) for d_k in row]
        look = {"color": COLORS[name]}
        entropy.plot(sizes, [f["entropy"] for f in row.values()], label=name, **SOLID, **look)
        if all("expected_entropy" in figures for figures in row.values()):
            expected = [figures["expected_entropy"] for figures in row.values()]
            entropy.plot(sizes, expected, "x", color="black", ms=9, zorder=3)
        for axes, at in ((at_scores, "scores"), (at_queries, "queries")):
            for kind, line in {"median": SOLID, "rms": DASHED}.items():
                norms = [figures[f"{kind}_gradient_{at}"] for figures in row.values()]
                axes.plot(sizes, norms, **line, **look)
    entropy.plot([], [], "x", color="black", label="expected")
    entropy.set(ylabel="entropy of the weights, nats", ylim=(0, None))
    entropy.legend(fontsize=8)
    at_scores.set(ylabel="gradient at the scores", yscale="log")
    at_queries.set(ylabel="gradient at the queries", yscale="log")
    at_scores.plot([], [], **SOLID, color=FAINT, label="median")
    at_scores.plot([], [], **DASHED, color=FAINT, label="root mean square")
    at_scores.legend(fontsize=8, handlelength=3.5)
    for axes in (entropy, at_scores, at_queries):
        axes.set(xlabel="d_k")
        sizes_on_x(axes, sizes)
    return figure


def sizes_on_x(axes, sizes):
    """A logarithmic axis that names the sizes which were measured."""
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
