"""Why self-attention: the paper's comparison with recurrence and convolution, measured.

    python benchmarks/why_self_attention.py --json why.json --plots docs/images

What table 1 of "Attention Is All You Need" states of a layer of each kind: time and memory over the
length of the sequence, forward and backward; the products that must wait for one another; the
longest distance at which a layer learns to repeat a token. And section 3.2.1: dot-product against
additive attention, and what the scale `1 / sqrt(d_k)` is for.
"""

import argparse
import json
from pathlib import Path

from arguments import new_file, positive

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KEY_SIZES = (4, 16, 64, 256, 1024)
LONGEST_UNROLLED = 128  # tokens; a graph of as many steps


def main():
    options = parse_options()
    results = {}
    if options.json and Path(options.json).exists():
        results = json.loads(Path(options.json).read_text("utf-8"))
    for part in options.parts:
        results[part] = PARTS[part](options)
        report(part, results[part])
        if options.json:
            Path(options.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    if options.plots:
        from self_attention.plots import save_plots

        save_plots(json.loads(json.dumps(results)), Path(options.plots))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"nargs": "+", "type": int, "metavar": "N"}
    parser.add_argument(
        "--parts", nargs="*", choices=list(PARTS), default=list(PARTS), metavar="PART",
        help=f"of {', '.join(PARTS)}; the others are taken from the file of --json",
    )  # fmt: skip
    parser.add_argument("--lengths", **numbers, default=LENGTHS, help="of the sequences")
    parser.add_argument("--distances", **numbers, default=DISTANCES, help="at which to repeat")
    parser.add_argument("--key-sizes", **numbers, default=KEY_SIZES, help="d_k of the scale")
    parser.add_argument("--d-model", type=int, default=256, help="width of the layers timed")
    parser.add_argument("--d-k", type=int, default=64, help="width of the keys timed")
    parser.add_argument("--repeats", type=positive, default=5, help="turns of each case")
    parser.add_argument("--steps", type=positive, default=2000, help="of training, at most")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="where to write the figures")
    parser.add_argument("--plots", metavar="DIRECTORY", help="where to draw them")
    return parser.parse_args()


def layer_costs(options):
    """Layer -> length -> time and memory."""
    return costs_by_length("layer", ("self-attention", "LSTM", "convolution"), options)


def score_costs(options):
    """Way to compare -> length -> time and memory."""
    return costs_by_length("scores", ("dot product / sqrt(d_k)", "additive"), options)


def costs_by_length(what, names, options):
    from self_attention.cost import costs

    width = options.d_model if what == "layer" else options.d_k
    results = {name: {} for name in names}
    for length in options.lengths:
        rows = costs([(what, name, width, length) for name in names], options.repeats)
        for name, row in zip(names, rows, strict=True):
            results[name][length] = row
    return results


def sequential(options):
    """Layer -> length -> products in the longest chain."""
    from self_attention.layers import LAYERS, sequential_products

    lengths = [length for length in options.lengths if length <= LONGEST_UNROLLED]
    return {name: {n: sequential_products(name, n) for n in lengths} for name in LAYERS}


def distance(options):
    """Layer -> what it learns at each distance, and the longest."""
    from self_attention.distance import distances
    from self_attention.layers import LAYERS

    results = {name: distances(name, options.distances, options.steps) for name in LAYERS}
    print("\n".join(f"{name:24}learns up to {row['longest']}" for name, row in results.items()))
    return results


def scale(options):
    """Way to compare -> d_k -> how far softmax is saturated."""
    from self_attention.saturation import saturation
    from self_attention.scores import NAMES

    return {name: {d_k: saturation(name, d_k) for d_k in options.key_sizes} for name in NAMES}


def report(part, result):
    """Prints a table: a line for each name, a column for each size, of the figures in `SHOWN`."""
    for title, cell in SHOWN.get(part, {}).items():
        print(f"\n{title}")
        for name, row in result.items():
            cells = (f"{size}: {cell(figures)}" for size, figures in row.items())
            print(f"{name:24}", "  ".join(cells), flush=True)


PARTS = {
    "layers": layer_costs,
    "scores": score_costs,
    "sequential": sequential,
    "distance": distance,
    "scale": scale,
}
COSTS = {
    "microseconds a token, forward": lambda row: f"{row['forward']:.2f}",
    "microseconds a token, forward and backward": lambda row: f"{row['training']:.2f}",
    "MiB of 2,048 tokens, forward": lambda row: f"{row['forward_mib']:.0f}",
    "MiB of 2,048 tokens, forward and backward": lambda row: f"{row['training_mib']:.0f}",
}
SHOWN = {
    "layers": COSTS,
    "scores": COSTS,
    "sequential": {"matrix products that wait for one another": str},
    "scale": {
        "entropy": lambda row: f"{row['entropy']:.3f}",
        "slope of softmax": lambda row: f"{row['slope']:.3f}",
        "gradient at the scores, median": lambda row: f"{row['median_gradient_scores']:.2g}",
        "gradient at the queries, median": lambda row: f"{row['median_gradient_queries']:.2g}",
    },
}

if __name__ == "__main__":
    main()
