"""The exported SavedModel in TensorFlow's C++ runtime: no Python, no XLA, the same bytes."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from keras_transformer.export import packed
from keras_transformer.export.seal import save_sealed

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("savedmodel_runner.cc")
# The only text ops that an export may need; TensorFlow Serving has them linked in.
OP_LIBRARY = Path(tensorflow_text.__file__).parent / "python/ops/_sentencepiece_tokenizer.so"

NUMBERS = {"float": np.float32, "int32": np.int32, "bool": np.bool_}

# What the runner's exit codes mean.
USAGE, OP_LIBRARY_FAILED, LOAD_FAILED, BAD_SIGNATURE, RUN_FAILED = 2, 3, 4, 5, 6

NASTY_TEXTS = [
    b"",
    b" \t\n ",
    b"\xff\xfe\x80",
    b"a dog \xc3",
    b"</s>",
    b"<s> a dog </s> runs <pad><unk>",
    b"e" * 300,
    "\U0001f600 a \U0001f415 runs \u2581\ue000".encode(),
    b"a dog\nruns\r\nhome",
    b"\x00",
    b"two big cats sleep\x00here",
]


@pytest.fixture(scope="session")
def runner(tmp_path_factory):
    """The path of the compiled runner."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed, and the runner is a C++ program")
    program = tmp_path_factory.mktemp("runner") / "savedmodel_runner"
    libraries = tf.sysconfig.get_lib()
    command = ["g++", "-w", "-O1", *tf.sysconfig.get_compile_flags(), str(SOURCE)]
    command += ["-o", str(program), f"-Wl,-rpath,{libraries}", "-l:libtensorflow_cc.so.2"]
    result = subprocess.run(command + tf.sysconfig.get_link_flags(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return program


@pytest.fixture(scope="session")
def run_native(runner):
    """run_native(directory, texts, signature=..., name=array): the outputs, a dict of arrays."""

    def run(directory, texts=None, signature="serving_default", **inputs):
        if texts is not None:
            inputs["text"] = texts
        arguments = [directory, f"--signature={signature}", f"--op_library={OP_LIBRARY}"]
        result = start(runner, arguments, encode(inputs))
        assert result.returncode == 0, result.stderr[-3000:]
        return decode(result.stdout)

    return run


def start(runner, arguments, inputs=""):
    command = [str(runner), *map(str, arguments)]
    return subprocess.run(command, input=inputs, capture_output=True, text=True)


def encode(inputs) -> str:
    """Named arrays, or lists, in the words that the runner reads."""
    lines = []
    for name, values in inputs.items():
        array = np.asarray(values, object)
        lines.append([name, array.ndim, *array.shape, *map(_word, array.ravel())])
    return "\n".join(" ".join(map(str, line)) for line in lines)


def _word(value) -> str:
    if isinstance(value, bytes):
        return "x" + value.hex()
    return f"{value:.9g}" if isinstance(value, (float, np.floating)) else str(value)


def decode(outputs: str) -> dict:
    """The runner's words as arrays, strings as arrays of bytes objects."""
    arrays = {}
    for line in outputs.splitlines():
        name, dtype, rank, *words = line.split(" ")
        shape, words = [int(size) for size in words[: int(rank)]], words[int(rank) :]
        if dtype == "string":
            array = np.array([bytes.fromhex(word[1:]) for word in words], object)
        else:
            array = np.array([float(word) for word in words], NUMBERS[dtype])
        arrays[name] = array.reshape(shape)
    return arrays


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """A SavedModel that gives back a tensor of each dtype, and one that needs XLA."""
    module = tf.Module()

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="source"),
            tf.TensorSpec([None], tf.float32, name="factor"),
            tf.TensorSpec([None, None], tf.int32, name="count"),
        ]
    )
    def echo(source, factor, count):
        same = {"source": source, "factor": factor, "count": count}
        return same | {"pairs": tf.stack([source, source], axis=1)}

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def compiled(x):
        return {"y": x * 2.0}

    module.echo, module.compiled = echo, compiled
    directory = tmp_path_factory.mktemp("echo")
    tf.saved_model.save(module, str(directory), {"echo": echo, "compiled": compiled})
    return directory


@pytest.mark.parametrize("name", ["serving_default", "align"])
def test_integers_give_the_same_bytes(name, exported, run_native, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "int8_wins", lambda *_: True)
    path = exported[0].export(tmp_path / "int8", precision="int8", signatures=["align"])
    texts = [source.encode() for source in sentences[0]] + NASTY_TEXTS
    expected = tf.saved_model.load(path).signatures[name](text=tf.constant(texts))
    native = run_native(path, texts, name)
    for output, values in expected.items():
        assert native[output].tolist() == values.numpy().tolist() or output == "attention", output
    # Integers need no variable; the floats beside them may differ in their last digits.
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    without = run_native(path, texts, name)
    assert without["translation"].tolist() == expected["translation"].numpy().tolist()


