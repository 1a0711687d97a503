"""Forecasts three real series, and scores a Transformer, an LSTM, ETS and the seasonal naive.

    pip install -e ".[forecasting]"
    python examples/forecasting.py --plot forecasts.png

The series come with statsmodels: yearly sunspots, monthly carbon dioxide at Mauna Loa, monthly sea
surface temperatures of El Nino. Each model is fitted once, on the first 80 % of a series, and then
forecasts 12 steps from every later step on. `--tune` is how the settings below were chosen: fitted
on the first 60 %, scored on the next 20 %.
"""

import argparse
import warnings

import keras
import numpy as np
import pandas
from keras import ops
from statsmodels import datasets
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.exponential_smoothing.ets import ETSModel

from keras_transformer import (
    Forecaster,
    ForecastLoss,
    interval_coverage,
    mase,
    normalize_windows,
    rolling_origins,
    rolling_windows,
    scaled_pinball,
    seasonal_naive,
    windows_at,
)

HORIZON = 12
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
MEDIAN = 1 + QUANTILES.index(0.5)
INK, ACCENT, FAINT = "#1f2933", "#b3261e", "#667080"
SEASONS = {"sunspots": 11, "co2": 12, "elnino": 12}
DROPOUT = 0.1
# What `--tune` tries, and what it found best.
GRID = [
    {"history_length": length, "learning_rate": rate, "updates": updates}
    for length in (12, 24, 36, 48)
    for rate in (1e-3, 3e-3, 1e-2)
    for updates in (150, 600)
]
CHOSEN = {
    ("Forecaster", "sunspots"): {"history_length": 12, "learning_rate": 1e-2, "updates": 150},
    ("Forecaster", "co2"): {"history_length": 36, "learning_rate": 1e-2, "updates": 600},
    ("Forecaster", "elnino"): {"history_length": 48, "learning_rate": 3e-3, "updates": 600},
    ("LSTM", "sunspots"): {"history_length": 12, "learning_rate": 1e-3, "updates": 600},
    ("LSTM", "co2"): {"history_length": 12, "learning_rate": 1e-2, "updates": 600},
    ("LSTM", "elnino"): {"history_length": 48, "learning_rate": 1e-2, "updates": 600},
}


def load(name) -> np.ndarray:
    """A series without gaps; the few months in which no CO2 was measured are interpolated."""
    table = getattr(datasets, name).load_pandas().data
    if name == "sunspots":
        return table["SUNACTIVITY"].to_numpy()
    if name == "elnino":
        return table.drop(columns="YEAR").to_numpy().reshape(-1)  # a row is a year
    return table["co2"].resample("MS").mean().interpolate().to_numpy()


class LSTMForecaster(keras.Model):
    """An LSTM with the inputs, normalization, outputs and loss of `Forecaster`.

    With `linear`, it also has the linear forecast that `Forecaster` adds.
    """

    def __init__(self, *, units, linear=False):
        super().__init__(autocast=False)
        self.lstm = keras.layers.LSTM(units)
        self.dropout = keras.layers.Dropout(DROPOUT)
        self.dense = keras.layers.Dense(HORIZON * (1 + len(QUANTILES)))
        self.linear = None
        if linear:
            self.linear = keras.layers.Dense(HORIZON, use_bias=False, kernel_initializer="zeros")

    def call(self, inputs, training=None):
        x, level, scale = normalize_windows(inputs["history"], inputs["padding_mask"])
        y = self.dropout(self.lstm(x, mask=inputs["padding_mask"]), training=training)
        y = ops.reshape(self.dense(y), (-1, HORIZON, 1, 1 + len(QUANTILES)))
        if self.linear is not None:
            y = y + ops.reshape(self.linear(x[..., 0]), (-1, HORIZON, 1, 1))
        y = ops.concatenate([y[..., :1], ops.sort(y[..., 1:], axis=-1)], axis=-1)
        return level[..., None] + scale[..., None] * y

    def compute_loss(self, x, y=None, y_pred=None, sample_weight=None, training=True):
        scale = normalize_windows(x["history"], x["padding_mask"]).scale
        return super().compute_loss(x, y / scale, y_pred / scale[..., None], sample_weight)


