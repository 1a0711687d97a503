import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.export.short_graph import shorten_graph


def functions_of(path):
    saved_model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    return saved_model.meta_graphs[0].graph_def.library.function


def save(path):
    """Saves a loop, a branch, a gradient of its own, equal constants and a constant output."""
    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0])

    def answer(x):
        def step(y):
            return (tf.nn.silu(y * 2.0) + module.weight,)

        total = tf.while_loop(lambda y: y[0] < 20.0, step, (x,))[0]
        larger = tf.cond(total[0] > 25.0, lambda: total + 5.0, lambda: total - 5.0)
        return {"y": larger * 5.0 + 2.0, "five": tf.constant(5.0), "again": tf.constant(5.0)}

    spec = tf.TensorSpec([2], tf.float32, name="x")
    module.answer = tf.function(answer, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(path), {"serving_default": module.answer})


def test_a_short_graph_answers_as_before_with_fewer_nodes(tmp_path):
    save(tmp_path)
    nodes = sum(len(function.node_def) for function in functions_of(tmp_path))
    x = tf.constant([1.0, -3.0])
    expected = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](x=x)
    shorten_graph(tmp_path)
    functions = functions_of(tmp_path)
    assert sum(len(function.node_def) for function in functions) < nodes
    for function in functions:
        constants = [
            node.attr["value"].SerializeToString()
            for node in function.node_def
            if node.op == "Const" and not node.input
        ]
        assert len(set(constants)) == len(constants)
        assert all("_output_shapes" not in node.attr for node in function.node_def)
    answer = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](x=x)
    assert set(answer) == set(expected)
    for name, values in answer.items():
        assert values.shape == expected[name].shape
        assert values.numpy().tolist() == expected[name].numpy().tolist()


def test_the_fingerprint_is_that_of_the_short_graph(tmp_path):
    save(tmp_path)
    before = tf.saved_model.experimental.read_fingerprint(str(tmp_path))
    shorten_graph(tmp_path)
    after = tf.saved_model.experimental.read_fingerprint(str(tmp_path))
    assert after.saved_model_checksum != before.saved_model_checksum
