"""The exported SavedModel: the same translations, in a process that knows nothing of us."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf

FRESH_PROCESS = """
import base64, json, sys
import tensorflow as tf
import tensorflow_text

signature = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = []
for batch in json.load(sys.stdin):
    texts = [base64.b64decode(text) for text in batch]
    output = signature(tf.constant(texts, tf.string))
    assert set(output) == {"translation", "score", "source_cut", "ended"}
    assert output["score"].dtype == tf.float32
    translations = [text.decode("utf-8") for text in output["translation"].numpy()]
    answers.append([translations, output["score"].numpy().tolist()])
assert not [name for name in sys.modules if name.startswith("keras_transformer")]
print(json.dumps(answers))
"""


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
