"""Peak memory of a beam search over its length: small model, 8 sentences, beam 4, no early stop.

Each length is searched in a process of its own, after a search of one token, whose peak is what
TensorFlow, the model and the encoder need.
"""

import argparse
import multiprocessing
import resource
from dataclasses import replace

from engines import CASES, build_random


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=[32, 64, 128, 256, 512, 1024])
    options = parser.parse_args()
    print("tokens  MiB beyond a search of one token")
    for length in options.lengths:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(f"{length:6}  {pool.apply(growth, (length,)):.0f}", flush=True)


def growth(length) -> float:
    """MiB by which a search of `length` tokens raises this process's peak."""
    import tensorflow as tf

    from keras_transformer import Translator

    tf.config.threading.set_intra_op_parallelism_threads(1)
    model, tokenizer, texts, settings = build_random(CASES["long_512"]._replace(length=length))
    texts = tf.constant([text.encode() for text in texts])
    strategy = settings["strategy"]
    shortest = replace(strategy, min_length=1)
    Translator(model, tokenizer, shortest, max_length=1).translate_tensor(text=texts)
    before = peak()
    Translator(model, tokenizer, strategy, max_length=length).translate_tensor(text=texts)
    return peak() - before


def peak() -> float:
    """The most memory that this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
