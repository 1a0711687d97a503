"""A run directory gives back the model that was saved, or says why it does not."""

import io
import json
import resource
import shutil
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_transformer import Greedy, LanguageModel, Tokenizer, Transformer
from keras_transformer.inference.run_directory import (
    RunError,
    is_run,
    load_run,
    save_run,
)
from keras_transformer.inference.run_files import read_files, write_files
from keras_transformer.inference.text_generator import load_generator
from keras_transformer.inference.translator import load_translator


@pytest.fixture
def run(trained, tokenizer, tmp_path):
    save_run(trained, tokenizer, tmp_path / "run")
    return tmp_path / "run"


def test_what_is_loaded_computes_what_was_saved(run, trained, tokenizer):
    model, loaded_tokenizer = load_run(run)
    inputs = np.array([[5, 6, 3]]), np.array([[2, 7]])
    np.testing.assert_array_equal(np.array(model(inputs)), np.array(trained(inputs)))
    assert loaded_tokenizer.model == tokenizer.model
    assert is_run(run) and not is_run(run.parent)


def test_every_argument_and_the_dtype_come_back(tokenizer, tmp_path):
    arguments = {
        "num_layers": 1,
        "d_model": 8,
        "num_heads": 2,
        "d_ff": 12,
        "source_vocab_size": tokenizer.vocab_size,
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "feed_forward_dropout": 0.15,
        "activation": "gelu",
        "norm_first": True,
        "tied_embeddings": "none",
        "max_length": 512,
    }
    save_run(Transformer(**arguments, dtype="mixed_bfloat16"), tokenizer, tmp_path)
    config = load_run(tmp_path)[0].get_config()
    assert {name: config[name] for name in arguments} == arguments
    assert load_run(tmp_path)[0].dtype_policy.name == "mixed_bfloat16"


@pytest.fixture
def language_model(tokenizer):
    return LanguageModel(
        num_layers=1,
        d_model=8,
        num_heads=2,
        d_ff=8,
        vocab_size=tokenizer.vocab_size,
        positions="rotary",
    )


def test_a_language_model_comes_back_as_one(language_model, tokenizer, tmp_path):
    save_run(language_model, tokenizer, tmp_path)
    model, _ = load_run(tmp_path)
    ids = np.array([[3, 5, 6]])
    np.testing.assert_array_equal(np.array(model(ids)), np.array(language_model(ids)))
    assert model.get_config()["positions"] == "rotary"
    assert load_generator(tmp_path, max_length=12).graph.max_length == 12


def test_a_run_of_the_other_class_is_refused(run, language_model, tokenizer, tmp_path):
    with pytest.raises(RunError, match="a Transformer, not a LanguageModel; use load_translator"):
        load_generator(run)
    save_run(language_model, tokenizer, tmp_path / "texts")
    with pytest.raises(RunError, match="a LanguageModel, not a Transformer; use load_generator"):
        load_translator(tmp_path / "texts")


def test_a_class_that_is_not_ours_is_refused(run):
    rewrite_config(run, **{"class": "Lambda"})
    with pytest.raises(RunError, match="class must be one of 'Transformer', 'LanguageModel', but"):
        load_run(run)


def test_saving_again_replaces_the_run(run, trained, tokenizer):
    save_run(trained, tokenizer, run)
    load_run(run)
    assert len(list(run.iterdir())) == 4


@pytest.mark.slow
def test_translator_takes_its_search_from_the_arguments(run, sentences):
    translator = load_translator(run, "greedy")
    assert translator.strategy == Greedy()
    assert translator(sentences[0][:1]) == sentences[1][:1]


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5", "tokenizer.model"])
def test_altered_and_missing_files_are_named(run, name):
    path = run / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=f"{name} is not the file that was saved"):
        load_run(run)
    path.unlink()
    with pytest.raises(RunError, match=f"{name} is missing"):
        load_run(run)


def test_directories_that_are_no_run_are_refused(tmp_path, run):
    with pytest.raises(RunError, match="is no directory; name one that training has written"):
        load_run(tmp_path / "missing")
    with pytest.raises(RunError, match=r"is no run: manifest\.json is missing"):
        load_run(tmp_path)
    (tmp_path / "export" / "1").mkdir(parents=True)
    (tmp_path / "export" / "1" / "saved_model.pb").touch()
    with pytest.raises(RunError, match="is an export; name the run that it was made from"):
        load_run(tmp_path / "export")
    (run / "manifest.json").write_text("[")
    with pytest.raises(RunError, match=r"manifest\.json is damaged"):
        load_run(run)


