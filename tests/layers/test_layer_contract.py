"""What every layer promises Keras: configuration, shapes, precision, saving, training."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
)
from keras_transformer.layers.residual import Residual

VECTORS, SOURCE = (3, 4, 8), (3, 5, 8)  # (B, T, D), (B, S, D)
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]], bool)  # (B, T)
# Every argument differs from its default, so that a configuration that omits one is noticed.
LAYER = {
    "d_model": 8,
    "num_heads": 2,
    "d_ff": 16,
    "dropout": 0.3,
    "attention_dropout": 0.2,
    "feed_forward_dropout": 0.15,
    "activation": "gelu",
    "norm_first": True,
    "norm": "rms_norm",
    "rotary": True,
    "use_bias": False,
}
# A layer of float32 whose sub-layers are of bfloat16, as in an export.
MIXED = keras.dtype_policies.DTypePolicyMap("float32")
MIXED[r".*/(self_attention|cross_attention|feed_forward)(/.*)?"] = keras.DTypePolicy("bfloat16")
POLICIES = ["float32", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16", MIXED]
ENCODER_MASKS = {"padding_mask": MASK}
DECODER_MASKS = {"padding_mask": MASK, "source_padding_mask": np.ones((3, 5), bool)}
# The class, its arguments, the shapes of its inputs ("ids" for integers), its masks or sub-layer.
CASES = [
    (
        PositionalEmbedding,
        {"vocab_size": 9, "d_model": 8, "dropout": 0.3, "max_length": 6, "sinusoids": False},
        ["ids"],
        {},
    ),
    (
        MultiHeadAttention,
        {"d_model": 8, "num_heads": 2, "dropout": 0.3, "rotary": False, "use_bias": False},
        [VECTORS, SOURCE],
        {"attention_mask": np.ones((3, 5), bool)},
    ),
    (
        MultiHeadAttention,
        {"d_model": 8, "num_heads": 2, "dropout": 0.3, "rotary": True, "use_bias": True},
        [VECTORS],
        {"attention_mask": MASK},
    ),
    (
        FeedForward,
        {"d_model": 8, "d_ff": 16, "dropout": 0.3, "activation": "gelu", "use_bias": False},
        [VECTORS],
        {},
    ),
    (
        FeedForward,
        {"d_model": 8, "d_ff": 16, "dropout": 0.3, "activation": "swiglu", "use_bias": True},
        [VECTORS],
        {},
    ),
    (
        Residual,
        {"dropout": 0.3, "norm_first": True, "norm": "rms_norm"},
        [VECTORS],
        {"sublayer": ops.tanh},
    ),
    (EncoderLayer, LAYER, [VECTORS], ENCODER_MASKS),
    (DecoderLayer, {**LAYER, "cross_attention": True}, [VECTORS, SOURCE], DECODER_MASKS),
    (
        DecoderLayer,
        {**LAYER, "use_bias": True, "norm_first": False, "cross_attention": False},
        [VECTORS],
        ENCODER_MASKS,
    ),
    (Encoder, {"num_layers": 2, **LAYER}, [VECTORS], ENCODER_MASKS),
    (
        Decoder,
        {"num_layers": 2, **LAYER, "cross_attention": True},
        [VECTORS, SOURCE],
        DECODER_MASKS,
    ),
]


OF_KERAS = {"self", "kwargs", "name", "dtype", "trainable"}


class Case:
    def __init__(self, layer_class, arguments, inputs, options):
        generator = np.random.default_rng(1)
        self.layer_class, self.arguments = layer_class, arguments
        self.masks = {name: x for name, x in options.items() if name != "sublayer"}
        self.functions = {name: x for name, x in options.items() if name == "sublayer"}
        self.inputs = [
            generator.integers(0, 9, (3, 4)).astype("int32")
            if shape == "ids"
            else generator.normal(size=shape).astype("float32")
            for shape in inputs
        ]
        self.output_shape = VECTORS

    def layer(self, **kwargs):
        return self.layer_class(**{**self.arguments, **kwargs})

    def call(self, layer, **kwargs):
        return layer(*self.inputs, **self.masks, **self.functions, **kwargs)

    def functional_model(self, layer):
        """The layer in a functional model, with an unknown batch size and unknown lengths."""
        inputs = [keras.Input((None, *x.shape[2:]), dtype=x.dtype.name) for x in self.inputs]
        masks = {name: keras.Input((None,), dtype="bool") for name in self.masks}
        outputs = layer(*inputs, **masks, **self.functions)
        return keras.Model([*inputs, *masks.values()], outputs)

    def model_inputs(self):
        return [*self.inputs, *self.masks.values()]


@pytest.fixture(params=CASES, ids=lambda case: case[0].__name__)
def case(request):
    return Case(*request.param)


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def dtype_of(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


def test_config_holds_every_constructor_argument(case):
    signature = inspect.signature(case.layer_class.__init__).parameters
    arguments = {name for name in signature if name not in OF_KERAS}
    if "options" in arguments:  # a stack hands them on to its layers
        of_layers = inspect.signature(case.layer_class.layer_class.__init__).parameters
        arguments = (arguments | set(of_layers)) - {"options", *OF_KERAS}
    assert set(case.arguments) == arguments, "this test's case does not give every argument"
    config = case.layer(name="mine", dtype="mixed_bfloat16", trainable=False).get_config()
    assert {name: config[name] for name in arguments} == case.arguments
    assert config["name"] == "mine" and config["trainable"] is False
    assert config["dtype"]["config"]["name"] == "mixed_bfloat16"


def test_layer_from_its_config_has_equal_config_and_output(case, randomize):
    layer = case.layer(name="mine")
    case.call(layer)
    randomize(layer)
    copy = case.layer_class.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    case.call(copy)
    assert [w.path for w in copy.weights] == [w.path for w in layer.weights]
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(as_array(case.call(copy)), as_array(case.call(layer)))


def test_defaults_survive_a_round_trip_too(case):
    parameters = inspect.signature(case.layer_class.__init__).parameters
    required = {
        name: value
        for name, value in case.arguments.items()
        if name in parameters and parameters[name].default is inspect._empty
    }
    config = case.layer_class(**required).get_config()
    assert case.layer_class.from_config(config).get_config() == config


def test_declared_symbolic_and_eager_output_shapes_agree(case):
    layer = case.layer()
    shapes = [x.shape for x in case.inputs]
    assert tuple(layer.compute_output_shape(*shapes)) == case.output_shape
    model = case.functional_model(layer)
    assert model.output_shape == (None, None, *case.output_shape[2:])
    assert case.call(layer).shape == case.output_shape
    assert model(case.model_inputs()).shape == case.output_shape


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    [
        policy
        if policy in ("mixed_bfloat16", MIXED)
        else pytest.param(policy, marks=pytest.mark.slow)
        for policy in POLICIES
    ],
    ids=lambda policy: getattr(policy, "name", policy),
)
@pytest.mark.parametrize("norm_first", [False, True])
def test_every_policy_is_finite_and_close_to_float32(case, dtype, norm_first):
    """Residual sums included, where a sub-layer has another dtype than what surrounds it."""
    options = {"norm_first": norm_first} if "norm_first" in case.arguments else {}
    if norm_first and not options:
        pytest.skip("a layer without a norm")
    exact, lower = case.layer(**options), case.layer(**options, dtype=dtype)
    expected = as_array(case.call(exact))
    case.call(lower)
    lower.set_weights(exact.get_weights())
    output = case.call(lower)
    assert dtype_of(output) == lower.compute_dtype
    assert {w.dtype for w in lower.weights} <= {lower.variable_dtype, "bfloat16"}
    if isinstance(dtype, str):
        assert {w.dtype for w in lower.weights} == {lower.variable_dtype}
    error = np.abs(as_array(output) - expected) / (1 + np.abs(expected))
    assert error.max() < (0.01 if dtype in ("float32", "float16", "mixed_float16") else 0.05)
    model = case.functional_model(lower)
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True, auto_scale_loss=False)
    assert np.isfinite(model.train_on_batch(case.model_inputs(), expected))
    assert np.isfinite(as_array(model(case.model_inputs()))).all()


class Around(keras.Model):
    """Somebody's model, which leaves `training` to Keras."""

    def __init__(self, case, layer):
        super().__init__()
        self.case, self.layer = case, layer

    def call(self, x):
        return self.case.call(self.layer)


