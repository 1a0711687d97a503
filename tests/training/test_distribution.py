import keras
import pytest
import tensorflow as tf

from keras_transformer import MaskedCrossentropy, TokenBatches, Tokenizer, Transformer
from keras_transformer.training.distribution import (
    logs_for_fit,
    replicas,
    strategy_scope,
    sum_over_replicas,
)


def test_without_a_strategy_nothing_changes():
    with strategy_scope("none"):
        assert not tf.distribute.has_strategy()
    assert replicas() == 1
    assert sum_over_replicas(3) == 3


def test_mirrored_is_a_mirrored_strategy_over_all_devices():
    with strategy_scope("mirrored"):
        strategy = tf.distribute.get_strategy()
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    assert strategy.num_replicas_in_sync == len(devices)


def test_models_share_a_strategy_since_two_over_the_same_devices_mix_up_their_sums():
    strategies = []
    for _ in range(2):
        with strategy_scope("mirrored"):
            strategies.append(tf.distribute.get_strategy())
    assert strategies[0] is strategies[1]


def test_inside_replicas_their_number_and_their_sum_are_known():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    number, total = strategy.run(lambda: (replicas(), sum_over_replicas(tf.constant(3.0))))
    assert (number, float(total)) == (1, 3.0)


@pytest.mark.parametrize("name", ["Mirrored", "tpu", None])
def test_an_unknown_strategy_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"one of 'none', 'mirrored', .* but is {name!r}"):
        strategy_scope(name)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_mirrored_off_tensorflow_is_refused_and_everything_else_works(monkeypatch, backend):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    with pytest.raises(ValueError, match=f"KERAS_BACKEND=tensorflow, but the backend is {backend}"):
        strategy_scope("mirrored")
    with strategy_scope("none"):
        assert replicas() == 1
        assert sum_over_replicas(3) == 3


def test_under_a_strategy_no_batch_is_read_but_to_train(eager, monkeypatch):
    """Else a text of few batches would be an epoch ahead."""
    tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
    batches = TokenBatches(["a dog"] * 2, ["a dog runs"] * 2, tokenizer)
    read, epoch = [], batches.epoch
    monkeypatch.setattr(batches, "epoch", lambda i, step: read.append(i) or epoch(i, step))
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
        model.compile("sgd", MaskedCrossentropy())
    model.fit(batches.dataset(), epochs=2, shuffle=False, verbose=0)
    assert batches.num_batches == 1 and read == [0, 1]


def test_logs_have_an_axis_only_for_several_workers():
    logs = {"loss": tf.constant(1.0)}
    assert logs_for_fit(logs) is logs
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    assert strategy.run(lambda: logs_for_fit(logs)) == logs