NAMES = ("config.json", "tokenizer.model", "model.weights.h5")


def rewrite(run, name, data):
    """A file that was changed together with its hash."""
    write_files(run, {**read_files(run, NAMES), name: data})


def rewrite_config(run, **changes):
    config = json.loads((run / "config.json").read_text())
    rewrite(run, "config.json", json.dumps({**config, **changes}).encode())


def test_another_format_is_refused(run):
    rewrite_config(run, format=1)
    message = "is a run of format 1, but this version reads only 2 to 3; train again, or"
    with pytest.raises(RunError, match=message):
        load_run(run)


def test_a_config_that_does_not_fit_the_weights_is_refused(run):
    model = json.loads((run / "config.json").read_text())["model"]
    rewrite_config(run, model={**model, "num_layers": 2})
    with pytest.raises(RunError, match="holds no model that fits"):
        load_run(run)
    rewrite_config(run, model={**model, "depth": 1})
    with pytest.raises(RunError, match="holds no model that fits.*depth"):
        load_run(run)


FORMATS = Path(__file__).parent / "formats"
KEPT = {
    "num_layers": 1,
    "d_model": 2,
    "num_heads": 1,
    "d_ff": 2,
    "vocab_size": 266,
    "max_length": 16,
}


def evenly(weight):
    """The values that the weights in `formats` have."""
    return np.linspace(-1, 1, weight.size).reshape(weight.shape).astype("float32")


@pytest.mark.parametrize("number", [2, 3])
def test_a_run_of_every_format_is_read(number):
    model, tokenizer = load_run(FORMATS / str(number))
    config = model.get_config()
    assert {name: config[name] for name in KEPT} == KEPT and tokenizer.vocab_size == 266
    for weight in model.get_weights():
        np.testing.assert_array_equal(weight, evenly(weight))


