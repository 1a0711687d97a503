"""An ensemble predicts with the mean of probabilities, in a call and at every step of a search."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    Beam,
    Ensemble,
    SearchModel,
    Transformer,
    Translator,
    beam_search,
)
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID

VOCAB_SIZE = 6
SOURCES = np.array([[4, 5, 4, END_ID], [5, END_ID, 0, 0], [5, 5, 4, END_ID]])


@pytest.fixture
def make(randomize):
    """Makes a model of random weights with some probability of an end at every step."""

    def model(d_model=8, **options):
        sizes = {"num_layers": 1, "d_model": d_model, "num_heads": 2, "d_ff": 8}
        return randomize(Transformer(**sizes, source_vocab_size=VOCAB_SIZE, **options), 0.7)

    return model


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def log_probs(model, source, hypotheses):
    """The log-probability of each hypothesis by one call of a model."""
    labels = np.array([[*ids, *[PAD_ID] * (3 - len(ids))] for ids in hypotheses])  # (N, 3)
    read = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=START_ID)
    sources = np.tile(source, (len(labels), 1))
    predicted = np.array(ops.log_softmax(model((sources, read))))  # (N, 3, V)
    chosen = np.take_along_axis(predicted, labels[:, :, None], 2)[:, :, 0]  # (N, 3)
    return np.where(labels == PAD_ID, 0, chosen).sum(1)


def test_a_call_is_the_mean_of_probabilities(make):
    models = [make(), make(16, norm_first=True), make(24)]
    inputs = SOURCES, np.array([[START_ID, 4, 5]] * 3)
    expected = np.mean([softmax(np.array(model(inputs))) for model in models], axis=0)
    np.testing.assert_allclose(np.exp(Ensemble(models)(inputs)), expected, atol=1e-6)


@pytest.mark.parametrize("copies", [1, 2])
def test_a_model_alone_or_twice_is_the_model(make, copies):
    """With compaction, as a translator searches, and with coverage."""
    model = make()
    ensemble, beam = Ensemble([model] * copies), Beam(size=3, coverage_penalty=0.3)
    results = []
    for each in (model, ensemble):
        search = SearchModel(
            each.decode_states, each.reorder_cache, each.compact_cache, each.logits
        )
        cache = each.init_cache(SOURCES, max_length=0, beam_size=3, track_coverage=True)
        start_ids = np.full(len(SOURCES), START_ID)
        results.append(beam_search(search, start_ids, cache, beam, end_id=END_ID, max_length=6))
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_wide_beam_finds_the_best_of_all(make):
    """Brute force: every hypothesis of up to three tokens, by the mean of probabilities."""
    ensemble, tokens = Ensemble([make(), make(16)]), [1, END_ID, 4, 5]
    hypotheses = [
        ids
        for length in (1, 2, 3)
        for ids in itertools.product(tokens, repeat=length)
        if END_ID not in ids[:-1] and (ids[-1] == END_ID or length == 3)
    ]
    beam = Beam(size=40, length_penalty=0.0, suppress_ids=(PAD_ID, START_ID))
    cache = ensemble.init_cache(SOURCES, max_length=3, beam_size=40)
    start_ids = np.full(len(SOURCES), START_ID)
    result = beam_search(ensemble, start_ids, cache, beam, end_id=END_ID, max_length=3)
    for source, ids, score in zip(SOURCES, result.ids, result.scores, strict=True):
        scores = log_probs(ensemble, source, hypotheses)
        best = hypotheses[np.argmax(scores)]
        assert tuple(np.array(ids)[0][: len(best)]) == best
        np.testing.assert_allclose(score[0], scores.max(), atol=1e-5)


@pytest.mark.slow
def test_a_translator_of_a_model_twice_is_that_of_the_model(trained, tokenizer, sentences):
    """In a graph, with rounds and compaction, and what else a translator answers."""
    strategy = Beam(size=2)
    one = Translator(trained, tokenizer, strategy)
    two = Translator(Ensemble([trained, trained]), tokenizer, strategy)
    assert two(sentences[0]) == one(sentences[0]) == sentences[1]
    scores = [x.translate(sentences[0]).scores for x in (one, two)]
    np.testing.assert_allclose(*scores, atol=1e-4)
    log_probs = [x.score(*sentences) for x in (one, two)]
    np.testing.assert_allclose(*log_probs, atol=1e-4)
    assert two.align(sentences[0]).texts == sentences[1]


def test_an_ensemble_is_not_exported(tokenizer, tmp_path):
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
    translator = Translator(Ensemble([model, model]), tokenizer)
    for export in (translator.export, translator.export_ctranslate2):
        with pytest.raises(TypeError, match="is <Ensemble of 2>, which has no get_config.*distil"):
            export(tmp_path / "export")


def test_what_is_no_ensemble_is_refused(make):
    other = Transformer(num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=9)
    with pytest.raises(ValueError, match="members is empty; give at least one model"):
        Ensemble([])
    with pytest.raises(ValueError, match="one source_vocab_size, but have 6, 9; train them with"):
        Ensemble([make(), other])
    for other in ("runs/en-de", Ensemble([make()])):
        with pytest.raises(TypeError, match=r"members\[1\] must be a Transformer"):
            Ensemble([make(), other])
