"""A served model that nobody can break: whatever is sent, it answers with text."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FUZZ = str(Path(__file__).parents[2] / "benchmarks" / "fuzz.py")
OTHERS = ("greedy", "nbest", "score", "align")
TYPED_CONTROLS = ["</s>", "<s>", "<pad>", "<unk>", "</s> a dog runs", "<s><s>"]

LONG_TEXT = """
import resource, sys, time
import tensorflow as tf
import tensorflow_text

translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
translate(text=tf.constant(["a dog " * 100]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
for text in ("a dog " * 16_667, "x" * 100_000, "\\u4e2d" * 100_000):
    translate(text=tf.constant([text[:100_000]]))["translation"].numpy()[0].decode("utf-8")
seconds = (time.perf_counter() - start) / 3
print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=600) | st.text(max_size=200), max_size=4))
def test_any_bytes_and_any_text_are_answered_with_text(served, texts):
    encoded = [t if isinstance(t, bytes) else t.encode("utf-8", "surrogatepass") for t in texts]
    output = served("serving_default", text=encoded)
    assert len(output["translation"]) == len(texts)
    assert np.isfinite(output["score"]).all()
    for translation in output["translation"]:
        translation.decode("utf-8", "strict")


@pytest.mark.parametrize(
    "name", ["translate", *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)]
)
def test_odd_requests_have_whole_answers(name, exported):
    """A small form of `benchmarks/fuzz.py`."""
    fuzz = runpy.run_path(FUZZ)
    signature = tf.saved_model.load(exported[1]).signatures[name]
    rng = np.random.default_rng(1)
    for _ in range(12):
        inputs = fuzz["random_request"](rng, signature)
        assert fuzz["fault_of"](signature, inputs) is None, inputs


@pytest.mark.slow
def test_a_hundred_thousand_characters_take_little_time_and_memory(exported):
    result = subprocess.run(
        [sys.executable, "-I", "-c", LONG_TEXT, exported[1]], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-3000:]
    seconds, megabytes = (float(word) for word in result.stdout.split())
    assert seconds < 5 and megabytes < 200


@pytest.mark.parametrize("poison", [b"\xff\xfe" * 900, b"\x00", b"x" * 100_000, b"</s>" * 200])
def test_a_poisoned_row_changes_no_other(served, sentences, poison):
    texts = [source.encode() for source in sentences[0]]
    alone = served("serving_default", text=texts)
    together = served("serving_default", text=[*texts[:3], poison, *texts[3:]])
    others = [*range(3), *range(4, len(texts) + 1)]
    assert [together["translation"][i] for i in others] == list(alone["translation"])
    assert together["score"][others] == pytest.approx(alone["score"], abs=1e-4)


def test_typed_control_tokens_are_ordinary_text(served, tokenizer):
    pieces = served("align", text=[text.encode() for text in TYPED_CONTROLS])["source_pieces"]
    for row in pieces:
        spelled = [piece.decode() for piece in row if piece]
        assert spelled.pop() == "</s>"  # the end that every source has
        assert not set(spelled) & {"</s>", "<s>", "<pad>", "<unk>"}
