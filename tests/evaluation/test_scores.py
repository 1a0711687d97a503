import logging
import math
import sys

import pytest

from keras_transformer.evaluation.scores import (
    check_bleu_tokenize,
    exact_match,
    nearest,
    score_translations,
)

REFERENCES = ["the dog runs home .", "a cat sleeps on the old sofa ."]


def test_bleu_is_that_of_the_formula():
    # Of 4 + 6 words match: 9 of 10 words, 7 of 8 pairs, 5 of 6 triples, 3 of 4 quadruples.
    translations, references = ["a b c d", "e f g h i x"], ["a b c d", "e f g h i j k"]
    precisions = math.exp(sum(map(math.log, (9 / 10, 7 / 8, 5 / 6, 3 / 4))) / 4)
    brevity = math.exp(1 - 11 / 10)
    assert score_translations(translations, references).bleu == pytest.approx(
        100 * precisions * brevity
    )


def test_the_tokenizer_is_in_the_signature_and_decides_what_a_word_is():
    joined = ["the dog runs home.", "a cat sleeps on the old sofa."]
    assert score_translations(joined, REFERENCES).bleu == pytest.approx(100)
    scores = score_translations(joined, REFERENCES, tokenize="none")
    assert scores.bleu < 90 and "tok:none" in scores.bleu_signature


def test_tokens_that_are_wanted_cause_no_warning(caplog):
    many = REFERENCES * 100
    with caplog.at_level(logging.WARNING):
        assert score_translations(many, many, tokenize="none").bleu == pytest.approx(100)
    assert not caplog.records


@pytest.mark.parametrize(
    ("translations", "references", "message"),
    [
        (["a"], ["a", "b"], "aligned, but there are 1 translations and 2 references"),
        ([], [], "nothing to score"),
        (["a", 3], ["a", "b"], r"translations\[1\] must be a string, but is 3"),
        (["a"], [b"a"], r"references\[0\] must be a string, but is b'a'"),
        ("abc", ["abd"], "translations must be a list of strings, but is one: 'abc'"),
    ],
)
def test_what_cannot_be_scored_is_refused(translations, references, message):
    for score in (score_translations, exact_match):
        with pytest.raises((ValueError, TypeError), match=message):
            score(translations, references)


@pytest.mark.parametrize("tokenize", ["13a", "none", "zh", "char"])
def test_a_tokenizer_that_is_there_is_taken(tokenize, caplog):
    assert check_bleu_tokenize(tokenize) == tokenize
    assert not caplog.records


def test_a_tokenizer_is_refused_before_the_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)  # as if it were not installed
    with pytest.raises(ValueError, match="'ja-mecab' cannot be used: .*pip install"):
        check_bleu_tokenize("ja-mecab")


def test_exact_match_counts_equal_strings():
    assert exact_match(["a", "b", "c", "D"], ["a", "b", "x", "d"]) == 50


def test_a_lone_surrogate_is_scored_as_a_replacement_character():
    translations, references = ["the dog runs home \ud800"], ["the dog runs home \ufffd"]
    assert score_translations(translations, references).bleu == pytest.approx(100)
    assert exact_match(translations, references) == 100


@pytest.mark.parametrize("by", ["chrf", "bleu"])
def test_the_nearest_is_the_one_with_the_largest_score_alone(by):
    reference = "the dog runs home on the road"
    texts = ["a cat", "the dog runs", "the dog runs home on a road", "home", "on the road"]
    scores = [getattr(score_translations([text], [reference]), by) for text in texts]
    assert nearest(texts, reference, by) == scores.index(max(scores)) == 2


@pytest.mark.parametrize("by", ["chrf", "bleu"])
def test_of_equals_the_first_is_nearest_and_short_texts_have_a_score(by):
    assert nearest(["a cat", "a dog", "a dog"], "a dog", by) == 1  # without quadruples
    assert nearest(["x", "y"], "", by) == 0
    with pytest.raises(ValueError, match="by must be one of 'chrf', 'bleu', but is 'ter'"):
        nearest(["x"], "x", "ter")
