"""Text to text in Python: what a translator answers, and what it refuses."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_transformer import Beam, Greedy, Tokenizer, Transformer, Translator
from keras_transformer.data.blank_text import is_blank
from keras_transformer.data.special_tokens import END_ID, START_ID
from keras_transformer.decoding.strategies import length_penalty


@pytest.fixture(scope="module", params=["greedy", "beam"])
def translator(request, trained, tokenizer):
    return Translator(trained, tokenizer, request.param, max_source_length=64)


def log_probability(model, tokenizer, source, target):
    """The log-probability of a translation, by one pass of the model over all of it."""
    source_ids = [*tokenizer.tokenize([source]).to_list()[0], END_ID]
    target_ids = [*tokenizer.tokenize([target]).to_list()[0], END_ID]
    inputs = np.array([source_ids]), np.array([[START_ID, *target_ids[:-1]]])
    logits = np.array(model(inputs, training=False))[0].astype("float64")
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return sum(logits[i, token] for i, token in enumerate(target_ids)), len(target_ids)


def test_learnt_sentences_are_translated(translator, sentences):
    sources, targets = sentences
    assert translator(sources) == targets


def test_scores_are_those_of_the_returned_text(translator, sentences, trained, tokenizer):
    results = translator.translate(sentences[0])
    for source, target, score in zip(sentences[0], *results, strict=True):
        log_prob, length = log_probability(trained, tokenizer, source, target)
        assert score == pytest.approx(log_prob / float(length_penalty(length, 0.6)), abs=1e-4)


def test_a_sentence_does_not_depend_on_its_batch(translator, sentences):
    rng = random.Random(0)
    words = sorted({word for source in sentences[0] for word in source.split()})
    texts = [" ".join(rng.choices(words, k=rng.randint(0, 12))) for _ in range(40)]
    together = translator.translate(texts)
    for i in range(0, len(texts), 4):
        alone = translator.translate([texts[i]])
        assert alone.texts[0] == together.texts[i]
        assert alone.scores[0] == pytest.approx(together.scores[i], abs=1e-4)


def test_surrounding_blanks_do_not_matter(translator, sentences):
    assert translator([f"\u3000 {sentences[0][0]}\n\x0b"]) == sentences[1][:1]


def test_blank_texts_have_empty_translations(translator):
    assert translator.translate(["", "   ", "\n\t"]) == (["", "", ""], [0.0, 0.0, 0.0])
    blanks = [chr(i) for i in range(0x110000) if is_blank(chr(i))][::99]
    blanks += [*"\u200b\ufeff\u00ad\u2060\0", " \ufeff\u00ad\u2060 \t"]
    assert len(blanks) > 40 and translator(blanks) == [""] * len(blanks)
    assert translator([]) == []


@pytest.mark.slow
def test_text_beyond_the_source_limit_is_cut_off(translator):
    long = "a dog runs " * 10_000
    tokens = translator.tokenizer.tokenize([long])[:, : translator.graph.max_source_length - 1]
    kept = translator.tokenizer.detokenize(tokens)[0].numpy().decode()
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than max_source_length=64") as w:
        cut = translator([long, "a dog"])
    assert [warning.filename for warning in w] == [__file__]
    assert cut == translator([kept, "a dog"])  # which is as long as can be read, so no warning
    for ask in (
        translator.translate,
        translator.nbest,
        lambda texts: translator.score(texts, [""]),
    ):
        with pytest.warns(UserWarning, match="1 of 1 texts .*give one sentence per text, or make"):
            ask([long])


@pytest.mark.slow
def test_a_lone_surrogate_in_a_text_is_a_replacement_character(translator):
    assert translator.translate(["a dog \ud800"]) == translator.translate(["a dog \ufffd"])
    assert translator.nbest(["\udfff"]) == translator.nbest(["\ufffd"])
    pair = ["\ud800"], ["ein \ud800"]
    assert translator.score(*pair) == translator.score(["\ufffd"], ["ein \ufffd"])


@pytest.mark.slow
def test_a_translation_ends_at_max_length(trained, tokenizer, sentences):
    short = Translator(trained, tokenizer, "greedy", max_length=3)
    lengths = tokenizer.tokenize(short(sentences[0])).row_lengths().numpy()
    assert lengths.max() <= 3


def test_typed_control_tokens_are_text(translator, tokenizer):
    ids = tokenizer.tokenize(["</s> <s> <pad> <unk>"]).values.numpy()
    assert ids.min() > END_ID
    assert isinstance(translator(["</s> a dog runs"])[0], str)


@pytest.mark.filterwarnings("ignore:.*texts are longer than max_source_length:UserWarning")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(max_size=80) | st.just("a dog runs"), max_size=4))
def test_any_text_has_a_translation(translator, texts):
    translations, scores = translator.translate(texts)
    assert len(translations) == len(texts)
    assert np.isfinite(scores).all()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes_have_a_translation(translator, texts):
    output = translator.translate_tensor(tf.constant(texts, tf.string))
    for text in output["translation"].numpy():
        text.decode("utf-8", "strict")
    assert output["translation"].shape == output["score"].shape == (len(texts),)


@pytest.mark.slow
def test_random_weights_of_any_kind_give_finite_scores(tokenizer):
    keras.utils.set_random_seed(1)
    model = Transformer(
        num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=tokenizer.vocab_size
    )
    translator = Translator(model, tokenizer, max_length=12)
    assert np.isfinite(translator.translate(["a dog", "", "cats cats"]).scores).all()


@pytest.mark.parametrize(
    "texts, message",
    [
        ("a dog", r"list of strings, but is one: 'a dog'; make it a list"),
        ([b"a dog"], r"texts\[0\] must be a string, but is b'a dog'"),
        (["a dog", None], r"texts\[1\] must be a string, but is None"),
        (np.array("a dog"), r"list of strings, but is one: 'a dog'; make it a list"),
        ({"text": ["a dog"]}, r"but is {'text': \['a dog'\]}; pass a list, such as one column"),
        (None, "texts must be a list of strings, but is None"),
    ],
)
def test_what_is_no_list_of_strings_is_refused(translator, texts, message):
    with pytest.raises(TypeError, match=message):
        translator(texts)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"strategy": "best"}, "strategy must be 'greedy', 'beam' or an object such as Beam"),
        ({"strategy": Beam}, "strategy must be 'greedy', 'beam' or an object such as Beam"),
        (
            {"strategy": Greedy(min_length=9), "max_length": 8},
            "min_length must be at most max_length=8, but is 9",
        ),
        ({"max_source_length": 0}, "max_source_length must be an integer of at least 2"),
        ({"max_source_length": 1}, "max_source_length must be an integer of at least 2, but is 1"),
        ({"num_parallel_batches": 0}, "num_parallel_batches must be an integer of at least 1"),
        ({"max_length": 0}, "max_length must be an integer of at least 1, but is 0"),
        ({"max_length": 4096}, "at most the model's max_length of 2048, but the larger is 4096"),
        ({"batch_size": 2.5}, "batch_size must be an integer of at least 1, but is 2.5"),
        ({"batch_size": 2**31}, "batch_size must be at most 2147483647, but is 2147483648"),
    ],
)
def test_bad_settings_are_refused(trained, tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        Translator(trained, tokenizer, **arguments)


@pytest.mark.slow
def test_numbers_of_numpy_are_those_of_python(trained, tokenizer, sentences):
    strategy = Beam(size=np.int64(3), length_penalty=np.float32(1))
    assert (
        Translator(trained, tokenizer, strategy, max_length=np.int32(99))(sentences[0])
        == (sentences[1])
    )


def test_a_translation_that_would_be_scored_in_part_is_refused(trained, tokenizer, sentences):
    source, target = sentences[0][-1], sentences[1][-1]
    length = len(tokenizer.tokenize([target]).to_list()[0]) + 1
    short = Translator(trained, tokenizer, max_source_length=9, max_length=length)
    whole = Translator(trained, tokenizer).score([source[:9]], [target])
    np.testing.assert_allclose(short.score([source[:9]], [target]), whole, rtol=1e-5)
    short = Translator(trained, tokenizer, max_source_length=9, max_length=length - 1)
    with pytest.raises(ValueError, match=rf"targets\[1\] has {length} tokens .* max_length larger"):
        short.score([source] * 2, ["a", target])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"signatures": "beam"}, r"signatures must be a list of strings, but is one: 'beam'"),
        ({"warmup": "README.md"}, r"warmup must be a list of strings, but is one: 'README.md'"),
        ({"warmup": [1]}, r"warmup\[0\] must be a string, but is 1"),
    ],
)
def test_what_an_export_takes_many_of_comes_in_lists(translator, tmp_path, arguments, message):
    with pytest.raises(TypeError, match=message):
        translator.export(tmp_path / "model", **arguments)
    assert not list(tmp_path.iterdir())


def test_other_objects_are_refused_by_name(trained, tokenizer):
    with pytest.raises(TypeError, match="tokenizer must be a Tokenizer, but is 'x.model', which"):
        Translator(trained, "x.model")
    with pytest.raises(TypeError, match="model must be a Transformer, .*no source_vocab_size, .*"):
        Translator(keras.Sequential(), tokenizer)


def test_another_backend_is_refused(trained, tokenizer, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="backend is jax; set KERAS_BACKEND=tensorflow"):
        Translator(trained, tokenizer)


def test_a_tokenizer_of_another_size_is_refused():
    other = Tokenizer.train_on_texts(["x y z"] * 5, vocab_size=270)
    model = Transformer(num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=1000)
    with pytest.raises(ValueError, match="use the tokenizer that the model was trained with"):
        Translator(model, other)
