"""A copy of a model for serving."""

from keras import ops

from keras_transformer.models.transformer import Transformer

PRECISIONS = ("float32", "bfloat16")


def serving_copy(model, precision: str, max_length: int):
    """The same model with weights and activations in `precision`.

    With bfloat16, half the memory and on CPUs that have it about twice the arithmetic; softmax,
    layer normalization and the scores of a search stay in float32.

    Args:
        model: a `Transformer`.
        precision: "float32" or "bfloat16".
        max_length: the longest sequence it will meet; its table of positions has no more.

    Returns:
        A `Transformer`.
    """
    config = {**model.get_config(), "dtype": precision, "max_length": max_length}
    copy = Transformer.from_config(config)
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(ops.cast(old.value, new.dtype))
    return copy
