"""The variants of the models, and their forward pass in NumPy."""

import math

import numpy as np
import pytest

# The variants that the models' tests go through; each option of a layer is in one of them.
VARIANTS = {
    "paper": {"norm_first": False},
    "pre-norm": {"norm_first": True, "activation": "tanh"},
    "no biases": {"norm_first": False, "use_bias": False},
    "rotary": {"norm_first": False, "positions": "rotary", "activation": "reglu"},
    "modern": {
        "norm_first": True,
        "norm": "rms_norm",
        "positions": "rotary",
        "activation": "swiglu",
        "use_bias": False,
    },
}
ACTIVATIONS = {
    "relu": lambda x: np.maximum(0, x),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
GATES = {"reglu": "relu", "swiglu": "silu"}


class Reference:
    """The forward pass in float64, of one text or one pair of sentences, without padding.

    It is made of the configuration, and of the weights by their paths, as in
    "encoder/layer_0/feed_forward/inner/kernel".
    """

    def __init__(self, config, weights):
        self.config, self.weights = config, weights
        self.rotary = config["positions"] == "rotary"

    @classmethod
    def of(cls, model):
        values = zip(model.weights, model.get_weights(), strict=True)
        weights = {w.path.removeprefix(f"{model.name}/"): v.astype("float64") for w, v in values}
        return cls(model.get_config(), weights)

    def transformer(self, source_ids, target_ids):
        """Logits (T, V) of ids (S,) and (T,)."""
        source = self.weights["source_embedding/embeddings"]
        target = self.weights.get("target_embedding/embeddings", source)
        kernel = self.weights.get("output_projection/kernel", target.T)
        memory = self.stack(self.embed(source_ids, source), "encoder", self.config["num_layers"])
        num_layers = self.config["num_decoder_layers"] or self.config["num_layers"]
        x = self.stack(self.embed(target_ids, target), "decoder", num_layers, memory)
        return x @ kernel

    def language_model(self, ids):
        """Logits (T, V) of ids (T,)."""
        table = self.weights["embedding/embeddings"]
        return self.stack(self.embed(ids, table), "decoder", self.config["num_layers"]) @ table.T

    def embed(self, ids, table):
        x = table[ids] * math.sqrt(table.shape[1])
        if self.rotary:
            return x
        angles = self.angles(len(ids), table.shape[1])
        return x + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(x.shape)

    def angles(self, length, width):
        return np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)

    def stack(self, x, name, num_layers, memory=None):
        causal = name == "decoder"
        sublayers = {
            "self_attention": lambda x, name: self.attention(x, x, name, causal, self.rotary),
            "cross_attention": lambda x, name: self.attention(x, memory, name),
            "feed_forward": self.feed_forward,
        }
        if memory is None:
            del sublayers["cross_attention"]
        for i in range(num_layers):
            for kind, sublayer in sublayers.items():
                layer = f"{name}/layer_{i}/{kind}"
                if self.config["norm_first"]:
                    x = x + sublayer(self.norm(x, f"{layer}_residual/norm"), layer)
                else:
                    x = self.norm(x + sublayer(x, layer), f"{layer}_residual/norm")
        return self.norm(x, f"{name}/final_norm") if self.config["norm_first"] else x

    def norm(self, x, name):
        if self.config["norm"] == "rms_norm":
            root = np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6)
            return x / root * self.weights[f"{name}/scale"]
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-6)
        return centred / deviation * self.weights[f"{name}/gamma"] + self.weights[f"{name}/beta"]

    def dense(self, x, name):
        return x @ self.weights[f"{name}/kernel"] + self.weights.get(f"{name}/bias", 0)

    def projections(self, x, memory, name):
        """Queries (T, D), keys (S, D) and values (S, D)."""
        keys_and_values = self.dense(memory, f"{name}/memory_projection")
        return self.dense(x, f"{name}/query_projection"), *np.split(keys_and_values, 2, axis=-1)

    def attention(self, x, memory, name, causal=False, rotary=False):
        projections, heads = self.projections(x, memory, name), []
        for columns in np.split(np.arange(x.shape[1]), self.config["num_heads"]):
            query, key, value = (part[:, columns] for part in projections)
            query, key = map(self.rotate, (query, key)) if rotary else (query, key)
            scores = np.exp(query @ key.T / math.sqrt(len(columns)))
            scores = np.tril(scores) if causal else scores
            heads.append(scores / scores.sum(-1, keepdims=True) @ value)
        return self.dense(np.concatenate(heads, -1), f"{name}/output_projection")

    def rotate(self, x):
        numbers = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * self.angles(*x.shape))
        return np.stack([numbers.real, numbers.imag], -1).reshape(x.shape)

    def feed_forward(self, x, name):
        activation, inner = self.config["activation"], self.dense(x, f"{name}/inner")
        if activation in GATES:
            gate, inner = np.split(inner, 2, axis=-1)
            inner = ACTIVATIONS[GATES[activation]](gate) * inner
        else:
            inner = ACTIVATIONS[activation](inner)
        return self.dense(inner, f"{name}/outer")


@pytest.fixture
def reference():
    """The class `Reference`."""
    return Reference


@pytest.fixture(params=VARIANTS)
def variant(request):
    """Arguments of a model, by their name in `VARIANTS`."""
    return VARIANTS[request.param]
