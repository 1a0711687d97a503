import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import MaskedCrossentropy, Transformer
from keras_transformer.event_file import EventFile
from keras_transformer.training.tensorboard import (
    AttentionMonitor,
    TensorBoardMonitor,
    read_curve,
    scores_image,
    write_projector,
)

IDS = np.random.default_rng(0).integers(4, 12, (4, 5)).astype("int32")


def make():
    keras.utils.set_random_seed(1)
    model = Transformer(num_layers=1, d_model=8, num_heads=2, d_ff=16, source_vocab_size=12)
    # Eagerly, since a graph takes longer to build than these steps take.
    model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy(), run_eagerly=True)
    return model


def fit(model, callbacks, epochs=1, initial_epoch=0, **kwargs):
    model.fit(
        (IDS, IDS),
        IDS,
        **kwargs,
        batch_size=2,
        epochs=epochs,
        initial_epoch=initial_epoch,
        callbacks=callbacks,
        verbose=0,
    )


@pytest.mark.slow
def test_steps_and_epochs_go_on_over_a_second_fit(tmp_path, events):
    model = make()
    fit(model, [TensorBoardMonitor(tmp_path, settings={"dropout": 0.1})])
    fit(model, [TensorBoardMonitor(tmp_path)], epochs=3, initial_epoch=1)
    curves = events(tmp_path / "train")
    for name in ("loss", "learning_rate", "gradient_norm", "tokens_per_second"):
        assert [step for step, _ in curves[f"step_{name}"]] == [1, 2, 3, 4, 5, 6]
        assert all(tf.make_ndarray(value) > 0 for _, value in curves[f"step_{name}"])
    assert [step for step, _ in curves["epoch_loss"]] == [1, 2, 3]
    assert any("hparams" in tag for tag in curves)


def log(monitor, steps, epochs):
    """Logs steps and epochs as in a start of a training, in files of its own."""
    monitor.files = {"train": EventFile(monitor.log_dir / "train")}
    for name, values in (("step_loss", steps), ("epoch_loss", epochs)):
        for value in values:
            monitor._write("train", {name: value}, value)
    monitor.files["train"].close()


def test_what_is_trained_again_is_logged_once(tmp_path, events):
    monitor = TensorBoardMonitor(tmp_path)
    log(monitor, range(1, 8), [1, 2])
    (first,) = (tmp_path / "train").iterdir()
    monitor.forget_after(7, 2)  # nothing is after it
    before = first.read_bytes()
    monitor.forget_after(5, 1)
    assert len(first.read_bytes()) < len(before)
    log(monitor, [6, 7, 8], [2])
    first = first.rename(tmp_path / "train" / "events.out.tfevents.0000000001.first")
    content = first.read_bytes()
    first.write_bytes(content + b"half an event")
    monitor.forget_after(6, 1)  # only the newest file has something after it
    monitor.forget_after(6, 1)
    assert first.read_bytes() == content + b"half an event"
    log(monitor, [7, 8, 9], [2])
    curves = events(tmp_path / "train")
    for name, last in (("step_loss", 9), ("epoch_loss", 2)):
        points = [(step, float(tf.make_ndarray(value))) for step, value in curves[name]]
        assert sorted(points) == [(i, float(i)) for i in range(1, last + 1)]


@pytest.mark.slow
def test_a_step_shows_its_own_loss_and_not_the_mean_of_the_epoch(tmp_path, events):
    model = make()
    fit(model, [TensorBoardMonitor(tmp_path)])
    curves = events(tmp_path / "train")
    losses = [float(tf.make_ndarray(value)) for _, value in curves["step_loss"]]
    assert np.mean(losses) == pytest.approx(
        float(tf.make_ndarray(curves["epoch_loss"][0][1])), rel=1e-4
    )
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_a_validation_has_the_names_of_training_beside_it(tmp_path, events):
    fit(make(), [TensorBoardMonitor(tmp_path)], validation_data=((IDS, IDS), IDS))
    assert {"epoch_loss", "epoch_learning_rate"} <= set(events(tmp_path / "train"))
    assert set(events(tmp_path / "validation")) == {"epoch_loss"}


@pytest.mark.slow
def test_a_curve_is_read_back_over_a_resumed_run(tmp_path):
    model = make()
    assert read_curve(tmp_path / "train", "step_learning_rate") is None
    fit(model, [TensorBoardMonitor(tmp_path)])
    model.optimizer.learning_rate = 0.5
    fit(model, [TensorBoardMonitor(tmp_path)])
    steps, rates = read_curve(tmp_path / "train", "step_learning_rate")
    np.testing.assert_array_equal(steps, [1, 2, 3, 4])
    np.testing.assert_allclose(rates, [0.01, 0.01, 0.5, 0.5])
    assert read_curve(tmp_path / "train", "another") is None


@pytest.mark.slow
def test_a_profile_of_the_steps_asked_for_is_written(tmp_path):
    fit(make(), [TensorBoardMonitor(tmp_path, profile_steps=(1, 2))])
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.slow
def test_a_training_that_ends_before_its_profile_says_so(tmp_path):
    with pytest.warns(UserWarning, match="profile_steps begin at 9, but training ended after 2"):
        fit(make(), [TensorBoardMonitor(tmp_path, profile_steps=(9, 12))])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (5, "profile_steps must be a pair, the first and the last step, but is 5"),
        ((1, 2, 3), "profile_steps must be a pair"),
        ((0, 2), r"profile_steps\[0\] must be an integer of at least 1, but is 0"),
        ((5, 2), r"profile_steps\[1\] must be an integer of at least 5, but is 2"),
    ],
)
def test_steps_to_profile_are_two_in_order(tmp_path, steps, message):
    with pytest.raises(ValueError, match=message):
        TensorBoardMonitor(tmp_path, profile_steps=steps)


@pytest.mark.slow
def test_the_picture_shows_the_attention_scores(tmp_path, events):
    model = make()
    pair = IDS[:1, :3], IDS[:1, :2]
    fit(model, [AttentionMonitor(model.cross_attention_scores, [pair], tmp_path, cell=4)])
    (step, proto), *_ = events(tmp_path)["attention/0"]
    width, height, png = proto.string_val
    assert (step, width, height) == (1, b"12", b"8")
    shown = tf.io.decode_png(png).numpy()[::4, ::4, 0] / 255
    scores = keras.ops.convert_to_numpy(model.cross_attention_scores(pair))[0]
    np.testing.assert_allclose(shown, scores, atol=1 / 128)


def test_a_score_is_a_square_of_its_brightness():
    picture = tf.io.decode_png(scores_image([[0.0, 1.0]], 3), channels=1).numpy()
    assert picture.shape == (3, 6, 1)
    assert picture[:, :3].max() == 0 and picture[:, 3:].min() == 255


def test_the_projector_finds_as_many_labels_as_vectors(tmp_path):
    embeddings = np.random.default_rng(0).normal(size=(4, 3))
    write_projector(tmp_path, embeddings, ["<pad>", "\t", "a\nb", ""])
    config = (tmp_path / "projector_config.pbtxt").read_text("utf-8")
    from google.protobuf import text_format
    from tensorboard.plugins.projector import projector_config_pb2

    parsed = text_format.Parse(config, projector_config_pb2.ProjectorConfig())
    (embedding,) = parsed.embeddings
    vectors = np.loadtxt(tmp_path / embedding.tensor_path, delimiter="\t")
    np.testing.assert_allclose(vectors, embeddings, rtol=1e-4)
    assert len((tmp_path / embedding.metadata_path).read_text("utf-8").splitlines()) == 4