def test_training_reaches_every_dropout_by_whatever_way(case):
    """The layers leave the flag to Keras, which hands it on from the outermost call."""
    layer = case.layer()
    without = as_array(case.call(layer))
    subclassed, functional = Around(case, layer), case.functional_model(layer)
    ways = {
        "layer": lambda **flag: case.call(layer, **flag),
        "functional": lambda **flag: functional(case.model_inputs(), **flag),
        "subclassed": lambda **flag: subclassed(np.ones(1), **flag),
    }
    for name, way in ways.items():
        np.testing.assert_array_equal(as_array(way(training=False)), without, name)
        assert np.abs(as_array(way(training=True)) - without).max() > 1e-3, name


@pytest.mark.slow
def test_fit_applies_dropout_and_evaluate_does_not(case):
    model = case.functional_model(case.layer())
    targets = as_array(model(case.model_inputs()))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    assert model.evaluate(case.model_inputs(), targets, verbose=0) < 1e-10
    assert model.fit(case.model_inputs(), targets, verbose=0).history["loss"][0] > 1e-4


# Keras 3.15 turns its variables into arrays in a way of which NumPy 2.4 warns.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")
def test_functional_model_survives_saving_and_loading(case, randomize, tmp_path):
    layer = case.layer()
    model = case.functional_model(layer)
    randomize(layer)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        as_array(loaded(case.model_inputs())), as_array(model(case.model_inputs()))
    )


def test_one_training_step_moves_every_weight(case):
    layer = case.layer(dropout=0.0)
    model = case.functional_model(layer)
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
    before = layer.get_weights()
    targets = np.random.default_rng(2).normal(size=case.output_shape).astype("float32")
    model.train_on_batch(case.model_inputs(), targets)
    assert len(layer.trainable_weights) == len(before) > 0
    for weight, old in zip(layer.weights, before, strict=True):
        change = as_array(weight) - old
        assert np.isfinite(change).all() and np.any(change != 0), weight.path
