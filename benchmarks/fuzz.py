"""Odd requests to each signature of an export: every one must be answered, with whole values.

python benchmarks/fuzz.py exports/en-de --requests 10000

A request has 0 to 3 rows of random bytes, of characters of any class, of pieces that mean something
to a tokenizer, of up to 100,000 characters; and of numbers from NaN to the ends of their type. It
fails if the model raises, an answer has another number of rows, a text is not UTF-8, a number is
not finite, or a translation does not begin with its prefix.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, its ops are in the SavedModel

from keras_transformer.version_directory import saved_model_path

# An array of objects: one of strings would lose the NUL.
WORDS = np.array(
    [
        "a dog",
        "runs ",
        "</s>",
        "<s>",
        "<0x41>",
        "\u2581",
        "\ue000b",
        " ",
        "\t",
        "\n",
        "\x00",
        "\u200b",
        "\ufeff",
        "\u4f60\u597d",
        "\U0001f600",
        "e\u0301",
        "\u0627\u0644",
        "\u202e",
        "\ud800",
        "\ufffd",
    ],
    object,
)
LONGEST = 100_000
FLOATS = [0.0, -0.0, 0.6, 1e-45, -1.0, 10.0, 11.0, 3e38, -3e38, np.inf, -np.inf, np.nan]
INTS = [0, 1, 2, 3, 7, 64, 256, 257, 10**6, 2**31 - 1, -1, -7, -(2**31)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", help="what export wrote: a directory of versions, or a version")
    parser.add_argument("--requests", type=int, default=10_000, help="to each signature")
    parser.add_argument("--signatures", nargs="*", help="all by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path = saved_model_path(options.export)
    if path is None:
        parser.error(f"{options.export} is no export; name a directory that export has written")
    signatures = tf.saved_model.load(str(path)).signatures
    failures = 0
    for name in options.signatures or sorted(signatures):
        rng, start, found = np.random.default_rng(options.seed), time.perf_counter(), 0
        for i in range(options.requests):
            inputs = random_request(rng, signatures[name])
            if fault := fault_of(signatures[name], inputs):
                found += 1
                print(f"{name}, request {i}: {fault}; inputs {inputs!r:.300}", flush=True)
        seconds = time.perf_counter() - start
        print(f"{name}: {options.requests} requests, {found} errors, {seconds:.0f} s", flush=True)
        failures += found
    return int(failures > 0)


def random_request(rng, signature) -> dict:
    """A value for each input of a signature, all of the same 0 to 3 rows."""
    rows = rng.integers(0, 4)
    makers = {tf.string: random_text, tf.float32: random_float, tf.int32: random_int}
    specs = signature.structured_input_signature[1]
    return {name: [makers[spec.dtype](rng) for _ in range(rows)] for name, spec in specs.items()}


def random_text(rng) -> bytes:
    """Bytes of any kind; a hundredth is very long."""
    longest = LONGEST if rng.random() < 0.01 else 60
    length = int(longest ** rng.random())
    kind = rng.integers(4)
    if kind == 0:
        return rng.bytes(length)
    if kind == 1:
        return "".join(rng.choice(WORDS, length)).encode("utf-8", "surrogatepass")[:LONGEST]
    if kind == 2:
        plane = rng.choice([0x80, 0x800, 0x10000, 0x110000])
        codes = rng.integers(0, plane, length)
        return "".join(map(chr, codes)).encode("utf-8", "surrogatepass")
    return b"" if rng.random() < 0.3 else rng.choice(WORDS).encode("utf-8", "replace") * length


def random_float(rng) -> float:
    return float(rng.choice(FLOATS)) if rng.random() < 0.5 else float(np.float32(rng.normal() * 5))


def random_int(rng) -> int:
    return int(rng.choice(INTS)) if rng.random() < 0.5 else int(rng.integers(-(2**31), 2**31))


def fault_of(signature, inputs) -> str | None:
    """What is wrong with the answer to a request; None if nothing is."""
    specs = signature.structured_input_signature[1]
    try:
        answer = signature(**{k: tf.constant(v, specs[k].dtype) for k, v in inputs.items()})
    except Exception as error:
        return f"{type(error).__name__} {' '.join(str(error).split())[:200]}"
    rows = len(next(iter(inputs.values())))
    for name, values in answer.items():
        values = values.numpy()
        if len(values) != rows:
            return f"{name} has {len(values)} rows for {rows}"
        if values.dtype == object:
            try:
                [text.decode() for text in values.ravel()]
            except UnicodeDecodeError as error:
                return f"{name}: {error}"
        elif not np.isfinite(values).all():
            return f"{name} is not finite: {values}"
    return prefix_fault({k: v.numpy() for k, v in answer.items()}, inputs)


def prefix_fault(answer, inputs) -> str | None:
    """Whether a translation that ended does not begin with its prefix."""
    for i, prefix in enumerate(inputs.get("prefix", ())):
        translation, exists = answer["translation"][i], answer["score"][i] > -1e8
        try:
            prefix.decode()
        except UnicodeDecodeError:
            continue  # U+FFFD stands for what is no UTF-8
        if answer["ended"][i] and translation and exists and not translation.startswith(prefix):
            return f"{translation!r:.100} does not begin with {prefix!r:.100}"
    return None


if __name__ == "__main__":
    sys.exit(main())
