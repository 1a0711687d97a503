"""Lists of strings on their way into a graph, and what has to fit for that."""

import keras
import tensorflow as tf

# A model's vocabulary may have so many ids more than its tokenizer, to be a multiple of 64 or 128.
VOCABULARY_PADDING = 128


def as_tensor(texts):
    """A list of strings as a string tensor."""
    return tf.constant([text.encode("utf-8", "replace") for text in texts], tf.string)


def check_backend(what: str) -> None:
    """A ValueError if Keras works on another backend than TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"A {what} is a TensorFlow graph, but the Keras backend is "
            f"{keras.backend.backend()}; set KERAS_BACKEND=tensorflow and load the weights there."
        )


def check_fit(what: str, model, sizes, tokenizer) -> None:
    """A ValueError if the backend has no graphs, or a vocabulary size is not the tokenizer's.

    `sizes` names those of the model. A TypeError if it or the tokenizer is something else.
    """
    check_backend(what)
    if not all(hasattr(model, name) for name in sizes):
        raise TypeError(f"{what} takes no model such as {model!r}, which has no {sizes[0]}.")
    if not hasattr(tokenizer, "vocab_size"):
        raise TypeError(f"tokenizer must be a Tokenizer, but is {tokenizer!r}; use Tokenizer.load.")
    for name in sizes:
        size = getattr(model, name)
        if not 0 <= size - tokenizer.vocab_size < VOCABULARY_PADDING:
            raise ValueError(
                f"The model's {name} is {size}, but the tokenizer has {tokenizer.vocab_size} ids; "
                "use the tokenizer that the model was trained with."
            )
