import os
import resource
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import LanguageModel, MaskedCrossentropy, TokenLogs, Transformer
from keras_transformer.data.epochs import epochs_stream
from keras_transformer.files import read_json
from keras_transformer.training import checkpoints
from keras_transformer.training.checkpoints import (
    CheckpointError,
    TrainingCheckpoint,
    read_history,
)
from keras_transformer.training.distribution import strategy_scope
from keras_transformer.training.epoch_weights import EpochWeights, average_weights


def make(d_model=8, strategy="none", dtype="float32"):
    keras.utils.set_random_seed(1)
    size = {"num_layers": 1, "d_model": d_model, "num_heads": 2, "d_ff": 16, "dropout": 0.3}
    with strategy_scope(strategy):
        model = Transformer(**size, source_vocab_size=12, dtype=dtype)
        # Eagerly, since a graph takes longer to build than these steps take.
        model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy(0.1), run_eagerly=True)
    return model


def make_mirrored():
    return make(strategy="mirrored")


IDS = np.random.default_rng(0).integers(4, 12, (4, 5)).astype("int32")


def fit(model, epochs, callbacks, initial_epoch=0):
    model.fit(
        (IDS, IDS),
        IDS,
        batch_size=2,
        shuffle=False,
        initial_epoch=initial_epoch,
        epochs=epochs,
        callbacks=callbacks,
        verbose=0,
    )
    return model.get_weights()


# float16 has a scale of its loss to go on with, a strategy its own places for variables.
@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy, dtype",
    [
        ("none", "float32"),
        pytest.param("none", "mixed_float16", marks=pytest.mark.slow),
        pytest.param("mirrored", "float32", marks=pytest.mark.slow),
    ],
)
def test_a_run_in_two_pieces_ends_with_the_weights_of_one_bit_for_bit(tmp_path, strategy, dtype):
    whole = fit(make(strategy=strategy, dtype=dtype), 4, [])
    fit(make(strategy=strategy, dtype=dtype), 2, [TrainingCheckpoint(tmp_path)])
    model, checkpoint = make(strategy=strategy, dtype=dtype), TrainingCheckpoint(tmp_path)
    first = checkpoint.restore(model)
    assert first == 2
    pieces = fit(model, 4, [checkpoint], initial_epoch=first)
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(read_history(tmp_path)) == 4


@pytest.mark.slow
def test_a_damaged_state_falls_back_to_the_one_before(tmp_path):
    checkpoint = TrainingCheckpoint(tmp_path)
    fit(make(), 3, [checkpoint])
    older, newest = checkpoint.paths()
    content = newest.read_bytes()
    for damaged in (b"", content[: len(content) // 2], content[:-1]):
        newest.write_bytes(damaged)
        with pytest.warns(UserWarning, match="going on from .*state-00002.npz, since state-00003"):
            assert TrainingCheckpoint(tmp_path).restore(make()) == 2
    older.unlink()
    with pytest.raises(CheckpointError, match=r"no state .*state-00003.npz: .*train it again"):
        TrainingCheckpoint(tmp_path).restore(make())


@pytest.mark.slow
def test_a_state_leaves_the_optimizer_as_it_is(tmp_path):
    model = make(dtype="mixed_float16")
    fit(model, 1, [])
    model.optimizer.dynamic_scale.assign(1024.0)
    checkpoint = TrainingCheckpoint(tmp_path)
    checkpoint.set_model(model)
    checkpoint.on_epoch_end(0)
    assert float(model.optimizer.dynamic_scale) == 1024.0
    other = make(dtype="mixed_float16")
    checkpoint.restore(other)
    assert float(other.optimizer.dynamic_scale) == 1024.0


def test_a_state_of_another_model_is_refused(tmp_path):
    fit(make(), 1, [TrainingCheckpoint(tmp_path)])
    with pytest.raises(CheckpointError, match="belongs to another model or optimizer; use that"):
        TrainingCheckpoint(tmp_path).restore(make(d_model=4))


@pytest.mark.slow
def test_the_states_of_another_run_are_not_touched(tmp_path):
    fit(make(), 2, [TrainingCheckpoint(tmp_path), EpochWeights(tmp_path)])
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2 + 2 + 1
    with pytest.raises(
        CheckpointError, match=r"states of another run, such as state-00002.npz; call re"
    ):
        fit(make(), 1, [TrainingCheckpoint(tmp_path)])
    with pytest.raises(CheckpointError, match=r"weights of another run, such as epoch-00002.weigh"):
        fit(make(), 1, [EpochWeights(tmp_path)])
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.slow
def test_a_state_of_bfloat16_is_restored(tmp_path):
    weights = fit(make(dtype="bfloat16"), 1, [TrainingCheckpoint(tmp_path)])
    model = make(dtype="bfloat16")
    TrainingCheckpoint(tmp_path).restore(model)
    for weight, restored in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight.astype("float32"), restored.astype("float32"))


def test_a_directory_without_states_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="there is none"):
        TrainingCheckpoint(tmp_path / "missing").restore(make())