def build(model, history_length):
    """The network of a name; the LSTM has about as many parameters as a Transformer like it."""
    forecaster = Forecaster(
        history_length=history_length,
        horizon=HORIZON,
        quantiles=QUANTILES,
        patch_length=3,
        num_layers=2,
        d_model=32,
        num_heads=4,
        d_ff=64,
        dropout=DROPOUT,
    )
    if model == "Forecaster":
        return forecaster
    outputs = HORIZON * (1 + len(QUANTILES))
    units = 1
    while 4 * units * (units + 2) + (units + 1) * outputs < forecaster.count_params():
        units += 1
    return LSTMForecaster(units=units, linear=model == "LSTM + linear")


def neural(model, series, origins, settings, seed):
    """Fits a network on what lies before the first origin.

    Returns:
        Its forecasts, (N, HORIZON, 1 + Q), and the number of its parameters.
    """
    keras.utils.clear_session()  # the graphs of the one before
    keras.utils.set_random_seed(seed)
    sizes = {"history_length": settings["history_length"], "horizon": HORIZON}
    updates = settings["updates"]
    train = rolling_windows(series[: origins[0]], **sizes)
    test = windows_at(series, origins, **sizes)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, updates, warmup_target=settings["learning_rate"], warmup_steps=updates // 10
    )
    network = build(model, settings["history_length"])
    network.compile(keras.optimizers.Adam(schedule, global_clipnorm=1.0), ForecastLoss(QUANTILES))
    # An epoch of `updates` batches: every window about equally often, in random order.
    count, batch_size = len(train.targets), 32
    rng = np.random.default_rng(seed)
    order = [rng.permutation(count) for _ in range(-(-updates * batch_size // count))]
    rows = np.concatenate(order)[: updates * batch_size]
    inputs = {name: values[rows] for name, values in train.inputs.items()}
    network.fit(inputs, train.targets[rows], batch_size=batch_size, shuffle=False, verbose=0)
    forecasts = network.predict(test.inputs, batch_size=len(origins), verbose=0)
    return forecasts[:, :, 0], network.count_params()


def naive(series, origins, season) -> np.ndarray:
    return np.stack([seasonal_naive(series[:o], HORIZON, season, QUANTILES) for o in origins])


def ets(series, origins, season) -> np.ndarray:
    """Exponential smoothing of the kind with the least AICc, and its prediction intervals."""
    kinds = [
        {"trend": trend, "damped_trend": damped, "seasonal": seasonal}
        for trend, damped in ((None, False), ("add", False), ("add", True))
        for seasonal in (None, "add")
    ]

    def model(kind, end):
        period = season if kind["seasonal"] else None
        return ETSModel(pandas.Series(series[:end]), seasonal_periods=period, **kind)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [(kind, model(kind, origins[0]).fit(disp=False)) for kind in kinds]
    kind, best = min(fits, key=lambda pair: pair[1].aicc)
    forecasts = []
    for origin in origins:
        result = model(kind, origin).smooth(best.params)
        prediction = result.get_prediction(start=origin, end=origin + HORIZON - 1)
        columns = {0.5: prediction.predicted_mean}
        for level in (q for q in QUANTILES if q < 0.5):
            low, high = prediction.pred_int(alpha=2 * level).to_numpy().T
            columns[level], columns[1 - level] = low, high
        forecasts.append([columns[0.5], *(columns[level] for level in QUANTILES)])
    return np.transpose(forecasts, (0, 2, 1))


BASELINES = {"seasonal naive": naive, "ETS": ets}
MODELS = (*BASELINES, "LSTM", "LSTM + linear", "Forecaster")


def scores(series, origins, season, forecasts, point=MEDIAN) -> tuple[float, float, float]:
    """MASE of one column, scaled pinball loss, and the share of targets in the middle 80 %."""
    targets = windows_at(series, origins, history_length=1, horizon=HORIZON).targets[..., 0]
    history = series[: origins[0]]
    return (
        mase(targets, forecasts[..., point], history, season),
        scaled_pinball(targets, forecasts[..., 1:], QUANTILES, history, season),
        interval_coverage(targets, forecasts[..., 1], forecasts[..., -1]),
    )


def tune(options) -> None:
    """Prints the validation scores of the whole grid, the best first."""
    for name in options.series:
        series = load(name)
        series = series[: int(0.8 * len(series))]
        origins = rolling_origins(len(series), HORIZON, first=int(0.75 * len(series)))
        for model in ("Forecaster", "LSTM"):
            errors = []
            for settings in GRID:
                runs = [
                    neural(model, series, origins, settings, seed)[0]
                    for seed in range(options.seeds)
                ]
                error = np.mean([scores(series, origins, SEASONS[name], run)[0] for run in runs])
                errors.append((error, settings))
            for error, settings in sorted(errors, key=lambda pair: pair[0]):
                print(f"{name} {model} {settings} MASE {error:.3f}", flush=True)


def evaluate(options) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Prints the table of the test part; the last model's origins and forecasts of each series."""
    print("| series | model | parameters | MASE | pinball | in the middle 80 % |")
    print("|---|---|---|---|---|---|")
    drawn = {}
    for name in options.series:
        series, season = load(name), SEASONS[name]
        origins = rolling_origins(len(series), HORIZON, first=int(0.8 * len(series)))
        origins, runs = origins[: options.origins], []
        for model in options.models:
            if model in BASELINES:
                # The repeated season and the mean, which for ETS is the median, too.
                point, runs = 0, [(BASELINES[model](series, origins, season), "")]
            else:
                chosen = CHOSEN[model.removesuffix(" + linear"), name]
                settings = {key: getattr(options, key) or value for key, value in chosen.items()}
                point, runs = MEDIAN, []
                for seed in range(options.seeds):
                    runs.append(neural(model, series, origins, settings, seed))
            rows = np.array([scores(series, origins, season, run, point) for run, _ in runs])
            (error, pinball, inside), spread = rows.mean(axis=0), rows[:, 0].std()
            error = f"{error:.3f} ± {spread:.3f}" if len(runs) > 1 else f"{error:.3f}"
            size = runs[0][1]
            row = f"| {name} | {model} | {size} | {error} | {pinball:.3f} | {inside:.0%} |"
            print(row, flush=True)
        drawn[name] = origins, runs[0][0]
    return drawn


def draw(drawn):
    """A figure of every twelfth forecast of each series: medians, bands, and what came."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6 * len(drawn)), layout="constrained")
    for axes, (name, (origins, forecasts)) in zip(
        np.atleast_1d(figure.subplots(len(drawn))), drawn.items(), strict=True
    ):
        first = origins[0] - 2 * HORIZON
        series = load(name)[first : origins[-1] + HORIZON]
        axes.plot(np.arange(len(series)) + first, series, color=INK, lw=1.2)
        for i in range(0, len(origins), HORIZON):
            steps = origins[i] + np.arange(HORIZON)
            for low, alpha in ((1, 0.15), (2, 0.25)):
                band = forecasts[i, :, low], forecasts[i, :, -low]
                axes.fill_between(steps, *band, color=ACCENT, alpha=alpha, lw=0)
            axes.plot(steps, forecasts[i, :, MEDIAN], color=ACCENT, lw=1.2)
        axes.axvline(origins[0] - 0.5, color=FAINT, lw=0.8, linestyle="--")
        axes.set(title=name, xlabel="step", xlim=(first, origins[-1] + HORIZON))
    return figure


def main():
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--series", nargs="+", choices=SEASONS, default=list(SEASONS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each neural model")
    parser.add_argument("--history-length", type=int, help="instead of the chosen ones")
    parser.add_argument("--learning-rate", type=float, help="instead of the chosen ones")
    parser.add_argument("--updates", type=int, help="of each training, instead of the chosen ones")
    parser.add_argument("--origins", type=int, help="only the first so many forecasts")
    parser.add_argument("--tune", action="store_true", help="score the grid on validation instead")
    parser.add_argument("--plot", help="file for a picture of the last model's forecasts")
    options = parser.parse_args()
    if options.tune:
        return tune(options)
    drawn = evaluate(options)
    if options.plot:
        draw(drawn).savefig(options.plot)


if __name__ == "__main__":
    main()
