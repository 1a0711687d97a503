import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import MaskedAccuracy, MaskedCrossentropy, Perplexity, Transformer
from keras_transformer.models import token_model
from keras_transformer.training.callbacks import TokenLogs
from keras_transformer.training.step import global_norm

V = 23


def make(policy="float32", **sizes):
    keras.utils.set_random_seed(1)
    sizes = {"dropout": 0.0, **sizes}
    return Transformer(
        num_layers=1, d_model=8, num_heads=2, d_ff=16, source_vocab_size=V, dtype=policy, **sizes
    )


def batch(rows=6, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, (rows, 1))
    ids = rng.integers(4, V, (3, rows, 7))
    source, target, labels = np.where(np.arange(7) < lengths, ids, 0).astype("int32")
    return (source, target), labels


def trained(optimizer=None, loss=None, steps=3, sample_weight=None, model=None, **compiled):
    model = make() if model is None else model
    optimizer = keras.optimizers.SGD(0.5) if optimizer is None else optimizer
    # Eagerly, since a graph takes longer to build than these steps; but parts are a loop in one.
    in_parts = {"micro_batches", "num_shards"} & set(compiled)
    compiled = {"num_shards": 1, "run_eagerly": not in_parts, **compiled}
    model.compile(optimizer, loss or MaskedCrossentropy(0.1), **compiled)
    history = model.fit(
        *batch(),
        batch_size=6,
        epochs=steps,
        shuffle=False,
        verbose=0,
        sample_weight=sample_weight,
        callbacks=[] if model.step_metrics is None else [TokenLogs()],
    )
    return model.get_weights(), history.history


class PlainCrossentropy(MaskedCrossentropy):
    """Has another type, so that Keras's own step is taken."""


@pytest.mark.parametrize(
    "tied, weighted",
    [
        ("all", True),
        pytest.param("none", False, marks=pytest.mark.slow),
        pytest.param("all", False, marks=pytest.mark.slow),
        pytest.param("none", True, marks=pytest.mark.slow),
    ],
)
def test_own_step_and_that_of_keras_train_the_same_weights(tied, weighted):
    weight = np.linspace(0, 2, 6, dtype="float32") if weighted else None
    own, own_logs = trained(sample_weight=weight, model=make(tied_embeddings=tied))
    stock, stock_logs = trained(
        loss=PlainCrossentropy(0.1), sample_weight=weight, model=make(tied_embeddings=tied)
    )
    for a, b in zip(own, stock, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_allclose(own_logs["loss"], stock_logs["loss"], rtol=1e-4)


def test_perplexity_counts_tokens_by_their_weight():
    model, weight = make(), np.linspace(0, 2, 6, dtype="float32")
    metrics = [Perplexity(name="by_logits")]
    loss = MaskedCrossentropy(0.1)
    model.compile("sgd", loss, weighted_metrics=metrics, num_shards=1, run_eagerly=True)
    logs = model.evaluate(*batch(), sample_weight=weight, verbose=0, return_dict=True)
    np.testing.assert_allclose(model.step_metrics.perplexity.result(), logs["by_logits"], rtol=1e-5)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((3, 1), marks=pytest.mark.slow),
        pytest.param((1, 4), marks=pytest.mark.slow),
        (2, 2),
    ],
)
def test_parts_change_nothing_also_where_they_do_not_divide_the_batch(parts):
    whole, logs = trained()
    micro_batches, num_shards = parts
    cut, cut_logs = trained(micro_batches=micro_batches, num_shards=num_shards)
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_allclose(logs["loss"], cut_logs["loss"], rtol=1e-4)
    np.testing.assert_allclose(logs["gradient_norm"], cut_logs["gradient_norm"], rtol=1e-4)