@pytest.mark.slow
def test_a_state_that_cannot_be_written_ends_the_training_and_never_appears(tmp_path, monkeypatch):
    checkpoint, model = TrainingCheckpoint(tmp_path), make()
    fit(model, 1, [checkpoint])
    states = tmp_path / "state-00001.npz", tmp_path / "state-00002.npz"

    def fails(*_, **options):
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fails)
    with pytest.raises(OSError, match=r"state-00002\.npz could not be written \(disk full\)"):
        fit(model, 3, [checkpoint], initial_epoch=1)  # the next save raises it
    assert list(tmp_path.iterdir()) == [states[0]]
    checkpoint = TrainingCheckpoint(tmp_path)
    assert checkpoint.restore(model) == 1
    with pytest.raises(OSError, match=r"state-00002\.npz could not be written"):
        fit(model, 2, [checkpoint], initial_epoch=1)  # the end raises it
    monkeypatch.undo()
    assert TrainingCheckpoint(tmp_path).restore(model) == 1


def test_a_state_is_written_beside_the_training_from_copies(tmp_path, monkeypatch):
    model, checkpoint, goes_on = make(), TrainingCheckpoint(tmp_path), threading.Event()
    fit(model, 1, [])
    before, write = model.get_weights(), checkpoints.write_state

    def write_later(*arguments):
        assert goes_on.wait(60)
        write(*arguments)

    monkeypatch.setattr(checkpoints, "write_state", write_later)
    checkpoint.set_model(model)
    checkpoint.on_epoch_end(0, {"loss": 1.0})
    model.set_weights([0 * weight for weight in before])  # while the state is not yet written
    assert not checkpoint.paths()
    goes_on.set()
    assert checkpoint.restore(model) == 1  # waits
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


# Within an epoch


class Epochs:
    """Three batches an epoch, others in every epoch."""

    num_batches = 3

    def epoch(self, index, first_step=0):
        for step in range(first_step, self.num_batches):
            ids = np.random.default_rng((index, step)).integers(4, 12, (2, 5)).astype("int32")
            yield ids, ids


