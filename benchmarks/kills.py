"""Kills trainings at random moments and resumes them: does each end as if it was never stopped?

    python benchmarks/kills.py --kills 40

Each training is `keras-transformer train ... --resume`, of a model of one small layer on generated
sentences. It is killed with SIGKILL at a random moment, from its first second on, and started again
with the same words, until it ends. Then its weights must be those of a training that ran through,
bit for bit, and so must the logs of its epochs. Exits with 1 if not.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from arguments import positive

SMALLEST = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.1}
FIRST_MOMENT = 1.0
# What differs from run to run.
TIMES = {"tokens_per_second", "seconds"}


def main(arguments=None) -> int:
    options = parse_options(arguments)
    folder = Path(options.out or tempfile.mkdtemp(prefix="kills-"))
    text = write_text(folder, options.pairs)
    start = time.monotonic()
    if status := subprocess.run(command(folder / "whole", text, options)).returncode:
        return status
    longest = time.monotonic() - start
    expected = result(folder / "whole")
    print(f"a run of {options.epochs} epochs takes {longest:.1f} s", flush=True)
    generator, killed, run = random.Random(options.seed), 0, 0
    while killed < options.kills:
        run += 1
        out = folder / f"killed-{run}"
        ended = False
        while not ended:
            moment = generator.uniform(FIRST_MOMENT, longest) if killed < options.kills else None
            ended = start_and_kill(command(out, text, options), moment)
            if not ended:
                killed += 1
                print(f"kill {killed} after {moment:.1f} s leaves {left(out)}", flush=True)
        if result(out) != expected:
            print(f"{out} differs from {folder / 'whole'}")
            return 1
        print(f"run {run} ends as the one that was not killed", flush=True)
    print(f"{killed} of {killed} kills: each run went on, with the same end")
    return 0


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=positive, default=40, metavar="N")
    parser.add_argument("--epochs", type=positive, default=40, metavar="N")
    parser.add_argument("--pairs", type=positive, default=100, metavar="N", help="of sentences")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", metavar="DIRECTORY", help="keeps the runs there")
    return parser.parse_args(arguments)


def write_text(folder, number) -> Path:
    """Writes generated pairs to a file."""
    from keras_transformer.data.synthetic import synthetic_pairs

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "text.tsv"
    lines = "".join(f"{source}\t{target}\n" for source, target in synthetic_pairs(number))
    path.write_text(lines, "utf-8")
    return path


def command(out, text, options):
    """The command line of a training, by this file: no preset is so small."""
    arguments = ["--tsv", text, "--vocab-size", 400, "--batch-tokens", 512, "--keep", 2]
    arguments += ["--epochs", options.epochs, "--precision", "float32", "--clip-norm", 1.0]
    arguments += ["--warmup-steps", 50, "--ema", 0.9, "--bpe-dropout", 0.1, "--quiet"]
    arguments += ["--resume", "--out", out]
    return [sys.executable, __file__, "train", *map(str, arguments)]


def start_and_kill(arguments, moment) -> bool:
    """Starts a training; returns whether it ended before it was killed."""
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as process:
        try:
            _, said = process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
            return False
    if process.returncode:
        raise SystemExit(f"a start was refused: {said.decode().strip()}")
    return True


def left(out) -> str:
    """Says how far a killed run had come."""
    if not (out / "record.json").is_file():
        return "no record"
    states = sorted(path.stem for path in (out / "checkpoints").glob("state-*"))
    return states[-1] if states else "a record and no state"


def result(out):
    """What a run has come to: the bytes of its weights, and the logs of its epochs."""
    from keras_transformer.inference.run_directory import load_run
    from keras_transformer.training.checkpoints import read_history

    model, _ = load_run(out)
    weights = [weight.tobytes() for weight in model.get_weights()]
    history = read_history(out / "checkpoints")
    return weights, [{k: v for k, v in logs.items() if k not in TIMES} for logs in history]


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if sys.argv[1:2] == ["train"]:
        from keras_transformer import cli, presets

        presets.TINY = SMALLEST
        sys.exit(cli.main(sys.argv[1:]))
    sys.exit(main())
