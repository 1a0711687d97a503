"""Marian by its package pymarian: synchronous updates, a batch shared out among the threads.

Its training is one command, which goes on from epoch to epoch. It is stopped by a signal where an
epoch ends, so that other engines can have their turn.
"""

import atexit
import os
import re
import signal
import subprocess
import sys
from pathlib import Path


class Engine:
    def __init__(self, case, directory):
        self.sizes = {name: count(directory / f"{name}.txt") for name in ("source", "target")}
        write_vocabulary(directory)
        command = [sys.executable, "-m", "pymarian", "train", *flags(self.options(case, directory))]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.process.send_signal(signal.SIGSTOP)
        atexit.register(self.process.kill)

    def epoch(self):
        """Trains an epoch; returns the loss of a token."""
        self.process.send_signal(signal.SIGCONT)
        log, losses, tokens = [], [], []
        for line in self.process.stderr:
            log.append(line)
            if update := re.search(r" : Cost ([\d.]+) \* ([\d,]+) ", line):
                tokens.append(int(update[2].replace(",", "")))
                losses.append(float(update[1]) * tokens[-1])
            if seen := re.search(r"Seen ([\d,]+) samples", line):
                break
        else:
            raise RuntimeError("".join(log))
        self.process.send_signal(signal.SIGSTOP)
        done = int(seen[1].replace(",", "")), sum(tokens)
        assert done == self.sizes["target"], f"{done} sentences and tokens, not all of the text"
        return sum(losses) / sum(tokens)

    def peak_mib(self):
        """The most memory that Marian's process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024

    def options(self, case, directory):
        rate = (case["d_model"] * case["warmup_steps"]) ** -0.5
        # Marian fills a batch by source tokens.
        tokens_of_a_side = [self.sizes[name][1] for name in ("source", "target")]
        batch_tokens = case["batch_tokens"] * tokens_of_a_side[0] // tokens_of_a_side[1]
        return {
            "type": "transformer",
            "train-sets": [directory / "source.txt", directory / "target.txt"],
            "vocabs": [directory / "vocabulary.yml"] * 2,
            "model": directory / "marian.npz",
            "tempdir": directory,
            "enc-depth": case["num_layers"],
            "dec-depth": case["num_layers"],
            "dim-emb": case["d_model"],
            "transformer-heads": case["num_heads"],
            "transformer-dim-ffn": case["d_ff"],
            "transformer-ffn-activation": "relu",
            "transformer-dropout": case["dropout"],
            "tied-embeddings-all": "true",
            "normalize-gradient": "true",
            "label-smoothing": 0.1,
            "clip-norm": 0,
            "optimizer-params": [0.9, 0.98, 1e-9],
            "learn-rate": rate,
            "lr-warmup": case["warmup_steps"],
            "lr-decay-inv-sqrt": case["warmup_steps"],
            "sync-sgd": "true",
            "cpu-threads": os.cpu_count(),
            "mini-batch-words": batch_tokens,
            "max-length": 200,
            "disp-freq": "1u",
            "seed": case.get("seed", 1),
        }


def flags(options):
    """A command line's arguments: each name with its value or values."""
    for name, value in options.items():
        yield f"--{name}"
        yield from map(str, value if isinstance(value, list) else [value])


def count(path):
    """The sentences of a file, and their tokens, each sentence's end included."""
    lines = path.read_text("utf-8").splitlines()
    return len(lines), sum(len(line.split()) + 1 for line in lines)


def write_vocabulary(directory):
    """The pieces under Marian's ids, after as many special tokens as the other engines have."""
    blank, start, end, *pieces = (directory / "vocabulary.txt").read_text("utf-8").split()
    lines = [f'"{piece}": {i}\n' for i, piece in enumerate([end, "<unk>", blank, start, *pieces])]
    (directory / "vocabulary.yml").write_text("".join(lines), "utf-8")
