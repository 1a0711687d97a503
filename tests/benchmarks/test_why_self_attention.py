"""The figures of docs/why_self_attention.md, at tiny sizes: what must hold at any size."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """load("cost"): the file of that name in benchmarks/self_attention."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: importlib.import_module(f"self_attention.{name}")


@pytest.mark.parametrize("name", ["self-attention", "LSTM", "convolution"])
def test_the_layers_see_no_later_position_and_only_a_convolution_sees_few(name, load, random):
    layer = load("layers").make(name, 8)
    x = random(1, 6, 8)
    before = np.asarray(layer(x))
    assert before.shape == x.shape
    for position in range(6):
        changed = x.copy()
        changed[:, position] += 1
        moved = np.abs(np.asarray(layer(changed)) - before).max((0, 2)) > 0
        reach = 2 if name == "convolution" else 5
        assert not moved[:position].any() and not moved[position + reach + 1 :].any()
        assert moved[min(position + reach, 5)]


def test_only_the_steps_of_the_lstm_grow_with_the_length(load):
    count = load("layers").sequential_products
    assert [count("LSTM", length) for length in (3, 7)] == [3, 7]
    assert [count("convolution", length) for length in (3, 7)] == [1, 1]
    assert count("self-attention", 3) == count("self-attention", 7) == 4


def test_scores_are_those_of_the_formulas_and_of_this_library(load, random):
    from keras_transformer.layers.attention import dot_product_attention

    scores = load("scores")
    query, key, value, v = random(2, 3, 4), random(2, 5, 4), random(2, 5, 4), random(4)
    ours = scores.attention(scores.SCALED, query, key, value, v)
    library, _ = dot_product_attention(query[:, None], key[:, None], value[:, None])
    np.testing.assert_allclose(ours, library[:, 0], atol=1e-6)
    np.testing.assert_allclose(
        scores.scores(scores.ADDITIVE, query, key, v)[1, 2, 4],
        v @ np.tanh(query[1, 2] + key[1, 4]),
        rtol=1e-5,
    )


def test_what_is_expected_of_softmax_is_what_random_scores_give(load):
    expected = load("saturation").expected
    scores = np.random.default_rng(0).normal(size=(20_000, 10))
    for deviation in (0.5, 3.0):
        p = np.exp(deviation * scores)
        p /= p.sum(-1, keepdims=True)
        entropy, slope = expected(deviation, num_keys=10)
        assert entropy == pytest.approx(-(p * np.log(p)).sum(-1).mean(), abs=0.01)
        assert slope == pytest.approx((p * (1 - p)).sum(-1).mean(), abs=0.01)


@pytest.mark.slow
def test_memory_is_that_of_a_process_of_its_own(load):
    (row,) = load("cost").costs([("scores", "additive", 8, 512)], repeats=1)
    hidden = 2048 * 512 * 8 * 4 / 2**20  # MiB of (T, S, d_k), which additive attention holds
    assert hidden < row["forward_mib"] < row["training_mib"] < 8 * hidden
    assert 0 < row["forward"] < row["training"]


@pytest.mark.slow
def test_a_task_that_a_layer_can_see_is_learnt_before_its_steps_are_over(load):
    accuracy, took = load("distance").train("convolution", 2, 300, learning_rate=3e-3)
    assert accuracy >= 0.95 and took < 300


def test_a_distance_counts_if_any_rate_learns_it_and_all_before_it_are_learnt(load, monkeypatch):
    distance, seen = load("distance"), []

    def train(name, distance, steps, learning_rate, seed):
        seen.append((distance, learning_rate))
        return (0.99 if (distance, learning_rate) in learnt else 0.1), 7

    monkeypatch.setattr(distance, "train", train)
    first, *_, last = distance.LEARNING_RATES
    learnt = {(1, first), (2, last), (8, first)}
    result = distance.distances("LSTM", (64, 16, 1, 2, 4, 8, 32), steps=9)
    assert result["longest"] == 2
    assert list(result["tried"]) == [1, 2, 4, 8, 16, 32]  # two in a row are not learnt
    assert result["tried"][2] == {"accuracy": 0.99, "learning_rate": last, "steps": 7}
    assert [rate for d, rate in seen if d == 8] == [first]  # no need of another


@pytest.mark.slow
def test_figures_are_written_and_drawn(load, tmp_path, monkeypatch, capsys):
    cost = {"forward": 1.0, "training": 2.0, "forward_mib": 3.0, "training_mib": 4.0}
    learnt = {"tried": {"1": {"accuracy": 1.0, "learning_rate": 0.1, "steps": 5}}, "longest": 1}
    earlier = {"layers": {"LSTM": {"32": cost}}, "distance": {"LSTM": learnt}}
    (tmp_path / "why.json").write_text(json.dumps(earlier), "utf-8")
    monkeypatch.setattr(load("saturation"), "BATCH_SIZE", 8)  # fewer random queries
    arguments = "--parts scale sequential --lengths 4 256 --key-sizes 16 1024"
    files = ["--json", str(tmp_path / "why.json"), "--plots", str(tmp_path / "plots")]
    monkeypatch.setattr(sys, "argv", ["why_self_attention.py", *arguments.split(), *files])
    importlib.import_module("why_self_attention").main()

    results = json.loads((tmp_path / "why.json").read_text("utf-8"))
    assert results.keys() == {"layers", "distance", "scale", "sequential"}
    assert results["layers"] == earlier["layers"]  # a part that was not asked for
    assert results["sequential"]["LSTM"] == {"4": 4}  # 256 steps are too many for a graph
    scaled, plain = (results["scale"][n] for n in ("dot product / sqrt(d_k)", "dot product"))
    for at in ("median_gradient_scores", "median_gradient_queries"):
        assert plain["1024"][at] < 0.02 * plain["16"][at]
        assert scaled["1024"][at] == pytest.approx(scaled["16"][at], rel=0.15)
    for row in (scaled["1024"], plain["1024"]):
        assert row["entropy"] == pytest.approx(row["expected_entropy"], abs=0.05)
        assert row["slope"] == pytest.approx(row["expected_slope"], abs=0.05)
    assert "gradient at the queries, median" in capsys.readouterr().out
    parts = {path.stem.removeprefix("why_self_attention_") for path in tmp_path.glob("plots/*.png")}
    assert parts == {"layers", "distance", "scale"}
