"""What a served model can be asked: one function a signature."""

import tensorflow as tf

from keras_transformer.decoding.length_penalty import LARGEST_ALPHA

# Of the inputs that are no strings.
DTYPES = {"length_penalty": tf.float32, "max_length": tf.int32}


def translation_signatures(graph) -> dict:
    """The signatures of an exported translator, by name.

    Every input is a vector of B values and every output has B rows, so that a server may join
    requests into a batch.

    - `serving_default`: `text` to `translation` and `score`, by the search of the settings;
      `greedy` and `beam`: the same by that search.
    - `nbest`: `text` to `translations`, `scores` and `lengths` [B, K], best first.
    - `translate`: `text`, `length_penalty`, `max_length` and `prefix` to `translation` and `score`,
      by the search of the settings; each row has its own options. `max_length` counts tokens; the
      translation begins with `prefix`.
    - `score`: `source` and `target` to `log_prob`, `token_log_probs` [B, T] and `length`, the
      number of tokens that were scored, end token included: of a longer target its first
      `max_length`, or `max_source_length` if that is more.
    - `align`: `text` to `translation`, `source_pieces` [B, S], `target_pieces` [B, T] and
      `attention` [B, T, S]; see `TranslationGraph.attention`. Padding is "" and 0.

    Args:
        graph: a `TranslationGraph`.

    Returns:
        A dict of `tf.function`s.
    """
    default = graph.settings.search
    return vector_functions(
        {
            "serving_default": (lambda text: translate(graph, text, default), ["text"]),
            "greedy": (lambda text: translate(graph, text, "greedy"), ["text"]),
            "beam": (lambda text: translate(graph, text, "beam"), ["text"]),
            "nbest": (lambda text: nbest(graph, text), ["text"]),
            "translate": (
                lambda text, length_penalty, max_length, prefix: translate_with_options(
                    graph, text, length_penalty, max_length, prefix
                ),
                ["text", "length_penalty", "max_length", "prefix"],
            ),
            "score": (lambda source, target: score(graph, source, target), ["source", "target"]),
            "align": (lambda text: align(graph, text), ["text"]),
        }
    )


def vector_functions(functions) -> dict:
    """Pairs of a function and the names of its inputs, as `tf.function`s of vectors."""

    def of_vectors(function, names):
        specs = [tf.TensorSpec([None], DTYPES.get(name, tf.string), name=name) for name in names]
        return tf.function(function, input_signature=specs, autograph=False)

    return {name: of_vectors(*function) for name, function in functions.items()}


def check_rows(name, first, **others):
    """Vectors of a request as they came, once each has been found as long as the first."""
    first = tf.reshape(first, [-1])
    others = {other: tf.reshape(values, [-1]) for other, values in others.items()}
    checks = [
        tf.debugging.assert_equal(
            tf.size(values), tf.size(first), f"{other} must have one value for each {name}."
        )
        for other, values in others.items()
    ]
    with tf.control_dependencies(checks):
        return [tf.identity(first), *map(tf.identity, others.values())]


def translate(graph, text, search):
    """`text` to `translation` and `score`; blank text to "" and 0."""
    source_ids, lengths = graph.source_ids(text)
    return _best(graph, lengths, graph.translations(source_ids, lengths, search))


def translate_with_options(graph, text, length_penalty, max_length, prefix):
    """`translate`, with options for each row."""
    text, length_penalty, max_length, prefix = check_rows(
        "text", text, length_penalty=length_penalty, max_length=max_length, prefix=prefix
    )
    source_ids, lengths = graph.source_ids(text)
    prefix_ids = graph.tokenizer.tokenize(prefix)[:, : graph.settings.max_length]  # (B, None)
    result = graph.search(
        source_ids,
        lengths,
        graph.settings.search,
        # NaN is not above 0 either.
        length_penalty=tf.where(length_penalty > 0, tf.minimum(length_penalty, LARGEST_ALPHA), 0.0),
        max_length=max_length,
        prefix_ids=prefix_ids.to_tensor(0),
    )
    return _best(graph, lengths, result)


def _best(graph, lengths, result):
    blank = lengths == 1
    return {
        "translation": tf.where(blank, "", graph.texts(result.ids)[:, 0]),
        "score": tf.where(blank, 0.0, result.scores[:, 0]),
    }


def nbest(graph, text):
    """`text` to the `beam_size` best `translations`, their `scores` and `lengths`."""
    source_ids, lengths = graph.source_ids(text)
    count = graph.settings.beam_size
    result = graph.search(source_ids, lengths, "beam", num_hypotheses=count)
    blank = (lengths == 1)[:, None]
    return {
        "translations": tf.where(blank, "", graph.texts(result.ids)),
        "scores": tf.where(blank, 0.0, result.scores),
        "lengths": tf.where(blank, 0, result.lengths),
    }


def score(graph, source, target):
    """The log-probability of `target` as the translation of `source`."""
    source, target = check_rows("source", source, target=target)
    source_ids, _ = graph.source_ids(source)
    target_ids, lengths = graph.target_ids(target)
    log_probs = graph.token_log_probs(source_ids, target_ids)
    return {
        "log_prob": tf.reduce_sum(log_probs, axis=1),
        "token_log_probs": log_probs,
        "length": lengths,
    }


def align(graph, text):
    """`text` to its `translation` and the attention between the pieces of both."""
    source_ids, lengths = graph.source_ids(text)
    result = graph.translations(source_ids, lengths, graph.settings.search)
    target_ids = result.ids[:, 0, : tf.reduce_max(tf.concat([result.lengths[:, 0], [1]], 0))]
    target_ids = tf.where((lengths == 1)[:, None], 0, target_ids)  # (B, T)
    table = tf.constant(["", *graph.tokenizer.pieces(range(1, graph.tokenizer.vocab_size))])
    return {
        "translation": _best(graph, lengths, result)["translation"],
        "source_pieces": tf.gather(table, source_ids),
        "target_pieces": tf.gather(table, target_ids),
        "attention": graph.attention(source_ids, target_ids),
    }