def make_dense():
    """A model whose steps are quick, with seeds of dropout and moments of Adam."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dropout(0.5), keras.layers.Dense(5)])
    model.compile(keras.optimizers.Adam(0.01), "mse", run_eagerly=True)
    return model


def fit_from(checkpoint, model, *callbacks, epochs=2, steps=3):
    """Trains to the end from where a checkpoint stands, an epoch after so many steps."""
    place = divmod(checkpoint.total_steps, Epochs.num_batches)
    begun = checkpoint.total_steps - checkpoint.step
    left = -(-((checkpoint.max_steps or epochs * steps) - begun) // steps)
    ids = tf.TensorSpec((2, 5), tf.int32)
    stream = epochs_stream(Epochs(), (ids, ids), *place)
    if isinstance(model, Transformer):
        stream = stream.map(lambda ids, labels: ((ids, ids), labels))
        callbacks = (TokenLogs(), *callbacks)
    model.fit(
        stream,
        initial_epoch=checkpoint.epoch,
        epochs=checkpoint.epoch + left,
        steps_per_epoch=steps,
        callbacks=[*callbacks, checkpoint],
        shuffle=False,
        verbose=0,
    )
    return model.get_weights(), checkpoint.history


class Signal(keras.callbacks.Callback):
    """Asks a checkpoint to save and to exit in a step, counted from 1, or in a validation."""

    def __init__(self, checkpoint, step):
        super().__init__()
        self.checkpoint, self.step = checkpoint, step

    def on_train_batch_begin(self, batch, logs=None):
        if self.checkpoint.total_steps == self.step - 1:
            self.checkpoint.save_and_exit(15)


@pytest.mark.parametrize(
    "model_of, steps, max_steps",
    [
        (make_dense, 2, 5),
        pytest.param(make_dense, 3, None, marks=pytest.mark.slow),
        pytest.param(make, 2, 5, marks=pytest.mark.slow),
        pytest.param(make_mirrored, 2, 5, marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_from_every_step_bit_for_bit(tmp_path, model_of, steps, max_steps):
    checkpoint = TrainingCheckpoint(tmp_path / "whole", max_steps=max_steps)
    weights, history = fit_from(checkpoint, model_of(), steps=steps)
    assert checkpoint.total_steps == (max_steps or 6)
    for step in range(1, checkpoint.total_steps):
        checkpoint = TrainingCheckpoint(tmp_path / str(step), max_steps=max_steps)
        with pytest.raises(SystemExit, match="143"):
            fit_from(checkpoint, model_of(), Signal(checkpoint, step), steps=steps)
        model = model_of()
        checkpoint = TrainingCheckpoint(checkpoint.directory, max_steps=max_steps)
        assert checkpoint.restore(model) == step // steps
        assert (checkpoint.step, checkpoint.total_steps) == (step % steps, step)
        found, logs = fit_from(checkpoint, model, steps=steps)
        for a, b in zip(weights, found, strict=True):
            np.testing.assert_array_equal(a, b)
        assert logs == history


class Batch(SimpleNamespace):
    """A checkpoint of a small model, its clock, and steps that take no time of their own."""

    def step(self, minutes=0.0):
        self.clock.now += 60 * minutes
        self.checkpoint.on_train_batch_end(self.batch)
        self.batch += 1

    def saved(self):
        if self.checkpoint._writing is not None:
            self.checkpoint._writing.result()
        return [path.name[6:-4] for path in self.checkpoint.paths()]


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """begin(**options) begins an epoch of 99 steps, or goes on if there is a state."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(checkpoints, "time", clock)

    def begin(metrics=(), **options):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(), "mse", metrics=list(metrics))
        checkpoint = TrainingCheckpoint(tmp_path, **options)
        checkpoint.set_model(model)
        checkpoint.set_params({"steps": 99, "epochs": 9})
        if checkpoint.paths():
            checkpoint.restore(model)
        checkpoint.on_train_begin()
        checkpoint.on_epoch_begin(0)
        return Batch(checkpoint=checkpoint, clock=clock, batch=0)

    return begin


def test_a_state_is_saved_when_the_last_is_older_and_the_newest_stay(begin):
    run, saved = begin(save_minutes=10), []
    for _ in range(9):
        run.step(minutes=4)
        saved.append(run.saved())
    names = [f"00001-00000000{step}" for step in (3, 6, 9)]
    assert saved == [[]] * 2 + [names[:1]] * 3 + [names[:2]] * 3 + [names[1:]]
    run.checkpoint.on_epoch_end(0, {"loss": 1.0})
    assert run.saved() == [names[2], "00001"]


