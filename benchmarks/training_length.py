"""What a token costs to train, and the memory it takes, as sentences grow.

    python benchmarks/training_length.py

Batches of as many tokens, of sentences of one length each; every length has a process of its own,
and they take turns.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
from arguments import positive
from training import CASES, OURS, take_turns, write_case
from workers import Worker

PRECISIONS = ("auto", "float32", "bfloat16", "float16")
LENGTHS = (32, 64, 128, 256, 512)
BATCH_TOKENS, NUM_BATCHES = 4096, 12


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=positive, default=LENGTHS, metavar="TOKENS")
    parser.add_argument("--repeats", type=positive, default=3, help="epochs after the first")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="auto", help="of products and activations"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        workers = {}
        for length in options.lengths:
            path = Path(directory) / str(length)
            path.mkdir()
            write_sentences(path, length, options)
            workers[length] = Worker(OURS, path)
        turns = take_turns(workers, options.repeats)
        for worker in workers.values():
            worker.close()
    report(turns)


def write_sentences(directory, length, options):
    case = {**CASES["small_fixed"], "batch_tokens": BATCH_TOKENS, "max_length": length}
    case["precision"] = options.precision
    random = np.random.default_rng(0)
    shape = (NUM_BATCHES * BATCH_TOKENS // length, length - 1)  # the end token is added
    sides = [random.integers(4, case["vocab_size"], shape).tolist() for _ in range(2)]
    write_case(case, sides, directory)


def report(turns):
    seconds = {
        length: statistics.median(turn["seconds"] for turn in answers[1:])
        for length, answers in turns.items()
    }
    shortest = min(seconds)
    print(f"{'tokens':>7}{'tokens/s':>10}{'cost':>7}{'MiB':>7}")
    for length, value in seconds.items():
        rate = NUM_BATCHES * (BATCH_TOKENS // length * length) / value
        peak = turns[length][-1]["peak_mib"]
        print(f"{length:7}{rate:10,.0f}{value / seconds[shortest]:7.2f}{peak:7,.0f}")


if __name__ == "__main__":
    main()
