"""The export of a classifier: a SavedModel from ids or texts to probabilities."""

import numpy as np
import tensorflow as tf

from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.export.tested_export import export_tested
from keras_transformer.models.sequence_classifier import SequenceClassifier
from keras_transformer.type_hints import StrPath


def export_classifier(
    model: SequenceClassifier,
    directory: StrPath,
    *,
    tokenizer: Tokenizer | None = None,
    overwrite: bool = False,
) -> str:
    """Writes `directory/<version>/`, a SavedModel that maps sequences to class probabilities.

    - `serving_default`: `ids` (B, T), int32, padded with 0 at the end.
    - `text`, if you give a tokenizer: `text` (B,), strings.

    Both return `probabilities` (B, C), float32, and `class_id` (B,), int32, the likeliest class.
    They read the first `max_length` tokens of each sequence, as many as the model accepts.

    Args:
        model: the classifier.
        directory: the model's directory; versions count up from 1. If its name is a number, that
            is the version.
        tokenizer: the `Tokenizer` that made the ids of the training, without special tokens. None
            leaves out the signature `text`.
        overwrite: whether to replace a version that exists.

    Returns:
        The path of the new version. It appears only after it was loaded and has classified.

    Raises:
        ValueError: if the version exists, the tokenizer has more ids than the model, or the Keras
            backend is not TensorFlow.
        RuntimeError: if a probability is not finite.

    Example:
        >>> import tempfile
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = SequenceClassifier(num_classes=2, vocab_size=9, **sizes)
        >>> path = export_classifier(model, tempfile.mkdtemp())
        >>> answer = tf.saved_model.load(path).signatures["serving_default"]
        >>> answer(ids=tf.constant([[4, 5, 6]]))["probabilities"].shape
        TensorShape([1, 2])
    """
    if tokenizer is not None and tokenizer.vocab_size > model.embedding.vocab_size:
        raise ValueError(
            f"The model has vocab_size={model.embedding.vocab_size}, but the tokenizer has "
            f"{tokenizer.vocab_size} ids; export it with the tokenizer that it was trained with."
        )

    def classify(ids):
        ids = _in_vocabulary(ids[:, : model.embedding.max_length], model.embedding.vocab_size)
        probabilities = tf.nn.softmax(model(ids, training=False))  # (B, C)
        class_id = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"probabilities": probabilities, "class_id": class_id}

    def classify_text(text):
        ids = tokenizer.tokenize(tf.reshape(text, [-1])).to_tensor(PAD_ID)
        return classify(tf.pad(ids, [[0, 0], [0, 1]]))  # one token even if all texts are blank

    signatures = {"serving_default": (classify, tf.TensorSpec([None, None], tf.int32, "ids"))}
    if tokenizer is not None:
        signatures["text"] = (classify_text, tf.TensorSpec([None], tf.string, "text"))
    some_id = min(1, model.embedding.vocab_size - 1)
    example = {"ids": np.array([[some_id, some_id], [some_id, 0]], "int32")}
    return export_tested(
        model, directory, signatures, example, overwrite=overwrite, tokenizer=tokenizer
    )


def _in_vocabulary(ids, vocab_size):
    message = f"ids must be in [0, {vocab_size})."
    checks = [
        tf.debugging.assert_greater_equal(ids, 0, message),
        tf.debugging.assert_less(ids, vocab_size, message),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(ids)
