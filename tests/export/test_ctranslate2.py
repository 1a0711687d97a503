"""The weights in CTranslate2: the same translations and scores from an engine of others."""

import json
import sys
import warnings

import keras
import numpy as np
import pytest

from keras_transformer import Beam, Transformer, Translator
from keras_transformer.data.special_tokens import PAD_ID, START_ID, UNK_ID
from keras_transformer.decoding.strategies import length_penalty
from keras_transformer.export.ctranslate2 import export_ctranslate2
from keras_transformer.layers.norms import NORMS

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
pytestmark = pytest.mark.slow

# What a Translator never chooses, in CTranslate2's words; and that a translation may be empty.
NEVER = {
    "disable_unk": True,
    "suppress_sequences": [["<pad>"], ["<s>"]],
    "min_decoding_length": 0,
}

FORMS = [
    {"norm_first": False, "tied_embeddings": "source_target", "activation": "gelu"},
    {"norm_first": True, "tied_embeddings": "none", "activation": "relu"},
    {"norm_first": True, "tied_embeddings": "all", "activation": "silu"},
    {"norm_first": False, "tied_embeddings": "target_output", "activation": "tanh"},
    {"norm_first": False, "tied_embeddings": "all", "activation": "sigmoid"},
    {"norm_first": True, "use_bias": False, "activation": "swiglu", "norm": "rms_norm"},
]
NO_BIASES = {"norm_first": True, "use_bias": False, "activation": "relu"}


@pytest.fixture(scope="module")
def converted(trained, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("ct2") / "model"
    assert Translator(trained, tokenizer).export_ctranslate2(path) == str(path)
    return path


@pytest.fixture(scope="module")
def texts(sentences, word_salads):
    return [*sentences[0], *word_salads]


@pytest.fixture
def untrained(tokenizer, randomize):
    """untrained(**arguments): a model whose weights, biases and norms are random."""

    def build(**arguments):
        keras.utils.set_random_seed(1)
        size = {"num_layers": 2, "d_model": 16, "num_heads": 2, "d_ff": 32}
        return randomize(
            Transformer(**{"source_vocab_size": tokenizer.vocab_size, **size, **arguments})
        )

    return build


def pieces_of(tokenizer, texts):
    return [tokenizer.pieces(ids) for ids in tokenizer.tokenize(texts).to_list()]


def spell(tokenizer, pieces):
    """The texts of lists of pieces."""
    ids = {piece: i for i, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))}
    longest = max(map(len, pieces))
    rows = [[*map(ids.get, row), *[PAD_ID] * (longest - len(row))] for row in pieces]
    return [text.decode() for text in tokenizer.detokenize(rows).numpy()]


def log_probs(engine, tokenizer, sources, targets):
    """CTranslate2's log-probability of each target."""
    results = engine.score_batch(pieces_of(tokenizer, sources), pieces_of(tokenizer, targets))
    return [sum(result.log_probs) for result in results]


def test_greedy_translations_are_identical(converted, served, tokenizer, texts):
    engine = ctranslate2.Translator(str(converted))
    results = engine.translate_batch(pieces_of(tokenizer, texts), beam_size=1, **NEVER)
    ours = [text.decode() for text in served("greedy", text=texts)["translation"]]
    assert len(texts) > 100
    assert pieces_of(tokenizer, ours) == [result.hypotheses[0] for result in results]


def test_beam_translations_and_scores_agree(converted, trained, tokenizer, texts):
    translator = Translator(trained, tokenizer, Beam(length_penalty=0.0))
    engine = ctranslate2.Translator(str(converted))
    results = engine.translate_batch(
        pieces_of(tokenizer, texts), beam_size=4, length_penalty=0, **NEVER
    )
    ours = translator.translate(texts)
    assert pieces_of(tokenizer, ours.texts) == [result.hypotheses[0] for result in results]
    expected = log_probs(engine, tokenizer, texts, ours.texts)
    assert ours.scores == pytest.approx(expected, abs=1e-3)
    assert translator.score(texts, ours.texts) == pytest.approx(expected, abs=1e-3)


def test_scores_are_log_probabilities_over_the_length_penalty(
    exported, converted, tokenizer, texts
):
    ours = exported[0].translate(texts)
    expected = log_probs(ctranslate2.Translator(str(converted)), tokenizer, texts, ours.texts)
    for text, score, log_prob in zip(ours.texts, ours.scores, expected, strict=True):
        (pieces,) = pieces_of(tokenizer, [text])
        penalty = float(length_penalty(len(pieces) + 1, 0.6))
        assert score * penalty == pytest.approx(log_prob, abs=1e-3)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["activation"])
