"""What a Keras user tries: loading, other names, dicts, own ids, LoRA, quantization."""

import ast
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import keras_names, saved_classes
from keras_transformer.layers.low_rank import dense_layers

PACKAGE = Path(kt.__file__).parent
LAYER = {"d_model": 8, "num_heads": 2, "d_ff": 8}
IDS = np.random.default_rng(0).integers(4, 12, (4, 5))


def make_transformer(**options):
    sizes = {"num_layers": 1, "dropout": 0.0, **LAYER}
    return kt.Transformer(**sizes, source_vocab_size=12, **options)


def make_functional():
    ids = keras.Input((None,), dtype="int32")
    x = kt.PositionalEmbedding(12, 8)(ids)
    x = kt.Encoder(1, **LAYER)(kt.EncoderLayer(**LAYER)(x))
    x = kt.DecoderLayer(**LAYER)(x, x) + kt.MultiHeadAttention(8, 2)(x)
    return keras.Model(ids, kt.Decoder(1, **LAYER)(kt.FeedForward(8, 8)(x), x))


MODELS = {
    "transformer": (make_transformer, (IDS, IDS)),
    "language_model": (lambda: kt.LanguageModel(num_layers=1, **LAYER, vocab_size=12), IDS),
    "classifier": (
        lambda: kt.SequenceClassifier(num_classes=2, vocab_size=12, num_layers=1, **LAYER),
        IDS,
    ),
    "forecaster": (
        lambda: kt.Forecaster(history_length=5, horizon=2, num_layers=1, **LAYER),
        IDS[:, :, None].astype("float32"),
    ),
    "functional": (make_functional, IDS),
}


def predict(model, inputs):
    return np.asarray(model(inputs, training=False))


def test_every_class_that_keras_can_save_has_an_entry():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any("register_keras_serializable" in text for text in decorators):
                place = path.relative_to(PACKAGE).with_suffix("")
                found[node.name] = ".".join(place.parts)
    assert found == saved_classes.CLASSES


@pytest.mark.parametrize("name", MODELS)
def test_keras_loads_a_model_before_its_classes_are_used(name, tmp_path, monkeypatch):
    make, inputs = MODELS[name]
    model = make()
    model.save(tmp_path / "model.keras")
    known = keras.saving.get_custom_objects()
    for class_name in saved_classes.CLASSES:
        monkeypatch.delitem(known, f"keras_transformer>{class_name}")
    saved_classes.register()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(predict(loaded, inputs), predict(model, inputs), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first, second",
    [
        ("keras", "keras_transformer"),
        ("keras_transformer", "keras"),
        ("keras_transformer.layers.dense", "keras"),
    ],
)
def test_keras_loads_a_model_in_either_order_of_the_imports(first, second, tmp_path):
    keras.Sequential([keras.Input((3, 8)), kt.EncoderLayer(**LAYER)]).save(tmp_path / "m.keras")
    code = f"import {first}; import {second}; import keras; keras.models.load_model('m.keras')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", keras_names.ARGUMENTS)
def test_an_argument_of_keras_is_refused_by_our_name(name):
    makers = (kt.EncoderLayer, kt.MultiHeadAttention, kt.Transformer, kt.LanguageModel, kt.Encoder)
    answers = []
    for maker in makers:
        with pytest.raises((TypeError, ValueError)) as raised:
            maker(**{name: 1})
        answers.append(str(raised.value))
    ours = keras_names.ARGUMENTS[name]
    assert any(f"{name} is {our} here" in answer for answer in answers for our in ours)


def test_names_that_are_unknown_are_answered():
    with pytest.raises(TypeError, match="num_layer is unknown; did you mean num_layers"):
        kt.Transformer(num_layer=2)
    with pytest.raises(TypeError, match="kernel_initializer has no counterpart: kernels begin"):
        kt.EncoderLayer(**LAYER, kernel_initializer="zeros")
    with pytest.raises(TypeError, match="dropout_rate is dropout here"):
        kt.Encoder(num_layers=1, **LAYER, dropout_rate=0.1)
    with pytest.raises(AttributeError, match="'TransformerEncoder'; here it is EncoderLayer"):
        _ = kt.TransformerEncoder


def test_a_subclass_may_have_arguments_of_keras():
    class Mine(kt.EncoderLayer):
        def __init__(self, embed_dim, ff_dim, **kwargs):
            super().__init__(embed_dim, 2, ff_dim, **kwargs)

    assert Mine(embed_dim=8, ff_dim=8, name="mine").name == "mine"


def test_a_dict_of_inputs_is_the_pair(eager):
    model = make_transformer()
    inputs = {"target_ids": IDS[:, :4], "source_ids": IDS}
    np.testing.assert_array_equal(predict(model, inputs), predict(model, (IDS, IDS[:, :4])))
    model.compile("adam", kt.MaskedCrossentropy())
    model.fit(inputs, IDS[:, :4], verbose=0)
    with pytest.raises(ValueError, match=r"received the names \['source', 'target_ids'\]"):
        model.fit({"source": IDS, "target_ids": IDS}, IDS, verbose=0)


SLOW = [pytest.param(x, marks=pytest.mark.slow) for x in ("beam", kt.Sample(temperature=0.1))]


@pytest.mark.parametrize("strategy", ["greedy", *SLOW])
def test_ids_are_translated_to_the_ids_of_the_translation(strategy, trained, tokenizer, sentences):
    sources = tokenizer.tokenize(sentences[0]).to_list()
    rows = trained.translate([[*ids, 3] for ids in sources], strategy, max_length=40)
    assert rows == tokenizer.tokenize(sentences[1]).to_list()


