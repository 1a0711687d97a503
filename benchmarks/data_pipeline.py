"""Measures what a text of any size costs before and beside the training: a store and its batches.

    python benchmarks/data_pipeline.py --pairs 500000 --json pipeline.json

It writes generated pairs of 25 to 30 tokens a side, prepares a store, and reads batches from it,
each in a process of its own. Times are seconds of processor time, of all processes together, so
other work on the machine changes them little. Memory is the largest that one process had: all that
was resident, and of it what is not a file's and cannot be dropped. Rates are of one core.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from arguments import new_file, positive

BATCH_TOKENS, RATE, SAMPLED_LINES = 25_000, 0.1, 100_000
DEVICES, DEVICE_TOKENS = 8, 617_000  # target tokens a second of an H100, docs/results.md


def main():
    options = parse_options()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](Path(options.folder), options)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        write_text(Path(folder), options.pairs)
        results = {"pairs": options.pairs, "prepare": prepare(Path(folder), options)}
        for name in MEASURES:
            results[name] = measured(name, folder, options)
    results["devices"] = cores_for_devices(results)
    report(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=positive, default=500_000)
    parser.add_argument("--vocab-size", type=positive, default=32_000)
    parser.add_argument("--processes", type=positive, default=os.cpu_count())
    parser.add_argument("--folder", help="where text and store are written, and removed")
    parser.add_argument("--json", type=new_file, metavar="FILE")
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    return parser.parse_args()


def write_text(folder, pairs):
    """Writes invented words, some of them frequent as in a language, of one to five syllables."""
    random = np.random.default_rng(0)
    for name, letters in (("source", "bdfgklmnprst"), ("target", "bcdfhjklmprtvwz")):
        syllables = [a + b for a in letters for b in "aeiou"] + [c + "en" for c in letters]
        drawn = random.integers(len(syllables), size=(60_000, 5))
        sizes = random.integers(1, 6, 60_000)
        words = [
            "".join(syllables[i] for i in row[:n]) for row, n in zip(drawn, sizes, strict=True)
        ]
        with open(folder / name, "w", encoding="utf-8") as file:
            for begin in range(0, pairs, 50_000):
                lengths = random.integers(20, 28, min(50_000, pairs - begin))
                places = np.minimum(random.zipf(1.15, lengths.sum()) - 1, len(words) - 1)
                chosen = iter(map(words.__getitem__, places.tolist()))
                file.writelines(
                    " ".join(next(chosen) for _ in range(length)) + ".\n" for length in lengths
                )


def prepare(folder, options):
    """Runs the command, the learning of the vocabulary included."""
    arguments = ["--source", folder / "source", "--target", folder / "target"]
    arguments += ["--vocab-size", options.vocab_size, "--processes", options.processes, "--quiet"]
    command = [sys.executable, "-m", "keras_transformer", "prepare", *arguments]
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    subprocess.run([*map(str, command), "--out", folder / "store"], check=True)
    wall, end = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    size = sum(path.stat().st_size for path in (folder / "store").iterdir())
    seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    memory = {"peak_gb": end.ru_maxrss * 1024 / 1e9}
    return {"seconds": seconds, "wall_seconds": wall, "store_gb": size / 1e9, **memory}


def measured(name, folder, options):
    """Runs one measure in a process of its own."""
    command = [sys.executable, __file__, "--measure", name, "--folder", folder]
    command += ["--pairs", str(options.pairs)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def second_start(folder, options):
    """Begins within an epoch as `train --resume` does, TensorFlow and Keras imported."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    imported = time.process_time()
    batches = opened(folder)
    next(batches.epoch(3, batches.num_batches // 2))
    return {"seconds": time.process_time(), "imports": imported, **memory()}


def batches(folder, options):
    """Reads batches without TensorFlow, one epoch or 20 seconds of it."""
    source = opened(folder)
    start = time.process_time()
    epoch = source.epoch(0)
    next(epoch)
    planned, number, tokens = time.process_time(), 0, 0
    for _, labels in epoch:
        number, tokens = number + 1, tokens + int(np.count_nonzero(labels))
        if time.process_time() - planned > 20:
            break
    seconds = time.process_time() - planned
    rates = {"batches_per_second": number / seconds, "tokens_per_second": tokens / seconds}
    rows = len(source.kept) / source.num_batches
    return {"plan_seconds": planned - start, "pairs_per_batch": rows, **rates, **memory()}


def bpe_dropout(folder, options):
    """Splits lines at random: as the worker processes do from ids, and by SentencePiece."""
    import sentencepiece

    from keras_transformer import TokenStore
    from keras_transformer.data import sampled_epochs

    path, pairs = str(folder / "store"), min(options.pairs, SAMPLED_LINES // 2)
    chunk = min(sampled_epochs.CHUNK, pairs)
    sampled_epochs.split_chunk(path, 0, RATE, (0, 0, 0), 200)  # reads the vocabulary
    start = time.process_time()
    for begin in range(0, pairs, chunk):
        sampled_epochs.split_chunk(path, begin, RATE, (0, 0, 0), 200)
    ours = 2 * pairs / (time.process_time() - start)
    model = TokenStore(path).tokenizer_model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    lines = []
    for side in ("source", "target"):
        with open(folder / side, encoding="utf-8") as file:
            lines += [line.rstrip("\n") for line in itertools.islice(file, pairs)]
    sampling = {"enable_sampling": True, "alpha": RATE, "nbest_size": -1, "num_threads": 1}
    start = time.process_time()
    for begin in range(0, len(lines), chunk):
        processor.encode(lines[begin : begin + chunk], **sampling)
    theirs = len(lines) / (time.process_time() - start)
    return {"lines_per_second": ours, "sentencepiece": theirs, "ratio": ours / theirs}


MEASURES = {"second_start": second_start, "batches": batches, "bpe_dropout": bpe_dropout}


def opened(folder):
    """The batches of the store."""
    from keras_transformer import TokenStore

    return TokenStore(folder / "store").batches(batch_tokens=BATCH_TOKENS)


def memory():
    """Gigabytes that this process had at most, and those it has now that no file backs.

    `getrusage` would begin with the peak of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    anonymous, peak = (int(fields[name].split()[0]) * 1024 / 1e9 for name in ("RssAnon", "VmHWM"))
    return {"peak_gb": peak, "without_files_gb": anonymous}


def cores_for_devices(results):
    """The cores that feed eight devices, with and without BPE-dropout."""
    needed = DEVICES * DEVICE_TOKENS / BATCH_TOKENS
    plain = needed / results["batches"]["batches_per_second"]
    lines = needed * results["batches"]["pairs_per_batch"] * 2
    sampled = plain + lines / results["bpe_dropout"]["lines_per_second"]
    return {"batches_per_second": needed, "cores": plain, "cores_with_bpe_dropout": sampled}


def report(results):
    """Prints every figure."""
    print(f"{results['pairs']:,} pairs")
    for name, figures in results.items():
        if isinstance(figures, dict):
            values = ", ".join(f"{key} {value:,.2f}" for key, value in figures.items())
            print(f"{name}: {values}")


if __name__ == "__main__":
    main()
