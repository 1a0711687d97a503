import keras
import numpy as np
import pytest

from keras_transformer import MaskedAccuracy, MaskedCrossentropy, Perplexity

METRICS = pytest.mark.parametrize("metric_class", [MaskedAccuracy, Perplexity])
V = 7


def random_batches(seed=0):
    """Batches (labels, logits) of very different numbers of real tokens, one of none."""
    rng = np.random.default_rng(seed)
    for rows, width, real in ((4, 9, 9), (2, 5, 1), (3, 4, 0), (1, 12, 7)):
        labels = rng.integers(1, V, (rows, width))
        labels[:, real:] = 0
        yield labels, rng.normal(0, 2, (rows, width, V)).astype("float32")


def token_values(metric_class, labels, logits):
    """What each token adds, (B, T): 1 for a hit, or its cross entropy in float64."""
    if metric_class is MaskedAccuracy:
        return (logits.argmax(-1) == labels).astype("float64")
    log_probs = logits.astype("float64")
    log_probs -= np.log(np.exp(log_probs).sum(-1, keepdims=True))
    return -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]


def expected_result(metric_class, labelled_logits, weights):
    total = sum(
        (token_values(metric_class, labels, logits) * (labels != 0) * weight).sum()
        for (labels, logits), weight in zip(labelled_logits, weights, strict=True)
    )
    count = sum(
        ((labels != 0) * weight).sum()
        for (labels, _), weight in zip(labelled_logits, weights, strict=True)
    )
    return np.exp(total / count) if metric_class is Perplexity else total / count


@METRICS
def test_the_result_is_the_mean_over_all_real_tokens_not_over_batches(metric_class):
    metric, batches = metric_class(), list(random_batches())
    for labels, logits in batches:
        metric.update_state(labels, logits)
    expected = expected_result(metric_class, batches, [1.0] * len(batches))
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@METRICS
@pytest.mark.parametrize("rank", [1, 2])
def test_sample_weight_counts_a_sentence_or_a_token_more(metric_class, rank):
    metric, batches = metric_class(), list(random_batches())
    rng = np.random.default_rng(1)
    weights = [rng.uniform(0, 3, labels.shape[:rank]) for labels, _ in batches]
    for (labels, logits), weight in zip(batches, weights, strict=True):
        metric.update_state(labels, logits, sample_weight=weight)
    if rank == 1:
        weights = [weight[:, None] for weight in weights]
    expected = expected_result(metric_class, batches, weights)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@METRICS
def test_logits_at_padding_do_not_matter(metric_class):
    labels, logits = next(random_batches())
    labels[1:, 3:] = 0
    other = np.where((labels == 0)[..., None], 1e4 * np.arange(V), logits).astype("float32")
    assert float(metric_class()(labels, other)) == float(metric_class()(labels, logits))


@METRICS
def test_a_reset_metric_forgets(metric_class):
    metric, (first, second, *_) = metric_class(), random_batches()
    metric.update_state(*first)
    metric.reset_state()
    metric.update_state(*second)
    assert float(metric.result()) == float(metric_class()(*second))


@pytest.mark.parametrize(("metric_class", "expected"), [(MaskedAccuracy, 0.0), (Perplexity, 1.0)])
def test_without_any_token_the_result_is_finite(metric_class, expected):
    metric = metric_class()
    assert float(metric.result()) == expected
    metric.update_state(np.zeros((2, 3), "int32"), np.ones((2, 3, V), "float32"))
    assert float(metric.result()) == expected


def test_hand_numbers_of_accuracy():
    labels = np.array([[2, 1, 0], [1, 0, 0]])
    predicted = np.array([[2, 3, 0], [1, 2, 3]])
    # Of the real tokens 2, 1 and 1 the second is wrong.
    assert float(MaskedAccuracy()(labels, np.eye(4)[predicted])) == pytest.approx(2 / 3)


@pytest.mark.parametrize("vocab_size", [2, 100, 32_000])
def test_the_perplexity_of_uniform_logits_is_the_vocabulary_size(vocab_size):
    logits = np.full((1, 3, vocab_size), 5.0, "float32")
    metric = Perplexity()
    assert float(metric(np.array([[1, 1, 0]]), logits)) == pytest.approx(vocab_size, rel=1e-5)


def test_the_perplexity_of_certainty_is_one():
    assert float(Perplexity()(np.array([[1, 3]]), 100.0 * np.eye(4)[[[1, 3]]])) == 1.0


@METRICS
def test_the_config_describes_the_metric(metric_class):
    metric = metric_class(name="mine")
    restored = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(restored) is metric_class
    assert restored.get_config() == metric.get_config() == {"name": "mine", "dtype": "float32"}


@METRICS
def test_compiled_into_a_model_it_is_logged_under_its_name(metric_class):
    model = keras.Sequential([keras.Input((9, V)), keras.layers.Identity()])
    model.compile(loss=MaskedCrossentropy(), metrics=[metric_class()])
    labels, logits = next(random_batches())
    targets = np.where(np.arange(9) < 4, labels, 0)
    logs = model.evaluate(logits, targets, batch_size=1, verbose=0, return_dict=True)
    expected = expected_result(metric_class, [(targets, logits)], [1.0])
    assert logs[metric_class().name] == pytest.approx(expected, rel=1e-5)
