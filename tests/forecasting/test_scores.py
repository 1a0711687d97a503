"""Scores of forecasts against hand arithmetic."""

import numpy as np
import pytest

from keras_transformer.forecasting.scores import (
    interval_coverage,
    mase,
    naive_error,
    scaled_pinball,
    seasonal_naive,
)

HISTORY = [2.0, 7.0, 3.0, 9.0, 6.0, 10.0]  # two seasons back: |3-2|, |9-7|, |6-3|, |10-9|: 7 / 4


def test_naive_error_is_the_mean_error_of_repeating_a_season():
    assert naive_error(HISTORY, period=2) == 7 / 4
    assert naive_error(HISTORY) == (5 + 4 + 6 + 3 + 4) / 5
    assert naive_error([2.0, np.nan, 3.0, 9.0, 6.0, 10.0], period=2) == (1 + 3 + 1) / 3


def test_infinite_steps_of_a_history_are_missing_steps():
    assert naive_error([1.0, 2.0, np.inf, 5.0, 8.0]) == naive_error([1.0, 2.0, np.nan, 5.0, 8.0])


def test_levels_may_be_an_array():
    levels = np.array([0.1, 0.9])
    expected = seasonal_naive(HISTORY, 2, 1, (0.1, 0.9))
    np.testing.assert_array_equal(seasonal_naive(HISTORY, 2, 1, levels), expected)


def test_mase_is_the_mean_error_in_that_unit():
    assert mase([8.0, 11.0], [6.0, 12.0], HISTORY, period=2) == pytest.approx(1.5 / (7 / 4))
    targets, forecasts = np.array([[1.0, 2.0], [3.0, 4.0]]), np.zeros((2, 2))
    assert mase(targets, forecasts, HISTORY, period=2) == pytest.approx(2.5 / (7 / 4))


def test_scaled_pinball_weighs_misses_by_their_side():
    # q = 0.1: y is 2 above, costs 0.1 * 2; q = 0.9: y is 3 below, costs 0.1 * 3.
    value = scaled_pinball([8.0], [[6.0, 11.0]], (0.1, 0.9), HISTORY, period=2)
    assert value == pytest.approx((0.2 + 0.3) / 2 / (7 / 4))
    # q = 0.1: y is 1 below, costs 0.9; q = 0.9: y is 2 above, costs 1.8.
    assert scaled_pinball([5.0], [[6.0, 3.0]], (0.1, 0.9), HISTORY, 2) == pytest.approx(1.35 / 1.75)


def test_scores_do_not_depend_on_the_units_of_the_series():
    rng = np.random.default_rng(0)
    history, targets, forecasts = rng.normal(size=50), rng.normal(size=9), rng.normal(size=(9, 3))
    levels = (0.1, 0.5, 0.9)
    for a, b in ((1e4, -3.0), (1e-3, 400.0)):
        scaled = [a * x + b for x in (targets, forecasts, history)]
        assert mase(scaled[0], scaled[1][:, 1], scaled[2], 4) == pytest.approx(
            mase(targets, forecasts[:, 1], history, 4)
        )
        assert scaled_pinball(*scaled[:2], levels, scaled[2], 4) == pytest.approx(
            scaled_pinball(targets, forecasts, levels, history, 4)
        )


def test_pinball_is_least_at_the_quantile():
    draws = np.random.default_rng(0).exponential(size=4001)
    history = [0.0, 1.0]
    grid = np.linspace(0, 4, 401)
    losses = [scaled_pinball(draws, np.full((4001, 1), guess), (0.8,), history) for guess in grid]
    assert grid[np.argmin(losses)] == pytest.approx(np.quantile(draws, 0.8), abs=0.01)


def test_interval_coverage_counts_targets_between_two_quantiles():
    share = interval_coverage([1.0, 2.0, 3.0], [1.0, 2.5, 0.0], [2.0, 3.0, 2.9])
    assert share == pytest.approx(1 / 3)


def test_seasonal_naive_repeats_the_last_season():
    forecast = seasonal_naive(HISTORY, horizon=5, period=2)
    np.testing.assert_array_equal(forecast, [[6.0], [10.0], [6.0], [10.0], [6.0]])
    np.testing.assert_array_equal(seasonal_naive(HISTORY, 2)[:, 0], [10.0, 10.0])


def test_seasonal_naive_quantiles_are_those_of_its_errors_so_many_seasons_ahead():
    forecast = seasonal_naive(HISTORY, horizon=3, period=2, quantiles=(0.25, 0.5))
    one, two = [1.0, 2.0, 3.0, 1.0], [4.0, 3.0]  # 6 - 2, 10 - 7
    for step, last, errors in ((0, 6.0, one), (1, 10.0, one), (2, 6.0, two)):
        expected = last + np.quantile(errors, (0.25, 0.5))
        np.testing.assert_allclose(forecast[step], [last, *expected])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mase([1.0], [1.0, 2.0], HISTORY), r"shapes are \(1,\) and \(2,\)"),
        (lambda: mase([], [], HISTORY), "no targets"),
        (lambda: naive_error(HISTORY, 1.5), "period must be an integer of at least 1"),
        (lambda: scaled_pinball([6.0], [[]], (), HISTORY), r"0 quantiles, .* shape is \(1, 0\)"),
        (lambda: scaled_pinball([6.0], [[3.0]], (0.1, 0.9), HISTORY), r"axis of 2 quantiles"),
        (
            lambda: scaled_pinball([1.0], [2.0], (0.5,), HISTORY),
            r"shape of the targets, \(1,\), and a last axis of 1 .*but their shape is \(1,\)",
        ),
        (lambda: scaled_pinball([np.nan], [[3.0, 4.0]], (0.1, 0.9), HISTORY), "1 targets and 0"),
        (lambda: naive_error([1.0, 2.0], period=2), r"more than period=2 numbers, .* shape \(2,\)"),
        (lambda: naive_error([[1.0], [2.0]]), r"must be a vector .* shape \(2, 1\)"),
        (lambda: naive_error([1.0, 2.0, 1.0, 2.0], 2), "repeats itself every 2 steps"),
        (lambda: mase([1.0, np.nan], [1.0, 2.0], HISTORY), "1 targets and 0 forecasts are NaN"),
        (lambda: seasonal_naive([1.0, 2.0], 3, 2, (0.5,)), "more than 2 seasons of 2 steps"),
        (lambda: seasonal_naive([1.0, np.nan, 3.0], 2, 2), "history has 1 gaps"),
        (lambda: seasonal_naive([1.0, 2.0, np.inf], 2, 2), "history has 1 gaps"),
        (lambda: seasonal_naive([1.0], 12), "more than 1 seasons of 1 steps"),
        (lambda: seasonal_naive(HISTORY, 2, 0), "period must be an integer of at least 1"),
        (lambda: seasonal_naive(HISTORY, 0), "horizon must be an integer of at least 1"),
        (lambda: seasonal_naive(HISTORY, 1, 1, (10, 90)), r"rising numbers in \(0, 1\)"),
        (lambda: scaled_pinball([6.0], [[3.0, 9.0]], (2.5, 97.5), HISTORY), "rising numbers"),
        (lambda: naive_error([1.0, np.nan, 2.0, np.nan]), "known steps that are period=1 apart"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
