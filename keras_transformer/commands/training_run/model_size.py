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
# How many matrices of the vocabulary's size a model has, by which of them are one.
EMBEDDINGS = {"all": 1, "source_target": 2, "target_output": 2, "none": 3}


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


def num_parameters(size: dict, vocab_size: int) -> int:
    """Returns about how many parameters a model has: those of its matrices.

    Args:
        size: what `model_size` returns.
        vocab_size: the number of subwords.
    """
    d_model, is_gated = size["d_model"], size.get("activation", "relu").endswith("glu")
    feed_forward = (3 if is_gated else 2) * d_model * size["d_ff"]
    decoders = size.get("num_decoder_layers", size["num_layers"])
    encoder = size["num_layers"] * (4 * d_model**2 + feed_forward)
    decoder = decoders * (8 * d_model**2 + feed_forward)
    embeddings = EMBEDDINGS[size.get("tied_embeddings", "all")] * vocab_size * d_model
    return encoder + decoder + embeddings