def test_a_run_of_an_earlier_format_is_saved_again_in_the_present_one(tmp_path):
    shutil.copytree(FORMATS / "2", tmp_path / "run")
    save_run(*load_run(tmp_path / "run"), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["format"] == 3
    load_run(tmp_path / "run")


@pytest.fixture
def small_run(tmp_path):
    shutil.copytree(FORMATS / "3", tmp_path / "run")
    return tmp_path / "run"


def model_with(**changes):
    return {"model": {**KEPT, **changes}}


HOSTILE_CONFIGS = [
    *[b"", b"{", b"[]", b"null", b"7", b"\xff\xfe", b"[" * 10**6, b'{"a":' * 10**6],
    *[{}, {"class": []}, {"class": None}, {"class": "Sequential"}, {"format": [3]}],
    *[{"dtype": {}}, {"dtype": "abc"}, {"dtype": "int32"}, {"dtype": None}, {"dtype": "string"}],
    *[{"model": []}, {"model": None}, {"model": {}}, {"parameters": 10**9}, {"parameters": "a"}],
    *[model_with(**{name: 10**9}) for name in KEPT],
    *[model_with(**{name: value}) for name in KEPT for value in (0, -1, 1.5, "2", [2], True)],
    *[model_with(max_length=2 * 10**7), model_with(num_layers=10**4), model_with(d_model=10**400)],
    *[model_with(activation=x) for x in ("os.system", {"class_name": "Lambda"}, ["relu"], None)],
    *[model_with(positions="none"), model_with(norm=[]), model_with(dropout=float("nan"))],
    *[model_with(depth=1), model_with(dropout="a"), model_with(trainable={}), model_with(dtype=1)],
]


def hdf5(fill):
    """The bytes of an HDF5 file that `fill` writes to."""
    file = io.BytesIO()
    with h5py.File(file, "w") as group:
        fill(group)
    return file.getvalue()


def with_virtual_dataset(group):
    layout = h5py.VirtualLayout((580,), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (580,))
    group.create_virtual_dataset("x", layout)


def with_circle(group):
    group.create_group("a")["b"] = group["/"]


HOSTILE_WEIGHTS = {
    "nothing": b"",
    "noise": np.random.default_rng(0).bytes(50_000),
    "a link to another file": hdf5(lambda g: g.update(x=h5py.ExternalLink("/etc/passwd", "/"))),
    "a link inside": hdf5(lambda g: g.update(x=h5py.SoftLink("/"))),
    "numbers in another file": hdf5(
        lambda g: g.create_dataset("x", (580,), "f4", external=[("/etc/passwd", 0, 2320)])
    ),
    "numbers of another file": hdf5(with_virtual_dataset),
    "a circle": hdf5(with_circle),
    "more than there is": hdf5(lambda g: g.create_dataset("x", (10**12,), "f4", chunks=(10**6,))),
    "zeros, packed": hdf5(lambda g: g.create_dataset("x", data=np.zeros(10**7), compression=9)),
    "whole numbers": hdf5(lambda g: g.create_dataset("x", data=np.zeros(580, "int8"))),
    "text": hdf5(lambda g: g.create_dataset("x", data=["a"] * 580)),
    "one array": hdf5(lambda g: g.create_dataset("x", data=np.zeros(580, "f4"))),
}


@pytest.mark.parametrize("part", ["config.json", "model.weights.h5", "tokenizer.model"])
def test_a_hostile_run_is_one_line_in_little_memory_and_time(small_run, part):
    whole, memory = read_files(small_run, NAMES), peak_memory()
    tokenizer, random = whole["tokenizer.model"], np.random.default_rng(0)
    config = json.loads(whole["config.json"])
    cases = {
        "config.json": [
            case if isinstance(case, bytes) else json.dumps({**config, **case}).encode()
            for case in HOSTILE_CONFIGS
            if case != {}
        ],
        "model.weights.h5": list(HOSTILE_WEIGHTS.values()),
        "tokenizer.model": [b"", b"garbage", random.bytes(9000), tokenizer[:-9], tokenizer[9:]],
    }[part]
    for data in cases:
        write_files(small_run, {**whole, part: data})
        with pytest.raises(RunError) as caught:
            load_run(small_run)
        message = str(caught.value)
        assert str(small_run) in message and "\n" not in message and len(message) < 900, message
    assert peak_memory() - memory < 200


def peak_memory():
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_numbers_that_are_none_are_refused_by_save_and_by_load(small_run, tmp_path):
    model, tokenizer = load_run(small_run)
    whole = read_files(small_run, NAMES)
    weight = model.weights[3]
    value = np.array(weight)
    value.flat[0] = np.nan
    weight.assign(value)
    with pytest.raises(RunError, match=f"cannot be saved.*{weight.path} holds NaN or infinity"):
        save_run(model, tokenizer, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    file = io.BytesIO(whole["model.weights.h5"])
    with h5py.File(file, "r+") as weights:
        weights["embedding/vars/0"][0, 0] = np.inf
    rewrite(small_run, "model.weights.h5", file.getvalue())
    with pytest.raises(RunError, match="embeddings holds NaN or infinity"):
        load_run(small_run)


class Other(LanguageModel):
    pass


@keras.saving.register_keras_serializable("tests")
def straight(x):
    return x


@pytest.mark.parametrize(
    "model_class, changes, message",
    [
        (Other, {}, "must be a Transformer or a LanguageModel itself, but is a Other"),
        (LanguageModel, {"activation": lambda x: x}, "activation must be a number or a word"),
        (LanguageModel, {"activation": straight}, "activation must be a number or a word"),
        (LanguageModel, {"vocab_size": 9}, "vocab_size=9, but the tokenizer has 266 ids"),
        (LanguageModel, {"max_length": 10**7}, "max_length=10000000 times d_model=2 is over"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(small_run, tmp_path, model_class, changes, message):
    tokenizer = Tokenizer.load(small_run / "tokenizer.model")
    model = model_class(**{**KEPT, **changes})
    with pytest.raises(RunError, match=message):
        save_run(model, tokenizer, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_moments_of_the_optimizer_are_no_weights(small_run, tmp_path):
    model, tokenizer = load_run(small_run)
    save_run(model, tokenizer, tmp_path / "before")
    model.compile(keras.optimizers.Adam())
    model.optimizer.build(model.trainable_variables)
    save_run(model, tokenizer, tmp_path / "after")
    before, after = (read_files(tmp_path / name, NAMES) for name in ("before", "after"))
    assert before == after


def test_a_full_disk_leaves_the_run_as_it_was(small_run):
    model, tokenizer = load_run(small_run)
    before = {path.name: path.read_bytes() for path in small_run.iterdir() if path.is_file()}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 300, 3000, 30_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
        try:
            with pytest.raises(OSError, match=r"could not be written \(File too large\)"):
                save_run(model, tokenizer, small_run)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        after = {path.name: path.read_bytes() for path in small_run.iterdir() if path.is_file()}
        assert after == before