def test_training_waits_for_copies_a_twentieth_of_its_time_at_most(begin):
    run = begin(save_minutes=1, before_save=lambda: setattr(run.clock, "now", run.clock.now + 30))
    run.step(minutes=1)  # it saves for half a minute
    for minutes in (1, 1, 7.9):
        run.step(minutes)
        assert run.saved() == ["00001-000000001"]
    run.step(minutes=0.2)
    assert run.saved() == ["00001-000000001", "00001-000000005"]


@pytest.mark.parametrize(
    "options, fault",
    [
        ({"keep": 0}, "keep must be an integer of at least 1"),
        ({"save_minutes": -1.0}, "save_minutes must be a number of at least 0, or None"),
        ({"max_steps": 0}, "max_steps must be an integer of at least 1"),
    ],
)
def test_a_checkpoint_checks_its_arguments(options, fault):
    with pytest.raises(ValueError, match=fault):
        TrainingCheckpoint("unused", **options)


def test_steps_that_are_executed_together_must_divide_an_epoch(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2)
    data = np.ones((5, 2)), np.ones((5, 1))
    checkpoint = TrainingCheckpoint(tmp_path)
    with pytest.raises(ValueError, match="steps_per_execution=2 must divide the 5 steps of an"):
        model.fit(*data, batch_size=1, callbacks=[checkpoint], verbose=0)
    model.fit(*data, batch_size=3, epochs=2, callbacks=[checkpoint], verbose=0)
    assert checkpoint.total_steps == int(model.optimizer.iterations) == 4


def test_without_minutes_states_are_saved_after_epochs_alone(begin):
    run = begin()
    run.step(minutes=999)
    assert run.saved() == []


def test_what_a_thread_could_not_write_is_raised_after_the_next_step(begin, monkeypatch):
    run = begin(save_minutes=1)
    monkeypatch.setattr(np.lib.format, "write_array", lambda *_, **__: 1 / 0)
    run.step(minutes=1)
    with pytest.raises(ZeroDivisionError):
        run.saved()
    with pytest.raises(ZeroDivisionError):
        run.step()


def test_weights_that_are_no_numbers_are_not_saved_within_an_epoch(begin):
    run = begin(save_minutes=1)
    run.step(minutes=1)
    run.saved()
    run.checkpoint.model.set_weights([np.array([[1.0], [np.nan]]), np.zeros(1)])
    with pytest.warns(UserWarning, match="00001-000000002.npz was not written: .* NaN or infinity"):
        run.step(minutes=1)
        assert run.saved() == ["00001-000000001"]


def test_damaged_states_are_not_counted_among_those_to_keep(begin):
    run = begin(save_minutes=1, keep=3)
    for _ in range(3):
        run.step(minutes=1)
        run.saved()
    run.checkpoint.paths()[-1].write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="going on from .*2.npz, since state-00001-000000003.npz"):
        again = begin(keep=3)
    assert again.checkpoint.step == 2
    again.checkpoint.on_epoch_end(0)
    assert again.saved() == ["00001-000000001", "00001-000000002", "00001"]


def test_metrics_that_are_not_yet_built_are_said_to_begin_again(begin):
    run = begin(metrics=["mae"], save_minutes=1)
    run.checkpoint.model.train_on_batch(np.zeros((1, 2)), np.zeros((1, 1)))
    run.step(minutes=1)
    run.saved()
    with pytest.warns(UserWarning, match="metrics of this epoch count only the steps from now on"):
        begin(metrics=["mae"])


FORMATS = Path(__file__).parents[1] / "inference" / "formats"


def test_a_state_within_an_epoch_of_format_4_is_restored():
    sizes = {"num_layers": 1, "d_model": 2, "num_heads": 1, "d_ff": 2, "max_length": 16}
    model = LanguageModel(**sizes, vocab_size=266)
    model.compile(keras.optimizers.Adam(0.0), MaskedCrossentropy())
    checkpoint = TrainingCheckpoint(Path(__file__).parent / "format-4")
    assert checkpoint.restore(model) == 1
    assert (checkpoint.step, checkpoint.total_steps, checkpoint.seconds_before) == (3, 8, 60.5)
    for weight in model.get_weights():
        even = np.linspace(-1, 1, weight.size).reshape(weight.shape).astype("float32")
        np.testing.assert_array_equal(weight, even)
    checkpoint.set_model(model)
    checkpoint.on_epoch_begin(1)
    assert float(model.step_metrics.tokens.result()) == 90.0


