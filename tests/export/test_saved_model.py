"""Exporting: versions, precision and signatures; all of a version appears, or nothing."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Transformer, Translator
from keras_transformer.export import packed, saved_model
from keras_transformer.export.precision import serving_copy
from keras_transformer.export.saved_model import serving_module
from keras_transformer.files import read_json
from keras_transformer.version_directory import EXPORT_CARD, next_version, saved_model_path


@pytest.fixture(scope="module")
def translator(tokenizer):
    model = Transformer(
        num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=tokenizer.vocab_size
    )
    return Translator(model, tokenizer, "greedy", max_length=12, max_source_length=12)


@pytest.fixture
def instant(monkeypatch):
    """Exports of a function that takes no time to trace, instead of a translator."""

    def build(graph, precision, names):
        module = tf.Module()
        spec = tf.TensorSpec([None], tf.string, name="text")
        module.echo = tf.function(
            lambda text: {"translation": text, "score": tf.zeros(tf.shape(text))},
            input_signature=[spec],
        )
        module.signature_functions = {"serving_default": module.echo}
        return module

    monkeypatch.setattr(saved_model, "serving_module", build)


def names_in(directory) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


# Versions


def test_versions_count_up_and_nothing_else_is_left(translator, instant, tmp_path):
    directory = tmp_path / "model"
    assert translator.export(directory) == str(directory / "1")
    (directory / "7").mkdir()
    assert translator.export(directory) == str(directory / "8")
    assert names_in(tmp_path) == ["model"]
    assert names_in(directory) == ["1", "7", "8"]
    assert saved_model_path(directory) == directory / "8"
    assert saved_model_path(directory / "1") == directory / "1"
    assert (directory / "8").stat().st_mode & 0o777 == 0o755


def test_a_version_that_is_named_is_written(translator, instant, tmp_path):
    path = tmp_path / "model" / "3"
    assert translator.export(path) == str(path)
    assert saved_model_path(tmp_path / "model") == path
    assert translator.export(tmp_path / "model") == str(tmp_path / "model" / "4")
    assert names_in(tmp_path) == ["model"]


def test_a_version_is_replaced_only_if_asked(translator, instant, tmp_path):
    path = tmp_path / "model" / "3"
    translator.export(path)
    (path / "mine").write_text("")
    with pytest.raises(ValueError, match="exists; name its parent for the next version, or pass"):
        translator.export(path)
    assert "mine" in names_in(path)
    assert translator.export(path, overwrite=True) == str(path)
    assert "mine" not in names_in(path) and saved_model_path(path) == path
    assert names_in(tmp_path) == ["model"] and names_in(path.parent) == ["3"]


def test_what_is_no_version_is_not_replaced(translator, instant, tmp_path):
    (tmp_path / "2026").mkdir()
    (tmp_path / "2026" / "diary").write_text("")
    with pytest.raises(ValueError, match="2026 is not a SavedModel; name"):
        translator.export(tmp_path / "2026", overwrite=True)
    assert names_in(tmp_path / "2026") == ["diary"]


def test_zeros_before_a_version_do_not_hide_what_is_there(translator, instant, tmp_path):
    assert translator.export(tmp_path / "model" / "007") == str(tmp_path / "model" / "7")
    with pytest.raises(ValueError, match="7 exists; name its parent"):
        translator.export(tmp_path / "model" / "07")
    (tmp_path / "2").mkdir()
    with pytest.raises(ValueError, match="2 is not a SavedModel; name"):
        translator.export(tmp_path / "02", overwrite=True)


def test_a_model_directory_may_be_a_volume_of_its_own(translator, instant, tmp_path, monkeypatch):
    (tmp_path / "volume").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "volume")
    rename = os.rename

    def rename_within_a_volume(source, target):
        assert Path(source).resolve().is_relative_to(tmp_path / "volume"), "another device"
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_within_a_volume)
    translator.export(tmp_path / "model")
    assert names_in(tmp_path / "volume") == ["1"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failed_export_leaves_what_there_was(
    overwrite, translator, instant, tmp_path, monkeypatch
):
    path = tmp_path / "model" / "1"
    translator.export(path)

    def fail(*arguments, **keywords):
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        translator.export(path if overwrite else path.parent, overwrite=overwrite)
    assert names_in(tmp_path) == ["model"] and names_in(path.parent) == ["1"]
    assert saved_model_path(path) == path


def test_a_file_is_no_export_directory(translator, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; name another directory"):
        translator.export(tmp_path / "file")


def test_what_is_no_saved_model_is_seen(tmp_path):
    assert saved_model_path(tmp_path) is None
    assert saved_model_path(tmp_path / "missing") is None
    assert next_version(tmp_path) == 1


# What is in a version


def test_signatures_are_those_wanted(translator, tmp_path):
    def names(wanted):
        return set(serving_module(translator.graph, "float32", wanted).signature_functions)

    everything = {"serving_default", "greedy", "beam", "nbest", "translate", "score", "align"}
    assert names(None) == everything
    assert names(()) == {"serving_default"}
    assert names(["nbest", "score"]) == {"serving_default", "nbest", "score"}
    with pytest.raises(ValueError, match="signatures must be one of .*, but is 'best'"):
        translator.export(tmp_path / "export", precision="auto", signatures=["best"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_only_weights_and_tokenizer_are_saved(exported):
    """No optimizer, and no state that a request could change."""
    loaded = tf.saved_model.load(exported[1])
    weights = exported[0].model.weights
    assert [w.shape for w in loaded.model_weights] == [w.shape for w in weights]
    for function in loaded.signatures.values():
        variables = {variable.ref() for variable in function.variables}
        assert variables <= {variable.ref() for variable in loaded.model_weights}


@pytest.mark.slow
def test_bfloat16_halves_the_sublayers_and_keeps_the_translations(exported, sentences, tmp_path):
    translator = exported[0]
    path = translator.export(tmp_path / "model", precision="bfloat16", signatures=())
    loaded = tf.saved_model.load(path)
    for variable, weight in zip(loaded.model_weights, translator.model.weights, strict=True):
        in_float32 = "embedding" in weight.path or "/norm/" in weight.path
        assert variable.dtype == (tf.float32 if in_float32 else tf.bfloat16), weight.path
    output = loaded.signatures["serving_default"](text=tf.constant([*sentences[0], ""]))
    expected = translator.translate([*sentences[0], ""])
    assert [text.decode() for text in output["translation"].numpy()] == expected.texts
    assert output["score"].dtype == tf.float32
    np.testing.assert_allclose(output["score"], expected.scores, rtol=0, atol=0.05)
    assert translator.model.dtype_policy.name == "float32"


def test_a_bfloat16_step_casts_no_cache(trained):
    """Keras would cast it to float32 and back at every layer, at more than a step's own cost."""
    copy = serving_copy(trained, "bfloat16", 16)
    cache = copy.init_cache(np.array([[5, 6, 3]]), max_length=16)
    step = tf.function(copy.decode_step).get_concrete_function(np.array([2]), cache, 0)
    shapes = {tuple(x.shape) for pair in (*cache["layers"], *cache["memory"]) for x in pair}
    casts = [op for op in step.graph.get_operations() if op.type == "Cast"]
    assert casts and not [op.name for op in casts if tuple(op.outputs[0].shape) in shapes]


