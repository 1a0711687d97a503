"""The precision of an exported model: a copy of the model in one, and which is the fastest here."""

import math
import time
from dataclasses import replace

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.data.special_tokens import NUM_SPECIAL_TOKENS
from keras_transformer.export.packed import SENTENCES, SOURCE_TOKENS, pack

PRECISIONS = ("float32", "bfloat16", "int8")
# The layers that take most of the time. The sums around them and the logits need more than
# bfloat16's 8 bits to rank close translations. The pattern matches whole paths, so it leaves out
# `feed_forward_residual` and the like.
SUBLAYERS = r".*/(self_attention|cross_attention|feed_forward)(/.*)?"
# How long a search is that is timed, in tokens, and how often it is.
STEPS, REPEATS = 16, 5


def in_precision(graph, precision: str) -> tuple:
    """Copies a graph, with a model that computes in a precision.

    Args:
        graph: a `TranslationGraph` or a `GenerationGraph`.
        precision: one of `PRECISIONS`.

    Returns:
        The graph, and all variables that its model reads.
    """
    model = serving_copy(graph.model, precision, graph.max_tokens)
    weights = pack(model, precision, graph.strategy.size)
    return replace(graph, model=model), weights


def serving_copy(model, precision: str, max_length: int):
    """Copies a model, with attention and feed-forward networks in `precision`.

    With bfloat16 their weights need half the memory, and a CPU with instructions for it does about
    twice the arithmetic. Embeddings, the sums of the residual connections, softmax, normalization,
    logits and the scores of a search stay in float32. A copy for int8 is one in float32, which
    `pack` completes.

    Args:
        model: a `Transformer` or a `LanguageModel`.
        precision: one of `PRECISIONS`.
        max_length: the length of the longest sequence, and of the copy's table of positions.

    Returns:
        A model of the same class.
    """
    policy = keras.dtype_policies.DTypePolicyMap("float32")
    policy[SUBLAYERS] = keras.DTypePolicy("float32" if precision == "int8" else precision)
    config = {**model.get_config(), "dtype": policy, "max_length": max_length}
    copy = type(model).from_config(config)
    if len(copy.weights) != len(model.weights):
        raise ValueError(
            "The model has other weights than its config: it was quantized, or has LoRA. Export it "
            "before quantize(); with LoRA, save_run and load_run it first, which adds up its "
            "matrices."
        )
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(ops.cast(old.value, new.dtype))
    return copy


def fastest_precision(graph) -> tuple[str, dict[str, list[float]]]:
    """Times searches in every precision, for one sentence and for some.

    Returns:
        The precision with the least product of times, and the seconds of a token's step for each
        number of sentences in `SENTENCES`, by precision. "int8" is not among them where this
        TensorFlow has no products of integers.
    """
    searches = {}
    for precision in PRECISIONS:
        try:
            searches[precision] = search_to_time(in_precision(graph, precision)[0])
        except RuntimeError:
            if precision != "int8":
                raise
    seconds = {precision: [] for precision in searches}
    for count in SENTENCES:
        times = {precision: [] for precision in searches}
        for _ in range(REPEATS + 1):  # the first call of each builds it
            for precision, search in searches.items():  # in turns: other work slows all of them
                start = time.perf_counter()
                search(count)
                times[precision].append(time.perf_counter() - start)
        for precision in searches:
            seconds[precision].append(min(times[precision][1:]) / STEPS)
    return min(seconds, key=lambda precision: math.prod(seconds[precision])), seconds


def search_to_time(graph):
    """Makes a search of `STEPS` steps, whatever the weights.

    Returns:
        A function of a number of sentences.
    """
    steps = min(STEPS, graph.max_length)
    graph, strategy = replace(graph, max_length=steps), replace(graph.strategy, min_length=steps)
    tokens = max(1, min(SOURCE_TOKENS, graph.max_tokens - steps))
    shape = max(SENTENCES), tokens
    known = NUM_SPECIAL_TOKENS, graph.tokenizer.vocab_size
    ids = tf.random.stateless_uniform(shape, [0, 0], *known, "int32")

    def search(count):
        return graph.search.best(ids[:count], tf.fill([count], tokens), strategy).ids.numpy()

    return search