@pytest.mark.parametrize("num_shards", [1, 3])
def test_loss_and_perplexity_are_those_of_the_logits(num_shards):
    inputs, labels = batch()
    model = make()
    metrics = [MaskedAccuracy()]
    model.compile("sgd", MaskedCrossentropy(0.1), metrics=metrics, num_shards=num_shards)
    logs = model.evaluate(inputs, labels, batch_size=2, verbose=0, return_dict=True)
    logits = model(inputs)
    assert set(logs) == {"loss", "masked_accuracy"}
    assert logs["masked_accuracy"] == pytest.approx(float(MaskedAccuracy()(labels, logits)))
    assert logs["loss"] == pytest.approx(float(MaskedCrossentropy(0.1)(labels, logits)), rel=1e-4)
    perplexity = float(model.step_metrics.perplexity.result())
    assert perplexity == pytest.approx(float(Perplexity()(labels, logits)), rel=1e-4)


@pytest.mark.slow
def test_the_logs_of_an_epoch_are_not_those_of_its_validation():
    model = make()
    model.compile(keras.optimizers.SGD(0.0), MaskedCrossentropy())
    inputs, labels = batch()
    (other, other_labels) = batch(seed=1)
    fit = {"validation_data": (other, other_labels), "callbacks": [TokenLogs()], "verbose": 0}
    logs = model.fit(inputs, labels, **fit).history
    assert logs["perplexity"][0] == pytest.approx(np.exp(logs["loss"][0]), rel=1e-4)
    assert logs["val_perplexity"][0] == pytest.approx(np.exp(logs["val_loss"][0]), rel=1e-4)
    assert logs["perplexity"] != logs["val_perplexity"]
    assert logs["gradient_norm"][0] > 0


@pytest.mark.slow
def test_a_step_is_traced_once():
    model, calls = make(), []
    hidden = model.hidden_states
    model.hidden_states = lambda *args, **kwargs: calls.append(args) or hidden(*args, **kwargs)
    trained(keras.optimizers.Adam(), model=model, run_eagerly=False)
    assert len(calls) == 1


@pytest.mark.slow
def test_a_batch_is_cut_into_shards_unless_xla_compiles_the_step(monkeypatch):
    monkeypatch.setattr(token_model, "default_shards", lambda: 3)
    for jit_compile, rows in ((False, 2), (True, 6)):
        model, calls = make(), []
        hidden = model.hidden_states
        model.hidden_states = lambda x, hidden=hidden, calls=calls, **kwargs: (
            calls.append(x[0].shape) or hidden(x, **kwargs)
        )
        model.compile("sgd", MaskedCrossentropy(), jit_compile=jit_compile)
        data = keras.tree.map_structure(tf.constant, batch())
        tf.function(model.train_step).get_concrete_function(data)
        assert calls == [(rows, 7)]


