from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import LanguageModel, MaskedCrossentropy
from keras_transformer.training import callbacks as measuring
from keras_transformer.training import stopping
from keras_transformer.training.callbacks import (
    DelayRDrop,
    KeepBest,
    TokenLogs,
    TokensPerSecond,
    UseAverage,
)
from keras_transformer.training.stopping import StopEarly, StopOnNaN, TimeLimit
from keras_transformer.training.translation_monitor import TranslationMonitor, samples_table


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until `clock.now` is moved."""
    clock = SimpleNamespace(now=1000.0)
    clock.perf_counter = clock.monotonic = lambda: clock.now
    for module in (measuring, stopping):
        monkeypatch.setattr(module, "time", clock)
    return clock


def at(clock, seconds, **hooks):
    """A callback that moves the clock by `seconds` at each of the hooks with a true value."""
    move = lambda *args, **kwargs: setattr(clock, "now", clock.now + seconds)  # noqa: E731
    return keras.callbacks.LambdaCallback(**{name: move for name, on in hooks.items() if on})


def fit(callbacks, epochs=1, validate=False):
    """Three steps an epoch of a model of one weight; the history."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    data = np.ones((3, 1)), np.ones((3, 1))
    validation_data = data if validate else None
    history = model.fit(
        *data,
        batch_size=1,
        epochs=epochs,
        validation_data=validation_data,
        callbacks=callbacks,
        verbose=0,
    )
    return history.history


# Tokens a second


def test_tokens_per_second_are_the_epochs_tokens_over_its_training_time(clock):
    step = at(clock, 2.0, on_train_batch_begin=True)
    history = fit([step, TokensPerSecond(lambda: 300)], epochs=2)
    assert history["tokens_per_second"] == [50.0, 50.0]  # 300 in 3 steps of 2 s


def test_of_an_epoch_that_is_cut_short_its_steps_are_counted(clock):
    step = at(clock, 2.0, on_train_batch_begin=True)
    stop = keras.callbacks.LambdaCallback()
    stop.on_train_batch_end = lambda *_, **__: setattr(stop.model, "stop_training", True)
    history = fit([step, stop, TokensPerSecond(lambda: 300)], epochs=2)
    assert history["tokens_per_second"] == [50.0]  # 100 in a step of 2 s


def test_steps_that_are_executed_together_are_counted_once(clock):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse", steps_per_execution=2)
    callbacks = [at(clock, 2.0, on_train_batch_begin=True), TokensPerSecond(lambda: 300)]
    data = np.ones((3, 1)), np.ones((3, 1))
    history = model.fit(*data, batch_size=1, callbacks=callbacks, verbose=0).history
    assert history["tokens_per_second"] == [75.0]  # 300 in 2 executions of 2 s


def test_validation_is_not_training_time(clock):
    step = at(clock, 1.0, on_train_batch_begin=True)
    validation = at(clock, 100.0, on_test_begin=True)
    history = fit([step, validation, TokensPerSecond(lambda: 300)], epochs=2, validate=True)
    assert history["tokens_per_second"] == [100.0, 100.0]


# Translations

SOURCES, REFERENCES = ["a dog", "a | b", "two\nlines"], ["Hund", "a oder b", "zwei"]


def monitor(log_dir=None, scores=(12.5, 50.0), **kwargs):
    scores = iter(scores)
    return TranslationMonitor(
        lambda texts: [text.upper() for text in texts],
        lambda translations, references: {"bleu": next(scores)},
        SOURCES,
        REFERENCES,
        log_dir=log_dir,
        **kwargs,
    )


def test_bleu_is_that_of_the_translations_of_the_sources():
    seen = []

    def bleu(translations, references):
        seen.append((translations, references))
        return {"bleu": 7.0}

    callback = TranslationMonitor(
        lambda texts: [text + "!" for text in texts], bleu, ("a", "b"), ("c", "d")
    )
    assert fit([callback], epochs=2)["val_bleu"] == [7.0, 7.0]
    assert seen == [(["a!", "b!"], ["c", "d"])] * 2


