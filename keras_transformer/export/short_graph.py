"""Makes the graph of a SavedModel short, so that it loads and first answers in less time.

TensorFlow copies and optimizes all functions of a SavedModel again for the first request of each
signature. That takes most of the time of a first request, and more with each node, each letter of
a name and each shape that is noted.
"""

import re
from pathlib import Path

from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils


def shorten_graph(path) -> None:
    """Rewrites a SavedModel with the same functions in fewer and smaller nodes."""
    file = Path(path, "saved_model.pb")
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    graph, names = saved_model.meta_graphs[0], {}
    for function in graph.graph_def.library.function:
        names[function.signature.name] = shorten_function(function)
        # Without this attribute TensorFlow optimizes a function twice: with the main graph, and
        # when it first runs. With it, it skips the first. tf.data marks its functions so.
        function.attr["_tf_data_function"].b = True
    for node in graph.object_graph_def.nodes:
        if node.WhichOneof("kind") == "captured_tensor":  # of a gradient of its own, as silu has
            tensor = node.captured_tensor
            tensor.name = renamed(tensor.name, names[tensor.concrete_function])
    file.write_bytes(saved_model.SerializeToString())
    fingerprinting_utils.write_fingerprint(str(path))


def renamed(reference: str, names: dict[str, str]) -> str:
    """Renames the node of "node:output:0", "^node" or "argument"."""
    return re.sub("[^^:]+", lambda match: names.get(match[0], match[0]), reference, count=1)


def shorten_function(function) -> dict[str, str]:
    """Gives the nodes of a `FunctionDef` short names, and has one constant for equal ones.

    Shapes are not noted, since TensorFlow infers them.

    Returns:
        The new name of each node.
    """
    names, constants, nodes = {}, {}, []
    for node in function.node_def:
        node.attr.pop("_output_shapes", None)
        # An argument never begins with a capital.
        names[node.name] = name = f"N{len(nodes)}"
        if node.op == "Const" and not node.input:
            key = node.device, node.attr["value"].SerializeToString(deterministic=True)
            names[node.name] = constants.setdefault(key, name)
        if names[node.name] == name:
            nodes.append(node)
    for node in nodes:
        node.name = names[node.name]
        node.input[:] = [renamed(reference, names) for reference in node.input]
    for references in (function.ret, function.control_ret):
        references.update({key: renamed(value, names) for key, value in references.items()})
    nodes = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del function.node_def[:]
    function.node_def.extend(nodes)
    return names
