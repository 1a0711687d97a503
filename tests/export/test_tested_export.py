"""Exports of forecasters and classifiers: the same answers, in a process without this package."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Forecaster, SequenceClassifier
from keras_transformer.export.classifier import export_classifier
from keras_transformer.export.tested_export import export_tested
from keras_transformer.forecasting.export import export_forecaster

SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
# Reads arrays `model/signature/case/input`, writes what the signature of the model answers.
FRESH_PROCESS = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow_text

models = {name: tf.saved_model.load(path).signatures
          for name, path in (argument.split("=") for argument in sys.argv[3:])}
asked, answers = np.load(sys.argv[1]), {}
for case in sorted({name.rsplit("/", 1)[0] for name in asked}):
    model, signature, _ = case.split("/")
    inputs = {name.rsplit("/", 1)[1]: asked[name] for name in asked if name.startswith(case + "/")}
    inputs = {name: tf.constant(value.tolist() if value.dtype.kind == "U" else value)
              for name, value in inputs.items()}
    for name, value in models[model][signature](**inputs).items():
        answers[f"{case}/{name}"] = value.numpy()
assert not [name for name in sys.modules if name.startswith("keras_transformer")]
np.savez(sys.argv[2], **answers)
"""


def randomized(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.2 * rng.normal(size=weight.shape))
    return model


@pytest.fixture(scope="module")
def forecaster(tmp_path_factory):
    """A model with covariates, and the path of its export."""
    model = Forecaster(
        history_length=8, horizon=3, num_features=2, num_covariates=1, patch_length=3, **SIZES
    )
    directory = tmp_path_factory.mktemp("exports") / "series"
    return randomized(model), export_forecaster(model, directory)


@pytest.fixture(scope="module")
def classifier(tokenizer, tmp_path_factory):
    model = SequenceClassifier(
        num_classes=4, vocab_size=tokenizer.vocab_size, max_length=20, **SIZES
    )
    directory = tmp_path_factory.mktemp("exports") / "languages"
    return randomized(model), export_classifier(model, directory, tokenizer=tokenizer)


def series(rows, length, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "history": (50 + 9 * rng.normal(size=(rows, length, 2))).astype("float32"),
        "covariates": rng.normal(size=(rows, length + 3, 1)).astype("float32"),
    }


def series_cases():
    ragged = {**series(4, 12, seed=1), "length": np.array([12, 5, 1, 0], "int32")}
    gaps = series(3, 9, seed=2)
    gaps["padding_mask"] = np.random.default_rng(3).random((3, 9)) < 0.7
    missing = {**series(2, 8, seed=4), "length": np.array([8, 8], "int32")}
    missing["history"][0, 4, 1] = np.nan
    return {
        "series/serving_default/full": {**series(5, 8), "length": np.full(5, 8, "int32")},
        "series/serving_default/ragged": ragged,
        "series/serving_default/missing": missing,
        "series/serving_default/none": {**series(0, 8), "length": np.zeros(0, "int32")},
        "series/serving_default/empty": {**series(2, 0), "length": np.zeros(2, "int32")},
        "series/masked/gaps": gaps,
    }


@pytest.fixture(scope="module")
def text_cases(tokenizer, sentences):
    texts = [*sentences[0], "", "a dog " * 40]
    ids = tokenizer.tokenize(texts).to_tensor(0).numpy()
    assert ids.shape[1] > 20  # of which the first 20 are read
    return {
        "languages/serving_default/ids": {"ids": ids},
        "languages/serving_default/none": {"ids": np.zeros((0, 5), "int32")},
        "languages/text/texts": {"text": np.array(texts)},
        "languages/text/blank": {"text": np.array(["", "  "])},
    }


@pytest.fixture(scope="module")
def answers(forecaster, classifier, text_cases, tmp_path_factory):
    """What both exports answer in a process that has this package neither imported nor at hand."""
    cases, folder = {**series_cases(), **text_cases}, tmp_path_factory.mktemp("answers")
    arrays = {f"{case}/{name}": cases[case][name] for case in cases for name in cases[case]}
    np.savez(folder / "asked.npz", **arrays)
    files = [str(folder / name) for name in ("asked.npz", "answers.npz")]
    models = [f"series={forecaster[1]}", f"languages={classifier[1]}"]
    command = [sys.executable, "-I", "-c", FRESH_PROCESS, *files, *models]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    found, answers = np.load(files[1]), {case: {} for case in cases}
    for name in found:
        case, output = name.rsplit("/", 1)
        answers[case][output] = found[name]
    return answers


