"""How far back a layer learns to look: it repeats the token of some positions before."""

import keras
import numpy as np
from self_attention.layers import make

from keras_transformer import PositionalEmbedding

VOCAB_SIZE, NUM_ANSWERS, BATCH_SIZE, D_MODEL = 16, 16, 32, 64
LEARNING_RATES = (3e-3, 1e-3, 1e-2)
STEPS_AT_ONCE = 100  # between two tests
LEARNT = 0.95  # of the answers; guessing gives 1 / VOCAB_SIZE
PATIENCE = 2  # distances that are not learnt, after which longer ones are not tried


def distances(name, values, steps):
    """What a layer learns: a distance -> the figures of `best`; and `longest`.

    The longest distance is that up to which every one is learnt, 0 if none is.
    """
    tried = {}
    for distance in sorted(values):
        tried[distance] = row = best(name, distance, steps)
        right = f"{row['accuracy']:.0%} right, {row['steps']} steps"
        print(f"{name:24}distance {distance:3}: {right} at {row['learning_rate']}", flush=True)
        last = list(tried.values())[-PATIENCE:]
        if len(last) == PATIENCE and all(row["accuracy"] < LEARNT for row in last):
            break
    longest = 0
    for distance, row in tried.items():
        if row["accuracy"] < LEARNT:
            break
        longest = distance
    return {"tried": tried, "longest": longest}


def best(name, distance, steps):
    """The best `accuracy` of a layer at a distance, its `learning_rate`, and `steps` it took.

    The rates are tried in turn, each with new weights and at most `steps` batches, until one has
    learnt the task.
    """
    found = {"accuracy": 0.0}
    for seed, rate in enumerate(LEARNING_RATES):
        reached, took = train(name, distance, steps, rate, seed)
        if reached > found["accuracy"]:
            found = {"accuracy": reached, "learning_rate": rate, "steps": took}
        if reached >= LEARNT:
            break
    return found


def train(name, distance, steps, learning_rate, seed=0):
    """The share of answers that are right after at most `steps` batches; how many it were.

    A sequence is `distance + NUM_ANSWERS` random tokens long; at each of the last `NUM_ANSWERS`
    positions the answer is the token `distance` positions before. No sequence comes twice. The
    model is an embedding with positions, the layer, and logits.
    """
    keras.utils.set_random_seed(seed)
    length = distance + NUM_ANSWERS
    ids = keras.Input((length,), dtype="int32")
    x = PositionalEmbedding(VOCAB_SIZE, D_MODEL)(ids)  # (B, T, D)
    x = make(name, D_MODEL)(x)[:, -NUM_ANSWERS:]  # (B, NUM_ANSWERS, D)
    model = keras.Model(ids, keras.layers.Dense(VOCAB_SIZE)(x))
    model.compile(
        keras.optimizers.Adam(learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    random = np.random.default_rng(seed)
    for start in range(0, steps, STEPS_AT_ONCE):
        took = min(start + STEPS_AT_ONCE, steps)
        ids = random.integers(0, VOCAB_SIZE, (BATCH_SIZE * (took - start), length), "int32")
        model.fit(ids, ids[:, :NUM_ANSWERS], batch_size=BATCH_SIZE, verbose=0)
        ids = random.integers(0, VOCAB_SIZE, (512, length), "int32")
        accuracy = model.evaluate(ids, ids[:, :NUM_ANSWERS], verbose=0)[1]
        if accuracy >= LEARNT:
            break
    return accuracy, took