@pytest.mark.parametrize("number", [2, 3])
def test_the_states_and_epochs_of_every_format_are_read(number):
    directory = FORMATS / str(number) / "checkpoints"
    sizes = {"num_layers": 1, "d_model": 2, "num_heads": 1, "d_ff": 2, "max_length": 16}
    model = LanguageModel(**sizes, vocab_size=266)
    model.compile(keras.optimizers.Adam(0.0), MaskedCrossentropy())
    average_weights(model, [directory / "epoch-00001.weights.h5"])
    first = model.get_weights()
    assert read_history(directory) == [{"loss": 1.5}]
    model.set_weights([0 * weight for weight in first])
    assert TrainingCheckpoint(directory).restore(model) == 1
    for weight, restored in zip(first, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, restored)
        even = np.linspace(-1, 1, weight.size).reshape(weight.shape).astype("float32")
        np.testing.assert_array_equal(weight, even)


def epochs_of(paths):
    return [int(path.name[6:11]) for path in paths]


def test_the_last_and_the_best_weights_stay_and_no_others(tmp_path):
    weights, model = EpochWeights(tmp_path, keep=2), make()
    weights.set_model(model)
    for epoch, bleu in enumerate([9.0, 3.0, 8.0, 1.0, 2.0]):
        weights.on_epoch_end(epoch, {"val_bleu": bleu})
    kept = sorted(tmp_path.glob("epoch-*"))
    assert epochs_of(kept) == [1, 3, 4, 5]
    assert list(read_json(tmp_path / "epochs.json")) == [path.name for path in kept]
    assert epochs_of(weights.last(2)) == [4, 5]
    assert epochs_of(weights.best(2)) == [1, 3]
    # Those after the state of a resumed run are trained again.
    weights.forget_after(3)
    assert epochs_of(sorted(tmp_path.glob("epoch-*"))) == [1, 3]


def test_a_score_that_is_no_number_is_worse_than_any(tmp_path):
    weights, model = EpochWeights(tmp_path, keep=1), make()
    weights.set_model(model)
    for epoch, bleu in enumerate([5.0, float("nan"), 6.0, 4.0]):
        weights.on_epoch_end(epoch, {"val_bleu": bleu})
    assert epochs_of(sorted(tmp_path.glob("epoch-*"))) == [3, 4]
    assert epochs_of(weights.best(4)) == [3, 1, 4, 2]
    with pytest.raises(ValueError, match="keep must be an integer of at least 1, but is 0"):
        EpochWeights(tmp_path, keep=0)


def test_the_average_is_the_mean_of_the_files(tmp_path):
    model, paths, values = make(), [], []
    for i in range(3):
        model.set_weights([w + i**2 for w in model.get_weights()])
        values.append(model.get_weights())
        paths.append(tmp_path / f"{i}.weights.h5")
        model.save_weights(paths[-1])
    average_weights(model, paths)
    for mean, *parts in zip(model.get_weights(), *values, strict=True):
        np.testing.assert_allclose(mean, np.mean(parts, axis=0), atol=1e-6)


def test_nothing_to_average_and_foreign_weights_are_errors(tmp_path):
    with pytest.raises(CheckpointError, match="no weights to average"):
        average_weights(make(), [])
    make(d_model=4).save_weights(tmp_path / "other.weights.h5")
    with pytest.raises(CheckpointError, match="holds no weights of this model"):
        average_weights(make(), [tmp_path / "other.weights.h5"])
    model, other = make(), make()
    other.set_weights([weight + 1 for weight in other.get_weights()])
    other.save_weights(tmp_path / "whole.weights.h5")
    paths = [tmp_path / "whole.weights.h5", tmp_path / "gone.weights.h5"]
    with pytest.raises(CheckpointError, match="gone.weights.h5 is not there; average fewer epochs"):
        average_weights(model, paths)
    for weight, before in zip(model.get_weights(), make().get_weights(), strict=True):
        np.testing.assert_array_equal(weight, before)


