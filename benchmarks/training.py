"""Training on two cores: this library, OpenNMT-tf, KerasHub, PyTorch and Marian in turns.

    python benchmarks/training.py --text DIRECTORY/train --json training.json \
        --python opennmt_tf=ENVIRONMENT/bin/python --python torch_eager=ENVIRONMENT/bin/python

Every engine reads the same sentences, cut into the same pieces, and trains a model of the same
size, with as many tokens in a batch, in a process of its own, which may belong to another
environment (`--python ENGINE=PATH`). What counts are real target tokens a second over whole epochs,
input pipeline included; how much longer the first epoch takes, in which graphs are built, is shown
on its own.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from arguments import engine_and_interpreter, new_file, positive
from workers import Worker

OURS = "keras_transformer"
ENGINES = (OURS, "opennmt_tf", "keras_hub", "torch_eager", "torch_compiled", "marian")
TRAINING = {"warmup_steps": 2000, "batch_tokens": 4096}
CASES = {
    "tiny_multi30k": {
        **TRAINING,
        "num_layers": 4,
        "d_model": 128,
        "num_heads": 4,
        "d_ff": 256,
        "dropout": 0.3,
        "vocab_size": 8000,
    },
    "small_fixed": {
        **TRAINING,
        "num_layers": 3,
        "d_model": 256,
        "num_heads": 4,
        "d_ff": 1024,
        "dropout": 0.1,
        "vocab_size": 8000,
        "batch_tokens": 128 * 20,
    },
}
FIXED_PAIRS, FIXED_LENGTH = 128 * 40, 20


def main():
    options = parse_options()
    pythons = dict(options.python)
    results = {}
    for name in options.cases:
        with tempfile.TemporaryDirectory() as directory:
            case = prepare(name, Path(directory), options)
            rate = matrix_product_rate()
            workers = {
                engine: Worker(engine, directory, pythons.get(engine, sys.executable))
                for engine in options.engines
            }
            turns = take_turns(workers, options.repeats)
            results[name] = report(name, case, turns, rate)
            if OURS in workers:
                report_ours(case, workers[OURS], results[name][OURS])
            for worker in workers.values():
                worker.close()
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES, metavar="ENGINE")
    parser.add_argument(
        "--python", type=engine_and_interpreter, action="append", default=[], metavar="ENGINE=PATH"
    )
    parser.add_argument(
        "--text", help="path without suffix of .en.gz and .de.gz, for tiny_multi30k"
    )
    parser.add_argument("--limit", type=positive, help="use so many pairs only")
    parser.add_argument("--shards", choices=("auto", "one"), default="auto", help="of ours")
    parser.add_argument("--repeats", type=positive, default=3, help="epochs after the first")
    parser.add_argument(
        "--json", type=new_file, metavar="FILE", help="target tokens a second: case -> engine"
    )
    options = parser.parse_args()
    if "tiny_multi30k" in options.cases and not options.text:
        parser.error("the case tiny_multi30k needs --text")
    if unknown := {engine for engine, _ in options.python} - set(ENGINES):
        parser.error(f"--python: no engine is named {', '.join(unknown)}; of {', '.join(ENGINES)}")
    return options


def prepare(name, directory, options):
    """Writes a case's sentences for every engine, as pieces and as padded ids."""
    case = {**CASES[name], "shares_cores": options.shards == "auto"}
    if name == "small_fixed":
        random = np.random.default_rng(0)
        shape = (options.limit or FIXED_PAIRS, FIXED_LENGTH - 1)
        sides = [random.integers(4, case["vocab_size"], shape).tolist() for _ in range(2)]
    else:
        sides = tokenized(options, case)
    write_case(case, sides, directory)
    return case


def write_case(case, sides, directory):
    """Writes what every engine reads: pieces, padded ids, a vocabulary and the settings."""
    case["target_tokens"] = sum(len(row) + 1 for row in sides[1])
    pieces = [f"p{i}" for i in range(4, case["vocab_size"])]
    vocabulary = ["<blank>", "<s>", "</s>", *pieces]
    (directory / "vocabulary.txt").write_text("\n".join(vocabulary) + "\n", "utf-8")
    for side, rows in zip(("source", "target"), sides, strict=True):
        (directory / f"{side}.txt").write_text(as_pieces(rows), "utf-8")
    arrays = padded([row + [3] for row in sides[0]]), padded([[2, *row, 3] for row in sides[1]])
    np.savez(directory / "ids.npz", source=arrays[0], target=arrays[1])
    (directory / "case.json").write_text(json.dumps(case), "utf-8")


def as_pieces(rows):
    """A line of made-up words for each list of ids."""
    return "".join(" ".join(f"p{i}" for i in row) + "\n" for row in rows)


def tokenized(options, case):
    from keras_transformer import Tokenizer, read_lines

    texts = [read_lines(options.text + suffix)[: options.limit] for suffix in (".en.gz", ".de.gz")]
    tokenizer = Tokenizer.train_on_texts(texts[0] + texts[1], vocab_size=case["vocab_size"])
    case["vocab_size"] = tokenizer.vocab_size
    return [tokenizer.tokenize(side).to_list() for side in texts]


def padded(rows):
    width = max(map(len, rows)) + 8  # some engines cut at multiples
    ids = np.zeros((len(rows), width), "int32")
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def matrix_product_rate(size=2048, repeats=5):
    """GFLOP/s of float32 products, the best of a few."""
    a = np.ones((size, size), "float32")
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times) / 1e9


def take_turns(workers, repeats):
    """The answers of each worker, epoch by epoch."""
    turns = {name: [] for name in workers}
    for _ in range(1 + repeats):
        for name, worker in workers.items():
            turns[name].append(worker.ask("epoch"))
    return turns


def flops_per_token(case):
    """Of the products with weights, forward and backward: six for each weight and token."""
    d, width = case["d_model"], case["d_ff"]
    encoder, decoder = 4 * d * d + 2 * d * width, 8 * d * d + 2 * d * width
    return 6 * (case["num_layers"] * (encoder + decoder) + case["vocab_size"] * d)


def report(name, case, turns, rate):
    tokens = case["target_tokens"]
    rates = {
        engine: tokens / statistics.median(turn["seconds"] for turn in answers[1:] or answers)
        for engine, answers in turns.items()
    }
    bound = rate * 1e9 / flops_per_token(case)
    print(f"\n{name}: {tokens:,} target tokens an epoch, products {rate:.0f} GFLOP/s in float32,")
    print(f"which bounds float32 at {bound:,.0f} tokens/s")
    print(f"{'engine':20}{'tokens/s':>10}{'ratio':>8}{'of bound':>10}{'start s':>9}{'MiB':>7}")
    ours = rates.get(OURS)
    for engine, value in rates.items():
        start = turns[engine][0]["seconds"] - tokens / value
        ratio = f"{ours / value:.2f}" if ours else "-"
        peak = turns[engine][-1]["peak_mib"]
        print(f"{engine:20}{value:10,.0f}{ratio:>8}{value / bound:10.0%}{start:9.1f}{peak:7,.0f}")
    return rates


def report_ours(case, worker, rate):
    """This library's rate beside that of products in its precision, and of its input pipeline."""
    products = worker.ask("products")["value"]
    bound = products / flops_per_token(case)
    print(
        f"products in its precision {products / 1e9:.0f} GFLOP/s: {rate / bound:.0%} of their bound"
    )
    pipeline = case["target_tokens"] / worker.ask("pipeline")["seconds"]
    print(f"input pipeline alone {pipeline:,.0f} tokens/s, {pipeline / rate:.0f} times the model")


if __name__ == "__main__":
    main()