def test_ids_are_continued_and_wrong_ids_refused():
    model = kt.LanguageModel(num_layers=1, **LAYER, vocab_size=12)
    rows = model.generate(np.array([[5, 6], [7, 0]]), max_length=4)
    assert rows == model.generate([[5, 6], [7]], max_length=4) and max(map(len, rows)) <= 4
    for wrong in ([5, 6], "ab", [[1.5]], [[-1]], None):
        with pytest.raises(ValueError, match="prompt_ids"):
            model.generate(wrong)
    for wrong in ([[5], [0, 0, 5]], [[5, 6], [5, 0, 6]]):
        with pytest.raises(ValueError, match=r"prompt_ids\[1\] has padding, 0, before another id"):
            model.generate(wrong)
    with pytest.raises(ValueError, match="ids below the model's 12, but there is 99"):
        make_transformer().translate([[99]])


def test_what_is_no_tokenizer_is_refused_with_what_is_missing():
    class Other:
        vocab_size = 12

        def tokenize(self, texts):
            return [[5] for _ in texts]

    with pytest.raises(TypeError, match="has no detokenize, pieces; make one with Tokenizer.train"):
        kt.Translator(make_transformer(), Other())
    with pytest.raises(TypeError, match="has no tokenize; .*your own ids"):
        kt.TokenBatches(["a"], ["b"], None)


@pytest.mark.parametrize("name", ["transformer", "functional"])
def test_lora_trains_new_weights_alone_and_is_saved_as_their_sum(name, tmp_path):
    make, inputs = MODELS[name]
    model = make()
    if name == "functional":
        model.layers[2].enable_lora(2)  # a layer of somebody's model
        assert len([x for x in model.layers[2].trainable_weights if "lora" in x.path]) == 4
        return
    before = predict(model, inputs)
    model.enable_lora(2, lora_alpha=4)
    np.testing.assert_allclose(predict(model, inputs), before, atol=1e-5)
    assert {x.name for x in model.trainable_weights} == {"bias", "lora_kernel_a", "lora_kernel_b"}
    for weight in model.trainable_weights:
        weight.assign(weight + 0.1)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(predict(loaded, inputs), predict(model, inputs), atol=1e-5)
    with pytest.raises(ValueError, match="query is none; there are .*query_projection"):
        make().enable_lora(2, targets=["query"])
    with pytest.raises(ValueError, match="inner_projection is none; there are"):
        make().enable_lora(2, targets="inner_projection")
    with pytest.raises(ValueError, match="rank must be an integer of at least 1, but is 0"):
        make().enable_lora(0)


@pytest.mark.slow
@pytest.mark.parametrize("tied_embeddings", [pytest.param("all", marks=pytest.mark.slow), "none"])
def test_a_quantized_model_is_close_and_loads_again(tied_embeddings, tmp_path):
    model = make_transformer(tied_embeddings=tied_embeddings)
    before = predict(model, (IDS, IDS))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.quantize("int8")
    is_said = any("output_projection is not quantized" in str(x.message) for x in caught)
    assert is_said == (tied_embeddings == "none")
    assert sum(x.quantization_mode == "int8" for x in dense_layers(model)) == 13
    after = predict(model, (IDS, IDS))
    assert 0 < np.abs(after - before).max() < 0.1 * np.abs(before).max()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(predict(loaded, (IDS, IDS)), after, atol=1e-5)


def test_a_quantized_functional_model_loads_again(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    x = kt.EncoderLayer(**LAYER)(kt.PositionalEmbedding(12, 8)(ids))
    model = keras.Model(ids, kt.Encoder(1, **LAYER)(kt.FeedForward(8, 8)(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers that stay as they are
        model.quantize("int8")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(predict(loaded, IDS), predict(model, IDS))


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.sparse_categorical_crossentropy,
        keras.losses.SparseCategoricalCrossentropy,
        keras.losses.SparseCategoricalCrossentropy(),
    ],
)
def test_a_loss_of_probabilities_is_refused_where_there_are_logits(loss):
    models = (
        kt.SequenceClassifier(num_classes=2, vocab_size=12, num_layers=1, **LAYER),
        kt.LanguageModel(num_layers=1, **LAYER, vocab_size=12),
    )
    for model in models:
        with pytest.raises(ValueError, match="reads probabilities, but .* returns logits; give"):
            model.compile("adam", loss)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        assert np.isfinite(model.loss(np.array([0]), np.zeros((1, 2))))


def test_the_class_of_the_loss_is_as_good_as_an_object():
    model = kt.LanguageModel(num_layers=1, **LAYER, vocab_size=12)
    model.compile("adam", kt.MaskedCrossentropy)
    assert model.step_metrics is not None
    with pytest.raises(TypeError, match="from_logits has no counterpart: predictions are always"):
        kt.MaskedCrossentropy(from_logits=True)


def test_rows_beyond_the_positions_are_refused_whatever_came_before():
    sizes = {"num_layers": 1, **LAYER, "vocab_size": 12, "max_length": 6}
    for model in (kt.LanguageModel(**sizes), kt.SequenceClassifier(num_classes=2, **sizes)):
        for length in (7, 4, 5, 6, 7):
            if length <= 6:
                model.predict(np.full((1, length), 5), verbose=0)
                continue
            with pytest.raises(ValueError, match="at most max_length=6 positions, but have 7; cut"):
                model.predict(np.full((1, length), 5), verbose=0)
    rotary = kt.LanguageModel(**sizes, positions="rotary")
    assert rotary.predict(np.full((1, 9), 5), verbose=0).shape == (1, 9, 12)
