"""The learning rate over the steps of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from keras_transformer.type_hints import Figure, Numbers
from keras_transformer.visualization.figures import (
    INK,
    marker,
    new_figure,
    show_literally,
    whole_ticks,
)

NUM_POINTS = 200


def learning_rates(
    schedules: Mapping[str, Callable[[int], object]],
    num_steps: int,
    *,
    measured: tuple[Numbers, Numbers] | None = None,
) -> Figure:
    """Draws the learning rate of schedules: the warm-up, the peak, the slow decay.

    Args:
        schedules: a dict of labels to schedules, `schedule(step) -> rate`, for example a
            `TransformerSchedule`.
        num_steps: the last step to draw.
        measured: two arrays, the steps and rates that a training has logged.

    Returns:
        A matplotlib figure with one line per schedule, then the measured one.

    Raises:
        ValueError: if `num_steps` is below 2.
        ImportError: if matplotlib is not installed.

    Example:
        >>> figure = learning_rates(
        ...     {f"warm-up {n}": TransformerSchedule(512, n) for n in (2000, 4000)}, 20000
        ... )
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['warm-up 2000', 'warm-up 4000']
    """
    if num_steps < 2:
        raise ValueError(f"num_steps must be at least 2, but is {num_steps!r}.")
    steps = np.unique(np.linspace(1, num_steps, NUM_POINTS).astype("int64"))
    figure = new_figure(7, 4)
    axes = figure.subplots()
    for label, schedule in schedules.items():
        rates = [float(schedule(step)) for step in steps]
        axes.plot(steps, rates, label=label, marker=marker(steps))
    if measured is not None:
        style = {"color": INK, "linewidth": 2, "linestyle": "--", "marker": marker(measured[0])}
        axes.plot(*measured, label="this run", **style)
    axes.set(xlabel="step", ylabel="learning rate", xlim=(0, num_steps), ylim=(0, None))
    axes.grid(alpha=0.3)
    # matplotlib leaves out labels that begin with "_", unless they are given.
    legend = axes.legend(axes.lines, [line.get_label() for line in axes.lines])
    show_literally(legend.get_texts())
    whole_ticks(axes, "x")
    return figure
