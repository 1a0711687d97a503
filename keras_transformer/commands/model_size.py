"""The sizes of a model: a preset's, with what the options change."""

from keras_transformer import presets
from keras_transformer.checks import check_heads

# The argument of `Transformer` for each option.
ARGUMENTS = {
    "encoder_layers": "num_layers",
    "decoder_layers": "num_decoder_layers",
    "d_model": "d_model",
    "num_heads": "num_heads",
    "d_ff": "d_ff",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "norm": "norm",
    "norm_first": "norm_first",
    "activation": "activation",
    "position": "positions",
    "tie": "tied_embeddings",
}


def model_size(options) -> dict:
    """Returns the arguments of `Transformer` that the options ask for.

    Raises:
        ValueError: if the heads do not divide the width.
    """
    size = dict(getattr(presets, options.preset.upper()))
    # A number of layers of the encoder alone leaves the decoder the preset's.
    size.setdefault("num_decoder_layers", size["num_layers"])
    for option, argument in ARGUMENTS.items():
        value = getattr(options, option, None)
        if value is not None and value is not False:  # a rate of 0 is given
            size[argument] = value
    if size["num_decoder_layers"] == size["num_layers"]:
        del size["num_decoder_layers"]
    check_heads(size["d_model"], size["num_heads"])
    return size
