"""The weights in CTranslate2: the same translations and scores from an engine of others."""

import random
import sys

import numpy as np
import pytest

from keras_transformer import Transformer, Translator
from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.export.ctranslate2 import export_ctranslate2

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")

# What a Translator never chooses, in CTranslate2's words.
NEVER = {"disable_unk": True, "suppress_sequences": [["<pad>"], ["<s>"]]}


@pytest.fixture(scope="module")
def converted(trained, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("ct2") / "model"
    assert Translator(trained, tokenizer).export_ctranslate2(path) == str(path)
    return path


@pytest.fixture(scope="module")
def texts(sentences):
    rng = random.Random(0)
    words = sorted({word for source in sentences[0] for word in source.split()})
    salads = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(100)]
    return [*sentences[0], *salads]


def pieces_of(tokenizer, texts):
    return [tokenizer.pieces(ids) for ids in tokenizer.tokenize(texts).to_list()]


def test_greedy_translations_are_identical(converted, trained, tokenizer, texts):
    engine = ctranslate2.Translator(str(converted))
    results = engine.translate_batch(pieces_of(tokenizer, texts), beam_size=1, **NEVER)
    ours = Translator(trained, tokenizer, search="greedy")(texts)
    assert pieces_of(tokenizer, ours) == [result.hypotheses[0] for result in results]


def test_beam_scores_agree(converted, trained, tokenizer, texts):
    translator = Translator(trained, tokenizer)
    results = translator.translate(texts)
    engine = ctranslate2.Translator(str(converted))
    targets = pieces_of(tokenizer, results.texts)
    scored = engine.score_batch(pieces_of(tokenizer, texts), targets)
    for target, score, theirs in zip(targets, results.scores, scored, strict=True):
        log_prob = score * float(length_penalty(len(target) + 1, 0.6))
        assert log_prob == pytest.approx(sum(theirs.log_probs), abs=1e-3)
    assert translator.score(texts, results.texts) == pytest.approx(
        [sum(theirs.log_probs) for theirs in scored], abs=1e-3
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"norm_first": True, "tied_embeddings": "none"},
        {"norm_first": False, "tied_embeddings": "source_target", "activation": "gelu"},
        {"norm_first": True, "tied_embeddings": "target_output", "activation": "silu"},
    ],
    ids=str,
)
def test_every_form_of_the_model_scores_alike(arguments, tokenizer, texts, randomize, tmp_path):
    model = Transformer(
        num_layers=2,
        d_model=16,
        num_heads=2,
        d_ff=32,
        source_vocab_size=tokenizer.vocab_size,
        **arguments,
    )
    randomize(model)
    path = export_ctranslate2(model, tokenizer, tmp_path / "model")
    sources, targets = texts[:5], texts[5:10]
    scored = ctranslate2.Translator(path).score_batch(
        pieces_of(tokenizer, sources), pieces_of(tokenizer, targets)
    )
    ours = Translator(model, tokenizer).score(sources, targets)
    assert ours == pytest.approx([sum(theirs.log_probs) for theirs in scored], rel=1e-4)


def test_int8_loads_and_translates(trained, tokenizer, sentences, tmp_path):
    path = export_ctranslate2(trained, tokenizer, tmp_path / "int8", quantization="int8")
    results = ctranslate2.Translator(path).translate_batch(pieces_of(tokenizer, sentences[0]))
    assert all(result.hypotheses[0] for result in results)


def test_a_directory_that_exists_is_replaced_only_when_asked(converted, trained, tokenizer):
    with pytest.raises(ValueError, match="exists; name another directory or pass overwrite=True"):
        export_ctranslate2(trained, tokenizer, converted)
    export_ctranslate2(trained, tokenizer, converted, overwrite=True)
    assert [entry.name for entry in converted.parent.iterdir()] == ["model"]


def test_an_activation_without_equivalent_is_named(tokenizer, tmp_path):
    model = Transformer(
        num_layers=1,
        d_model=8,
        num_heads=2,
        d_ff=8,
        source_vocab_size=tokenizer.vocab_size,
        activation="elu",
    )
    with pytest.raises(ValueError, match="activation 'elu' has no equivalent in CTranslate2"):
        export_ctranslate2(model, tokenizer, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_missing_package_is_named(trained, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(ImportError, match=r"keras-transformer-layers\[ctranslate2\]"):
        export_ctranslate2(trained, tokenizer, tmp_path / "model")


def test_pieces_are_the_vocabulary(converted, tokenizer):
    import json

    vocabulary = json.loads((converted / "shared_vocabulary.json").read_text("utf-8"))
    assert vocabulary == tokenizer.pieces(np.arange(tokenizer.vocab_size))
