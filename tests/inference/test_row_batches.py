import pytest
import tensorflow as tf

from keras_transformer.inference.text_search import in_batches


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_every_row_is_answered_in_its_place(size):
    values = tf.constant([[3, 1], [4, 1], [5, 9], [2, 6]])
    order = tf.constant([2, 0, 3, 1])
    (filled,) = in_batches(
        lambda rows: (tf.gather(values, rows)[:, :1],), order, size, (tf.zeros_like(values),)
    )
    assert filled.numpy().tolist() == [[3, 0], [4, 0], [5, 0], [2, 0]]


def test_the_first_of_some_rows_may_say_how_many_they_are():
    lengths, taken = tf.constant([9, 5, 4, 2, 2, 2, 1]), []

    def note(rows):
        taken.append(rows.numpy().tolist())
        return (tf.ones(tf.shape(rows)),)

    (filled,) = in_batches(note, tf.range(7), lambda row: 10 // lengths[row], (tf.zeros(7),))
    assert taken == [[0], [1, 2], [3, 4, 5, 6]]
    assert filled.numpy().tolist() == [1.0] * 7