@pytest.mark.slow
def test_an_export_of_integers_translates_as_before(exported, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "int8_wins", lambda *_: True)
    translator = exported[0]
    path = translator.export(tmp_path / "model", precision="int8", signatures=())

    loaded = tf.saved_model.load(path)
    output = loaded.signatures["serving_default"](text=tf.constant([*sentences[0], ""]))
    expected = translator.translate([*sentences[0], ""])
    assert [text.decode() for text in output["translation"].numpy()] == expected.texts
    np.testing.assert_allclose(output["score"], expected.scores, rtol=0, atol=0.1)
    matrices = [v for v in loaded.model_weights if len(v.shape) == 2]
    assert {v.dtype for v in matrices} == {tf.int8, tf.qint8}
    card = read_json(Path(path) / EXPORT_CARD)
    assert card["int8_products"] == sum(v.dtype == tf.qint8 for v in matrices)
    sizes = [v.dtype.size * np.prod(v.shape) for v in loaded.model_weights]
    assert sum(sizes) < 0.5 * 4 * translator.model.count_params()


def test_another_precision_is_refused(translator, tmp_path):
    known = "precision must be one of 'float32', 'bfloat16', 'int8', 'auto', but is 'int4'"
    with pytest.raises(ValueError, match=known):
        translator.export(tmp_path / "model", precision="int4")
    assert names_in(tmp_path) == []


@pytest.mark.slow
def test_weights_that_are_not_finite_are_not_exported(tokenizer, tmp_path):
    model = Transformer(
        num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=tokenizer.vocab_size
    )
    for weight in model.weights:
        weight.assign(np.full(weight.shape, np.nan))
    translator = Translator(model, tokenizer, max_length=12, max_source_length=12)
    with pytest.raises(RuntimeError, match="its weights are not finite. Nothing was exported"):
        translator.export(tmp_path / "model", signatures=())
    assert names_in(tmp_path) == []
