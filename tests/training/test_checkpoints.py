import os
import resource
import shutil
import threading
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, MaskedCrossentropy, Transformer
from keras_transformer.files import read_json
from keras_transformer.training import checkpoints
from keras_transformer.training.checkpoints import (
    CheckpointError,
    EpochWeights,
    TrainingCheckpoint,
    average_weights,
    read_history,
)
from keras_transformer.training.distribution import strategy_scope


def make(d_model=8, strategy="none", dtype="float32"):
    keras.utils.set_random_seed(1)
    size = {"num_layers": 1, "d_model": d_model, "num_heads": 2, "d_ff": 16, "dropout": 0.3}
    with strategy_scope(strategy):
        model = Transformer(**size, source_vocab_size=12, dtype=dtype)
        # Eagerly, since a graph takes longer to build than these steps take.
        model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy(0.1), run_eagerly=True)
    return model


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


FORMATS = Path(__file__).parents[1] / "inference" / "formats"


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
    with pytest.raises(CheckpointError, match="gone.weights.h5 is not there; average fewer epochs"):
        average_weights(make(), [tmp_path / "gone.weights.h5"])


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
