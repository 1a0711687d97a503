"""Random choices instead of the largest logit, without random state."""

import numpy as np
from keras import ops

from keras_transformer.decoding.result import LEAST_POSSIBLE
from keras_transformer.decoding.top_k import top_k as largest_logits

# 2**32 over the golden ratio: without it token 0 at position 0 under seed 0 would hash to 0.
GOLDEN = 0x9E3779B9
# A lower temperature would be no float32; the largest logit wins long before.
LOWEST_TEMPERATURE = 1e-30


def sample(logits, position, strategy, seeds=None):
    """Draws a token for each row.

    Logits are divided by the temperature; then all but the `top_k` largest are dropped (Fan et al.,
    2018, "Hierarchical Neural Story Generation"); then all but the nucleus, the smallest set of
    most probable tokens whose probability, among those left, reaches `top_p` (Holtzman et al.,
    2020, "The Curious Case of Neural Text Degeneration"). Of the logits l that remain,

        argmax(l + g),  g = -log(-log(u)),  u uniform in (0, 1) and independent

    is a sample of softmax(l): the Gumbel-max trick (Maddison et al., 2014, "A* Sampling").

    The noise g is a function of seed, position, token and the row's own seed. So a row is an exact
    sample, which depends neither on its batch nor on earlier calls, and rows with different seeds
    are independent of each other.

    Args:
        logits: tensor (R, V).
        position: integer scalar, the number of tokens so far.
        strategy: `Sample`.
        seeds: int32 (R, 1), of each row; (R, 0) or None if all rows have the same.

    Returns:
        int32 (R,). Tokens with a logit of `IMPOSSIBLE`, or one that is not finite, are never chosen
        if there are others.

    Example:
        >>> logits = np.log([[0.1, 0.3, 0.6], [0.5, 0.1, 0.4]])
        >>> strategy = Sample(temperature=0.5, top_k=2, seed=7)
        >>> [np.array(sample(logits, position, strategy)).tolist() for position in range(3)]
        [[2, 2], [2, 2], [2, 0]]
    """
    logits = ops.cast(logits, "float32")
    vocab_size = logits.shape[-1]
    # A NaN fails the comparison, so it becomes -inf.
    logits = ops.where(ops.abs(logits) < -LEAST_POSSIBLE, logits, -np.inf)
    bits = random_bits(strategy.seed, position, vocab_size)  # (V,)
    if strategy.top_k == 0 and strategy.top_p == 1:
        noise = gumbel_noise(bits_of_rows(bits, seeds))  # (V,) or (R, V)
        return argmax(tempered(logits, strategy.temperature) + noise)
    # (R, k) each, in falling order
    logits, tokens = largest_logits(logits, min(strategy.top_k or vocab_size, vocab_size))
    logits = tempered(logits, strategy.temperature)
    if strategy.top_p < 1:
        logits = nucleus(logits, strategy.top_p)
    noise = gumbel_noise(bits_of_rows(ops.take(bits, tokens), seeds))  # (R, k)
    best = argmax(logits + noise)  # (R,)
    return ops.take_along_axis(tokens, ops.expand_dims(best, 1), axis=1)[:, 0]


def argmax(x):
    """Where each row is largest: int32, like `x` without its last axis."""
    return ops.cast(ops.argmax(x, axis=-1), "int32")


def tempered(logits, temperature):
    """Logits over the temperature, less a constant of each row, so that the largest is 0."""
    largest = ops.max(logits, axis=-1, keepdims=True)
    scaled = (logits - largest) / max(temperature, LOWEST_TEMPERATURE)
    return ops.where(logits > -np.inf, scaled, -np.inf)


def nucleus(logits, top_p):
    """Logits (R, k), in falling order from 0, with -inf after the first whose mass is `top_p`."""
    shares = ops.exp(logits)  # (R, k)
    mass = ops.cumsum(shares, axis=-1)  # (R, k), up to and with each token
    return ops.where(mass - shares < top_p * mass[:, -1:], logits, -np.inf)


def random_bits(seed, position, vocab_size):
    """A hash of seed, position and each token: uint32 (V,)."""
    bits = ops.cast(ops.arange(vocab_size), "uint32") + uint32(GOLDEN)
    for key in (0, position, seed):
        bits = lowbias32(ops.bitwise_xor(bits, uint32(key)))
    return bits


def bits_of_rows(bits, seeds):
    """Bits (V,) or (R, k), hashed with the seed of each row: (R, V) or (R, k)."""
    if seeds is None or seeds.shape[1] == 0:
        return bits
    return lowbias32(ops.bitwise_xor(bits, uint32(seeds)))


def gumbel_noise(bits):
    """Standard Gumbel noise, float32, made of 32 random bits each.

    Of bits h, v = (h + 1/2) / 2**32 takes the place of 1 - u: the noise is largest where u is near
    1, and floats are finest near 0.
    """
    v = (ops.cast(bits, "float32") + 0.5) * 2.0**-32
    v = ops.minimum(v, 1 - 2.0**-24)  # float32 rounds the largest h up to 2**32
    return -ops.log(-ops.log1p(-v))


def seeds_of_rows(ids):
    """Returns a seed for each row of ids (R, S), padded with 0: its hash, int32 (R,).

    It does not depend on the padding.
    """
    places = ops.cast(ops.arange(ops.shape(ids)[1]), "uint32") + uint32(GOLDEN)  # (S,)
    bits = lowbias32(ops.bitwise_xor(uint32(ids), lowbias32(places)))  # (R, S)
    bits = ops.where(ops.equal(ids, 0), uint32(0), bits)
    return ops.cast(ops.right_shift(ops.sum(bits, axis=1), uint32(1)), "int32")


def lowbias32(x):
    """A bijection of 32-bit integers whose output bits look random: uint32 to uint32.

    Wellons (2018), "Prospecting for Hash Functions", nullprogram.com/blog/2018/07/31.
    """
    x = ops.bitwise_xor(x, ops.right_shift(x, uint32(16))) * uint32(0x7FEB352D)
    x = ops.bitwise_xor(x, ops.right_shift(x, uint32(15))) * uint32(0x846CA68B)
    return ops.bitwise_xor(x, ops.right_shift(x, uint32(16)))


def uint32(x):
    """An `int` or a tensor as uint32, with no detour by int32, in which large ones overflow."""
    if isinstance(x, int):
        return ops.convert_to_tensor(np.uint32(x))
    return ops.cast(x, "uint32")