def test_a_second_fit_goes_on_showing_translations(tmp_path, events):
    callback = monitor(tmp_path)
    fit([callback], epochs=1)
    fit([callback], epochs=1)
    assert [step for step, _ in events(tmp_path)["translations"]] == [1, 1]


def test_token_logs_needs_the_step_that_knows_of_tokens():
    with pytest.raises(ValueError, match="TokenLogs needs a Transformer .* leave it out, or give"):
        fit([TokenLogs()])
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    with pytest.raises(ValueError, match="TokenLogs needs a Transformer"):
        model.evaluate(np.ones((1, 1)), np.ones((1, 1)), callbacks=[TokenLogs()], verbose=0)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras
def test_tensorboard_shows_speed_bleu_and_readable_translations_of_every_epoch(tmp_path, events):
    samples = monitor(tmp_path / "samples", num_samples=2)
    fit([TokensPerSecond(lambda: 9), samples, keras.callbacks.TensorBoard(str(tmp_path))], epochs=2)
    training = events(tmp_path / "train")
    assert {"epoch_loss", "epoch_learning_rate", "epoch_tokens_per_second"} <= set(training)
    scalars = events(tmp_path / "validation")["epoch_bleu"]
    assert [(step, float(tf.make_ndarray(proto))) for step, proto in scalars] == [
        (0, 12.5),
        (1, 50.0),
    ]
    texts = events(tmp_path / "samples")["translations"]
    assert [step for step, _ in texts] == [1, 2]
    assert texts[0][1].string_val[0].decode().split("\n") == [
        "| source | translation | reference |",
        "| --- | --- | --- |",
        "| a dog | A DOG | Hund |",
        r"| a \| b | A \| B | a oder b |",
    ]


def test_without_a_log_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit([monitor()])
    assert not list(tmp_path.iterdir())


def test_a_sample_stays_in_its_row_and_cell():
    rows = samples_table([("a|b\nc", "d", "e")]).split("\n")[2:]
    assert rows == [r"| a\|b c | d | e |"]


# The best


def saved_epochs(values, **kwargs):
    """The epochs KeepBest saves when it sees these values of `val_bleu`; None is missing."""
    saved = []
    callback = KeepBest(lambda: saved.append(epoch), **kwargs)
    for epoch, value in enumerate(values):  # noqa: B007 (the lambda reads it)
        callback.on_epoch_end(epoch, {} if value is None else {"val_bleu": value})
    return saved


@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        ("max", [3.0, 5.0, 4.0, 5.0, 6.0], [0, 1, 3, 4]),
        ("min", [3.0, 5.0, 2.0, 2.0, 1.0], [0, 2, 3, 4]),
        ("max", [0.0, -1.0, 0.5], [0, 2]),
        ("max", [0.0, 0.0, 0.0], [0, 1, 2]),
        ("max", [None, None, None], [0, 1, 2]),
        ("max", [None, 3.0, 2.0], [0, 1]),
        ("max", [3.0, None, 2.0, None, 4.0], [0, 4]),
    ],
)
def test_an_epoch_is_saved_if_none_before_it_is_better_or_nothing_is_known(mode, values, expected):
    assert saved_epochs(values, mode=mode) == expected


def test_the_best_is_that_of_the_monitored_entry_of_a_fit():
    losses, saved = [], []
    keep = KeepBest(lambda: saved.append(len(losses)), monitor="loss", mode="min")
    count = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: losses.append(logs))
    assert len(fit([count, keep], epochs=3)["loss"]) == 3
    assert saved == [1, 2, 3]  # a model of one weight learns at every step


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode must be one of 'max', 'min', but is 'best'"):
        KeepBest(print, mode="best")


# The time


def test_training_ends_when_the_next_epoch_would_pass_the_limit(clock):
    epoch = at(clock, 60.0, on_epoch_begin=True)
    history = fit([TimeLimit(2.5), epoch], epochs=9)
    assert len(history["loss"]) == 2


