"""What `fit`, `evaluate` and `predict` refuse: shapes, class weights and dtypes that do not fit."""

import keras
import numpy as np
import pytest

from keras_transformer import (
    Forecaster,
    ForecastLoss,
    LanguageModel,
    MaskedCrossentropy,
    SequenceClassifier,
    Transformer,
)

STACK = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "dropout": 0.0}
IDS = np.random.default_rng(0).integers(1, 20, (8, 6))
CLASSES = IDS[:, 0] % 3
HISTORY = np.random.default_rng(1).normal(size=(8, 8, 1)).astype("float32")
TARGETS = np.random.default_rng(2).normal(size=(8, 4, 1)).astype("float32")


def ones(*shape):
    return np.ones(shape, "int32")


@pytest.fixture(scope="module")
def models():
    """Each kind of model with good inputs and labels, after a `fit` on them."""
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made = {
        "forecaster": (
            Forecaster(history_length=8, horizon=4, **STACK),
            ForecastLoss(),
            HISTORY,
            TARGETS,
        ),
        "transformer": (
            Transformer(**STACK, source_vocab_size=20),
            MaskedCrossentropy(),
            (IDS[:, :5], IDS),
            IDS,
        ),
        "language_model": (LanguageModel(**STACK, vocab_size=20), MaskedCrossentropy(), IDS, IDS),
        "classifier": (
            SequenceClassifier(**STACK, vocab_size=20, num_classes=3),
            classes,
            IDS,
            CLASSES,
        ),
    }
    for model, loss, inputs, labels in made.values():
        options = {"num_shards": 1} if isinstance(loss, MaskedCrossentropy) else {}
        model.compile(keras.optimizers.SGD(0.0), loss, **options)
        model.fit(inputs, labels, verbose=0)
    return {name: (model, inputs, labels) for name, (model, _, inputs, labels) in made.items()}


BAD_LABELS = [
    ("forecaster", ones(8, 1, 1), r"shape \(B, 4, 1\).*\(None, 1, 1\)"),
    ("forecaster", ones(8, 4, 2), r"shape \(B, 4, 1\).*\(None, 4, 2\)"),
    ("forecaster", ones(8, 4), r"shape \(B, 4, 1\).*\(None, 4\)"),
    ("transformer", ones(8, 5), r"each of T=6 predictions.*\(5,\)"),
    ("transformer", ones(8, 1), r"each of T=6 predictions.*\(1,\)"),
    ("transformer", ones(8, 6, 1), r"each of T=6 predictions.*\(6, 1\)"),
    ("language_model", ones(8, 1), r"each of T=6 predictions.*\(1,\)"),
    ("language_model", ones(8), r"each of T=6 predictions.*\(\)"),
    ("classifier", ones(8, 5), r"one-hot rows \(B, 3\).*\(None, 5\)"),
]
BAD_WEIGHTS = [
    ("forecaster", (8, 3)),
    ("forecaster", (8, 4, 2)),
    ("transformer", (8, 5)),
    ("transformer", (8, 6, 1)),
    ("language_model", (8, 5)),
    ("classifier", (8, 3)),
]
BAD_INPUTS = [
    ("forecaster", np.ones((8, 8, 2), "float32"), "num_features=1"),
    ("transformer", (ones(8, 5, 1), IDS), r"reads ids \(B, T\).*\(\w+, 5, 1\)"),
    ("transformer", IDS, "takes a pair"),
    ("language_model", (IDS, IDS), "received 2 in a tuple"),
    ("language_model", ones(8, 6, 1), r"reads ids \(B, T\).*\(\w+, 6, 1\)"),
    ("classifier", ones(8, 6, 1), r"reads ids \(B, T\).*\(\w+, 6, 1\)"),
]


@pytest.mark.parametrize(("name", "labels", "message"), BAD_LABELS)
def test_labels_are_refused_after_good_ones_as_before_them(models, name, labels, message):
    """Keras has traced a step for any size by the second of two shapes, and would see nothing."""
    model, inputs, _ = models[name]
    for method in (model.fit, model.evaluate):
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                method(inputs, labels, verbose=0)
    with pytest.raises(ValueError, match=message.replace("None", "8")):
        model.train_on_batch(inputs, labels)


@pytest.mark.parametrize(("name", "shape"), BAD_WEIGHTS)
def test_weights_that_fit_no_label_are_refused(models, name, shape):
    model, inputs, labels = models[name]
    for method in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="sample_weight must have one weight per row"):
            method(inputs, labels, sample_weight=np.ones(shape), verbose=0)


