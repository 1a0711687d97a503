"""Translation by an exported SavedModel, CTranslate2 and Marian: same weights, same sentences.

    python benchmarks/decoding.py --json decoding.json --python marian=ENVIRONMENT/bin/python
    python benchmarks/decoding.py --cases multi30k --run runs/multi30k/raw-1 --test-data DIRECTORY

Every case gives all engines the same work: weights, sentences, beams of the same size, as many
tokens. Each engine lives in a process of its own, so that none runs beside another's threads; they
take turns, and the medians of several turns are compared.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import engines
from arguments import engine_and_interpreter, new_file, positive

ENGINES = ("graph", "graph_bfloat16", "graph_int8", "xla", "ctranslate2", "ctranslate2_int8")
MARIAN = ("marian", "marian_int8")

PAUSE = 0.3  # seconds; the threads of an engine spin for about 0.2 after a call
SHORTEST_TURN = 0.5  # seconds
WARM_UPS = 3  # an optimizer of TensorFlow works on the first calls


def main():
    options = parse_options()
    results = {}
    for name in options.cases:
        with tempfile.TemporaryDirectory() as directory:
            arguments = name, directory, options.threads, options.run, options.test_data
            in_a_process(engines.write, *arguments)
            wanted = [e for e in options.engines if engines.can_do(e, name)]
            seconds, results[name] = take_turns(name, directory, wanted, options)
            print_case(name, seconds, results[name])
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*engines.CASES, engines.REAL_TEXT]
    parser.add_argument("--cases", nargs="+", choices=every, metavar="CASE", help="by default all")
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES + MARIAN, metavar="ENGINE", help="by default all"
    )
    parser.add_argument(
        "--python", type=engine_and_interpreter, action="append", default=[], metavar="marian=PATH"
    )
    parser.add_argument("--repeats", type=positive, default=7)
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help="of each engine")
    parser.add_argument("--run", help=f"a trained run, for {engines.REAL_TEXT}")
    parser.add_argument("--test-data", help="folder of test_2016_flickr.en.gz, for the same")
    parser.add_argument(
        "--json", type=new_file, metavar="FILE", help="target tokens a second: case -> engine"
    )
    options = parser.parse_args()
    options.python = dict(options.python)
    if options.python.keys() - {"marian"}:
        parser.error("--python: only marian has an environment of its own; give marian=PATH")
    options.engines = options.engines or ENGINES + MARIAN * bool(options.python)
    has_text = options.run or options.test_data
    options.cases = options.cases or (every if has_text else list(engines.CASES))
    if engines.REAL_TEXT in options.cases and not (options.run and options.test_data):
        parser.error(f"the case {engines.REAL_TEXT} needs --run and --test-data")
    return options


def in_a_process(function, *arguments):
    """Calls `function` in a process that ends, with its threads and memory."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def take_turns(name, directory, wanted, options):
    """The median seconds of a call of each engine, and its target tokens a second."""
    context = multiprocessing.get_context("spawn")
    pipes, processes, tokens = {}, [], {}
    for engine in wanted:
        pipes[engine], theirs = context.Pipe()
        python = options.python.get("marian", sys.executable)
        arguments = (theirs, engine, name, directory, options.threads, python)
        processes.append(context.Process(target=serve, args=arguments, daemon=True))
        processes[-1].start()
        theirs.close()
        tokens[engine] = pipes[engine].recv()  # one after the other: each warms up alone
    times = {engine: [] for engine in wanted}
    for _ in range(options.repeats):
        for engine, pipe in pipes.items():
            time.sleep(PAUSE)
            pipe.send(None)
            times[engine] += pipe.recv()
    for process in processes:
        process.terminate()
    seconds = {engine: statistics.median(values) for engine, values in times.items()}
    return seconds, {engine: tokens[engine] / seconds[engine] for engine in wanted}


def serve(pipe, engine, name, directory, threads, python):
    """An engine's process: says how many tokens a call gives, then times turns when asked to.

    In a turn it is called once to wake its threads, and then timed for a while.
    """
    translate = engines.load(engine, name, directory, threads, python)
    for _ in range(WARM_UPS):
        translations = translate()
    pipe.send(engines.count_tokens(name, directory, translations))
    while True:
        pipe.recv()
        translate()
        times = []
        while sum(times) < SHORTEST_TURN:
            start = time.perf_counter()
            translate()
            times.append(time.perf_counter() - start)
        pipe.send(times)


def print_case(name, seconds, rates):
    print(f"\n{name}\n{'engine':20}{'seconds':>10}{'tokens/s':>12}{'of ctranslate2':>16}")
    reference = rates.get("ctranslate2")
    for engine, value in seconds.items():
        ratio = f"{rates[engine] / reference:.2f}" if reference else "-"
        print(f"{engine:20}{value:10.4f}{rates[engine]:12.0f}{ratio:>16}", flush=True)


if __name__ == "__main__":
    main()
