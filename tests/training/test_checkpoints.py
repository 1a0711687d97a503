import keras
import numpy as np
import pytest

from keras_transformer import MaskedCrossentropy, Transformer
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
    with pytest.raises(
        CheckpointError, match=r"states of another run, such as state-00002.npz; re"
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


def test_a_state_cut_short_while_it_is_written_never_appears(tmp_path, monkeypatch):
    checkpoint = TrainingCheckpoint(tmp_path)
    fit(make(), 1, [checkpoint])

    def fails(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fails)
    with pytest.raises(OSError, match="disk full"):
        fit(make(), 2, [checkpoint], initial_epoch=1)
    assert [path.name for path in tmp_path.iterdir()] == ["state-00001.npz"]


def epochs_of(paths):
    return [int(path.name[6:11]) for path in paths]


def test_the_last_and_the_best_weights_stay_and_no_others(tmp_path):
    weights, model = EpochWeights(tmp_path, keep=2), make()
    weights.set_model(model)
    for epoch, bleu in enumerate([9.0, 3.0, 8.0, 1.0, 2.0]):
        weights.on_epoch_end(epoch, {"val_bleu": bleu})
    assert epochs_of(sorted(tmp_path.iterdir())) == [1, 3, 4, 5]
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
