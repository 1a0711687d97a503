"""How long one request takes in each precision, asked by 1, 4 and 16 clients, and the memory.

    python benchmarks/latency.py --case base_beam

The export of each precision is loaded in a process of its own, by TensorFlow configured as
docs/serving.md says. Each client is a thread that asks for the next sentence as soon as it has an
answer. p50 and p99 are the times that a half and 99 % of the requests do not exceed.
"""

import argparse
import ctypes
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import engines
from arguments import positive

PRECISIONS = ("float32", "bfloat16", "int8")
WARM_UPS = 3  # an optimizer of TensorFlow works on the first calls
MIB = 2**20


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as directory:
        texts = in_a_process(write, options.case, directory, options.precisions, options.threads)
        print(f"{options.case}\nprecision    disk, MiB  memory, MiB", end="")
        print("".join(f"   p50, p99 of {count:2}" for count in options.clients), " ms", flush=True)
        for precision in options.precisions:
            path = Path(directory) / precision / "1"
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / MIB
            memory, times = in_a_process(serve, path, texts, options)
            cells = "".join(f"{p50:9.0f}, {p99:6.0f}" for p50, p99 in times)
            print(f"{precision:10}{size:12.1f}{memory:13.0f} {cells}", flush=True)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=engines.CASES, default="base_beam")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--clients", nargs="+", type=positive, default=[1, 4, 16], metavar="N")
    parser.add_argument("--requests", type=several, default=100, help="of each client count")
    parser.add_argument("--threads", type=positive, default=os.cpu_count())
    return parser.parse_args()


def in_a_process(function, *arguments):
    """What `function` returns in a process that ends, with its threads and memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def write(case, directory, precisions, threads) -> list[str]:
    """Exports the model of a case in each precision; returns its sentences."""
    from keras_transformer import Translator

    model, tokenizer, texts, settings = engines.build(case)
    translator = Translator(model, tokenizer, **settings, num_parallel_batches=threads)
    for precision in precisions:
        path = Path(directory) / precision / "1"
        translator.export(path, precision=precision, signatures=())
    return texts


def serve(path, texts, options):
    """Loads an export; returns its memory in MiB, and (p50, p99) in ms for each client count."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's ops)

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    before = resident()
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    requests = [tf.constant([text.encode()]) for text in texts]
    for request in requests[:WARM_UPS]:
        signature(text=request)
    memory = resident() - before
    times = [percentiles(signature, requests, count, options.requests) for count in options.clients]
    return memory, times


def several(text):
    """A count of at least 2: fewer have no percentiles."""
    if positive(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of at least 2")
    return int(text)


def percentiles(signature, requests, clients, total):
    """(p50, p99) in ms of `total` requests by so many clients."""
    times = []  # appending is atomic

    def ask(client):
        for i in range(client, total, clients):
            start = time.perf_counter()
            signature(text=requests[i % len(requests)])["translation"].numpy()
            times.append(1000 * (time.perf_counter() - start))

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return cuts[49], cuts[98]


def resident() -> float:
    """The memory that this process holds, in MiB, but for what it has freed."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


if __name__ == "__main__":
    main()