@pytest.mark.slow
def test_a_batch_reports_its_loss_as_a_number():
    model = make()
    model.compile("sgd", MaskedCrossentropy())
    assert np.ndim(model.train_on_batch(*batch())) == np.ndim(model.test_on_batch(*batch())) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit, parts",
    [("clipnorm", {}), ("global_clipnorm", {"micro_batches": 2}), ("clipvalue", {})],
)
def test_the_gradient_of_the_whole_batch_is_clipped_as_keras_does(limit, parts):
    value = 0.01 if limit == "clipvalue" else 0.1
    own, _ = trained(keras.optimizers.SGD(0.5, **{limit: value}), **parts)
    stock, _ = trained(keras.optimizers.SGD(0.5, **{limit: value}), PlainCrossentropy(0.1))
    free, _ = trained()
    for a, b in zip(own, stock, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    assert max(np.abs(a - b).max() for a, b in zip(own, free, strict=True)) > 1e-3


def test_the_norm_of_the_gradient_adds_in_one_order():
    # TensorFlow makes an "AddN" of a chain of sums, which adds in another order now and then.
    graph = tf.function(lambda *xs: global_norm(xs), autograph=False)
    graph = graph.get_concrete_function(*[tf.TensorSpec((2, i)) for i in range(1, 9)])
    assert not {node.op for node in graph.graph.as_graph_def().node} & {"Add", "AddV2", "AddN"}
    xs = [tf.fill((2, i), float(i)) for i in range(1, 9)]
    assert float(graph(*xs)) == pytest.approx(np.sqrt(2 * sum(i**3 for i in range(1, 9))))


@pytest.mark.slow
def test_r_drop_without_dropout_is_the_plain_loss():
    plain, _ = trained()
    r_drop, _ = trained(r_drop=5.0)
    for a, b in zip(plain, r_drop, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_r_drop_trains_on_the_formula_of_its_paper():
    model, (inputs, labels) = make(dropout=0.3), batch()
    settings = {"r_drop": 5.0, "num_shards": 1, "run_eagerly": True}
    model.compile(keras.optimizers.SGD(1.0), MaskedCrossentropy(), **settings)
    before = [(variable, keras.ops.convert_to_numpy(variable)) for variable in model.variables]
    loss = model.train_on_batch(inputs, labels)
    gradients = [old - v.numpy() for v, old in before if v.trainable]
    for variable, old in before:  # the seeds, too, so that dropout is the same again
        variable.assign(old)
    with tf.GradientTape() as tape:
        twice = tuple(np.concatenate([ids, ids]) for ids in inputs)
        log_p, log_q = tf.split(tf.nn.log_softmax(model(twice, training=True)), 2)  # (B, T, V)
        nll = -tf.gather(log_p + log_q, labels, batch_dims=2) / 2  # (B, T)
        kl = tf.reduce_sum((tf.exp(log_p) - tf.exp(log_q)) * (log_p - log_q), axis=-1)  # (B, T)
        expected = tf.reduce_mean((nll + 5.0 / 4 * kl)[labels != 0])
    assert float(tf.reduce_max(kl)) > 0.01  # dropout differs
    assert loss == pytest.approx(float(expected), rel=1e-5)
    expected = tape.gradient(expected, [v.value for v in model.trainable_variables])
    for actual, gradient in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(actual, tf.convert_to_tensor(gradient), atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_label_ids_above_2048_are_learnt_in_lower_precision(policy):
    size = 3000
    keras.utils.set_random_seed(1)
    model = Transformer(
        num_layers=1,
        d_model=32,
        num_heads=2,
        d_ff=32,
        source_vocab_size=size,
        dropout=0.0,
        dtype=policy,
    )
    model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy())
    ids = np.random.default_rng(0).permutation(np.arange(2049, size))[:64].reshape(16, 4)
    ids = ids.astype("int32")
    start = np.full((16, 1), 2, "int32")
    inputs = ids, np.concatenate([start, ids[:, :-1]], axis=1)
    model.fit(inputs, ids, batch_size=16, epochs=60, verbose=0)
    np.testing.assert_array_equal(np.argmax(model(inputs), -1), ids)


@pytest.mark.slow
def test_float16_skips_a_step_that_overflows_and_goes_on():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2e38)
    model = make("mixed_float16")
    before = model.get_weights()
    model.compile(optimizer, MaskedCrossentropy())
    model.fit(*batch(), batch_size=6, verbose=0)
    assert float(optimizer.dynamic_scale) < 2e38
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_the_compile_arguments_survive_a_saved_model(tmp_path):
    model = make()
    model.compile("sgd", MaskedCrossentropy(0.1), micro_batches=2, num_shards=3, r_drop=1.0)
    model.fit(*batch(), batch_size=6, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    own = loaded.micro_batches, loaded.num_shards, loaded.r_drop, loaded.loss.label_smoothing
    assert own == (2, 3, 1.0, 0.1)
    loaded.fit(*batch(), batch_size=6, verbose=0)


@pytest.mark.slow
def test_compiling_again_for_another_loss_reports_only_what_that_step_knows():
    model = make()
    model.compile("sgd", MaskedCrossentropy())
    model.compile("sgd", PlainCrossentropy())
    assert set(model.fit(*batch(), batch_size=6, verbose=0).history) == {"loss"}


@pytest.mark.parametrize("argument", [{"micro_batches": 2}, {"num_shards": 2}, {"r_drop": 1.0}])
def test_what_another_loss_cannot_do_is_refused(argument):
    (name,) = argument
    with pytest.raises(
        ValueError,
        match=rf"{name}=.* needs the model's own .*not a MaskedCrossentropy.* leave {name}",
    ):
        make().compile("sgd", PlainCrossentropy(), **argument)


@pytest.mark.parametrize("value", [0, 1.5, "all"])
def test_shards_that_are_no_number_are_refused(value):
    with pytest.raises(ValueError, match="num_shards must be"):
        make().compile("sgd", MaskedCrossentropy(), num_shards=value)


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_r_drop_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match="r_drop must be"):
        make().compile("sgd", MaskedCrossentropy(), r_drop=value)


@pytest.mark.slow
def test_no_tensor_of_a_step_is_as_large_as_the_logits():
    model = Transformer(num_layers=1, d_model=8, num_heads=2, d_ff=16, source_vocab_size=500)
    model.compile("sgd", MaskedCrossentropy(0.1), num_shards=1)
    (source, target), labels = batch(rows=2000)  # 14,000 tokens
    data = (tf.constant(source), tf.constant(target)), tf.constant(labels)
    step = tf.function(model.train_step).get_concrete_function(data)
    shapes = [output.shape for node in step.graph.get_operations() for output in node.outputs]
    sizes = [shape.num_elements() or 0 for shape in shapes if shape.rank is not None]
    assert 14_000 * 8 <= max(sizes) < 14_000 * 500 / 5


# What else there may be


class TenthOfLogits(Transformer):
    def call(self, inputs, training=None):
        return super().call(inputs, training=training) / 10


class ThreeTimesTheLoss(Transformer):
    def compute_loss(self, *args, **kwargs):
        return 3 * super().compute_loss(*args, **kwargs)


class KerasLoss(MaskedCrossentropy):
    """Not that of `TokenModel`: with it Keras's own step is taken."""


def losses_of(
    loss, cls=Transformer, prepare=None, batches=(slice(None),) * 3, sgd=None, **settings
):
    """The loss of each batch in training."""
    keras.utils.set_random_seed(1)
    model = cls(num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=12, dropout=0)
    if prepare is not None:
        prepare(model)
    model.compile(keras.optimizers.SGD(**sgd or {}), loss(0.1), **settings)
    ids = np.random.default_rng(0).integers(1, 12, (6, 5))
    return [model.train_on_batch((ids[rows], ids[rows]), ids[rows]) for rows in batches]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"cls": TenthOfLogits},
        pytest.param({"cls": ThreeTimesTheLoss}, marks=pytest.mark.slow),
        pytest.param({"loss_weights": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_a_loss_that_is_changed_is_the_one_that_is_trained(eager, changed):
    losses = losses_of(MaskedCrossentropy, **changed)
    np.testing.assert_allclose(losses, losses_of(KerasLoss, **changed), rtol=1e-5)
    assert abs(losses[0] - losses_of(MaskedCrossentropy)[0]) > 0.1
    with pytest.raises(ValueError, match="r_drop=1 needs the model's own .* it has"):
        losses_of(MaskedCrossentropy, **changed, r_drop=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "clip",
    [
        "clipnorm",
        pytest.param("global_clipnorm", marks=pytest.mark.slow),
        pytest.param("clipvalue", marks=pytest.mark.slow),
    ],
)
def test_what_is_accumulated_by_the_optimizer_is_clipped_as_keras_does(eager, clip):
    arguments = {
        "batches": (slice(0, 3), slice(3, 6)) * 3,
        "sgd": {"learning_rate": 1.0, "gradient_accumulation_steps": 2, clip: 0.05},
    }
    losses = losses_of(MaskedCrossentropy, **arguments)
    np.testing.assert_allclose(losses, losses_of(KerasLoss, **arguments), rtol=1e-5)


def test_a_batch_without_rows_costs_nothing(eager):
    losses = losses_of(MaskedCrossentropy, batches=(slice(0, 0), slice(0, 3)))
    assert losses[0] == 0 and losses[1] > 1


def test_a_model_that_is_frozen_as_a_whole_keeps_its_loss(eager):
    def freeze(model):
        model.trainable = False

    assert len(set(losses_of(MaskedCrossentropy, prepare=freeze))) == 1


def test_labels_of_another_length_are_refused(eager):
    model = Transformer(num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=12)
    ids = np.ones((2, 5), "int32")
    for loss in (MaskedCrossentropy(), KerasLoss()):
        model.compile("sgd", loss)
        with pytest.raises(ValueError, match=r"each of T=5 predictions, but .* shape \(4,\)"):
            model.train_on_batch((ids, ids), ids[:, :4])


@pytest.mark.parametrize(
    "negative, eagerly",
    [
        (-1, True),
        pytest.param(-100, False, marks=pytest.mark.slow),
        pytest.param(-1, False, marks=pytest.mark.slow),
        pytest.param(-100, True, marks=pytest.mark.slow),
    ],
)
def test_negative_labels_stop_a_step_and_change_no_weight(negative, eagerly):
    inputs, labels = batch()
    labels[1, 0] = negative
    model = make()
    model.compile(keras.optimizers.SGD(0.5), MaskedCrossentropy(), run_eagerly=eagerly)
    before = model.get_weights()
    for step in (model.train_on_batch, model.test_on_batch):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="labels must be ids of at least 0"
        ):
            step(inputs, labels)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_loss_itself_refuses_negative_labels():
    with pytest.raises(tf.errors.InvalidArgumentError, match="0 marks what does not count"):
        MaskedCrossentropy()(np.array([[3, -1]]), np.zeros((1, 2, 4)))


# Losses of layers and weights, and class weights


class AddsLosses(keras.layers.Layer):
    """Passes hidden states on, and adds `scale` times their mean square to the loss."""

    scale = 0.0

    def call(self, x):
        if self.scale:
            self.add_loss(self.scale * keras.ops.mean(keras.ops.square(x)))
        return x


class WithExtraLayer(Transformer):
    """A Transformer with one more layer at the end."""

    def build(self, input_shape=None):
        if not self.built:
            self.extra = AddsLosses()
            super().build(input_shape)

    def hidden_states(self, inputs, training=None):
        return self.extra(super().hidden_states(inputs, training=training))


def add_layer(model):
    model.extra.scale = 0.3


def add_to_shared_layer(model):
    # It is called twice, for source and target, and adds a loss each time.
    model.source_embedding.activity_regularizer = keras.regularizers.L2(1e-3)


def regularize_weights(model):
    for variable in model.trainable_variables[::3]:
        variable.regularizer = keras.regularizers.L2(0.1)


LOSSES = pytest.mark.parametrize("prepare", [add_layer, add_to_shared_layer, regularize_weights])


def extra_losses_of(loss, prepare=None, late=False, batches=2, sgd=None, **compiled):
    """The losses of some batches, their evaluation and the weights after them."""
    keras.utils.set_random_seed(1)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = WithExtraLayer(**sizes, source_vocab_size=V, dropout=0.2)
    if prepare is not None and not late:
        prepare(model)
    model.compile(keras.optimizers.SGD(0.1, **sgd or {}), loss(0.1), **compiled)
    if prepare is not None and late:
        prepare(model)
    losses = [model.train_on_batch(*batch()) for _ in range(batches)]
    return [*losses, model.test_on_batch(*batch())], model.get_weights()


def assert_equal_training(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-4)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.slow
@LOSSES
@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.slow), True])
def test_losses_of_layers_and_weights_count_as_in_keras(eager, prepare, late):
    own = extra_losses_of(MaskedCrossentropy, prepare, late)
    assert_equal_training(own, extra_losses_of(KerasLoss, prepare, late))
    assert abs(own[0][0] - extra_losses_of(MaskedCrossentropy)[0][0]) > 0.01


