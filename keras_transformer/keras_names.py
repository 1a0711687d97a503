"""Names of Keras and KerasHub that have another name here, for errors that say which."""

import difflib
import inspect
import typing

# Classes and functions, as attributes of the package.
CLASSES = {
    "BeamSampler": "Beam",
    "BytePairTokenizer": "Tokenizer",
    "CachedMultiHeadAttention": "MultiHeadAttention with a KVCache",
    "CausalLM": "LanguageModel",
    "GreedySampler": "Greedy",
    "RandomSampler": "Sample",
    "ReversibleEmbedding": "PositionalEmbedding",
    "RotaryEmbedding": 'positions="rotary" of a model, or rotary=True of a layer',
    "SentencePieceTokenizer": "Tokenizer",
    "Seq2SeqLM": "Transformer",
    "SinePositionEncoding": "sinusoidal_positions",
    "TextClassifier": "SequenceClassifier",
    "TokenAndPositionEmbedding": "PositionalEmbedding",
    "TopKSampler": "Sample(top_k=...)",
    "TopPSampler": "Sample(top_p=...)",
    "TransformerDecoder": "DecoderLayer",
    "TransformerEncoder": "EncoderLayer",
    "TransformerEncoderLayer": "EncoderLayer",
    "WordPieceTokenizer": "Tokenizer",
}

# Arguments, and their names here. If there are several, the first that a class has is meant.
ARGUMENTS = {
    "dff": ("d_ff",),
    "dropout_rate": ("dropout",),
    "embed_dim": ("d_model",),
    "embedding_dim": ("d_model",),
    "ff_dim": ("d_ff",),
    "filter_size": ("d_ff",),
    "hidden_dim": ("d_model",),
    "hidden_size": ("d_model",),
    "input_dim": ("vocab_size", "source_vocab_size"),
    "intermediate_dim": ("d_ff",),
    "key_dim": ("d_model=num_heads * key_dim",),
    "max_sequence_length": ("max_length",),
    "normalize_first": ("norm_first",),
    "num_attention_heads": ("num_heads",),
    "num_hidden_layers": ("num_layers",),
    "num_query_heads": ("num_heads",),
    "output_dim": ("d_model",),
    "rate": ("dropout",),
    "sequence_length": ("max_length",),
    "tie_weights": ("tied_embeddings",),
    "value_dim": ("d_model=num_heads * value_dim",),
    "vocabulary_size": ("vocab_size", "source_vocab_size"),
}

# Arguments that have no counterpart, and why.
MISSING = {
    "attention_axes": "attention is over the one axis between batch and width",
    "bias_initializer": "biases begin at 0",
    "bias_regularizer": "use weight_decay of the optimizer",
    "embeddings_initializer": "embeddings begin as in the paper; assign others to the weights",
    "embeddings_regularizer": "use weight_decay of the optimizer",
    "flash_attention": "the backend's fused attention is used where it can be",
    "from_logits": "predictions are always logits",
    "ignore_class": "labels of 0 never count",
    "kernel_initializer": "kernels begin as in the paper; assign others to the weights",
    "kernel_regularizer": "use weight_decay of the optimizer",
    "layer_norm_epsilon": "the epsilon of every norm is 1e-6",
    "mask_zero": "models hide padding themselves; give a layer padding_mask(ids, pad_id=0)",
    "num_key_value_heads": "every head has keys and values of its own",
    "output_shape": "the output is as wide as the input",
}


def explain(owner: str, unknown, known) -> str:
    """Says what to write for unknown arguments; "" if there is no hint for any of them.

    Args:
        owner: the class that was called.
        unknown: names that it does not have.
        known: names that it has.
    """
    hints = []
    for name in unknown:
        ours = [word for word in ARGUMENTS.get(name, ()) if word.partition("=")[0] in known]
        if ours:
            hints.append(f"{name} is {ours[0]} here")
        elif name in MISSING:
            hints.append(f"{name} has no counterpart: {MISSING[name]}")
        elif close := difflib.get_close_matches(name, known, 1):
            hints.append(f"{name} is unknown; did you mean {close[0]}")
    return f"{owner} has no argument {', '.join(unknown)}: {'; '.join(hints)}." if hints else ""


class KerasNames:
    """A class that refuses names of Keras for its arguments, and says the names here.

    Python would name the first argument that is missing, since Keras's names take its place.
    """

    if not typing.TYPE_CHECKING:  # which would read that any arguments are taken

        def __new__(cls, *args, **kwargs):
            own = cls.__init__
            if own.__module__.startswith("keras_transformer."):  # not a subclass of a user
                check_arguments(cls.__name__, own, kwargs)
            make = super().__new__  # a loss has that of `object`, which takes no arguments
            return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)


def keywords(function):
    """Yields the names of a function's arguments, those of `**options: Unpack[...]` too."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield name
        elif options := typing.get_args(parameter.annotation):
            yield from options[0].__annotations__


def check_arguments(owner: str, init, arguments) -> None:
    """Raises a TypeError for names that `init` does not have, if there is a hint for them."""
    known = list(keywords(init))
    unknown = [name for name in arguments if name not in known]
    if unknown and (message := explain(owner, unknown, known)):
        raise TypeError(message)