def test_the_limit_counts_what_a_resumed_run_has_had(clock):
    limit = TimeLimit(4.5)
    assert not limit.is_reached
    for _ in range(2):
        limit.replay(0, {"seconds": 60.0})
    assert not limit.is_reached
    limit.in_epoch = 30.0
    epoch = at(clock, 60.0, on_train_begin=False, on_epoch_begin=True)
    # Epochs end after 1, 2, 3.5 (0.5 before the stop) and 4.5 minutes; the next would be too much.
    assert len(fit([limit, epoch], epochs=9)["loss"]) == 1
    limit.replay(0, {"seconds": 90.0})
    assert limit.is_reached


@pytest.mark.parametrize(("minutes", "epochs"), [(0, 1), (1e9, 3)])
def test_at_least_one_epoch_is_trained_and_at_most_all(minutes, epochs):
    assert len(fit([TimeLimit(minutes)], epochs=3)["loss"]) == epochs


# When to stop


@pytest.mark.parametrize(
    ("values", "stops_after"),
    [([1, 2, 3, 4, 5], None), ([3, 2, 1, 9, 9], 3), ([3, 2, 4, 4, 4], 5), ([1, 1, 1, 1, 1], 3)],
)
def test_training_stops_after_so_many_epochs_without_a_new_best(values, stops_after):
    callback = StopEarly(patience=2)
    callback.set_model(SimpleNamespace(stop_training=False))
    for epoch, value in enumerate(values, start=1):
        callback.on_epoch_end(epoch, {"val_bleu": value})
        if callback.model.stop_training:
            assert epoch == stops_after
            return
    assert stops_after is None


@pytest.mark.parametrize("patience", [0, -1, "3"])
def test_patience_is_a_positive_integer(patience):
    with pytest.raises(ValueError, match="patience must be an integer of at least 1"):
        StopEarly(patience)


def test_an_epoch_without_a_number_is_waited_for_and_keeps_the_best():
    callback = StopEarly(patience=9)
    for epoch, value in enumerate([5.0, float("nan"), 4.0]):
        callback.replay(epoch, {"val_bleu": value})
    assert (callback.best, callback.waited) == (5.0, 2)


def test_a_run_that_goes_on_has_waited_as_long_as_before():
    callback = StopEarly(patience=3)
    for epoch, value in enumerate([5.0, 4.0, 3.0]):
        callback.replay(epoch, {"val_bleu": value})
    callback.set_model(SimpleNamespace(stop_training=False))
    callback.on_epoch_end(3, {"val_bleu": 4.5})
    assert callback.model.stop_training


def test_a_loss_that_is_no_number_stops_within_its_step_by_a_clear_error():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    x = np.array([[1.0], [np.nan], [1.0]])
    seen = []
    count = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda b, logs: seen.append(b))
    with pytest.raises(FloatingPointError, match="The loss is nan at step 2, .* untouched. Lower"):
        model.fit(x, x, batch_size=1, shuffle=False, callbacks=[count, StopOnNaN()], verbose=0)
    assert seen == [0, 1]


@pytest.mark.slow
def test_the_moving_average_is_what_callbacks_see_and_training_goes_on_without_it():
    def train(callbacks):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), loss="mse")
        weights = []
        see = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: weights.append(float(model.get_weights()[0][0, 0]))
        )
        model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=3, verbose=0, callbacks=callbacks(see))
        return weights

    average = UseAverage()
    averaged = train(lambda see: [average, see, average.restore])
    trained = train(lambda see: [see])
    mean = None
    for weight, shown in zip(trained, averaged, strict=True):
        mean = weight if mean is None else 0.5 * mean + 0.5 * weight
        assert shown == pytest.approx(mean, rel=1e-5) or mean == weight
    after = train(lambda see: [average, average.restore, see])
    assert after == trained


def test_an_optimizer_without_an_average_has_none_to_use():
    with pytest.raises(ValueError, match="add use_ema=True, or leave the callback out"):
        fit([UseAverage()])


