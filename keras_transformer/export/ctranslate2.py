"""A trained model for CTranslate2, a C++ engine that needs no TensorFlow."""

from pathlib import Path

import keras
import numpy as np
from keras import ops

from keras_transformer.data.special_tokens import END_ID, START_ID, UNK_ID
from keras_transformer.layers.feed_forward import GATES
from keras_transformer.version_directory import write_whole

MODEL = "model.bin"  # the file that CTranslate2 knows a model by
# Keras's names and CTranslate2's.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "silu": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}


def export_ctranslate2(model, tokenizer, directory, *, quantization=None, overwrite=False) -> str:
    """Writes a model that `ctranslate2.Translator(directory)` loads.

    Its tokens are the pieces of `tokenizer`, which is written beside them as `tokenizer.model`.
    The end token is added to the source by CTranslate2. To choose among the same tokens as a
    `Translator`, pass `disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]]`; its
    `length_penalty` is another formula, `score / length ** alpha`, and the log-probabilities of its
    searches, but not those of `score_batch`, are renormalized over the tokens not suppressed. Ids
    that the model has beyond the tokenizer's are left out.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`.
        directory: where to write.
        quantization: None for float32, or one of CTranslate2's, such as "int8".
        overwrite: whether a model that is there is replaced.

    Returns:
        `directory`.

    Raises:
        ImportError: if the extra `[ctranslate2]` is not installed.
        ValueError: if the model has what CTranslate2 cannot express, or `directory` exists and is
            not to be replaced or no such model.
    """
    directory = Path(directory).absolute()
    if directory.exists() and not overwrite:
        raise ValueError(
            f"{directory} exists; name another directory or pass overwrite=True (--overwrite)."
        )
    if directory.exists() and not (directory / MODEL).is_file():
        raise ValueError(f"{directory} is no CTranslate2 model to replace; name another directory.")
    spec = transformer_spec(model, tokenizer)
    spec.validate()
    spec.optimize(quantization=quantization)
    directory.parent.mkdir(parents=True, exist_ok=True)

    def write(path):
        spec.save(str(path))
        tokenizer.save(path / "tokenizer.model")

    return write_whole(directory.parent, lambda: directory.name, write, overwrite)


def transformer_spec(model, tokenizer):
    """The weights of `model` under CTranslate2's names, as its `TransformerSpec`."""
    try:
        from ctranslate2.specs import TransformerSpec
    except ImportError as error:
        raise ImportError(
            'CTranslate2 needs the extra "ctranslate2": '
            "pip install keras-transformer-layers[ctranslate2]."
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
        rms_norm=isinstance(residual.norm, keras.layers.RMSNormalization),
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
    """Self-attention has one linear layer for query, key and value; cross-attention has two."""
    _set_norm(target.layer_norm, residual.norm)
    projections = attention.query_projection, attention.memory_projection
    *inner, output = target.linear
    groups = [projections] if len(inner) == 1 else [[layer] for layer in projections]
    for linear, layers in zip(inner, groups, strict=True):
        _set_linear(linear, *layers)
    _set_linear(output, attention.output_projection)


def _set_linear(target, *layers, columns=slice(None)) -> None:
    """The kernels and biases of layers side by side; of all that, some columns."""
    kernel = np.concatenate([_array(layer.kernel) for layer in layers], axis=1)[:, columns]
    target.weight = np.ascontiguousarray(kernel.T)  # (out, in)
    if layers[0].use_bias:
        target.bias = np.concatenate([_array(layer.bias) for layer in layers])[columns]


def _set_norm(target, norm) -> None:
    if isinstance(norm, keras.layers.RMSNormalization):
        target.gamma = _array(norm.scale)
    else:
        target.gamma, target.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable) -> np.ndarray:
    return np.ascontiguousarray(ops.convert_to_numpy(variable), "float32")


def _activation(feed_forward):
    from ctranslate2.specs import Activation

    function = feed_forward.activation
    name = GATES[function] if function in GATES else getattr(function, "__name__", str(function))
    if name not in ACTIVATIONS:
        known = sorted(ACTIVATIONS)
        raise ValueError(
            f"The activation {name!r} has no equivalent in CTranslate2; it knows {known}."
        )
    return Activation[ACTIVATIONS[name]]
