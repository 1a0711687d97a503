"""The precision to train in."""

import platform
from pathlib import Path

import keras

from keras_transformer.checks import check_choice

PRECISIONS = ("auto", "float32", "bfloat16", "float16")

# Instructions that multiply bfloat16; without them a processor is slower in it.
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def policy(precision: str = "auto") -> str:
    """The Keras dtype policy of a precision.

    Weights, their updates, the softmax of attention, normalization and the sum of the loss are
    float32 in every one of them; what is lower are products of matrices, what lies between the
    layers, and in bfloat16 the probabilities over the vocabulary.

    Args:
        precision: "float32", "bfloat16", "float16", or "auto": bfloat16 where the machine
            multiplies faster in it, float32 elsewhere.

    Returns:
        "float32", "mixed_bfloat16" or "mixed_float16", for `Transformer(dtype=...)`.

    Raises:
        ValueError: for another precision.

    Example:
        >>> policy("bfloat16")
        'mixed_bfloat16'
    """
    check_choice("precision", precision, PRECISIONS)
    if precision == "auto":
        precision = "bfloat16" if _is_fast_in_bfloat16() else "float32"
    return precision if precision == "float32" else f"mixed_{precision}"


def _is_fast_in_bfloat16() -> bool:
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            return details.get("compute_capability", (0, 0)) >= (8, 0)  # Ampere and later
    return bool(BFLOAT16_FLAGS & processor_flags())


def processor_flags() -> set:
    """What Linux calls the instructions of this machine's processor, such as "avx2", and more."""
    path = Path("/proc/cpuinfo")
    if platform.system() != "Linux" or not path.is_file():
        return set()
    return set(path.read_text("utf-8", errors="replace").split())