def test_no_number_is_never_the_best():
    saved = []
    callback = KeepBest(lambda: saved.append(epoch))
    for epoch, bleu in enumerate([float("nan"), 3.0, float("nan"), 2.0, 4.0]):
        callback.on_epoch_end(epoch, {"val_bleu": bleu})
    assert saved == [0, 1, 4]


def test_early_stopping_by_what_nobody_logs_is_refused():
    with pytest.raises(
        ValueError, match="StopEarly watches 'val_blue', but the logs have loss, val"
    ):
        StopEarly(2, monitor="val_blue").on_epoch_end(0, {"loss": 1.0, "val_bleu": 2.0})


# R-Drop that begins late

IDS = np.random.default_rng(0).integers(4, 20, (6, 5))


def make_r_drop(r_drop):
    keras.utils.set_random_seed(1)
    model = LanguageModel(num_layers=1, d_model=8, num_heads=2, d_ff=16, vocab_size=20, dropout=0.3)
    compile_with(model, keras.optimizers.Adam(0.01), r_drop)
    return model


def compile_with(model, optimizer, r_drop):
    model.compile(optimizer, MaskedCrossentropy(), r_drop=r_drop, num_shards=1)


def fit_ids(model, epochs, first=0, callbacks=()):
    model.fit(
        IDS,
        IDS,
        batch_size=6,
        initial_epoch=first,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )


def same_weights(model, other):
    pairs = zip(model.get_weights(), other.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_epochs_before_it_are_plain_and_those_after_it_are_not(eager):
    by_hand, delayed = make_r_drop(r_drop=0.0), make_r_drop(r_drop=3.0)
    fit_ids(by_hand, 2)
    compile_with(by_hand, by_hand.optimizer, 3.0)
    fit_ids(by_hand, 4, first=2)
    fit_ids(delayed, 4, callbacks=[DelayRDrop(2)])
    assert same_weights(by_hand, delayed)
    plain = make_r_drop(r_drop=0.0)
    fit_ids(plain, 4)
    assert not same_weights(plain, delayed)


@pytest.mark.slow
def test_a_run_that_goes_on_counts_from_the_first_epoch_of_all():
    whole, parts = make_r_drop(r_drop=3.0), make_r_drop(r_drop=3.0)
    fit_ids(whole, 3, callbacks=[DelayRDrop(2)])
    fit_ids(parts, 1, callbacks=[DelayRDrop(2)])
    assert parts.r_drop == 3.0  # as compiled, also for whoever saves it now
    fit_ids(parts, 3, first=1, callbacks=[DelayRDrop(2)])
    assert same_weights(whole, parts)


class Interrupted(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        config = self.model.get_compile_config()
        assert config["r_drop"] == 3.0  # also for whoever saves the model before R-Drop begins
        raise KeyboardInterrupt


@pytest.mark.slow
def test_a_fit_that_is_interrupted_leaves_r_drop_on():
    model, other = make_r_drop(r_drop=3.0), make_r_drop(r_drop=3.0)
    start = model.get_weights()
    for each, callbacks in ((model, [DelayRDrop(2), Interrupted()]), (other, [Interrupted()])):
        with pytest.raises(KeyboardInterrupt):
            fit_ids(each, 1, callbacks=callbacks)
        each.set_weights(start)
    losses = [float(each.train_on_batch(IDS, IDS)) for each in (model, other)]
    assert not model.r_drop_paused and losses[0] == losses[1]


def test_a_model_without_r_drop_has_nothing_to_delay():
    with pytest.raises(ValueError, match=r"DelayRDrop\(2\) has nothing to delay.* add r_drop=5"):
        fit_ids(make_r_drop(r_drop=0.0), 1, callbacks=[DelayRDrop(2)])


@pytest.mark.parametrize("epochs", [0, -1, 1.5])
def test_epochs_are_a_positive_integer(epochs):
    with pytest.raises(ValueError, match="epochs must be an integer of at least 1"):
        DelayRDrop(epochs)
