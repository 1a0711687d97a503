"""How near forecasts come: errors in units of what a naive forecast errs in the history."""

import numpy as np

from keras_transformer.checks import check_quantiles


def naive_error(history, period: int = 1) -> float:
    """The mean of `|y_t - y_(t - m)|` over a history: what repeating the last period errs.

    Args:
        history: numbers (T,), NaN or infinite where missing; the part of the series that models
            were fitted on, the same for all that are compared.
        period: m, the steps of a season, 1 for none.

    Returns:
        A positive number.

    Raises:
        ValueError: if the history is no vector, not longer than a period, or repeats it exactly,
            or no two known steps are a period apart.

    Example:
        >>> naive_error([1.0, 2.0, 4.0, 5.0], period=2)
        3.0
    """
    history = np.asarray(history, "float64")
    if history.ndim != 1 or len(history) <= period or period < 1:
        raise ValueError(
            f"history must be a vector of more than period={period!r} numbers (and period at "
            f"least 1), but has the shape {history.shape}."
        )
    history = np.where(np.isfinite(history), history, np.nan)
    errors = np.abs(history[period:] - history[:-period])
    errors = errors[~np.isnan(errors)]
    if not len(errors):
        raise ValueError(
            f"history must have two known steps that are period={period} apart, but it has none."
        )
    error = float(np.mean(errors))
    if not error > 0:
        raise ValueError(
            f"A history that repeats itself every {period} steps gives errors no unit; score "
            "such a series in its own units."
        )
    return error


def mase(targets, forecasts, history, period: int = 1) -> float:
    """The mean absolute scaled error: `mean |y - f| / naive_error(history, period)`.

    Hyndman and Koehler (2006), "Another look at measures of forecast accuracy", section 3. Below 1
    the forecast errs less than repeating the last period did, one period ahead, in the history.

    Args:
        targets: y, numbers (...).
        forecasts: f, numbers of the same shape; of a distribution its median, which errs least.
        history: numbers (T,), of the same series, before all targets.
        period: the steps of a season, 1 for none.

    Returns:
        A number of at least 0.

    Raises:
        ValueError: if the shapes differ, or `naive_error` has no unit.

    Example:
        >>> mase([6.0, 6.0], [3.0, 9.0], history=[1.0, 2.0, 4.0, 5.0], period=2)
        1.0
    """
    targets, forecasts = _same_shape(targets, forecasts)
    return float(np.mean(np.abs(targets - forecasts)) / naive_error(history, period))


def scaled_pinball(targets, forecasts, quantiles, history, period: int = 1) -> float:
    """The mean pinball loss of quantiles in the unit of `mase`.

    The measure of the M5 uncertainty competition (Makridakis et al., 2022). It is less the closer
    the quantiles lie and the more rightly they do.

    Args:
        targets: y, numbers (...).
        forecasts: numbers (..., Q).
        quantiles: their Q levels, in (0, 1).
        history: numbers (T,), of the same series, before all targets.
        period: the steps of a season, 1 for none.

    Returns:
        A number of at least 0.

    Raises:
        ValueError: if the shapes do not fit, a level is out of range, or `naive_error` has no unit.

    Example:
        >>> scaled_pinball([6.0], [[3.0, 9.0]], (0.25, 0.75), [1.0, 2.0, 4.0, 5.0], period=2)
        0.25
    """
    levels = np.asarray(check_quantiles(quantiles))  # (Q,)
    targets = np.asarray(targets, "float64")[..., None]
    targets, forecasts = _same_shape(np.repeat(targets, len(levels), -1), forecasts)
    errors = targets - forecasts  # (..., Q)
    losses = np.maximum(levels * errors, (levels - 1) * errors)
    return float(np.mean(losses) / naive_error(history, period))


def coverage(targets, low, high) -> float:
    """The share of targets between two quantiles; that of the 0.1- and the 0.9-quantile is 0.8.

    Args:
        targets: numbers (...).
        low: numbers of the same shape.
        high: numbers of the same shape.

    Returns:
        A number in [0, 1].

    Example:
        >>> coverage([1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 2.0, 5.0])
        0.75
    """
    targets, low = _same_shape(targets, low)
    targets, high = _same_shape(targets, high)
    return float(np.mean((low <= targets) & (targets <= high)))


def _same_shape(targets, forecasts):
    targets, forecasts = (np.asarray(x, "float64") for x in (targets, forecasts))
    if targets.shape != forecasts.shape:
        raise ValueError(
            f"Each target needs a forecast, but the shapes are {targets.shape} and "
            f"{forecasts.shape}."
        )
    if not targets.size:
        raise ValueError("There is nothing to score: there are no targets.")
    if np.isnan(targets).any() or np.isnan(forecasts).any():
        raise ValueError(
            f"{np.isnan(targets).sum()} targets and {np.isnan(forecasts).sum()} forecasts are NaN; "
            "score the origins whose targets are known."
        )
    return targets, forecasts
