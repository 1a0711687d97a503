"""Cuts series into windows: a history, and the steps that came after it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from keras_transformer.checks import check_count, check_positive_int
from keras_transformer.type_hints import Floats, Integers, Numbers


class ForecastWindows(NamedTuple):
    """N windows of one or several series; unpack them into `Forecaster.fit(*windows)`.

    `inputs` is a dict of "history" (N, history_length, F), float32, 0 where nothing is known;
    "padding_mask" (N, history_length), True at known steps; and, if you gave covariates,
    "covariates" (N, history_length + horizon, C). `targets` is (N, horizon, F), float32.

    Example:
        >>> inputs, targets = rolling_windows(np.arange(9), history_length=4, horizon=2)
        >>> inputs["history"].shape, inputs["padding_mask"].shape, targets.shape
        ((4, 4, 1), (4, 4), (4, 2, 1))
    """

    inputs: dict[str, Floats]
    targets: Floats


def windows_at(
    series: Numbers,
    origins: Numbers,
    *,
    history_length: int,
    horizon: int,
    covariates: Numbers | None = None,
) -> ForecastWindows:
    """Cuts the window before each origin, and the steps from the origin on.

    Apart from covariates, which are known in advance, a window holds nothing from its origin on.
    The mask is False where the series begins inside the window, and at missing steps.

    Args:
        series: numbers (T, F) or (T,), NaN or infinite where missing. A step that lacks one
            feature counts as missing. Windows are float32, so subtract a constant first if the
            series varies by less than a ten-millionth of its level, and divide by one if it goes
            beyond 3e38.
        origins: integers in [0, T - horizon], the first step of each forecast.
        history_length: the steps of a window.
        horizon: the steps of a target.
        covariates: numbers (T, C) or (T,), without gaps.

    Returns:
        `ForecastWindows`, in the order of `origins`; a missing target is NaN.

    Raises:
        ValueError: if a size is out of range, the series is no numbers of float32, an origin is not
            an integer or is too close to the end, or the covariates do not fit the series.

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
    series = np.where(np.isfinite(series), series, np.float32("nan"))
    origins = _check_origins(origins, len(series), horizon)[:, None]  # (N, 1)
    known = ~np.isnan(series).any(axis=1)  # (T,)
    lead = ((history_length, 0), (0, 0))
    history = np.pad(np.where(known[:, None], series, np.float32(0)), lead)
    mask = np.pad(known, lead[0])
    # Step t of the series is row t + history_length of the padded one.
    rows = origins + np.arange(history_length)  # (N, history_length)
    inputs = {"history": history[rows], "padding_mask": mask[rows]}
    if covariates is not None:
        covariates = _check_covariates(covariates, len(series))
        rows = origins + np.arange(history_length + horizon)
        inputs["covariates"] = np.pad(covariates, lead)[rows]
    return ForecastWindows(inputs, series[origins + np.arange(horizon)])


def rolling_windows(
    series: Numbers | Iterable[Numbers],
    *,
    history_length: int,
    horizon: int,
    covariates: Numbers | Iterable[Numbers] | None = None,
    min_history: int | None = None,
    stride: int = 1,
) -> ForecastWindows:
    """Cuts every window of one or several series, to fit a `Forecaster` on.

    Args:
        series: an array (T, F) or (T,), or a list or another iterable of such series, of any
            lengths. A matrix is one series with its features in columns: give series in the rows of
            a matrix as `list(matrix)`. A list of lists of numbers is a list of series (T,).
        history_length: the steps of a window.
        horizon: the steps of a target.
        covariates: numbers (T, C) or (T,), without gaps; for several series, a list of them.
        min_history: the fewest steps before an origin, by default `history_length`. With fewer,
            the model also learns to forecast from shorter histories.
        stride: the steps from one origin to the next.

    Returns:
        `ForecastWindows`, without those that lack a target or have no known step of history.

    Raises:
        ValueError: if there is no window at all, a series is no numbers of float32, or an argument
            does not fit.

    Example:
        >>> windows = rolling_windows(np.arange(10), history_length=4, horizon=2)
        >>> windows.targets[:, 0, 0]
        array([4., 5., 6., 7., 8.], dtype=float32)
        >>> matrix = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])  # two series
        >>> windows = rolling_windows(list(matrix), history_length=2, horizon=1)
        >>> windows.targets[:, 0, 0]
        array([3., 4., 7., 8.], dtype=float32)
    """
    check_positive_int("stride", stride)
    check_positive_int("history_length", history_length)
    check_positive_int("horizon", horizon)
    first = history_length if min_history is None else check_count("min_history", min_history)
    sizes = {"history_length": history_length, "horizon": horizon}
    inputs, targets = _concatenate(
        [
            windows_at(one, range(first, len(one) - horizon + 1, stride), **sizes, covariates=known)
            for one, known in _pairs(series, covariates)
        ]
    )
    whole = ~np.isnan(targets).any(axis=(1, 2)) & inputs["padding_mask"].any(axis=1)
    if not whole.any():
        raise ValueError(
            f"No window has {first} steps before its origin and {horizon} known ones after it; "
            "lower history_length, min_history or horizon, or give longer series (those in the "
            "rows of a matrix as list(matrix))."
        )
    return ForecastWindows({name: x[whole] for name, x in inputs.items()}, targets[whole])


