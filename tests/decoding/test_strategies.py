"""Strategies that check themselves, and what searches take from Python, NumPy and tensors."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Beam, Greedy, Sample, beam_search, greedy_search
from keras_transformer.decoding.result import IMPOSSIBLE
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.strategies import as_strategy, of_kind

VOCAB_SIZE, END = 4, 3
STRATEGIES = [Greedy, Beam, Sample]
SEARCHES = [greedy_search, beam_search]

# Strategies


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_strategy_is_a_value(kind):
    strategy = kind(min_length=np.int64(2), suppress_ids=[np.int32(1), 0])
    same = kind(min_length=2, suppress_ids=(1, 0))
    assert strategy == same and hash(strategy) == hash(same) and eval(repr(strategy)) == same
    assert strategy != replace(strategy, min_length=3) and strategy != kind()
    with pytest.raises(FrozenInstanceError):
        strategy.min_length = 4
    with pytest.raises(ValueError, match="min_length must be an integer of at least 0, but is -1"):
        replace(strategy, min_length=-1)


@pytest.mark.parametrize(("text", "strategy"), [("greedy", Greedy()), ("beam", Beam())])
def test_short_forms(text, strategy):
    assert as_strategy(text) == strategy
    assert as_strategy(strategy) is strategy


@pytest.mark.parametrize("wrong", ["sample", "Beam", None, Beam, 4, np.zeros(3)])
def test_anything_else_is_no_strategy(wrong):
    with pytest.raises(ValueError, match="strategy must be 'greedy', 'beam' or an object such as"):
        as_strategy(wrong)


def test_a_strategy_of_another_kind_keeps_what_both_have():
    beam = Beam(size=2, length_penalty=1.5, min_length=3, no_repeat_ngram=2, suppress_ids=(1,))
    shared = {"length_penalty": 1.5, "min_length": 3, "no_repeat_ngram": 2, "suppress_ids": (1,)}
    assert of_kind(Greedy, beam) == Greedy(**shared)
    assert of_kind(Beam, Sample(seed=3, **shared)) == Beam(**shared)
    assert of_kind(Beam, beam) is beam


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"length_penalty": -1}, r"length_penalty must be a number in \[0, 10\], but is -1"),
        ({"length_penalty": np.nan}, "length_penalty must be a number in .*nan"),
        ({"length_penalty": "0.6"}, "length_penalty must be a number in .*, but is '0.6'"),
        ({"min_length": -1}, "min_length must be an integer of at least 0, but is -1"),
        ({"no_repeat_ngram": 2.0}, r"no_repeat_ngram must be an integer of at least 0.*2\.0"),
        ({"no_repeat_ngram": True}, "no_repeat_ngram must be an integer of at least 0.*True"),
        ({"suppress_ids": None}, r"suppress_ids must be a list, but is None; \(\) for none"),
        ({"suppress_ids": [-1]}, "suppress_ids must be an integer of at least 0, but is -1"),
        ({"logits_processors": len}, r"logits_processors must be a list, but is .*give \(f,\)"),
    ],
)
def test_what_all_strategies_have_is_refused_by_name(kind, wrong, message):
    with pytest.raises(ValueError, match=message):
        kind(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "size must be an integer of at least 1, but is 0"),
        ({"size": 2.0}, "size must be an integer of at least 1, but is 2.0"),
        ({"size": True}, "size must be an integer of at least 1, but is True"),
        ({"num_hypotheses": 0}, "num_hypotheses must be an integer of at least 1, but is 0"),
        ({"num_hypotheses": 5}, "num_hypotheses must be at most size=4, but is 5; widen the beam"),
        ({"coverage_penalty": -0.1}, "coverage_penalty must be a number in .0, 100., but is -0.1"),
        ({"coverage_penalty": True}, "coverage_penalty must be a number in .0, 100., but is True"),
    ],
)
def test_a_beam_out_of_range_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        Beam(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0}, "temperature must be a number above 0, but is 0; for the most"),
        ({"temperature": -1.0}, "temperature must be a number above 0, but is -1.0"),
        ({"temperature": float("nan")}, "temperature must be a number above 0, but is nan"),
        ({"temperature": float("inf")}, "temperature must be a number above 0, but is inf"),
        ({"temperature": "1"}, "temperature must be a number above 0, but is '1'"),
        ({"top_k": -1}, "top_k must be an integer of at least 0, but is -1; 0 keeps every token"),
        ({"top_k": 5.0}, "top_k must be an integer of at least 0, but is 5.0"),
        ({"top_k": True}, "top_k must be an integer of at least 0, but is True"),
        ({"top_p": 0}, "top_p must be a number above 0 and at most 1, but is 0; 1 keeps every"),
        ({"top_p": 1.01}, "top_p must be a number above 0 and at most 1, but is 1.01"),
        ({"top_p": None}, "top_p must be a number above 0 and at most 1, but is None"),
        ({"seed": -1}, r"seed must be an integer in \[0, 2\*\*32\), but is -1; take seed %"),
        ({"seed": 2**32}, r"seed must be an integer in \[0, 2\*\*32\), but is 4294967296"),
        ({"seed": 1.5}, r"seed must be an integer in \[0, 2\*\*32\), but is 1.5"),
    ],
)
def test_a_sample_out_of_range_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        Sample(**wrong)


# What searches take


def spell(token_ids, cache, position):
    """1, then 2, then the end token."""
    return tf.one_hot(token_ids + 1, VOCAB_SIZE) * 9.0, cache


def search(function, size=1, *, strategy=None, max_length=5, end_id=END, **rows):
    options = {"rows": RowOptions(**rows), "end_id": end_id, "max_length": max_length}
    return function(spell, tf.zeros([size], tf.int32), (), strategy, **options)


@pytest.mark.parametrize("function", SEARCHES)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_length": True}, "max_length must be an integer of at least 1, but is True"),
        ({"max_length": np.int64(0)}, "max_length must be an integer of at least 1, but is "),
        ({"max_length": 2.5}, "max_length must be an integer of at least 1, but is 2.5"),
        ({"max_length": "5"}, "max_length must be an integer of at least 1, but is '5'"),
        ({"max_length": None}, "max_length must be an integer of at least 1, but is None"),
        ({"end_id": None}, "end_id must be an integer of at least 0, but is None"),
        ({"end_id": 4}, "end_id must be among the 4 tokens that the logits have, but is 4"),
        ({"max_lengths": [2, 3]}, r"max_lengths must have one value for each of 1 .* \(2,\)"),
        ({"max_lengths": [0]}, "max_lengths must be an integer of at least 1, but is 0"),
        ({"max_lengths": 3}, r"max_lengths must have one value .* its shape is \(\)"),
        ({"seeds": [1, 2]}, r"seeds must have one value for each of 1 .* \(2,\)"),
        ({"seeds": [-1]}, "seeds must be an integer of at least 0, but is -1"),
        ({"length_penalty": 0.6}, r"length_penalty must have one value .* its shape is \(\)"),
        ({"length_penalty": [0.5, 0.6]}, "length_penalty must have one value for each of 1"),
        ({"length_penalty": np.array([np.nan])}, "length_penalty must be a number in .*nan"),
    ],
)
def test_an_argument_out_of_range_is_refused_by_name(function, wrong, message):
    with pytest.raises(ValueError, match=message):
        search(function, **wrong)


@pytest.mark.parametrize("function", SEARCHES)
def test_what_a_search_cannot_use_is_refused(function):
    strategy = Greedy() if function is beam_search else Beam()
    with pytest.raises(ValueError, match="strategy of a .* search must be .*, but is "):
        search(function, strategy=strategy)
    kind = Beam if function is beam_search else Greedy
    with pytest.raises(ValueError, match="suppress_ids must be among the 4 tokens .*, but is 99"):
        search(function, strategy=kind(suppress_ids=(0, 99)))
    with pytest.raises(TypeError, match="model must be a step function, a SearchModel or have a"):
        function(None, [0], (), end_id=END, max_length=5)
    with pytest.raises(ValueError, match=r"rows must be RowOptions\(...\) or None, but is \(\)"):
        function(spell, [0], (), rows=(), end_id=END, max_length=5)


@pytest.mark.parametrize("function", SEARCHES)
def test_numbers_of_numpy_and_tensors_are_those_of_python(function):
    expected = search(function, 2, max_lengths=[2, 5], length_penalty=[0.5, 1])
    assert expected.ids[:, 0].numpy().tolist() == [[1, 2, 0, 0, 0], [1, 2, 3, 0, 0]]
    alpha = np.array([0.5, 1])
    for limits in (np.array([2, 5]), tf.constant([2, 5]), tf.constant([2, 5], tf.int64)):
        for penalties in (alpha, tf.constant(alpha)):
            result = search(
                function,
                2,
                max_length=np.int64(5),
                end_id=np.int32(END),
                max_lengths=limits,
                length_penalty=penalties,
            )
            for field, same in zip(result, expected, strict=True):
                np.testing.assert_allclose(field, same, rtol=1e-6)


@pytest.mark.parametrize("function", SEARCHES)
@pytest.mark.parametrize("token", [VOCAB_SIZE, 99])
def test_nothing_begins_with_a_token_that_does_not_exist(function, token):
    result = search(function, 2, prefix_ids=[[1, token], [1, 0]])
    assert result.ids[:, 0].numpy().tolist() == [[0] * 5, [1, 2, 3, 0, 0]]
    assert result.scores[0, 0] == IMPOSSIBLE and result.scores[1, 0] > -1


def test_a_beam_may_be_counted_by_numpy():
    beam = Beam(size=np.int64(3), num_hypotheses=np.int64(2))
    assert search(beam_search, strategy=beam).ids.shape == (1, 2, 5)
