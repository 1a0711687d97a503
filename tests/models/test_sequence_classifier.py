"""The classifier: padding, parts, training, saving."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import SequenceClassifier

SMALL = {
    "num_classes": 3,
    "vocab_size": 24,
    "num_layers": 2,
    "d_model": 16,
    "num_heads": 4,
    "d_ff": 32,
}


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def classifier(randomize):
    return lambda **kwargs: randomize(SequenceClassifier(**{**SMALL, **kwargs}), scale=0.2)


@pytest.fixture
def ids():
    """Ids (4, 7) of rows of 7, 4, 1 and 5 tokens."""
    tokens = np.random.default_rng(1).integers(1, 24, (4, 7)).astype("int32")
    return np.where(np.arange(7) < np.array([[7], [4], [1], [5]]), tokens, 0).astype("int32")


def test_a_row_does_not_depend_on_its_padding_and_neighbours(classifier, ids):
    model = classifier()
    expected = as_array(model(ids))
    assert expected.shape == (4, 3) and expected.dtype == np.float32
    longer = as_array(model(np.pad(ids, ((0, 0), (0, 9)))))
    np.testing.assert_allclose(longer, expected, atol=1e-5)
    for i, length in enumerate((7, 4, 1, 5)):
        alone = as_array(model(ids[i : i + 1, :length]))
        np.testing.assert_allclose(alone[0], expected[i], atol=1e-5)


def test_logits_are_the_head_of_the_mean_of_the_encoder(classifier, ids):
    model = classifier()
    x = as_array(model.encoder(model.embedding(ids), padding_mask=ids != 0))
    means = np.stack([x[i, :n].mean(0) for i, n in enumerate((7, 4, 1, 5))])
    kernel, bias = model.output_projection.get_weights()
    np.testing.assert_allclose(as_array(model(ids)), means @ kernel + bias, atol=1e-5)


def test_order_and_content_matter(classifier, ids):
    model = classifier()
    swapped, changed = ids.copy(), ids.copy()
    swapped[:, [0, 3]] = swapped[:, [3, 0]]
    changed[0, 5] = changed[0, 5] % 23 + 1
    expected = as_array(model(ids))
    assert np.abs(as_array(model(swapped)) - expected)[0].max() > 1e-3
    difference = np.abs(as_array(model(changed)) - expected).max(axis=1)
    assert difference[0] > 1e-3 and (difference[1:] == 0).all()


def test_a_row_of_padding_is_finite(classifier, ids):
    model = classifier()
    ids[2] = 0
    np.testing.assert_allclose(as_array(model(ids))[2], model.output_projection.get_weights()[1])


@pytest.mark.parametrize("length", [None, 7])
def test_a_functional_model_equals_eager(classifier, ids, length):
    model, symbolic = classifier(), keras.Input((length,), dtype="int32")
    functional = keras.Model(symbolic, model(symbolic))
    assert functional.output_shape == (None, 3)
    np.testing.assert_allclose(as_array(functional(ids)), as_array(model(ids)), atol=1e-5)


def test_one_training_step_moves_every_weight(ids):
    model = SequenceClassifier(**SMALL, dropout=0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=True)
    before = model.get_weights()
    model.train_on_batch(ids, np.array([0, 1, 2, 1]))
    for weight, old, new in zip(model.weights, before, model.get_weights(), strict=True):
        assert np.isfinite(new).all() and not np.array_equal(new, old), weight.path


@pytest.mark.slow
def test_fit_learns_which_of_two_tokens_comes_first():
    rng = np.random.default_rng(0)
    ids = np.stack([rng.permutation(np.arange(1, 9)) for _ in range(512)]).astype("int32")
    labels = (np.argmax(ids == 1, axis=1) < np.argmax(ids == 2, axis=1)).astype("int32")
    sizes = {"num_layers": 1, "d_model": 32, "num_heads": 4, "d_ff": 32, "dropout": 0.0}
    model = SequenceClassifier(num_classes=2, vocab_size=9, **sizes)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss)
    model.fit(ids[:384], labels[:384], batch_size=32, epochs=20, verbose=0)
    guesses = as_array(model(ids[384:])).argmax(1)
    assert (guesses == labels[384:]).mean() > 0.9


# Keras 3.15 turns its variables into arrays in a way of which NumPy 2.4 warns.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")
def test_configuration_and_weights_survive_saving(classifier, ids, tmp_path):
    arguments = {
        **SMALL,
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "feed_forward_dropout": 0.15,
        "activation": "gelu",
        "norm_first": True,
        "norm": "rms_norm",
        "use_bias": False,
        "max_length": 50,
        "name": "mine",
    }
    model = classifier(**arguments)
    config = model.get_config()
    assert {name: config[name] for name in arguments} == arguments
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is SequenceClassifier and loaded.get_config() == config
    np.testing.assert_array_equal(as_array(loaded(ids)), as_array(model(ids)))


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")
def test_a_compiled_model_is_compiled_when_it_is_loaded(ids, tmp_path):
    model = SequenceClassifier(**SMALL, dropout=0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, None, ["accuracy"])  # in Keras's order
    labels = np.array([0, 1, 2, 1])
    model.train_on_batch(ids, labels)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, loaded):
        logs = one.test_on_batch(ids, labels, return_dict=True)
        assert set(logs) == {"loss", "accuracy"}
    expected = model.train_on_batch(ids, labels)
    np.testing.assert_allclose(loaded.train_on_batch(ids, labels), expected)


@pytest.mark.parametrize(
    "loss",
    [
        "binary_crossentropy",
        "BinaryFocalCrossentropy",
        keras.losses.binary_focal_crossentropy,
        keras.losses.BinaryCrossentropy,
        keras.losses.BinaryCrossentropy(from_logits=True),
        keras.losses.BinaryFocalCrossentropy(),
    ],
)
def test_a_loss_of_classes_that_do_not_exclude_each_other_is_refused(loss):
    model = SequenceClassifier(**SMALL)
    message = "each logit as a yes or no.*exactly one of num_classes=3.*two classes .*num_classes=2"
    with pytest.raises(ValueError, match=message):
        model.compile("adam", loss)


@pytest.mark.parametrize("num_classes", [0, 1])
def test_wrong_arguments_are_named(num_classes):
    message = f"num_classes must be an integer of at least 2, but is {num_classes}; for two classes"
    with pytest.raises(ValueError, match=message):
        SequenceClassifier(**{**SMALL, "num_classes": num_classes})


def test_what_is_neither_a_class_nor_a_weight_of_one_is_refused(ids):
    model = SequenceClassifier(**SMALL)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match="labels must be integers, .*but are strings; .*np.unique"):
        model.fit(ids, np.array(["a", "b", "c", "a"], object), verbose=0)
    for weights in ("balanced", [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match=r"class to weight, such as \{0: 1.0, 1: 9.0\}, but"):
            model.fit(ids, np.array([0, 1, 2, 1]), class_weight=weights, verbose=0)