@pytest.mark.slow
@LOSSES
def test_losses_of_layers_and_weights_count_in_a_graph_of_shards(monkeypatch, prepare):
    monkeypatch.setattr(token_model, "default_shards", lambda: 3)
    own = extra_losses_of(MaskedCrossentropy, prepare, sgd={"global_clipnorm": 0.5})
    stock = extra_losses_of(KerasLoss, prepare, sgd={"global_clipnorm": 0.5})
    if prepare is regularize_weights:  # in three parts, with other dropout
        np.testing.assert_allclose(own[0], stock[0], rtol=0.05)
    else:
        assert_equal_training(own, stock)


@pytest.mark.slow
def test_regularizers_of_weights_are_exact_in_parts():
    def trained_in(**parts):
        model = make()
        regularize_weights(model)
        return trained(model=model, **parts)

    (whole, logs), (cut, cut_logs) = trained_in(), trained_in(micro_batches=2, num_shards=2)
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_allclose(logs["loss"], cut_logs["loss"], rtol=1e-4)
    np.testing.assert_allclose(logs["gradient_norm"], cut_logs["gradient_norm"], rtol=1e-4)


@pytest.mark.parametrize("parts", [{"micro_batches": 2}, {"num_shards": 2}])
def test_losses_of_layers_in_parts_are_refused(eager, parts):
    with pytest.raises(ValueError, match="add losses .* micro_batches=1 and num_shards=1"):
        extra_losses_of(MaskedCrossentropy, add_layer, **parts)


