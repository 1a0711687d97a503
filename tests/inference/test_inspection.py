"""What is shown of a translation is what the translator did."""

from dataclasses import replace

import numpy as np
import pytest

from keras_transformer import Beam, Ensemble, Sample, Translator, beam_search
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID
from keras_transformer.decoding.history import RETURNED
from keras_transformer.inference.inspection import inspect_translation


@pytest.fixture(scope="module")
def inspection(trained, tokenizer):
    return inspect_translation(Translator(trained, tokenizer), "  two big cats run home ")


def test_texts_and_scores_are_those_of_a_beam_search_with_these_settings(trained, tokenizer):
    strategy = Beam(
        size=3, length_penalty=1.2, coverage_penalty=0.3, no_repeat_ngram=2, min_length=5
    )
    translator = Translator(trained, tokenizer, strategy, max_length=7)
    inspection = inspect_translation(translator, "two cats runs")
    cache = trained.init_cache(
        inspection.source_ids[None], max_length=7, beam_size=3, track_coverage=True
    )
    expected = beam_search(
        trained,
        [START_ID],
        cache,
        replace(strategy, num_hypotheses=3, suppress_ids=(PAD_ID, UNK_ID, START_ID)),
        end_id=END_ID,
        max_length=7,
    )
    np.testing.assert_allclose(inspection.scores, expected.scores[0], rtol=1e-4)
    ids = np.array(expected.ids)[0]
    ids[ids == END_ID] = PAD_ID
    assert inspection.texts == [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    assert [n.fate for n in inspection.history].count(RETURNED) == 3


def test_greedy_search_is_a_beam_of_one(trained, tokenizer, sentences):
    translator = Translator(trained, tokenizer, "greedy")
    inspection = inspect_translation(translator, sentences[0][1])
    assert inspection.texts == [sentences[1][1]]
    assert len(inspection.history) == 1 + len(inspection.target_pieces)


def test_pieces_spell_the_sentence_and_its_translation(inspection, tokenizer):
    def text(pieces):
        return "".join(pieces).replace("\u2581", " ")

    assert text(inspection.source_pieces) == "two big cats run home</s>"
    assert text(inspection.target_pieces) == inspection.texts[0] + "</s>"
    assert inspection.read_pieces == ["<s>", *inspection.target_pieces[:-1]]
    assert inspection.source_ids[-1] == END_ID and inspection.read_ids[0] == START_ID
    tokens = [node.token for node in inspection.history]
    assert tokenizer.pieces(tokens) == inspection.history_pieces


def test_log_probs_add_up_to_that_of_the_best_hypothesis(inspection):
    best = max(n.score for n in inspection.history if n.fate == RETURNED)
    (node,) = [n for n in inspection.history if n.score == best and n.fate == RETURNED]
    assert inspection.log_probs.sum() == pytest.approx(node.log_prob, rel=1e-4)
    assert len(inspection.log_probs) == node.length == len(inspection.target_pieces)


def test_maps_are_the_models_weights_for_this_pair(inspection, trained):
    pair = inspection.source_ids[None], inspection.read_ids[None]
    weights = trained.attention_scores(pair)
    for (shown, queries, keys), part in zip(inspection.maps().values(), weights, strict=True):
        np.testing.assert_allclose(shown, np.array(part)[:, 0], atol=1e-6)
        assert shown.shape == (1, 4, len(queries), len(keys))
    names = list(inspection.maps())
    assert names == ["Encoder self-attention", "Decoder self-attention", "Cross-attention"]


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_blank_sentence_is_an_error(text, trained, tokenizer):
    with pytest.raises(ValueError, match="The sentence must have words to look at, but is"):
        inspect_translation(Translator(trained, tokenizer), text)


def test_an_ensemble_has_no_maps(trained, tokenizer):
    translator = Translator(Ensemble([trained, trained]), tokenizer)
    with pytest.raises(TypeError, match="translator.model must be a Transformer.*one by one"):
        inspect_translation(translator, "a dog")


def test_sampling_has_no_tree(trained, tokenizer):
    translator = Translator(trained, tokenizer, Sample(seed=1))
    with pytest.raises(ValueError, match=r"has no tree to show; use Beam\(...\) or Greedy\(...\)"):
        inspect_translation(translator, "a dog")
