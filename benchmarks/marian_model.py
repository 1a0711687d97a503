"""Writes a `Transformer` under Marian's names, and what of its search keeps a sentence from ending.

Marian's Transformer is the paper's but for two things. Its sinusoids have other frequencies, with
all sines before all cosines (`sinusoids`); and its decoder begins with a vector of zeros in the
place of the start token's. Both cost the same. A model that has these two, too, computes the same
numbers there and here (`marian_parity.py`).
"""

import numpy as np
from keras import ops

from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID

NEVER = -1e9  # a logit that no candidate of a search has


def write_marian(model, tokenizer, directory, may_end=True):
    """Writes `model.npz` and `vocabulary.spm`, the two files that Marian reads.

    Args:
        model: a `Transformer` with the paper's layers, ReLU, and one matrix for all embeddings.
        tokenizer: its `Tokenizer`.
        directory: where to write; it is made.
        may_end: whether a translation may end before the search's last step.
    """
    directory.mkdir(parents=True)
    forbidden = [PAD_ID, UNK_ID, START_ID] + [END_ID] * (not may_end)
    weights = dict(parameters(model, forbidden))
    weights["special:model.yml"] = np.frombuffer(settings(model).encode() + b"\0", "int8")
    np.savez(directory / "model.npz", **weights)
    tokenizer.save(directory / "vocabulary.spm")  # Marian knows what it is by the suffix


def parameters(model, forbidden):
    """Yields names and arrays. A bias of the logits, which the paper has not, forbids tokens."""
    yield "Wemb", array(model.source_embedding.embeddings)
    bias = np.zeros((1, model.target_vocab_size), "float32")
    bias[0, forbidden] = NEVER
    yield "decoder_ff_logit_out_b", bias
    for stack, side in ((model.encoder, "encoder"), (model.decoder, "decoder")):
        for number, layer in enumerate(stack.layers, start=1):
            yield from layer_parameters(layer, f"{side}_l{number}")


def layer_parameters(layer, prefix):
    yield from attention(layer.self_attention, layer.self_attention_residual, f"{prefix}_self")
    if getattr(layer, "cross_attention", None) is not None:
        memory = layer.cross_attention, layer.cross_attention_residual
        yield from attention(*memory, f"{prefix}_context")
    inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
    for i, dense in enumerate((inner, outer), start=1):
        yield f"{prefix}_ffn_W{i}", array(dense.kernel)
        yield f"{prefix}_ffn_b{i}", array(dense.bias)[None]
    yield from norm(layer.feed_forward_residual, f"{prefix}_ffn_ffn")


def attention(layer, residual, prefix):
    dense = layer.query_projection, layer.memory_projection, layer.output_projection
    kernels = np.concatenate([array(part.kernel) for part in dense], axis=1)
    biases = np.concatenate([array(part.bias) for part in dense])[None]
    for i, name in enumerate("qkvo"):
        columns = slice(i * kernels.shape[0], (i + 1) * kernels.shape[0])
        yield f"{prefix}_W{name}", kernels[:, columns]
        yield f"{prefix}_b{name}", biases[:, columns]
    yield from norm(residual, f"{prefix}_Wo")


def norm(residual, prefix):
    yield f"{prefix}_ln_scale", array(residual.norm.gamma)[None]
    yield f"{prefix}_ln_bias", array(residual.norm.beta)[None]


def array(variable):
    return ops.convert_to_numpy(variable).astype("float32")


def settings(model):
    """The model's sizes and its kind, as Marian keeps them beside the weights."""
    layer = model.encoder.layers[0]
    return f"""
type: transformer
version: v1.12.42
dim-emb: {model.source_embedding.d_model}
dim-vocabs: [{model.source_vocab_size}, {model.target_vocab_size}]
enc-depth: {len(model.encoder.layers)}
dec-depth: {len(model.decoder.layers)}
tied-embeddings-all: true
transformer-heads: {layer.self_attention.num_heads}
transformer-dim-ffn: {layer.feed_forward.inner.kernel.shape[1]}
transformer-ffn-activation: relu
transformer-postprocess: dan
transformer-postprocess-emb: d
"""


def sinusoids(length, d_model):
    """Marian's positions: (length, d_model)."""
    half = d_model // 2
    angle = np.arange(length)[:, None] * 1e-4 ** (np.arange(half) / (half - 1))
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype("float32")
