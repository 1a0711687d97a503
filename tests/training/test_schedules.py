import keras
import numpy as np
import pytest

from keras_transformer import TransformerSchedule


def paper_rate(step, d_model, warmup_steps):
    """Equation 3 in plain Python."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@pytest.mark.parametrize(("d_model", "warmup_steps"), [(512, 4000), (128, 100), (7, 1)])
def test_the_rate_is_equation_3_of_the_paper(d_model, warmup_steps):
    schedule = TransformerSchedule(d_model, warmup_steps)
    for step in (1, 2, warmup_steps, warmup_steps + 1, 4 * warmup_steps, 10**6):
        expected = paper_rate(step, d_model, warmup_steps)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-6)


def test_hand_numbers_rise_to_the_warmup_and_halve_at_four_times_it():
    schedule = TransformerSchedule(d_model=16, warmup_steps=100)
    assert [float(schedule(step)) for step in (1, 50, 100, 400)] == pytest.approx(
        [0.25 * 0.001, 0.25 * 0.05, 0.25 * 0.1, 0.25 * 0.05], rel=1e-6
    )


def test_the_rate_peaks_at_the_warmup_and_is_finite_and_positive_from_step_0():
    schedule = TransformerSchedule(d_model=64, warmup_steps=30)
    rates = np.array([float(schedule(step)) for step in range(100)])
    assert np.all(np.isfinite(rates)) and np.all(rates > 0)
    assert rates[0] == rates[1]
    assert np.argmax(rates) == 30
    assert np.all(np.diff(rates[1:31]) > 0) and np.all(np.diff(rates[30:]) < 0)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_a_step_may_be_a_tensor_of_any_number_type(dtype):
    rate = TransformerSchedule(512)(keras.ops.convert_to_tensor(123, dtype))
    assert keras.backend.standardize_dtype(rate.dtype) == "float32"
    assert float(rate) == pytest.approx(paper_rate(123, 512, 4000), rel=1e-6)


def test_scale_multiplies_the_rate():
    plain, doubled = TransformerSchedule(64, 10), TransformerSchedule(64, 10, scale=2.5)
    for step in (0, 5, 10, 1000):
        assert float(doubled(step)) == pytest.approx(2.5 * float(plain(step)), rel=1e-6)


def test_a_cool_down_multiplies_the_rate_by_a_line_from_1_to_0():
    plain = TransformerSchedule(64, 10)
    schedule = TransformerSchedule(64, 10, cooldown_steps=20, total_steps=100)
    factors = {0: 1, 10: 1, 80: 1, 85: 0.75, 90: 0.5, 99: 0.05, 100: 0, 1000: 0}
    for step, factor in factors.items():
        assert float(schedule(step)) == pytest.approx(factor * float(plain(step)), rel=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"d_model": 64, "warmup_steps": 10, "scale": 0.5},
        {"d_model": 64, "warmup_steps": 3, "cooldown_steps": 20, "total_steps": 30},
    ],
)
def test_the_config_describes_the_schedule(arguments):
    schedule = TransformerSchedule(**arguments)
    config = schedule.get_config()
    assert arguments.items() <= config.items()
    assert TransformerSchedule.from_config(config).get_config() == config
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert isinstance(restored, TransformerSchedule)
    assert [float(restored(step)) for step in (1, 25)] == [
        float(schedule(step)) for step in (1, 25)
    ]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras
def test_an_optimizer_follows_the_schedule_and_a_saved_model_goes_on_with_it(tmp_path):
    schedule = TransformerSchedule(d_model=4, warmup_steps=3)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(schedule), loss=lambda y, z: keras.ops.mean(z))
    x, y = np.ones((1, 1)), np.zeros((1, 1))
    weights = [float(model.get_weights()[0][0, 0])]
    for _ in range(5):  # the gradient is 1, so each step is the rate itself
        model.train_on_batch(x, y)
        weights.append(float(model.get_weights()[0][0, 0]))
    expected = [float(schedule(step)) for step in range(5)]
    np.testing.assert_allclose(-np.diff(weights), expected, rtol=1e-5)

    model.compile(model.optimizer, loss="mse")  # a lambda cannot be saved
    model.save(tmp_path / "model.keras")
    optimizer = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert int(optimizer.iterations) == 5
    assert float(optimizer.learning_rate) == pytest.approx(paper_rate(5, 4, 3), rel=1e-6)
    assert optimizer.get_config()["learning_rate"]["config"] == schedule.get_config()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"d_model": 0}, "d_model must be an integer of at least 1, but is 0"),
        ({"d_model": 64.0}, "d_model must be an integer of at least 1, but is 64.0"),
        ({"warmup_steps": 0}, "warmup_steps must be an integer of at least 1, but is 0"),
        ({"scale": 0}, "scale must be a positive number, but is 0"),
        ({"scale": -1.0}, "scale must be a positive number, but is -1.0"),
        ({"scale": float("nan")}, "scale must be a positive number, but is nan"),
    ],
)
def test_an_argument_that_is_not_positive_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        TransformerSchedule(**{"d_model": 64, **wrong})


@pytest.mark.parametrize(
    "cool_down",
    [
        {"cooldown_steps": 5},
        {"cooldown_steps": 5, "total_steps": 4},
        {"cooldown_steps": -1, "total_steps": 4},
    ],
)
def test_a_cool_down_that_does_not_fit_the_training_is_refused(cool_down):
    with pytest.raises(ValueError, match=r"cooldown_steps must be in \[0, total_steps\]"):
        TransformerSchedule(64, **cool_down)
