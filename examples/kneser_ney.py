"""The classic language model that a neural one has to beat: n-grams of bytes."""

import math
from collections import Counter, defaultdict

END = "\u0100"  # ends every text; the 256 characters before it stand for bytes
NUM_SYMBOLS = 257
Counts = defaultdict[str, Counter[str]]


class KneserNey:
    """Interpolated modified Kneser-Ney over bytes.

    The probability of a byte is a discounted share of what followed the last n - 1 bytes, and what
    the discounts leave over is shared out by the model of the last n - 2. Shorter contexts count
    in how many different longer ones a byte occurred, not how often. Chen and Goodman (1999), "An
    Empirical Study of Smoothing Techniques for Language Modeling", section 3; discounts by
    equation 17.

    Args:
        texts: a list of strings.
        order: n.

    Example:
        >>> model = KneserNey(["abcabcab"], order=3)
        >>> model.probability("ab", "c") > model.probability("ab", "b")
        True
    """

    def __init__(self, texts, order):
        self.order = order
        counts: Counts = defaultdict(Counter)  # of each context of n - 1 symbols: what follows it
        for text in texts:
            for context, symbol in self.events(text):
                counts[context][symbol] += 1
        self.levels = [level(counts)]
        for _ in range(order - 1):
            shorter: Counts = defaultdict(Counter)
            for context, followers in counts.items():
                for symbol in followers:
                    shorter[context[1:]][symbol] += 1
            counts = shorter
            self.levels.insert(0, level(counts))  # by the length of the context

    def events(self, text):
        """Pairs of n - 1 symbols and the one after them, from the first byte to the end."""
        before = END * (self.order - 1)
        symbols = before + text.encode().decode("latin-1") + END
        for i in range(len(before), len(symbols)):
            yield symbols[i - len(before) : i], symbols[i]

    def probability(self, context, symbol):
        """P(symbol | context), a context of n - 1 symbols or fewer."""
        p = 1 / NUM_SYMBOLS
        for length, (discounts, followers) in enumerate(self.levels[: len(context) + 1]):
            known = followers.get(context[len(context) - length :])
            if known is None:
                break
            counts, total, left_over = known
            count = counts.get(symbol, 0)
            p = (count - discounts[min(count, 3)] + left_over * p) / total
        return p

    def log_prob(self, text):
        """The log-probability of a text and its end, in nats."""
        return sum(math.log(self.probability(*event)) for event in self.events(text))


def level(counts):
    """Discounts, and of each context its counts, their sum, and what the discounts leave over."""
    discounts = discounts_of(Counter(n for c in counts.values() for n in c.values()))
    followers = {
        context: (c, c.total(), sum(discounts[min(n, 3)] for n in c.values()))
        for context, c in counts.items()
    }
    return discounts, followers


def discounts_of(sizes):
    """What is taken from counts of 0, of 1, of 2, and of more: equation 17 of Chen and Goodman.

    Args:
        sizes: how many counts there are of each size.
    """
    y = sizes[1] / max(sizes[1] + 2 * sizes[2], 1)
    discounts = [n - (n + 1) * y * sizes[n + 1] / max(sizes[n], 1) for n in (1, 2, 3)]
    return [0.0, *(min(max(d, 0.0), n) for n, d in enumerate(discounts, start=1))]