@pytest.mark.slow
def test_a_fresh_process_gives_the_forecasts_of_python(forecaster, answers):
    model, _ = forecaster
    for case, inputs in series_cases().items():
        length = inputs.pop("length", None)
        if length is not None:
            inputs["padding_mask"] = np.arange(inputs["history"].shape[1]) < length[:, None]
        expected = keras.ops.convert_to_numpy(model(inputs))
        answer = answers[case]
        assert set(answer) == {"mean", "quantiles"}
        np.testing.assert_allclose(answer["mean"], expected[..., 0], rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(answer["quantiles"], expected[..., 1:], rtol=1e-5, atol=1e-4)
        assert np.isfinite(answer["quantiles"]).all()


@pytest.mark.slow
def test_a_served_row_does_not_depend_on_its_padding(forecaster, answers):
    ragged = series_cases()["series/serving_default/ragged"]
    alone = {"history": ragged["history"][1:2, :5], "covariates": ragged["covariates"][1:2, :8]}
    row = keras.ops.convert_to_numpy(forecaster[0](alone))[0]
    served = answers["series/serving_default/ragged"]["mean"][1]
    np.testing.assert_allclose(served, row[..., 0], rtol=1e-5)


@pytest.mark.slow
def test_a_fresh_process_gives_the_classes_of_python(classifier, text_cases, answers):
    ids = text_cases["languages/serving_default/ids"]["ids"][:, :20]
    logits = keras.ops.convert_to_numpy(classifier[0](ids))
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for case in ("languages/serving_default/ids", "languages/text/texts"):
        np.testing.assert_allclose(answers[case]["probabilities"], expected, atol=1e-5)
        assert answers[case]["class_id"].tolist() == expected.argmax(1).tolist()
    assert answers["languages/serving_default/none"]["probabilities"].shape == (0, 4)
    blank = answers["languages/text/blank"]["probabilities"]
    assert np.isfinite(blank).all() and np.allclose(blank[0], expected[-2], atol=1e-5)


@pytest.mark.slow
def test_signatures_are_batch_leading(forecaster, classifier):
    loaded = tf.saved_model.load(forecaster[1]).signatures["serving_default"]
    inputs = loaded.structured_input_signature[1]
    assert {name: spec.shape.as_list() for name, spec in inputs.items()} == {
        "history": [None, None, 2],
        "length": [None],
        "covariates": [None, None, 1],
    }
    assert loaded.structured_outputs["mean"].shape.as_list() == [None, 3, 2]
    assert loaded.structured_outputs["quantiles"].shape.as_list() == [None, 3, 2, 3]
    loaded = tf.saved_model.load(classifier[1]).signatures
    assert set(loaded) == {"serving_default", "text"}
    assert loaded["text"].structured_outputs["probabilities"].shape.as_list() == [None, 4]


@pytest.mark.slow
def test_versions_count_up_and_one_that_exists_is_replaced_only_if_asked(tmp_path):
    model = Forecaster(history_length=4, horizon=2, **SIZES)
    path = tmp_path / "model" / "3"
    assert export_forecaster(model, path) == str(path)
    with pytest.raises(ValueError, match="exists; name its parent for the next version"):
        export_forecaster(model, path)
    assert export_forecaster(model, path, overwrite=True) == str(path)
    inputs = tf.saved_model.load(str(path)).signatures["masked"].structured_input_signature[1]
    assert set(inputs) == {"history", "padding_mask"}


def test_weights_that_are_not_finite_are_not_exported(tmp_path):
    model = SequenceClassifier(num_classes=2, vocab_size=9, **SIZES)
    model.weights[0].assign(np.full(model.weights[0].shape, np.nan))
    with pytest.raises(RuntimeError, match="'probabilities' of the exported model is not finite"):
        export_classifier(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_numbers_as_small_as_an_impossible_score_are_numbers_of_a_model(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.array([[-3e9]], "float32")])

    def answer(x):
        return {"y": model(x)}

    signatures = {"serving_default": (answer, tf.TensorSpec([None, 1], tf.float32, "x"))}
    path = export_tested(model, tmp_path / "model", signatures, {"x": np.ones((1, 1), "float32")})
    assert path.endswith("/1")


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [-1, 10_000])
def test_ids_that_the_vocabulary_has_not_are_refused(classifier, wrong):
    ask = tf.saved_model.load(classifier[1]).signatures["serving_default"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"ids must be in \[0, \d+\)\.[^.]"):
        ask(ids=tf.constant([[4, 5], [4, wrong]]))


def test_inputs_of_a_forecast_that_do_not_fit_its_history_are_named(tmp_path):
    model = Forecaster(history_length=8, horizon=3, num_covariates=1, **SIZES)
    loaded = tf.saved_model.load(export_forecaster(model, tmp_path / "series")).signatures
    history, covariates = tf.ones((3, 6, 1)), tf.zeros((3, 9, 1))
    good = {"length": tf.constant([6, 0, 3]), "padding_mask": tf.ones((3, 6), tf.bool)}
    one_each = "must have one value for each series"
    for signature, name, wrong, message in (
        ("serving_default", "length", [6], f"length {one_each} of history"),
        ("serving_default", "length", [7, 6, 6], r"length must be in \[0, T\], .* T steps of"),
        ("serving_default", "length", [6, -1, 6], r"length must be in \[0, T\]"),
        ("masked", "padding_mask", [[True] * 6], f"padding_mask {one_each}"),
        ("masked", "padding_mask", [[True]] * 3, f"padding_mask {one_each}"),
        ("serving_default", "covariates", [[[0.0]] * 9], "covariates must have one row for each"),
    ):
        mine = "length" if signature == "serving_default" else "padding_mask"
        inputs = {"history": history, mine: good[mine], "covariates": covariates}
        assert np.isfinite(loaded[signature](**inputs)["mean"]).all()
        inputs[name] = tf.constant(wrong)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            loaded[signature](**inputs)


@pytest.mark.slow
def test_covariates_that_end_too_soon_are_named(forecaster):
    ask = tf.saved_model.load(forecaster[1]).signatures["serving_default"]
    history, covariates = tf.zeros((1, 6, 2)), tf.zeros((1, 8, 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must cover the history and the 3"):
        ask(history=history, length=tf.constant([6]), covariates=covariates)


def test_a_tokenizer_of_more_ids_than_the_model_has_is_refused(tokenizer, tmp_path):
    model = SequenceClassifier(num_classes=2, vocab_size=2, **SIZES)
    with pytest.raises(ValueError, match="has vocab_size=2, but the tokenizer has"):
        export_classifier(model, tmp_path / "model", tokenizer=tokenizer)
    assert export_classifier(model, tmp_path / "model").endswith("1")
