"""Series to windows: a history, and what came after it."""

from typing import NamedTuple

import numpy as np

from keras_transformer.checks import check_count, check_positive_int


class ForecastWindows(NamedTuple):
    """What `Forecaster.fit` takes: N windows of one or several series.

    `inputs` is a dict of "history" (N, history_length, F), float32, 0 where nothing is known;
    "padding_mask" (N, history_length), True at known steps; and, if there are any, "covariates"
    (N, history_length + horizon, C). `targets` is (N, horizon, F).
    """

    inputs: dict
    targets: np.ndarray


def windows_at(series, origins, *, history_length, horizon, covariates=None) -> ForecastWindows:
    """The window before each origin and the steps from it on.

    A window holds nothing of its origin or later but the covariates, which are known in advance.
    Where the series begins within a window, or lacks a step, the mask is False.

    Args:
        series: numbers (T, F) or (T,), NaN or infinite where missing; a step that lacks a feature
            is not known. Windows are float32: changes below a ten-millionth of a series' level are
            lost, so subtract a constant from one that varies so little.
        origins: integers in [0, T - horizon]: the step that each forecast begins with.
        history_length: the steps of a window.
        horizon: the steps of a target.
        covariates: numbers (T, C) or (T,), without gaps.

    Returns:
        `ForecastWindows`, in the order of `origins`; a missing target is NaN.

    Raises:
        ValueError: if a size is out of range, an origin is no integer or leaves no room for the
            horizon, or the covariates do not fit.

    Example:
        >>> windows = windows_at(np.arange(6), [2, 4], history_length=3, horizon=2)
        >>> windows.inputs["history"][..., 0]
        array([[0., 0., 1.],
               [1., 2., 3.]], dtype=float32)
        >>> windows.targets[..., 0]
        array([[2., 3.],
               [4., 5.]], dtype=float32)
    """
    check_positive_int("history_length", history_length)
    check_positive_int("horizon", horizon)
    series = _columns("series", series)
    series = np.where(np.isfinite(series), series, np.nan)
    origins = np.asarray(origins).reshape(-1)
    if len(origins) and origins.dtype.kind not in "iu":
        raise ValueError(f"origins must be integers, the numbers of steps, but are {origins}.")
    origins = origins.astype("int64")
    if len(origins) and not 0 <= origins.min() <= origins.max() <= len(series) - horizon:
        raise ValueError(
            f"origins must be in [0, {len(series) - horizon}], {horizon} steps before the end of "
            f"the series or earlier, but reach from {origins.min()} to {origins.max()}."
        )
    known = ~np.isnan(series).any(axis=1)  # (T,)
    lead = ((history_length, 0), (0, 0))
    history = np.pad(np.where(known[:, None], series, 0.0), lead)
    mask = np.pad(known, lead[0])
    # Step t of the series is row t + history_length of the padded one.
    rows = origins[:, None] + np.arange(history_length)  # (N, history_length)
    inputs = {"history": history[rows].astype("float32"), "padding_mask": mask[rows]}
    if covariates is not None:
        covariates = _columns("covariates", covariates)
        gaps = ~np.isfinite(covariates)
        if len(covariates) != len(series) or gaps.any():
            raise ValueError(
                f"covariates must be known at each of the {len(series)} steps of the series, but "
                f"have the shape {covariates.shape} and {gaps.sum()} gaps."
            )
        rows = origins[:, None] + np.arange(history_length + horizon)
        inputs["covariates"] = np.pad(covariates, lead)[rows].astype("float32")
    targets = series[origins[:, None] + np.arange(horizon)].astype("float32")
    return ForecastWindows(inputs, targets)


