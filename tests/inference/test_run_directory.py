"""A run directory gives back the model that was saved, or says why it does not."""

import json

import numpy as np
import pytest

from keras_transformer import Greedy, LanguageModel, Transformer
from keras_transformer.inference.run_directory import (
    RunError,
    is_run,
    load_generator,
    load_run,
    load_translator,
    save_run,
)


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
    with pytest.raises(RunError, match="holds no model that fits: 'Lambda'"):
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


def rewrite_config(run, **changes):
    """A config that was changed together with its hash."""
    from keras_transformer.inference.run_directory import _sha256

    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **changes}))
    hashes = json.loads((run / "manifest.json").read_text())
    hashes["config.json"] = _sha256(run / "config.json")
    (run / "manifest.json").write_text(json.dumps(hashes))


def test_another_format_is_refused(run):
    rewrite_config(run, format=1)
    message = "is a run of format 1, but this version reads only 2; train again, or install"
    with pytest.raises(RunError, match=message):
        load_run(run)


def test_a_config_that_does_not_fit_the_weights_is_refused(run):
    model = json.loads((run / "config.json").read_text())["model"]
    rewrite_config(run, model={**model, "num_layers": 1})
    with pytest.raises(RunError, match="holds no model that fits"):
        load_run(run)
    rewrite_config(run, model={**model, "depth": 1})
    with pytest.raises(RunError, match="holds no model that fits.*depth"):
        load_run(run)