@pytest.mark.parametrize(("name", "inputs", "message"), BAD_INPUTS)
def test_inputs_of_another_shape_are_refused(models, name, inputs, message):
    model, _, labels = models[name]
    with pytest.raises(ValueError, match=message):
        model.fit(inputs, labels, verbose=0)
    with pytest.raises(ValueError, match=message):
        model.predict(inputs, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("shapes", [[(8,), (8, 6), (8, 1), (8,)]])
def test_weights_per_sentence_and_per_token_take_turns(models, shapes):
    model, inputs, labels = models["transformer"]
    weights = np.arange(8.0)
    losses = []
    for shape in shapes:
        whole = np.broadcast_to(weights[:, None], (8, 6)) if shape == (8, 6) else weights
        found = model.evaluate(
            inputs, labels, sample_weight=whole.reshape(shape), batch_size=8, verbose=0
        )
        losses.append(found)
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


def test_rows_of_inputs_and_labels_must_be_as_many(models):
    model, inputs, labels = models["language_model"]
    with pytest.raises(ValueError, match="as many rows as each other, but have 1 and 8"):
        model.train_on_batch(inputs, labels[:1])


@pytest.mark.parametrize("name", ["transformer", "language_model", "forecaster"])
def test_class_weights_are_refused_where_there_are_no_classes(models, name):
    model, inputs, labels = models[name]
    for method in (model.fit, model.train_on_batch):
        with pytest.raises(ValueError, match="class_weight has no meaning"):
            method(inputs, labels, class_weight={7: 5.0})


def test_class_weights_of_a_classifier_are_those_of_numpy(models):
    model, inputs, labels = models["classifier"]
    logits = np.asarray(model(inputs), "float64")
    nll = np.log(np.exp(logits).sum(1)) - logits[np.arange(8), labels]
    expected = np.mean(nll * np.where(labels == 1, 5.0, 1.0))
    found = model.fit(inputs, labels, class_weight={1: 5.0}, verbose=0).history["loss"][0]
    assert found == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"weights for \[7\], but the classes are 0 to 2"):
        model.fit(inputs, labels, class_weight={7: 5.0}, verbose=0)


def test_a_batch_without_labels_is_refused(models):
    model, inputs, _ = models["language_model"]
    with pytest.raises(ValueError, match="the batch has none"):
        model.fit(inputs, verbose=0)


@pytest.fixture
def floatx():
    """Sets what layers are made with. Keras reads the dtype alone only before the first layer."""

    def set_both(dtype):
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)

    yield set_both
    set_both("float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_low_floatx_makes_models_that_run_and_refuses_to_train_them(floatx, dtype, tmp_path):
    floatx(dtype)
    model = LanguageModel(**STACK, vocab_size=20)
    logits = np.asarray(model(IDS), "float32")
    assert model.dtype_policy.name == dtype and np.isfinite(logits).all()
    model.compile("adam", MaskedCrossentropy())
    with pytest.raises(ValueError, match=f'make the model with dtype="mixed_{dtype}"'):
        model.fit(IDS, IDS, verbose=0)
    model.save(tmp_path / "model.keras")
    floatx("float32")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.dtype_policy.name == dtype
    np.testing.assert_allclose(np.asarray(loaded(IDS), "float32"), logits, rtol=0, atol=1e-3)


def test_lora_trains_its_own_weights_alone_and_is_kept(tmp_path):
    model = Transformer(**STACK, source_vocab_size=20, tied_embeddings="none")
    inputs = IDS[:, :5], IDS
    before = np.asarray(model(inputs))
    attention = model.decoder.layers[0].self_attention
    for layer in (attention.query_projection, attention.memory_projection, model.output_projection):
        layer.enable_lora(2)
    np.testing.assert_allclose(model(inputs), before, rtol=0, atol=1e-6)
    kernel = np.asarray(attention.query_projection.lora_kernel_b)
    model.compile(keras.optimizers.Adam(0.05), MaskedCrossentropy(), run_eagerly=True)
    model.fit(inputs, IDS, verbose=0)
    assert np.any(np.asarray(attention.query_projection.lora_kernel_b) != kernel)
    after = np.asarray(model(inputs))
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(loaded(inputs), after, rtol=0, atol=1e-5)
    plain = Transformer(**STACK, source_vocab_size=20, tied_embeddings="none")
    plain.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(plain(inputs), after, rtol=0, atol=1e-5)
