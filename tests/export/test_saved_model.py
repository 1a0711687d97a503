"""The exported SavedModel: the same translations, in a process that knows nothing of us."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_transformer import Translator
from keras_transformer.export.saved_model import next_version, saved_model_path

FRESH_PROCESS = """
import base64, json, sys
import tensorflow as tf
import tensorflow_text

signature = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = []
for batch in json.load(sys.stdin):
    texts = [base64.b64decode(text) for text in batch]
    output = signature(tf.constant(texts, tf.string))
    assert set(output) == {"translation", "score"}
    assert output["score"].dtype == tf.float32
    translations = [text.decode("utf-8") for text in output["translation"].numpy()]
    answers.append([translations, output["score"].numpy().tolist()])
assert not [name for name in sys.modules if name.startswith("keras_transformer")]
print(json.dumps(answers))
"""

# Ops whose kernels TensorFlow Serving lacks or that would bind the model to Python or to XLA.
FORBIDDEN_OPS = {"PyFunc", "EagerPyFunc", "PyFuncStateless", "PrintV2"}


@pytest.fixture(scope="module", params=["greedy", "beam"])
def exported(request, trained, tokenizer, tmp_path_factory):
    translator = Translator(trained, tokenizer, search=request.param)
    directory = tmp_path_factory.mktemp("exports") / "en-de"
    return translator, translator.export(directory)


def translate_in_fresh_process(path, batches):
    import base64

    encoded = [[base64.b64encode(text).decode() for text in batch] for batch in batches]
    result = subprocess.run(
        [sys.executable, "-I", "-c", FRESH_PROCESS, path],
        input=json.dumps(encoded),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout)


def test_a_fresh_process_gives_the_same_answers(exported, sentences):
    translator, path = exported
    sources = sentences[0]
    batches = [
        [source.encode() for source in sources],
        [sources[0].encode()],
        [],
        [b"", b"  ", sources[1].encode()],
        [b"\xff\xfe\x80", b"</s> <s>", "\U0001f600 \u2581 \ue000".encode(), b"\x00"],
        [b"a dog runs " * 9091],
    ]
    answers = translate_in_fresh_process(path, batches)
    for batch, (translations, scores) in zip(batches, answers, strict=True):
        expected = translator.translate_tensor(tf.constant(batch, tf.string))
        assert translations == [text.decode() for text in expected["translation"].numpy()]
        assert scores == pytest.approx(expected["score"].numpy().tolist(), abs=1e-4)
    assert answers[0][0] == sentences[1]
    assert answers[2] == [[], []]
    assert answers[3][0][:2] == ["", ""]


def test_signature_is_batch_leading_strings_to_strings_and_floats(exported):
    signature = tf.saved_model.load(exported[1]).signatures["serving_default"]
    (text,) = signature.structured_input_signature[1].values()
    assert (text.name, text.shape.as_list(), text.dtype) == ("text", [None], tf.string)
    outputs = signature.structured_outputs
    assert outputs["translation"].dtype == tf.string
    assert outputs["score"].dtype == tf.float32
    assert all(output.shape.rank == 1 for output in outputs.values())


def test_graph_has_no_python_and_no_compiled_functions(exported):
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    with open(f"{exported[1]}/saved_model.pb", "rb") as file:
        saved_model.ParseFromString(file.read())
    graph = saved_model.meta_graphs[0].graph_def
    nodes = list(graph.node)
    for function in graph.library.function:
        nodes += function.node_def
        assert not function.attr["_XlaMustCompile"].b, function.signature.name
    ops = {node.op for node in nodes}
    assert not ops & FORBIDDEN_OPS
    assert not [op for op in ops if op.startswith("Xla")]


def test_versions_count_up_and_nothing_else_is_left(trained, tokenizer, tmp_path):
    translator = Translator(trained, tokenizer, search="greedy")
    directory = tmp_path / "model"
    assert translator.export(directory, signatures=()) == str(directory / "1")
    (directory / "7").mkdir()
    assert translator.export(directory, signatures=()) == str(directory / "8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model"]
    assert sorted(entry.name for entry in directory.iterdir()) == ["1", "7", "8"]
    assert saved_model_path(directory) == directory / "8"
    assert saved_model_path(directory / "1") == directory / "1"


def test_a_failed_export_leaves_nothing(trained, tokenizer, tmp_path, monkeypatch):
    def fail(*arguments, **keywords):
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        Translator(trained, tokenizer).export(tmp_path / "model")
    assert not list((tmp_path / "model").iterdir())
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_file_is_no_export_directory(trained, tokenizer, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; name a directory to export to"):
        Translator(trained, tokenizer).export(tmp_path / "file")


def test_what_is_no_saved_model_is_seen(tmp_path):
    assert saved_model_path(tmp_path) is None
    assert saved_model_path(tmp_path / "missing") is None
    assert next_version(tmp_path) == 1