def test_every_form_of_the_model_scores_alike(form, untrained, tokenizer, texts, tmp_path):
    model = untrained(**form)
    engine = ctranslate2.Translator(export_ctranslate2(model, tokenizer, tmp_path / "model"))
    sources, targets = texts[:20], texts[20:40]
    expected = log_probs(engine, tokenizer, sources, targets)
    ours = Translator(model, tokenizer).score(sources, targets)
    assert ours == pytest.approx(expected, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("form", [FORMS[0], NO_BIASES], ids=["biases", "no biases"])
def test_forms_unlike_that_of_the_paper_translate_alike(
    form, untrained, tokenizer, texts, tmp_path
):
    model = untrained(**form)
    engine = ctranslate2.Translator(export_ctranslate2(model, tokenizer, tmp_path / "model"))
    results = engine.translate_batch(
        pieces_of(tokenizer, texts), beam_size=1, max_decoding_length=12, **NEVER
    )
    ours = Translator(model, tokenizer, "greedy", max_length=12)(texts)
    assert len(set(ours)) > 5
    assert ours == spell(tokenizer, [result.hypotheses[0] for result in results])


def test_control_tokens_and_ids_beyond_the_tokenizer_are_never_chosen(
    untrained, tokenizer, sentences, tmp_path
):
    size = tokenizer.vocab_size // 64 * 64 + 64
    model = untrained(source_vocab_size=size, tied_embeddings="none")
    kernel = np.asarray(keras.ops.convert_to_numpy(model.output_projection.kernel)).copy()
    kernel[:, [PAD_ID, UNK_ID, START_ID, *range(tokenizer.vocab_size, size)]] *= 30
    model.output_projection.kernel.assign(kernel)
    engine = ctranslate2.Translator(export_ctranslate2(model, tokenizer, tmp_path / "model"))
    sources = pieces_of(tokenizer, sentences[0])
    arguments = {"beam_size": 1, "max_decoding_length": 12}
    free = engine.translate_batch(sources, **arguments)
    assert any({"<pad>", "<unk>", "<s>"} & set(result.hypotheses[0]) for result in free)
    results = engine.translate_batch(sources, **arguments, **NEVER)
    ours = Translator(model, tokenizer, "greedy", max_length=12)(sentences[0])
    assert ours == spell(tokenizer, [result.hypotheses[0] for result in results])


def test_int8_is_smaller_and_translates(converted, trained, tokenizer, sentences, tmp_path):
    path = export_ctranslate2(trained, tokenizer, tmp_path / "int8", quantization="int8")
    results = ctranslate2.Translator(path).translate_batch(pieces_of(tokenizer, sentences[0]))
    texts = spell(tokenizer, [result.hypotheses[0] for result in results])
    assert sum(text == target for text, target in zip(texts, sentences[1], strict=True)) >= 4
    small, large = (p / "model.bin" for p in (tmp_path / "int8", converted))
    assert small.stat().st_size < 0.8 * large.stat().st_size


def test_a_model_that_exists_is_replaced_only_when_asked(trained, tokenizer, tmp_path):
    path = tmp_path / "models" / "en-de"
    export_ctranslate2(trained, tokenizer, path)
    (path / "mine").write_text("")
    with pytest.raises(ValueError, match="exists; name another directory or pass overwrite=True"):
        export_ctranslate2(trained, tokenizer, path)
    assert (path / "mine").exists()
    export_ctranslate2(trained, tokenizer, path, overwrite=True)
    assert not (path / "mine").exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["en-de"]
    with pytest.raises(ValueError, match="models is not a CTranslate2 model; name"):
        export_ctranslate2(trained, tokenizer, path.parent, overwrite=True)
    assert path.exists()


def test_what_has_no_equivalent_is_named(untrained, tokenizer, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="activation 'elu' has no equivalent"):
        export_ctranslate2(untrained(activation="elu"), tokenizer, tmp_path / "model")
    with pytest.raises(ValueError, match="int3"):
        export_ctranslate2(untrained(), tokenizer, tmp_path / "model", quantization="int3")
    monkeypatch.setitem(NORMS, "batch_norm", keras.layers.BatchNormalization)
    with pytest.raises(ValueError, match="norm BatchNormalization has no equivalent"):
        export_ctranslate2(untrained(norm="batch_norm"), tokenizer, tmp_path / "model")
    model = untrained()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras's, of layers without products
        model.quantize("int8")
    with pytest.raises(ValueError, match=r"The model is quantized; export it before quantize\(\)"):
        export_ctranslate2(model, tokenizer, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_missing_package_is_named(trained, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(ImportError, match="pip install ctranslate2"):
        export_ctranslate2(trained, tokenizer, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_pieces_are_the_vocabulary_and_the_tokenizer_is_there(converted, tokenizer):
    vocabulary = json.loads((converted / "shared_vocabulary.json").read_text("utf-8"))
    assert vocabulary == tokenizer.pieces(range(tokenizer.vocab_size))
    assert (converted / "tokenizer.model").read_bytes() == tokenizer.model
    assert converted.stat().st_mode & 0o777 == 0o755