@pytest.mark.parametrize("signature", ["greedy", "beam"])
def test_texts_are_translated_as_in_python(signature, exported, served, run_native, sentences):
    texts = [source.encode() for source in sentences[0]] + NASTY_TEXTS
    native = run_native(exported[1], texts, signature)
    expected = served(signature, text=texts)
    assert set(native) == set(expected)
    assert native["translation"].tolist() == expected["translation"].tolist()
    assert native["score"].dtype == np.float32
    for name in ("source_cut", "ended"):
        assert native[name].tolist() == expected[name].tolist()
    np.testing.assert_allclose(native["score"], expected["score"], rtol=0, atol=1e-4)
    translations = [translation.decode() for translation in native["translation"]]
    assert translations[: len(sentences[1])] == sentences[1]
    assert translations[len(sentences[1]) :][:2] == ["", ""]
    assert np.isfinite(native["score"]).all()


def test_an_empty_batch_gives_empty_outputs(exported, run_native):
    native = run_native(exported[1], [])
    assert native["translation"].shape == native["score"].shape == (0,)


def test_named_inputs_of_every_dtype_pass_the_runner_unchanged(run_native, echo):
    factors = [0.1, -0.0, 1e-45, 3.4028235e38, np.inf, -np.inf, np.nan]
    inputs = {
        "source": [bytes(range(256)), b"", b" \n", b"x"],
        "factor": np.array(factors, np.float32),
        "count": np.array([[-(2**31), 2**31 - 1, 0]] * 2, np.int32),
    }
    outputs = run_native(echo, signature="echo", **inputs)
    assert outputs["source"].tolist() == inputs["source"]
    assert outputs["pairs"].tolist() == [[source, source] for source in inputs["source"]]
    for name in ("factor", "count"):
        assert outputs[name].dtype == inputs[name].dtype
        np.testing.assert_array_equal(outputs[name], inputs[name])


def test_each_stage_that_fails_has_its_exit_code(runner, echo, tmp_path):
    x = encode({"x": [1.0, 2.0]})
    cases = [
        ([], "", USAGE, "which directory"),
        ([echo, "--signatures"], "", USAGE, "not understood: --signatures"),
        ([echo, f"--op_library={tmp_path}/none.so"], x, OP_LIBRARY_FAILED, "none.so"),
        ([tmp_path], x, LOAD_FAILED, "Could not find SavedModel"),
        ([echo], x, BAD_SIGNATURE, "no signature of this name"),
        ([echo, "--signature=compiled"], "", BAD_SIGNATURE, "missing input x"),
        ([echo, "--signature=compiled"], x + " y 1 0", BAD_SIGNATURE, "no input y"),
        ([echo, "--signature=compiled"], "x 1 2 1.0", BAD_SIGNATURE, "end within a tensor"),
        ([echo, "--signature=compiled"], "x 1 1 x61", BAD_SIGNATURE, "no such number: x61"),
        ([echo, "--signature=compiled"], x, RUN_FAILED, "XLA compilation disabled"),
    ]
    for arguments, inputs, exit_code, message in cases:
        result = start(runner, arguments, inputs)
        assert message in result.stderr
        assert (result.returncode, result.stdout) == (exit_code, ""), result.stderr


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("no variables", "Could not find variable"),
        ("no index", ""),
        ("variables of another export", "are those of another; copy all of it again"),
    ],
)
def test_half_of_an_export_does_not_load(runner, tmp_path, damage, message):
    module = tf.Module()
    module.weight = tf.Variable(2.0)
    spec = tf.TensorSpec([None], tf.float32, name="x")
    module.double = tf.function(lambda x: {"y": x * module.weight}, input_signature=[spec])
    whole, other = tmp_path / "whole", tmp_path / "other"
    for path in (whole, other):
        save_sealed(module, path, {"serving_default": module.double})
    x = encode({"x": [1.0, 3.0]})
    answer = start(runner, [whole], x)
    assert decode(answer.stdout)["y"].tolist() == [2.0, 6.0], answer.stderr
    if damage == "no index":
        (whole / "variables/variables.index").unlink()
    else:
        shutil.rmtree(whole / "variables")
    if damage == "variables of another export":
        shutil.copytree(other / "variables", whole / "variables")
    result = start(runner, [whole], x)
    assert (result.returncode, result.stdout) == (LOAD_FAILED, ""), result.stderr
    assert message in result.stderr


def test_an_export_needs_the_text_ops(exported, runner):
    """A request needs them; loading does not, so a model that loads need not run."""
    result = start(runner, [exported[1]], encode({"text": [b"a dog runs"]}))
    assert result.returncode == RUN_FAILED, result.stderr
    assert "Op type not registered 'SentencepieceOp'" in result.stderr
