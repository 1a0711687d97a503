"""The list of operations that a served graph may have."""

import inspect
import re
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

# What TensorFlow Serving 2.17 to 2.19 link of tensorflow-text: version 2.12.1. A newer text op
# fails there as "Op type not registered", some only when a request runs it.
TEXT_OPS = {
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceDetokenizeOp",
    "NormalizeUTF8",
    "FastWordpieceTokenizeWithOffsets",
    "TFText>FastWordpieceDetokenize",
}

# TensorFlow's own for products of integers, which has no function in Python; see `export/int8.py`.
INTEGER_OPS = {"_QuantizedMatMul"}

# Ops that call Python, need XLA, write to the server's log, or draw from a hidden random state.
FORBIDDEN = re.compile("Xla|.*PyFunc|Print|Rng|NonDeterministic|Stateful(?!PartitionedCall)")


def core_ops() -> set[str]:
    """TensorFlow's own ops, without the forbidden ones."""
    names = {name for name in dir(tf.raw_ops) if not name.startswith("_")}
    return {name for name in names if not FORBIDDEN.match(name) and not _has_hidden_seed(name)}


def _has_hidden_seed(name) -> bool:
    """Stateful random ops take `seed` and `seed2`, stateless ones one tensor `seed`."""
    return "seed2" in inspect.signature(getattr(tf.raw_ops, name)).parameters


def refused(path) -> set[str]:
    """The ops of all graphs and functions that are not on the list, and functions for XLA."""
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((Path(path) / "saved_model.pb").read_bytes())
    ops, compiled = set(), set()
    for meta_graph in saved_model.meta_graphs:
        graph = meta_graph.graph_def
        for function in graph.library.function:
            if function.attr["_XlaMustCompile"].b:
                compiled.add("jit_compile")
        for nodes in [graph.node, *(function.node_def for function in graph.library.function)]:
            ops |= {node.op for node in nodes}
            compiled |= {"jit_compile" for node in nodes if node.attr["_XlaMustCompile"].b}
    assert "Placeholder" in ops, "no ops were read"
    return (ops - core_ops() - TEXT_OPS - INTEGER_OPS) | compiled