@pytest.mark.slow
def test_a_regularizer_of_the_logits_takes_the_step_of_keras(eager):
    def regularize(model):
        model.activity_regularizer = keras.regularizers.L2(0.01)

    own = extra_losses_of(MaskedCrossentropy, regularize)
    assert_equal_training(own, extra_losses_of(KerasLoss, regularize))
    with pytest.raises(ValueError, match="it has an activity_regularizer of logits"):
        extra_losses_of(MaskedCrossentropy, regularize, num_shards=2)


def test_class_weight_is_refused():
    model = make()
    model.compile("sgd", MaskedCrossentropy())
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(ValueError, match="class_weight has no meaning.* Give sample_weight"):
            train(*batch(), class_weight={4: 2.0})


# Metrics


@pytest.mark.parametrize("shards", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_metrics_of_training_are_those_of_the_step_itself(shards):
    def logs_of(loss, **compiled):
        keras.utils.set_random_seed(1)
        model = make(dropout=0.3)
        metrics = {"metrics": [MaskedAccuracy()], "weighted_metrics": [Perplexity()]}
        model.compile(keras.optimizers.SGD(0.5), loss(0.0), **metrics, **compiled)
        fit = {"batch_size": 6, "epochs": 2, "shuffle": False, "verbose": 0}
        weight = np.linspace(0.5, 2, 6, dtype="float32")
        return model.fit(*batch(), sample_weight=weight, **fit).history

    own = logs_of(MaskedCrossentropy, num_shards=shards, run_eagerly=shards == 1)
    if shards == 1:
        stock = logs_of(KerasLoss, run_eagerly=True)
        assert set(own) == set(stock)
        for name in own:
            np.testing.assert_allclose(own[name], stock[name], rtol=1e-4)
    # The loss is divided by the number of tokens, the metric by their weights.
    (_, _), labels = batch()
    weights = np.linspace(0.5, 2, 6)[:, None] * (labels > 0)
    expected = np.exp(np.array(own["loss"]) * (labels > 0).sum() / weights.sum())
    np.testing.assert_allclose(own["perplexity"], expected, rtol=1e-4)


def test_metrics_with_r_drop_see_the_first_of_two_predictions(eager):
    model = make(dropout=0.3)
    model.compile("sgd", MaskedCrossentropy(), metrics=[MaskedAccuracy()], r_drop=1.0)
    logs = model.train_on_batch(*batch(), return_dict=True)
    assert set(logs) == {"loss", "masked_accuracy"} and 0 <= logs["masked_accuracy"] <= 1
