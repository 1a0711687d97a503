"""A copy of a model for serving."""

import keras
from keras import ops

PRECISIONS = ("float32", "bfloat16")
# The layers whose products take most of the time. The sums around them and the logits would lose
# in bfloat16's 8 bits what decides between two translations.
SUBLAYERS = r".*/(self_attention|cross_attention|feed_forward)(/.*)?"


def serving_copy(model, precision: str, max_length: int):
    """The same model with attention and feed-forward networks in `precision`.

    With bfloat16, half the memory for their weights and on CPUs that have it about twice the
    arithmetic. Embeddings, the sums of the residual connections, softmax, layer normalization,
    logits and the scores of a search stay in float32.

    Args:
        model: a `Transformer` or a `LanguageModel`.
        precision: "float32" or "bfloat16".
        max_length: the longest sequence it will meet; its table of positions has no more.

    Returns:
        A model of the same class.
    """
    policy = keras.dtype_policies.DTypePolicyMap("float32")
    policy[SUBLAYERS] = keras.DTypePolicy(precision)
    config = {**model.get_config(), "dtype": policy, "max_length": max_length}
    copy = type(model).from_config(config)
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(ops.cast(old.value, new.dtype))
    return copy
