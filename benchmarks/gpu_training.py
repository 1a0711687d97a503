"""Training on a GPU: this library on JAX and a compiled `torch.nn.Transformer` in turns.

    python benchmarks/gpu_training.py --json gpu.json

Random sentences of one length, prepared beforehand, so that neither TensorFlow nor a network is
needed; the same sizes, batches and bfloat16 for both, each in a process of its own.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from arguments import interpreter, new_file, positive
from training import flops_per_token, take_turns, write_case
from workers import Worker

from keras_transformer import presets

OURS, TORCH = "keras_jax", "torch_compiled"
PRESETS = ("tiny", "small", "base", "big")
VOCAB_SIZE = 37_000  # the paper's, English and German


def main():
    options = parse_options()
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # two processes share the device
    results = {}
    for preset in options.presets:
        with tempfile.TemporaryDirectory() as directory:
            case = write_sentences(preset, Path(directory), options)
            pythons = {OURS: sys.executable, TORCH: options.torch_python}
            workers = {
                engine: Worker(engine, directory, pythons[engine]) for engine in options.engines
            }
            turns = take_turns(workers, options.repeats)
            results[preset] = report(preset, case, turns, workers)
            for worker in workers.values():
                worker.close()
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--presets", nargs="+", choices=PRESETS, default=["base", "big"], metavar="NAME"
    )
    parser.add_argument("--engines", nargs="+", choices=(OURS, TORCH), default=(OURS, TORCH))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--batch-tokens", type=positive, default=25_600, help="target tokens")
    parser.add_argument("--length", type=positive, default=64, help="tokens of a sentence")
    parser.add_argument("--batches", type=positive, default=30, help="of an epoch")
    parser.add_argument("--vocab-size", type=int, default=VOCAB_SIZE)
    parser.add_argument("--repeats", type=positive, default=3, help="epochs after the first")
    parser.add_argument(
        "--torch-python", type=interpreter, default=sys.executable, help="of PyTorch's environment"
    )
    parser.add_argument(
        "--json", type=new_file, metavar="FILE", help="target tokens a second: preset -> engine"
    )
    options = parser.parse_args()
    if options.length > options.batch_tokens:
        parser.error(f"--length {options.length} is more than --batch-tokens holds")
    return options


def write_sentences(preset, directory, options):
    case = {**getattr(presets, preset.upper()), "vocab_size": options.vocab_size}
    case |= {"batch_tokens": options.batch_tokens, "warmup_steps": 4000}
    case |= {"max_length": options.length, "precision": options.precision}
    case["device"] = options.device
    random = np.random.default_rng(0)
    # The end token is added to each sentence.
    shape = (options.batches * (options.batch_tokens // options.length), options.length - 1)
    sides = [random.integers(4, case["vocab_size"], shape).tolist() for _ in range(2)]
    write_case(case, sides, directory)
    return case


def report(preset, case, turns, workers):
    rates = {
        engine: case["target_tokens"] / statistics.median(turn["seconds"] for turn in answers[1:])
        for engine, answers in turns.items()
    }
    print(f"\n{preset}: {case['target_tokens']:,} target tokens an epoch, {case['precision']}")
    bound = None
    if OURS in workers:
        products = workers[OURS].ask("products")["value"]
        bound = products / flops_per_token(case)
        print(f"products {products / 1e12:.2f} TFLOP/s, which bounds it at {bound:,.0f} tokens/s")
    print(f"{'engine':16}{'tokens/s':>12}{'of bound':>10}{'start s':>9}{'MiB':>9}")
    for engine, rate in rates.items():
        start = turns[engine][0]["seconds"] - case["target_tokens"] / rate
        share = f"{rate / bound:.0%}" if bound else "-"
        memory = workers[engine].ask("device_mib")["value"]
        print(f"{engine:16}{rate:12,.0f}{share:>10}{start:9.1f}{memory:9,.0f}")
    return rates


if __name__ == "__main__":
    main()
