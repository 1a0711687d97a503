"""The forecast that every model has to beat: what was a season ago."""

import numpy as np

from keras_transformer.checks import check_positive_int, check_quantiles


def seasonal_naive(history, horizon: int, period: int = 1, quantiles=()) -> np.ndarray:
    """Repeats the last season; quantiles are those of the errors that this made in the history.

    Hyndman and Athanasopoulos (2021), "Forecasting: Principles and Practice", section 5.2. A step
    k seasons ahead is k seasons from the value it repeats, so the errors are those over k seasons.

    Args:
        history: numbers (T,), without gaps.
        horizon: the number of steps to forecast.
        period: the steps of a season; 1 repeats the last value.
        quantiles: Q levels in (0, 1).

    Returns:
        Array (horizon, 1 + Q), float64: the forecast, then the quantiles.

    Raises:
        ValueError: if a size or a level is out of range, the history has gaps, or is no longer
            than a season or, for quantiles, the seasons between a step and what it repeats.

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
        raise ValueError(
            f"history has {gaps.sum()} gaps of which nothing can be repeated; interpolate them "
            "first."
        )
    forecast = history[len(history) - period + np.arange(horizon) % period]  # (horizon,)
    rows = []
    for step in range(horizon):
        lag = (step // period + 1) * period
        errors = history[lag:] - history[:-lag] if quantiles else np.zeros(1)
        rows.append(np.concatenate([[0.0], np.quantile(errors, quantiles)]))
    return forecast[:, None] + np.array(rows)
