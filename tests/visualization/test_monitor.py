import keras
import numpy as np
import tensorflow as tf

from keras_transformer.visualization import FigureMonitor
from keras_transformer.visualization.figures import as_png, new_figure


def test_figures_are_images_of_their_epoch(tmp_path, events):
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

    logged = events(tmp_path)
    assert [step for step, _ in logged["start"]] == [0]
    steps, pictures = zip(*logged["pictures/one"], strict=True)
    assert steps == (1, 2)
    for picture, figure in zip(pictures, drawn, strict=True):
        width, height, png = picture.string_val
        assert (width, height) == (b"80", b"40")
        expected = tf.io.decode_png(as_png(figure, 40), channels=3)
        np.testing.assert_array_equal(tf.io.decode_png(png, channels=3), expected)
    assert pictures[0].string_val[2] != pictures[1].string_val[2]
