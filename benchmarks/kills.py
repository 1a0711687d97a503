"""Kills trainings at random moments and resumes them: does each end as if it was never stopped?

    python benchmarks/kills.py --kills 40

Each training is `keras-transformer train ... --resume`, of a model of one small layer on generated
sentences. It validates every few steps, which are no epoch of its text, and saves states between
them. It is killed at a random moment, from its first second on, and started again with the same
words, until it ends. One kill in three is SIGTERM, which it has to answer with a state and status
143, the others are SIGKILL. Then its weights must be those of a training that ran through, bit for
bit, and so must the logs of its epochs and the curves in TensorBoard, which may have no step twice.
Exits with 1 if not.
"""

import argparse
import os
import random
import signal
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
TERMINATED = 128 + signal.SIGTERM


def main(arguments=None) -> int:
    options = parse_options(arguments)
    folder = Path(options.out or tempfile.mkdtemp(prefix="kills-"))
    text = write_text(folder, options.pairs)
    start = time.monotonic()
    if status := subprocess.run(command(folder / "whole", text, options)).returncode:
        return status
    longest = time.monotonic() - start
    expected = result(folder / "whole")
    print(f"a run of {options.steps} steps takes {longest:.1f} s", flush=True)
    generator, killed, run = random.Random(options.seed), 0, 0
    while killed < options.kills:
        run += 1
        out = folder / f"killed-{run}"
        ended = False
        while not ended:
            moment = generator.uniform(FIRST_MOMENT, longest) if killed < options.kills else None
            by = signal.SIGTERM if killed % 3 == 2 else signal.SIGKILL
            ended = start_and_kill(command(out, text, options), moment, by)
            if not ended:
                killed += 1
                print(f"{killed}: {by.name} after {moment:.1f} s leaves {left(out)}", flush=True)
        if result(out) != expected:
            print(f"{out} differs from {folder / 'whole'}")
            return 1
        print(f"run {run} ends as the one that was not killed", flush=True)
    print(f"{killed} of {killed} kills: each run went on, with the same end")
    return 0


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=positive, default=40, metavar="N")
    parser.add_argument("--steps", type=positive, default=400, metavar="N")
    parser.add_argument("--valid-steps", type=positive, default=60, metavar="N")
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
    arguments += ["--max-steps", options.steps, "--valid-steps", options.valid_steps]
    arguments += ["--valid-split", 8, "--precision", "float32", "--clip-norm", 1.0]
    arguments += ["--warmup-steps", 50, "--ema", 0.9, "--bpe-dropout", 0.1, "--average", 2]
    arguments += ["--early-stopping", 0]
    arguments += ["--micro-batches", 2, "--r-drop", 1, "--r-drop-delay", 2, "--cooldown", 0.5]
    arguments += ["--save-minutes", 1e-6, "--resume", "--quiet", "--out", out]
    return [sys.executable, __file__, "train", *map(str, arguments)]


def start_and_kill(arguments, moment, by) -> bool:
    """Starts a training; returns whether it ended before it was killed."""
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as process:
        try:
            _, said = process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            process.send_signal(by)
            _, said = process.communicate()
            if by == signal.SIGKILL or process.returncode in (TERMINATED, -by):
                return False  # -15: before Python had begun
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
    """What a run has come to: the bytes of its weights, the logs of its epochs, and its curves."""
    from keras_transformer.inference.run_directory import load_run
    from keras_transformer.training.checkpoints import read_history

    model, _ = load_run(out)
    weights = [weight.tobytes() for weight in model.get_weights()]
    history = read_history(out / "checkpoints")
    logs = [{k: v for k, v in epoch.items() if k not in TIMES} for epoch in history]
    return weights, logs, curves(out / "logs")


def curves(logs):
    """All numbers that TensorBoard shows, in the order of their steps."""
    import tensorflow as tf
    from tensorboard.compat.proto.event_pb2 import Event

    points = []
    for path in sorted(map(str, logs.rglob("events.out.tfevents.*"))):
        for data in tf.data.TFRecordDataset(path).as_numpy_iterator():
            event = Event.FromString(data)
            for value in event.summary.value:
                is_number = value.metadata.plugin_data.plugin_name == "scalars"
                if is_number and not value.tag.endswith(tuple(TIMES)):
                    number = float(tf.make_ndarray(value.tensor))
                    points.append((os.path.dirname(path)[-5:], value.tag, event.step, number))
    return sorted(points)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if sys.argv[1:2] == ["train"]:
        from keras_transformer import cli, presets

        presets.TINY = SMALLEST
        sys.exit(cli.main(sys.argv[1:]))
    sys.exit(main())