@pytest.fixture
def epochs(tmp_path):
    """The weights of an epoch and of no others, and a model that fits."""
    shutil.copytree(FORMATS / "3" / "checkpoints", tmp_path / "checkpoints")
    sizes = {"num_layers": 1, "d_model": 2, "num_heads": 1, "d_ff": 2, "max_length": 16}
    return tmp_path / "checkpoints", LanguageModel(**sizes, vocab_size=266)


def test_damaged_weights_of_an_epoch_are_not_averaged(epochs):
    directory, model = epochs
    path, random = directory / "epoch-00001.weights.h5", np.random.default_rng(0)
    content = path.read_bytes()
    for _ in range(50):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="00001.weights.h5 is not the file that was sav"):
            average_weights(model, [path])
    path.write_bytes(content)
    (directory / "epochs.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"epochs\.json was altered or damaged"):
        average_weights(model, [path])
    weights = EpochWeights(directory)
    weights.replay(0, {})
    with pytest.warns(UserWarning, match=r"cannot be averaged: .*epochs\.json was altered"):
        weights.on_train_begin()


def end_epoch(epoch, model, weights, checkpoint):
    for callback in (weights, checkpoint):
        callback.set_model(model)
        callback.on_epoch_end(epoch, {"loss": 1.0})
    checkpoint.wait()


@pytest.mark.parametrize("dies", [False, True])
def test_a_training_goes_on_whatever_call_of_a_save_fails(tmp_path, monkeypatch, dies, break_at):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD())
    begun = tmp_path / "begun"
    end_epoch(0, model, EpochWeights(begun), TrainingCheckpoint(begun))
    number, ended = 0, False
    while not ended:
        number += 1
        directory = shutil.copytree(begun, tmp_path / str(number))
        weights, checkpoint = EpochWeights(directory), TrainingCheckpoint(directory)
        checkpoint.restore(model)
        weights.replay(0, {})
        weights.on_train_begin()
        break_at(number, dies)
        try:
            end_epoch(1, model, weights, checkpoint)
            ended = True
        except (OSError, SystemExit):
            pass
        monkeypatch.undo()
        finished = TrainingCheckpoint(directory).restore(model)
        assert finished == 2 or not ended
        average_weights(model, sorted(directory.glob("epoch-*"))[:finished])
    assert number > 20


def test_weights_that_cannot_be_written_leave_those_before(epochs):
    directory, model = epochs
    weights, before = EpochWeights(directory), sorted(os.listdir(directory))
    weights.set_model(model)
    weights.replay(0, {})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limit[1]))
    try:
        with pytest.raises(OSError, match=r"epoch-00002\.weights\.h5 could not be written"):
            weights.on_epoch_end(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert sorted(os.listdir(directory)) == before
    average_weights(model, weights.last(2)[:1])


def test_the_weights_of_a_deeper_model_and_nan_are_refused(tmp_path):
    sizes = {"d_model": 4, "num_heads": 2, "d_ff": 4, "vocab_size": 9}
    deep, model = (LanguageModel(num_layers=number, **sizes) for number in (2, 1))
    deep.save_weights(tmp_path / "deep.weights.h5")
    with pytest.raises(CheckpointError, match=r"are \d+ numbers, but the model has \d+"):
        average_weights(model, [tmp_path / "deep.weights.h5"])
    model.weights[0].assign(model.weights[0] * np.nan)
    model.save_weights(tmp_path / "nan.weights.h5")
    with pytest.raises(CheckpointError, match="holds NaN or infinity"):
        average_weights(model, [tmp_path / "nan.weights.h5"])
