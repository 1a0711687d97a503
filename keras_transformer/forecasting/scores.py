"""How good forecasts are, in units of a naive forecast's error, and the naive forecast itself."""

from collections.abc import Sequence

import numpy as np

from keras_transformer.checks import check_positive_int, check_quantiles
from keras_transformer.type_hints import Floats, Numbers


def seasonal_naive(
    history: Numbers, horizon: int, period: int = 1, quantiles: Sequence[float] = ()
) -> Floats:
    """Repeats the last season: the forecast that every model has to beat.

    Hyndman and Athanasopoulos (2021), "Forecasting: Principles and Practice", section 5.2. A
    quantile adds the quantile of the errors that the same repetition made in the history. For a
    step k seasons ahead, these are the differences over k seasons.

    Args:
        history: numbers (T,), without gaps.
        horizon: how many steps to forecast.
        period: the steps of a season; 1 repeats the last value.
        quantiles: Q rising levels in (0, 1).

    Returns:
        float64 array (horizon, 1 + Q): the forecast, then the quantiles.

    Raises:
        ValueError: if a size or a level is out of range, or if the history has gaps or is too
            short: it must be longer than a season and, for quantiles, than the seasons of the
            horizon.

    Example:
        >>> seasonal_naive([1.0, 5.0, 2.0, 7.0], horizon=3, period=2)[:, 0]
        array([2., 7., 2.])
    """
    check_positive_int("horizon", horizon)
    check_positive_int("period", period)
    quantiles = check_quantiles(quantiles)
    history = np.asarray(history, "float64")
    seasons = -(-horizon // period) if quantiles else 1
    if history.ndim != 1 or len(history) <= seasons * period:
        raise ValueError(
            f"history must be a vector of more than {seasons} seasons of {period} steps for a "
            f"horizon of {horizon}, but has the shape {history.shape}."
        )
    gaps = ~np.isfinite(history)
    if gaps.any():
        raise ValueError(f"history has {gaps.sum()} gaps; fill them first, such as by np.interp.")
    forecast = history[len(history) - period + np.arange(horizon) % period][:, None]
    lags = (np.arange(horizon) // period + 1) * period if quantiles else []
    errors = [np.quantile(history[lag:] - history[:-lag], quantiles) for lag in lags]
    errors = np.reshape(errors, (horizon, len(quantiles)))
    return np.concatenate([forecast, forecast + errors], axis=1)


def naive_error(history: Numbers, period: int = 1) -> float:
    """Computes the mean of `|y_t - y_(t - m)|`, the error of repeating the last season.

    It is the unit of `mase` and `scaled_pinball`.

    Args:
        history: numbers (T,), NaN or infinite where missing. Give the part of the series that
            models were fitted on, the same part for all models that you compare.
        period: m, the steps of a season; 1 if there is none.

    Returns:
        A positive number.

    Raises:
        ValueError: if the period is not a positive integer, or if the history is not a vector
            longer than a period, has no two known steps one period apart, or repeats itself
            exactly.

    Example:
        >>> naive_error([1.0, 2.0, 4.0, 5.0], period=2)
        3.0
    """
    check_positive_int("period", period)
    history = np.asarray(history, "float64")
    if history.ndim != 1 or len(history) <= period:
        raise ValueError(
            f"history must be a vector of more than period={period} numbers, but has the shape "
            f"{history.shape}."
        )
    history = np.where(np.isfinite(history), history, np.nan)
    errors = np.abs(history[period:] - history[:-period])
    errors = errors[~np.isnan(errors)]
    if not len(errors):
        raise ValueError(
            f"history must have two known steps that are period={period} apart, but has none."
        )
    error = float(np.mean(errors))
    if not error > 0:
        raise ValueError(
            f"The history repeats itself every {period} steps, so its naive error is 0; "
            "score such a series in its own units."
        )
    return error


def mase(targets: Numbers, forecasts: Numbers, history: Numbers, period: int = 1) -> float:
    """Computes the mean absolute scaled error, `mean |y - f| / naive_error(history, period)`.

    Hyndman and Koehler (2006), "Another look at measures of forecast accuracy", section 3. Below 1
    the forecast is better than repeating the last season was in the history, one season ahead.

    Args:
        targets: y, numbers (...).
        forecasts: f, numbers of the same shape. If you forecast a distribution, give its median,
            which minimizes this error.
        history: numbers (T,) of the same series, before all targets.
        period: the steps of a season; 1 if there is none.

    Returns:
        A number of at least 0.

    Raises:
        ValueError: if the shapes differ, a number is NaN, or the history has no `naive_error`.

    Example:
        >>> mase([6.0, 6.0], [3.0, 9.0], history=[1.0, 2.0, 4.0, 5.0], period=2)
        1.0
    """
    targets, forecasts = _same_shape(targets, forecasts)
    return float(np.mean(np.abs(targets - forecasts)) / naive_error(history, period))


def scaled_pinball(
    targets: Numbers,
    forecasts: Numbers,
    quantiles: Sequence[float],
    history: Numbers,
    period: int = 1,
) -> float:
    """Computes the mean pinball loss of quantiles, in the unit of `mase`.

    This is the measure of the M5 uncertainty competition (Makridakis et al., 2022). It rewards
    narrow intervals that hold as many targets as their levels say.

    Args:
        targets: y, numbers (...).
        forecasts: numbers (..., Q), (..., 1) for one quantile.
        quantiles: their Q levels, in (0, 1).
        history: numbers (T,) of the same series, before all targets.
        period: the steps of a season; 1 if there is none.

    Returns:
        A number of at least 0.

    Raises:
        ValueError: if the shapes do not fit, a level is out of range, a number is NaN, or the
            history has no `naive_error`.

    Example:
        >>> scaled_pinball([6.0], [[3.0, 9.0]], (0.25, 0.75), [1.0, 2.0, 4.0, 5.0], period=2)
        0.25
    """
    levels = np.asarray(check_quantiles(quantiles))  # (Q,)
    targets, forecasts = (np.asarray(x, "float64") for x in (targets, forecasts))
    if not len(levels) or forecasts.shape != (*targets.shape, len(levels)):
        raise ValueError(
            f"forecasts must have the shape of the targets, {targets.shape}, and a last axis of "
            f"{len(levels)} quantiles, at least one, but their shape is {forecasts.shape}."
        )
    for forecast in np.moveaxis(forecasts, -1, 0):
        _same_shape(targets, forecast)
    errors = targets[..., None] - forecasts  # (..., Q)
    losses = np.maximum(levels * errors, (levels - 1) * errors)
    return float(np.mean(losses) / naive_error(history, period))


def interval_coverage(targets: Numbers, low: Numbers, high: Numbers) -> float:
    """Computes the share of targets in an interval.

    Between the 0.1- and the 0.9-quantile it should be 0.8.

    Args:
        targets: numbers (...).
        low: the interval's lower ends, of the same shape.
        high: the interval's upper ends, of the same shape.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: if the shapes differ or a number is NaN.

    Example:
        >>> interval_coverage([1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 2.0, 5.0])
        0.75
    """
    targets, low = _same_shape(targets, low)
    targets, high = _same_shape(targets, high)
    return float(np.mean((low <= targets) & (targets <= high)))


def _same_shape(targets, forecasts) -> tuple[np.ndarray, np.ndarray]:
    targets, forecasts = (np.asarray(x, "float64") for x in (targets, forecasts))
    if targets.shape != forecasts.shape:
        raise ValueError(
            f"Every target needs a forecast, but the shapes are {targets.shape} and "
            f"{forecasts.shape}."
        )
    if not targets.size:
        raise ValueError("There are no targets, so there is nothing to score.")
    if np.isnan(targets).any() or np.isnan(forecasts).any():
        raise ValueError(
            f"{np.isnan(targets).sum()} targets and {np.isnan(forecasts).sum()} forecasts are NaN; "
            "score only origins with known targets."
        )
    return targets, forecasts
