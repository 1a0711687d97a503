import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, MaskedCrossentropy
from keras_transformer.training.delay_r_drop import DelayRDrop

IDS = np.random.default_rng(0).integers(4, 20, (6, 5))


def make(r_drop):
    keras.utils.set_random_seed(1)
    model = LanguageModel(num_layers=1, d_model=8, num_heads=2, d_ff=16, vocab_size=20, dropout=0.3)
    compile_with(model, keras.optimizers.Adam(0.01), r_drop)
    return model


def compile_with(model, optimizer, r_drop):
    model.compile(optimizer, MaskedCrossentropy(), r_drop=r_drop, num_streams=1)


def fit(model, epochs, first=0, callbacks=()):
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


def same(model, other):
    pairs = zip(model.get_weights(), other.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_epochs_before_it_are_plain_and_those_after_it_are_not(eager):
    by_hand, delayed = make(r_drop=0.0), make(r_drop=3.0)
    fit(by_hand, 2)
    compile_with(by_hand, by_hand.optimizer, 3.0)
    fit(by_hand, 4, first=2)
    fit(delayed, 4, callbacks=[DelayRDrop(2)])
    assert same(by_hand, delayed)
    plain = make(r_drop=0.0)
    fit(plain, 4)
    assert not same(plain, delayed)


@pytest.mark.slow
def test_a_run_that_goes_on_counts_from_the_first_epoch_of_all():
    whole, parts = make(r_drop=3.0), make(r_drop=3.0)
    fit(whole, 3, callbacks=[DelayRDrop(2)])
    fit(parts, 1, callbacks=[DelayRDrop(2)])
    assert parts.r_drop == 3.0  # as compiled, also for whoever saves it now
    fit(parts, 3, first=1, callbacks=[DelayRDrop(2)])
    assert same(whole, parts)


class Interrupted(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        config = self.model.get_compile_config()
        assert config["r_drop"] == 3.0  # also for whoever saves the model before R-Drop begins
        raise KeyboardInterrupt


@pytest.mark.slow
def test_a_fit_that_is_interrupted_leaves_r_drop_on():
    model, other = make(r_drop=3.0), make(r_drop=3.0)
    start = model.get_weights()
    for each, callbacks in ((model, [DelayRDrop(2), Interrupted()]), (other, [Interrupted()])):
        with pytest.raises(KeyboardInterrupt):
            fit(each, 1, callbacks=callbacks)
        each.set_weights(start)
    losses = [float(each.train_on_batch(IDS, IDS)) for each in (model, other)]
    assert not model.r_drop_paused and losses[0] == losses[1]


def test_a_model_without_r_drop_has_nothing_to_delay():
    with pytest.raises(ValueError, match=r"DelayRDrop\(2\) has nothing to delay.* add r_drop=5"):
        fit(make(r_drop=0.0), 1, callbacks=[DelayRDrop(2)])


@pytest.mark.parametrize("epochs", [0, -1, 1.5])
def test_epochs_are_a_positive_integer(epochs):
    with pytest.raises(ValueError, match="epochs must be an integer of at least 1"):
        DelayRDrop(epochs)
