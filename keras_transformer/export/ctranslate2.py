"""A trained model for CTranslate2, a C++ engine that needs no TensorFlow."""

import shutil
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_transformer.data.special_tokens import END_ID, START_ID, UNK_ID

MODEL = "model.bin"  # the file that CTranslate2 knows a model by


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
        ValueError: if the activation has no equivalent, or `directory` exists and is not to be
            replaced or no such model.
    """
    directory = Path(directory).absolute()
    _check_place(directory, overwrite)
    spec = transformer_spec(model, tokenizer)
    spec.validate()
    spec.optimize(quantization=quantization)
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        spec.save(str(temporary))
        tokenizer.save(temporary / "tokenizer.model")
        temporary.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return str(directory)


def _check_place(directory: Path, overwrite: bool) -> None:
    if not directory.exists():
        return
    if not overwrite:
        raise ValueError(
            f"{directory} exists; name another directory or pass overwrite=True (--overwrite)."
        )
    if not (directory / MODEL).is_file():
        raise ValueError(f"{directory} is no CTranslate2 model to replace; name another directory.")


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
    spec = TransformerSpec.from_config(
        (model.encoder.num_layers, model.decoder.num_layers),
        layer.num_heads,
        pre_norm=layer.norm_first,
        activation=_activation(layer.activation),
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
    if model.output_projection is None:
        output = _array(model.target_embedding.embeddings)
    else:
        output = _array(model.output_projection.kernel).T
    output = np.ascontiguousarray(output[: tokenizer.vocab_size])
    spec.decoder.projection.weight = output  # (V, D)
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    spec.config.unk_token, spec.config.eos_token = pieces[UNK_ID], pieces[END_ID]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[START_ID]
    spec.config.layer_norm_epsilon = layer.feed_forward_residual.norm.epsilon
    return spec


def _set_layer(target, source) -> None:
    _set_attention(target.self_attention, source.self_attention, source.self_attention_residual)
    if hasattr(source, "cross_attention"):
        _set_attention(target.attention, source.cross_attention, source.cross_attention_residual)
    _set_norm(target.ffn.layer_norm, source.feed_forward_residual.norm)
    _set_linear(target.ffn.linear_0, source.feed_forward.inner)
    _set_linear(target.ffn.linear_1, source.feed_forward.outer)


def _set_attention(target, attention, residual) -> None:
    """Self-attention has one linear layer for query, key and value; cross-attention has two."""
    _set_norm(target.layer_norm, residual.norm)
    kernel, bias = _array(attention.kernel).T, _array(attention.bias)  # (3D, D), (3D,)
    d_model = attention.d_model
    splits = [d_model] if len(target.linear) == 3 else []
    weights, biases = np.split(kernel, splits), np.split(bias, splits)
    for linear, weight, part in zip(target.linear, weights, biases, strict=False):
        linear.weight, linear.bias = np.ascontiguousarray(weight), part
    _set_linear(target.linear[-1], attention.output_projection)


def _set_linear(target, dense) -> None:
    target.weight = np.ascontiguousarray(_array(dense.kernel).T)  # (out, in)
    if dense.use_bias:
        target.bias = _array(dense.bias)


def _set_norm(target, norm) -> None:
    target.gamma, target.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable) -> np.ndarray:
    return keras.ops.convert_to_numpy(variable.value).astype("float32")


def _activation(function):
    from ctranslate2.specs import Activation

    known = {
        "relu": Activation.RELU,
        "gelu": Activation.GELU,
        "silu": Activation.SWISH,
        "tanh": Activation.Tanh,
        "sigmoid": Activation.Sigmoid,
    }
    name = getattr(function, "__name__", str(function))
    if name not in known:
        raise ValueError(
            f"The activation {name!r} has no equivalent in CTranslate2; it knows {sorted(known)}."
        )
    return known[name]
