"""The n-gram baseline: probabilities that sum to 1 and are those of the paper's definitions."""

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def kneser_ney():
    sys.path.insert(0, str(EXAMPLES))
    try:
        import kneser_ney
    finally:
        sys.path.remove(str(EXAMPLES))
    return kneser_ney


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(list("abcé"), 30, p=[0.5, 0.3, 0.1, 0.1])) for _ in range(5)]


def symbols_of(kneser_ney, text, order):
    return kneser_ney.END * (order - 1) + text.encode().decode("latin-1") + kneser_ney.END


def reference(kneser_ney, texts, order, context, symbol):
    """Chen and Goodman (1999), section 3, from lists of n-grams; None stands for no context."""
    grams = [
        Counter(
            symbols[i - n : i]
            for symbols in (symbols_of(kneser_ney, text, order) for text in texts)
            for i in range(order, len(symbols) + 1)
        )
        for n in range(order + 1)
    ]

    def count(gram):
        """How often it occurs; if it is shorter than n, after how many different symbols."""
        n = len(gram)
        return grams[n][gram] if n == order else sum(g[1:] == gram for g in grams[n + 1])

    def probability(context):
        n = len(context) + 1
        lower = probability(context[1:]) if context else 1 / 257
        followers = {g[-1] for g in grams[n] if g[:-1] == context}
        if not followers:
            return lower
        counts = Counter(count(g) for g in grams[n])
        y = counts[1] / (counts[1] + 2 * counts[2]) if counts[1] else 0
        discount = {0: 0.0}
        for i in (1, 2, 3):
            d = i - (i + 1) * y * counts[i + 1] / counts[i] if counts[i] else i
            discount[i] = min(max(d, 0.0), i)
        counts = {s: count(context + s) for s in followers}
        left_over = sum(discount[min(c, 3)] for c in counts.values())
        own = counts.get(symbol, 0)
        return (own - discount[min(own, 3)] + left_over * lower) / sum(counts.values())

    return probability(context)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_probabilities_are_those_of_the_definitions(kneser_ney, texts, order):
    model = kneser_ney.KneserNey(texts, order)
    for context, symbol in list(model.events("abaécx"))[:8]:
        expected = reference(kneser_ney, texts, order, context, symbol)
        assert model.probability(context, symbol) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_probabilities_after_any_context_sum_to_one(kneser_ney, texts, order):
    model = kneser_ney.KneserNey(texts, order)
    for context in ("", "a", "abab", "zzzz", kneser_ney.END * 4):
        context = context[-(order - 1) :] if order > 1 else ""
        total = sum(model.probability(context, chr(i)) for i in range(257))
        assert total == pytest.approx(1, abs=1e-9)


def test_a_text_costs_what_its_bytes_and_its_end_do(kneser_ney, texts):
    model = kneser_ney.KneserNey(texts, 3)
    end = kneser_ney.END
    parts = [(end * 2, "a"), (end + "a", "\xc3"), ("a\xc3", "\xa9"), ("\xc3\xa9", end)]
    expected = sum(math.log(model.probability(*part)) for part in parts)
    assert model.log_prob("aé") == pytest.approx(expected)


def test_longer_contexts_help_where_text_repeats(kneser_ney):
    costs = [-kneser_ney.KneserNey(["abcabdabe" * 20], n).log_prob("abcabdabe") for n in (1, 3, 5)]
    assert costs == sorted(costs, reverse=True)
