"""The operations of one step of a search, in the graph that TensorFlow runs for an export.

    python benchmarks/step_operations.py --cases small_single small_greedy

Exports the model of each case as `benchmarks/decoding.py` does, lets TensorFlow optimize the graph,
and counts the operations that every step of the search runs: by kind, and by what they are for.
What runs once per search, such as the constant inputs of the loop, is not counted.
"""

import argparse
import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import engines

# What an operation is for, by its name: the first that matches.
PURPOSES = {
    "loop": r"/(merge|next_iteration|next_|switch_|is_left|LoopCond|loop_body_control)|_switch/",
    "norm": r"/(norm|final_norm)(_\d+)?/",
    "attention": r"/(self|cross)_attention(_\d+)?/",
    "feed-forward": r"/feed_forward(_\d+)?/",
    "residual sum": r"_residual(_\d+)?/",
    "embedding": r"_embedding(_\d+)?/",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=engines.CASES, default=["small_single"])
    for name in parser.parse_args().cases:
        with tempfile.TemporaryDirectory() as directory:
            texts = write_readable(name, directory)
            print_table(name, operations_of_a_step(optimized_graph(directory, texts)))


def write_readable(name, directory):
    """Exports a case with the names that nodes were given, and returns its sentences.

    A call that is not inlined is optimized on its own, and TensorFlow does not show its graph.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    from keras_transformer import Translator
    from keras_transformer.export import short_graph

    short_graph.shorten_function = lambda function: {}
    model, tokenizer, texts, settings = engines.build(name)
    translator = Translator(model, tokenizer, **settings, num_parallel_batches=1)
    translator.export(Path(directory, "export"), signatures=())
    file = Path(directory, "export", "1", "saved_model.pb")
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for function in saved_model.meta_graphs[0].graph_def.library.function:
        function.attr.pop("_noinline", None)
    file.write_bytes(saved_model.SerializeToString())
    return texts


def optimized_graph(directory, texts):
    """The graph that ran for some sentences: all functions and loops in one graph."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's ops)
    from tensorflow.python.eager import context  # the only way to graphs that ran

    export = tf.saved_model.load(str(Path(directory, "export", "1")))
    context.enable_graph_collection()
    export.signatures["serving_default"](text=tf.constant(texts))
    graphs = context.export_run_metadata().function_graphs
    context.disable_graph_collection()
    return graphs[0].partition_graphs[0]


def operations_of_a_step(graph):
    """The nodes of the innermost loop that run in each of its iterations."""
    frames = frames_of(graph)
    depth = max(map(len, frames.values()))
    counts = Counter(frame for frame in frames.values() if len(frame) == depth)
    innermost = counts.most_common(1)[0][0]
    once = ("Enter", "Exit")
    return [node for node in graph.node if frames[node.name] == innermost and node.op not in once]


def frames_of(graph):
    """The loops around each node, from the outermost: the name of a node -> names of frames."""
    users = defaultdict(list)
    for node in graph.node:
        for reference in node.input:
            users[reference.lstrip("^").split(":")[0]].append(node)
    frames = {node.name: () for node in graph.node if not node.input}
    waiting = [node for node in graph.node if not node.input]
    while waiting:
        node = waiting.pop()
        frame = frames[node.name]
        around = frame[:-1] if node.op == "Exit" else frame
        for user in users[node.name]:
            if user.name not in frames:
                own = (user.attr["frame_name"].s,) if user.op == "Enter" else ()
                frames[user.name] = (*around, *own)
                waiting.append(user)
    return frames


def purpose_of(node):
    """What a node is for."""
    found = (purpose for purpose, pattern in PURPOSES.items() if re.search(pattern, node.name))
    return next(found, "search")


def print_table(name, nodes):
    print(f"\n{name}: {len(nodes)} operations per step")
    purposes = Counter(map(purpose_of, nodes))
    table = Counter((node.op, purpose_of(node)) for node in nodes)
    columns = [purpose for purpose, _ in purposes.most_common()]
    print(f"{'kind':28}{'all':>6}" + "".join(f"{column:>14}" for column in columns))
    for kind, count in Counter(node.op for node in nodes).most_common():
        cells = "".join(f"{table[kind, column] or '':>14}" for column in columns)
        print(f"{kind:28}{count:6}{cells}")
    print(f"{'sum':28}{len(nodes):6}" + "".join(f"{purposes[c]:>14}" for c in columns))


if __name__ == "__main__":
    main()