def rolling_origins(length: int, horizon: int, *, first: int, stride: int = 1) -> Integers:
    """Lists the origins of a rolling evaluation: the model is fitted once, the history grows.

    Tashman (2000), "Out-of-sample tests of forecasting accuracy". Fit on
    `rolling_windows(series[:first], ...)` and score on `windows_at(series, origins, ...)`: then
    the model has seen none of the targets.

    Args:
        length: T, the steps of the series.
        horizon: the steps of a forecast.
        first: the first origin, at least 1.
        stride: the steps from one origin to the next.

    Returns:
        Integers from `first` to at most `length - horizon`.

    Raises:
        ValueError: if there is none, or an argument is out of range.

    Example:
        >>> rolling_origins(10, horizon=3, first=4)
        array([4, 5, 6, 7])
    """
    check_positive_int("horizon", horizon)
    check_positive_int("stride", stride)
    if not isinstance(first, (int, np.integer)) or not 0 < first <= length - horizon:
        raise ValueError(
            f"first must be an integer in [1, {length - horizon}], at least {horizon} steps before "
            f"the end of a series of {length}, but is {first!r}."
        )
    return np.arange(first, length - horizon + 1, stride)


def _columns(name: str, values: Numbers) -> np.ndarray:
    """Turns (T,) or (T, F) into (T, F), float32."""
    try:
        values = np.asarray(values, "float64")
    except (TypeError, ValueError) as error:
        raise _no_numbers(name, values) from error
    if values.ndim not in (1, 2):
        raise ValueError(f"{name} must be numbers (T,) or (T, F), but has shape {values.shape}.")
    with np.errstate(over="ignore"):
        columns = values.astype("float32")
    beyond = np.isinf(columns) & np.isfinite(values)
    if beyond.any():
        raise ValueError(
            f"{name} has {beyond.sum()} values beyond float32, such as {values[beyond][0]:g}; "
            "divide it by a constant."
        )
    return columns[:, None] if columns.ndim == 1 else columns


def _no_numbers(name: str, values) -> ValueError:
    remedy = "; give list(x.values())" if isinstance(values, Mapping) else ""
    return ValueError(
        f"{name} must be numbers (T,) or (T, F), or a list of such series, but is "
        f"{type(values).__name__}{remedy}."
    )


def _check_origins(origins: Numbers, length: int, horizon: int) -> np.ndarray:
    origins = np.asarray(origins).reshape(-1)
    if len(origins) and origins.dtype.kind not in "iu":
        raise ValueError(f"origins must be integers, the numbers of steps, but are {origins}.")
    origins = origins.astype("int64")
    if len(origins) and not 0 <= origins.min() <= origins.max() <= length - horizon:
        raise ValueError(
            f"origins must be in [0, {length - horizon}], at least {horizon} steps before the end "
            f"of the series, but range from {origins.min()} to {origins.max()}."
        )
    return origins


def _check_covariates(covariates: Numbers, length: int) -> np.ndarray:
    covariates = _columns("covariates", covariates)
    gaps = ~np.isfinite(covariates)
    if len(covariates) != length or gaps.any():
        raise ValueError(
            f"covariates must be known at all {length} steps of the series, but have the shape "
            f"{covariates.shape} and {gaps.sum()} gaps."
        )
    return covariates


def _pairs(series, covariates) -> list[tuple]:
    """Pairs every series (T, F) with its covariates, or with None."""
    several = _several(series)
    if several is None:
        return [(_columns("series", series), covariates)]
    if not several:
        raise ValueError("series is empty; give at least one series.")
    several = [_columns("series", one) for one in several]
    if covariates is None:
        return [(one, None) for one in several]
    covariates = _elements("covariates", covariates)
    given = sum(one is not None for one in covariates)
    if not given == len(covariates) == len(several):
        raise ValueError(
            f"There are {len(several)} series, but covariates for {given}; give a list with one "
            "per series."
        )
    return list(zip(several, covariates, strict=True))


def _several(series) -> list | None:
    """Lists the series of an iterable; None if it is one series, (T,) or (T, F)."""
    # A table would list the names of its columns. A vector of objects may hold series.
    if hasattr(series, "__array__") and (np.ndim(series) != 1 or np.asarray(series).dtype != "O"):
        return None
    several = _elements("series", series)
    return None if several and np.ndim(several[0]) == 0 else several


def _elements(name: str, values) -> list:
    if isinstance(values, str | Mapping) or not hasattr(values, "__iter__"):
        raise _no_numbers(name, values)
    return list(values)


def _concatenate(parts: list[ForecastWindows]) -> ForecastWindows:
    for name, what in (("history", "features"), ("covariates", "covariates")):
        columns = [part.inputs[name].shape[2] for part in parts if name in part.inputs]
        if len(set(columns)) > 1:
            raise ValueError(f"All series must have the same {what}, but have {columns} columns.")
    inputs = {name: np.concatenate([p.inputs[name] for p in parts]) for name in parts[0].inputs}
    return ForecastWindows(inputs, np.concatenate([part.targets for part in parts]))
