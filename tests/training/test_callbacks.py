from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_transformer.training import callbacks as module
from keras_transformer.training.callbacks import (
    KeepBest,
    TimeLimit,
    TokensPerSecond,
    TranslationMonitor,
    samples_table,
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until `clock.now` is moved."""
    clock = SimpleNamespace(now=1000.0)
    clock.perf_counter = clock.monotonic = lambda: clock.now
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


def events(folder):
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(event.step, event.tensor_proto) for event in accumulator.Tensors(tag)]
        for tag in accumulator.Tags()["tensors"]
    }


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


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras
def test_tensorboard_shows_speed_bleu_and_readable_translations_of_every_epoch(tmp_path):
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
        ("max", [3.0, 5.0, 4.0, 5.0, 6.0], [0, 1, 4]),
        ("min", [3.0, 5.0, 2.0, 2.0, 1.0], [0, 2, 4]),
        ("max", [0.0, -1.0, 0.5], [0, 2]),
        ("max", [None, None, None], [0, 1, 2]),
        ("max", [None, 3.0, 2.0], [0, 1]),
        ("max", [3.0, None, 2.0, 1.0], [0, 1, 2]),
    ],
)
def test_an_epoch_is_saved_if_it_is_the_best_so_far_or_nothing_is_known(mode, values, expected):
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


@pytest.mark.parametrize(("minutes", "epochs"), [(0, 1), (1e9, 3)])
def test_at_least_one_epoch_is_trained_and_at_most_all(minutes, epochs):
    assert len(fit([TimeLimit(minutes)], epochs=3)["loss"]) == epochs
