"""The norms that a residual connection may have."""

import keras

NORMS = {
    "layer_norm": keras.layers.LayerNormalization,  # Ba et al. (2016), "Layer Normalization"
    "rms_norm": keras.layers.RMSNormalization,  # Zhang and Sennrich (2019), equation 4
}


def make_norm(norm, name, dtype):
    """Makes the layer that `NORMS` has for the key `norm`, with the library's epsilon."""
    layer = NORMS[norm](epsilon=1e-6, name=name, dtype=dtype)
    layer.supports_masking = True  # Keras forgot it for `RMSNormalization`
    return layer
