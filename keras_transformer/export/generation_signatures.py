"""What a served language model can be asked: one function a signature."""

import tensorflow as tf

from keras_transformer.export.signatures import check_rows, vector_functions


def generation_signatures(graph) -> dict:
    """The signatures of an exported text generator, by name.

    Every input is a vector of B values and every output has B rows, so that a server may join
    requests into a batch.

    - `serving_default`: `text`, the prompts, to `text`, each prompt with its continuation,
      `continuation` and `score`, by the search of the settings.
    - `generate`: the same of `text` and `max_length`, the most tokens of each continuation.
    - `score`: `text` to `log_prob`, `token_log_probs` [B, T] and `length`, the number of tokens,
      end token included.

    Args:
        graph: a `GenerationGraph`.

    Returns:
        A dict of `tf.function`s.
    """
    return vector_functions(
        {
            "serving_default": (lambda text: generate(graph, text), ["text"]),
            "generate": (
                lambda text, max_length: generate(
                    graph, *check_rows("text", text, max_length=max_length)
                ),
                ["text", "max_length"],
            ),
            "score": (lambda text: score(graph, text), ["text"]),
        }
    )


def generate(graph, text, max_length=None):
    """Prompts to whole texts, continuations and scores."""
    result = graph.continuations(*graph.prompt_ids(text), max_length)
    continuation = graph.texts(result.ids)[:, 0]  # (B,)
    prompt = tf.strings.unicode_transcode(tf.reshape(text, [-1]), "UTF-8", "UTF-8")
    return {
        "text": tf.strings.join([prompt, continuation]),
        "continuation": continuation,
        "score": result.scores[:, 0],
    }


def score(graph, text):
    """The log-probability of given texts, and of each of their tokens."""
    ids, lengths = graph.text_ids(text)
    log_probs = graph.token_log_probs(ids)
    return {
        "log_prob": tf.reduce_sum(log_probs, axis=1),
        "token_log_probs": log_probs,
        "length": lengths,
    }
