"""Time and memory of a layer, or of a way to compare, each in a process of its own."""

import multiprocessing
import statistics
import time
from functools import partial
from pathlib import Path

TOKENS = 2048  # of a batch, about: as many for every length that divides them
SHORTEST_TURN = 0.15  # seconds
PAUSE = 0.2  # seconds, in which the threads of the last one come to rest
WARM_UPS = 3  # an optimizer of TensorFlow works on the first calls


def costs(cases, repeats):
    """The cost of cases that take turns.

    Args:
        cases: list of arguments of `build`.
        repeats: the number of turns.

    Returns:
        For each case a dict: `forward` and `training` (forward and backward), microseconds a token,
        the medians of all calls; `forward_mib` and `training_mib`, the peak of memory beyond that
        of two tokens.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for case in cases:
        pipe, theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(theirs, case), daemon=True))
        processes[-1].start()
        theirs.close()
        pipes.append(pipe)
    results = [pipe.recv() for pipe in pipes]
    times = [{"forward": [], "training": []} for _ in cases]
    for _ in range(repeats):
        for pipe, of_case in zip(pipes, times, strict=True):
            for kind, seconds in of_case.items():
                time.sleep(PAUSE)
                pipe.send(kind)
                seconds += pipe.recv()
    for process in processes:
        process.terminate()
        process.join()
    for result, of_case, (*_, length) in zip(results, times, cases, strict=True):
        tokens = max(TOKENS // length, 1) * length  # as many as fit, in whole sequences
        result |= {k: 1e6 * statistics.median(seconds) / tokens for k, seconds in of_case.items()}
    return results


def serve(pipe, case):
    """A process: sends the memory of a case, then times it when asked to."""
    for run in build(*case[:-1], length=2, tokens=2).values():
        run()
    before, memory = peak(), {}
    runs = build(*case)
    for kind, run in runs.items():
        run()
        memory[f"{kind}_mib"] = peak() - before
    for run in list(runs.values()) * WARM_UPS:
        run()
    pipe.send(memory)
    while True:
        run = runs[pipe.recv()]
        run()
        times = []
        while sum(times) < SHORTEST_TURN:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        pipe.send(times)


def build(what, name, width, length, tokens=TOKENS):
    """Functions of no arguments: `forward`, and `training`, which also works the gradients out.

    Args:
        what: "layer" or "scores".
        name: of the layer, or of the way to compare.
        width: `d_model`, or d_k.
        length: of the sequences.
        tokens: of the batch, about.
    """
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    parts = build_layer if what == "layer" else build_attention
    forward, inputs, weights = parts(name, width, length, max(tokens // length, 1))

    def training(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(forward(*inputs) ** 2)
        return tape.gradient(loss, [*inputs, *weights])

    graphs = {f.__name__: tf.function(f, autograph=False) for f in (forward, training)}
    return {kind: partial(graph, *inputs) for kind, graph in graphs.items()}


def build_layer(name, d_model, length, batch_size):
    """A layer as a function, its inputs, and its weights."""
    import keras
    from self_attention.layers import make

    layer = make(name, d_model)
    layer.build((batch_size, length, d_model))

    def forward(x):
        return layer(x)

    inputs = (keras.random.normal((batch_size, length, d_model)),)
    return forward, inputs, [weight.value for weight in layer.weights]


def build_attention(name, d_k, length, batch_size):
    """Attention as a function of queries, keys, values and v, and these; it has no weights."""
    import tensorflow as tf
    from self_attention.scores import attention, unit_inputs

    def forward(query, key, value, v):
        return attention(name, query, key, value, v)

    query, key, v = unit_inputs(d_k, batch_size, length, length)
    return forward, (query, key, tf.identity(key), v), []


def peak():
    """The most memory that this process has held, in MiB.

    Linux's own line of it: `getrusage` begins with the peak of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (row for row in lines if row.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
