import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_transformer.visualization import FigureMonitor
from keras_transformer.visualization.figures import as_png, new_figure

pytest.importorskip("matplotlib", reason="needs the extra [plots]")


def test_figures_are_images_of_their_epoch(tmp_path):
    drawn = []

    def draw():
        drawn.append(new_figure(2, 1))
        drawn[-1].suptitle(f"number {len(drawn)}")
        return {"pictures/one": drawn[-1]}

    monitor = FigureMonitor(tmp_path, draw, at_start=lambda: {"start": new_figure(1, 1)}, dpi=40)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.ones((2, 1))
    model.fit(x, x, epochs=2, callbacks=[monitor], verbose=0)

    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert [event.step for event in accumulator.Tensors("start")] == [0]
    events = accumulator.Tensors("pictures/one")
    assert [event.step for event in events] == [1, 2]
    for event, figure in zip(events, drawn, strict=True):
        width, height, png = event.tensor_proto.string_val
        assert (width, height) == (b"80", b"40")
        expected = tf.io.decode_png(as_png(figure, 40), channels=3)
        np.testing.assert_array_equal(tf.io.decode_png(png), expected)
    shown = [event.tensor_proto.string_val[2] for event in events]
    assert shown[0] != shown[1]