def rolling_windows(
    series, *, history_length, horizon, covariates=None, min_history=None, stride=1
) -> ForecastWindows:
    """Every window of one or several series, for `fit`.

    Args:
        series: an array (T, F) or (T,), or a list of such series, which may differ in length; a
            list of lists of numbers is a list of series (T,).
        history_length: the steps of a window.
        horizon: the steps of a target.
        covariates: numbers (T, C) or (T,), or a list of one for each series.
        min_history: the fewest steps before an origin, `history_length` by default. With fewer,
            the model also learns from shorter histories, and to forecast from them.
        stride: the steps from one origin to the next.

    Returns:
        `ForecastWindows`, without those that lack a target or know no step before it.

    Raises:
        ValueError: if there is no window at all, or an argument does not fit.

    Example:
        >>> windows = rolling_windows(np.arange(10), history_length=4, horizon=2)
        >>> windows.targets[:, 0, 0]
        array([4., 5., 6., 7., 8.], dtype=float32)
    """
    several = isinstance(series, (list, tuple)) and len(series) > 0 and np.ndim(series[0]) > 0
    all_series = series if several else [series]
    if covariates is None:
        all_covariates = [None] * len(all_series)
    else:
        all_covariates = covariates if several else [covariates]
        given = sum(one is not None for one in all_covariates)
        if not given == len(all_covariates) == len(all_series):
            raise ValueError(
                f"There are {len(all_series)} series, but covariates for {given}; give a list of "
                "one for each."
            )
    check_positive_int("stride", stride)
    if min_history is not None:
        check_count("min_history", min_history)
    first = history_length if min_history is None else min_history
    parts = []
    for one, known in zip(all_series, all_covariates, strict=True):
        origins = range(first, len(one) - horizon + 1, stride)
        sizes = {"history_length": history_length, "horizon": horizon}
        parts.append(windows_at(one, origins, **sizes, covariates=known))
    for name, what in (("history", "features"), ("covariates", "covariates")):
        columns = [part.inputs[name].shape[2] for part in parts if name in part.inputs]
        if len(set(columns)) > 1:
            raise ValueError(f"All series must have the same {what}, but have {columns} columns.")
    windows = ForecastWindows(
        {name: np.concatenate([p.inputs[name] for p in parts]) for name in parts[0].inputs},
        np.concatenate([part.targets for part in parts]),
    )
    whole = ~np.isnan(windows.targets).any(axis=(1, 2)) & windows.inputs["padding_mask"].any(axis=1)
    if not whole.any():
        raise ValueError(
            f"No window has {first} steps before it and {horizon} known ones after it; shorten "
            "history_length, min_history or horizon, or give longer series."
        )
    inputs = {name: values[whole] for name, values in windows.inputs.items()}
    return ForecastWindows(inputs, windows.targets[whole])


def rolling_origins(length, horizon, *, first, stride=1) -> np.ndarray:
    """The origins of a rolling evaluation: a model fitted on `series[:first]` has seen no target.

    Tashman (2000), "Out-of-sample tests of forecasting accuracy". `rolling_windows(series[:first],
    ...)` are for fitting, `windows_at(series, rolling_origins(...), ...)` for scoring: the history
    grows with the origin, the fitted model does not change.

    Args:
        length: T, the steps of the series.
        horizon: the steps of a forecast.
        first: the first origin, at least 1.
        stride: the steps from one origin to the next.

    Returns:
        Integers from `first` to at most `length - horizon`.

    Raises:
        ValueError: if there is none, or an argument is no integer in its range.

    Example:
        >>> rolling_origins(10, horizon=3, first=4)
        array([4, 5, 6, 7])
    """
    check_positive_int("horizon", horizon)
    check_positive_int("stride", stride)
    if not isinstance(first, (int, np.integer)) or not 0 < first <= length - horizon:
        raise ValueError(
            f"first must be an integer in [1, {length - horizon}], {horizon} steps before the end "
            f"of a series of {length} or earlier, but is {first!r}."
        )
    return np.arange(first, length - horizon + 1, stride)


def _columns(name, values) -> np.ndarray:
    """(T,) or (T, F) to (T, F), float64."""
    values = np.asarray(values, "float64")
    if values.ndim not in (1, 2):
        raise ValueError(f"{name} must be numbers (T,) or (T, F), but has shape {values.shape}.")
    return values[:, None] if values.ndim == 1 else values
