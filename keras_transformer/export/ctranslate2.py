"""A trained model for CTranslate2, a C++ engine that needs no TensorFlow."""

from pathlib import Path

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_local
from keras_transformer.data.special_tokens import END_ID, START_ID, UNK_ID
from keras_transformer.files import make_directory
from keras_transformer.layers.feed_forward import GATES
from keras_transformer.version_directory import write_whole

MODEL = "model.bin"  # CTranslate2 writes this file for every model
# Keras's name of each activation, and CTranslate2's.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "silu": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}


def export_ctranslate2(model, tokenizer, directory, *, quantization=None, overwrite=False) -> str:
    """Writes a model that `ctranslate2.Translator(directory)` loads.

    Its tokens are the pieces of `tokenizer`, which is written beside it as `tokenizer.model`.
    CTranslate2 adds the end token to the source. Ids that only the model has are left out.

    To choose among the same tokens as a `Translator`, pass
    `disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]]`. CTranslate2's `length_penalty` has
    another formula, `score / length ** alpha`. Its searches renormalize log-probabilities over the
    tokens that are not suppressed; its `score_batch` does not.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`.
        directory: where to write.
        quantization: None for float32, or a type of CTranslate2, such as "int8".
        overwrite: whether to replace a model that exists.

    Returns:
        `directory`.

    Raises:
        ImportError: if the extra `[ctranslate2]` is not installed.
        ValueError: if CTranslate2 cannot express the model, or if `directory` exists and
            `overwrite` is false or it is not such a model.
    """
    check_local("The place to export to", directory)
    directory = Path(directory).absolute()
    if directory.exists() and not overwrite:
        raise ValueError(
            f"{directory} exists; name another directory or pass overwrite=True (--overwrite)."
        )
    if directory.exists() and not (directory / MODEL).is_file():
        raise ValueError(f"{directory} is not a CTranslate2 model; name another directory.")
    spec = transformer_spec(model, tokenizer)
    spec.validate()
    spec.optimize(quantization=quantization)
    make_directory(directory.parent)

    def write(path):
        spec.save(str(path))
        tokenizer.save(path / "tokenizer.model")

    return write_whole(directory.parent, lambda: directory.name, write, overwrite)


def transformer_spec(model, tokenizer):
    """Returns the weights of `model` under CTranslate2's names, a `TransformerSpec`."""
    try:
        from ctranslate2.specs import TransformerSpec
    except ImportError as error:
        raise ImportError(
            "An export to CTranslate2 needs the package ctranslate2: pip install ctranslate2."
        ) from error

    layer = model.decoder.layers[0]
    if layer.self_attention.rotary:
        raise ValueError(
            'positions="rotary" has no equivalent in this export; export a SavedModel, or train '
            'with positions="sinusoidal".'
        )
    residual = layer.feed_forward_residual
    spec = TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        layer.self_attention.num_heads,
        pre_norm=residual.norm_first,
        activation=_activation(layer.feed_forward),
        ffn_glu=layer.feed_forward.activation in GATES,
        rms_norm=_is_rms_norm(residual.norm),
    )
    for side, stack, embedding in (
        (spec.encoder, model.encoder, model.source_embedding),
        (spec.decoder, model.decoder, model.target_embedding),
    ):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = _array(embedding.embeddings)[: tokenizer.vocab_size]  # (V, D)
        embeddings.multiply_by_sqrt_depth = True
        side.position_encodings.encodings = embedding.table
        if stack.final_norm is not None:
            _set_norm(side.layer_norm, stack.final_norm)
        for target, source in zip(side.layer, stack.layers, strict=True):
            _set_layer(target, source)
    kernel = _array(model.lm_head_kernel())  # (V, D)
    spec.decoder.projection.weight = kernel[: tokenizer.vocab_size]
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    spec.config.unk_token, spec.config.eos_token = pieces[UNK_ID], pieces[END_ID]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[START_ID]
    spec.config.layer_norm_epsilon = residual.norm.epsilon
    return spec


def _set_layer(target, source) -> None:
    _set_attention(target.self_attention, source.self_attention, source.self_attention_residual)
    if getattr(source, "cross_attention", None) is not None:
        _set_attention(target.attention, source.cross_attention, source.cross_attention_residual)
    _set_norm(target.ffn.layer_norm, source.feed_forward_residual.norm)
    inner = source.feed_forward.inner
    if source.feed_forward.activation in GATES:  # the gate and its partner are halves of one matrix
        width = inner.kernel.shape[1] // 2
        _set_linear(target.ffn.linear_0, inner, columns=slice(None, width))
        _set_linear(target.ffn.linear_0_noact, inner, columns=slice(width, None))
    else:
        _set_linear(target.ffn.linear_0, inner)
    _set_linear(target.ffn.linear_1, source.feed_forward.outer)


def _set_attention(target, attention, residual) -> None:
    """Sets one linear layer for query, key and value in self-attention, two in cross-attention."""
    _set_norm(target.layer_norm, residual.norm)
    projections = attention.query_projection, attention.memory_projection
    *inner, output = target.linear
    groups = [projections] if len(inner) == 1 else [[layer] for layer in projections]
    for linear, layers in zip(inner, groups, strict=True):
        _set_linear(linear, *layers)
    _set_linear(output, attention.output_projection)


def _set_linear(target, *layers, columns=slice(None)) -> None:
    """Puts the kernels and biases of layers side by side, and copies some of the columns."""
    kernel = np.concatenate([_array(layer.kernel) for layer in layers], axis=1)[:, columns]
    target.weight = np.ascontiguousarray(kernel.T)  # (out, in)
    if layers[0].use_bias:
        target.bias = np.concatenate([_array(layer.bias) for layer in layers])[columns]


def _is_rms_norm(norm) -> bool:
    is_rms_norm = isinstance(norm, keras.layers.RMSNormalization)
    if not is_rms_norm and not isinstance(norm, keras.layers.LayerNormalization):
        raise ValueError(
            f"The norm {type(norm).__name__} has no equivalent in this export; export a "
            'SavedModel, or train with norm="layer_norm" or norm="rms_norm".'
        )
    return is_rms_norm


def _set_norm(target, norm) -> None:
    if _is_rms_norm(norm):
        target.gamma = _array(norm.scale)
    else:
        target.gamma, target.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable) -> np.ndarray:
    if "int" in keras.backend.standardize_dtype(variable.dtype):
        raise ValueError("The model is quantized; export it before quantize().")
    return np.ascontiguousarray(ops.convert_to_numpy(variable), "float32")


def _activation(feed_forward):
    from ctranslate2.specs import Activation

    function = feed_forward.activation
    name = GATES[function] if function in GATES else getattr(function, "__name__", str(function))
    if name not in ACTIVATIONS:
        known = sorted(ACTIVATIONS)
        raise ValueError(
            f"The activation {name!r} has no equivalent in CTranslate2; train with one of {known}."
        )
    return Activation[ACTIVATIONS[name]]
