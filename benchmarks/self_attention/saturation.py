"""What the scale 1 / sqrt(d_k) is for: how far softmax is saturated, and what gradient is left."""

import numpy as np
import tensorflow as tf
from self_attention.scores import PLAIN, SCALED, scores, unit_inputs

NUM_KEYS, NUM_QUERIES, BATCH_SIZE = 64, 16, 64


def saturation(name, d_k):
    """Figures of softmax over the scores of random queries and keys, measured and expected.

    Returns:
        Dict of `deviation`, of a query's scores; `entropy` of the weights; `slope`, how much the
        weights answer to their own scores, `sum p (1 - p)`; means over the queries. Of the
        gradient that arrives at the scores, and at the queries, if noise of variance 1 arrives
        at the weights: the norm for the median query, and the root of the mean square. Of the
        dot products also `expected_entropy` and `expected_slope`.
    """
    query, key, v = unit_inputs(d_k, BATCH_SIZE, NUM_QUERIES, NUM_KEYS)
    random = np.random.default_rng(1)
    noise = random.normal(size=(BATCH_SIZE, NUM_QUERIES, NUM_KEYS)).astype("float32")
    with tf.GradientTape() as tape:
        tape.watch(query)
        compared = scores(name, query, key, v)  # (B, T, S)
        weights = tf.nn.softmax(compared)
        loss = tf.reduce_sum(weights * noise)
    gradients = tape.gradient(loss, (compared, query))
    p = weights.numpy().astype("float64")
    figures = {
        "deviation": float(compared.numpy().std(-1, ddof=1).mean()),
        "entropy": float(-(p * np.log(np.maximum(p, 1e-300))).sum(-1).mean()),
        "slope": float((p * (1 - p)).sum(-1).mean()),
    }
    for at, gradient in zip(("scores", "queries"), gradients, strict=True):
        norms = np.linalg.norm(gradient.numpy().astype("float64"), axis=-1)  # (B, T)
        figures[f"median_gradient_{at}"] = float(np.median(norms))
        figures[f"rms_gradient_{at}"] = float((norms**2).mean() ** 0.5)
    if name in (SCALED, PLAIN):
        deviation = 1.0 if name == SCALED else d_k**0.5
        figures["expected_entropy"], figures["expected_slope"] = expected(deviation)
    return figures


def expected(deviation, num_keys=NUM_KEYS):
    """Expected entropy and slope of softmax over independent normal scores of mean 0.

    With `Z = sum exp(s)` and `phi(t) = E exp(-t e^s)`, `1 / Z^2 = integral t exp(-t Z) dt` gives
    `E sum p^2 = n integral t E(e^2s exp(-t e^s)) phi(t)^(n-1) dt`; in the same way
    `E log Z = integral (exp(-t) - phi(t)^n) / t dt`, and by Stein's lemma `E sum p s` is
    `deviation^2 E sum p (1 - p)`. Integrated over `t = e^u`.
    """
    z = np.linspace(-9, 9, 3001)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    edge = 9 * deviation + 40
    u, step = np.linspace(-edge, edge, 3001, retstep=True)
    phi, squares = np.empty_like(u), np.empty_like(u)
    for i, start in enumerate(u):
        w = np.exp(np.minimum(start + deviation * z, 700))
        decay = np.exp(-w)
        phi[i] = decay @ density
        squares[i] = (np.minimum(w, 1e100) ** 2 * decay) @ density
    slope = 1 - num_keys * (squares * phi ** (num_keys - 1)).sum() * step
    log_z = (np.exp(-np.exp(np.minimum(u, 700))) - phi**num_keys).sum() * step
    return float(log_z - deviation**2 * slope), float(slope)
