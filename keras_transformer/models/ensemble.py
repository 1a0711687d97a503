"""Several models as one: at every step of a search, the mean of their probabilities."""

import itertools
import math
from collections.abc import Sequence

from keras import ops

from keras_transformer.checks import check_has
from keras_transformer.models.transformer import Transformer

SIZES = ("source_vocab_size", "target_vocab_size")
EMBEDDINGS = ("source_embedding", "target_embedding")
# What a search of texts calls.
SEARCH_METHODS = ("init_cache", "decode_states", "logits", "reorder_cache", "compact_cache")


class Ensemble:
    """Translates with several models at once: the mean of their probabilities of a next token.

    It usually translates better than each of its members, and takes the time of all of them. So it
    makes a good teacher: `keras-transformer distil` trains a student on its translations. A
    `Translator` and the searches take it in place of a model. It cannot be exported.

    Args:
        members: models with one tokenizer, such as trainings of one text by several seeds. Their
            sizes may differ.

    Call arguments:
        inputs: as of a `Transformer`.
        training: whether dropout is applied.

    Returns:
        Log-probabilities (B, T, V), float32: at each position, of the token after it.

    Raises:
        ValueError: if there is no member, or their vocabularies differ in size.
        TypeError: if a member is no model for a search.

    Example:
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
        >>> models = [Transformer(**sizes, source_vocab_size=12) for _ in range(3)]
        >>> ops.shape(Ensemble(models)((np.array([[5, 6, 3]]), np.array([[2, 7]]))))
        (1, 2, 12)
    """

    def __init__(self, members: Sequence[Transformer]):
        self.members = list(members)
        if not self.members:
            raise ValueError("members is empty; give at least one model.")
        for i, member in enumerate(self.members):
            check_has(
                f"members[{i}]", "Transformer", member, (*SIZES, *EMBEDDINGS, *SEARCH_METHODS)
            )
        for name in SIZES:
            sizes = [getattr(member, name) for member in self.members]
            if len(set(sizes)) > 1:
                raise ValueError(
                    f"members must have one {name}, but have {', '.join(map(str, sizes))}; train "
                    "them with one tokenizer."
                )
        self.source_vocab_size, self.target_vocab_size = (
            getattr(self.members[0], name) for name in SIZES
        )
        # The embedding that reads the fewest positions: what a `Translator` compares its limits to.
        embeddings = (member.source_embedding for member in self.members)
        self.source_embedding = min(embeddings, key=lambda embedding: embedding.max_length)

    def __repr__(self):
        return f"<Ensemble of {len(self.members)}>"

    def __call__(self, inputs, training=None):
        return log_mean([member(inputs, training=training) for member in self.members])

    def cross_attention_scores(self, inputs):
        """Computes what the members' last decoder layers read of the source: their mean."""
        scores = [member.cross_attention_scores(inputs) for member in self.members]
        return sum(scores) / len(scores)  # (B, T, S)

    def init_cache(self, source_ids, **options):
        """Makes the cache of a search; see `Transformer.init_cache`."""
        return joined([member.init_cache(source_ids, **options) for member in self.members])

    def decode_step(self, token_ids, cache, position, *, in_place=False):
        """Reads one token of every hypothesis: the `step_fn` of the searches.

        Returns:
            Log-probabilities (B * K, V), float32, and the new cache.
        """
        states, cache = self.decode_states(token_ids, cache, position, in_place=in_place)
        return self.logits(states), cache

    def decode_states(self, token_ids, cache, position, *, in_place=False):
        """Reads one token of every hypothesis.

        Returns:
            The members' hidden states side by side, (B * K, D1 + D2 + ...), and the new cache.
        """
        pairs = zip(self.members, cache["members"], strict=True)
        steps = [
            member.decode_states(token_ids, own, position, in_place=in_place)
            for member, own in pairs
        ]
        states, caches = zip(*steps, strict=True)
        return ops.concatenate(states, axis=-1), joined(list(caches))

    def logits(self, hidden_states):
        """Computes log-probabilities (..., V) from hidden states (..., D1 + D2 + ...)."""
        widths = (member.target_embedding.d_model for member in self.members)
        ends = itertools.pairwise(itertools.accumulate(widths, initial=0))
        parts = zip(self.members, ends, strict=True)
        return log_mean([member.logits(hidden_states[..., a:b]) for member, (a, b) in parts])

    def reorder_cache(self, cache, rows):
        """Returns the cache in which hypothesis i continues what was in row `rows[i]`."""
        pairs = zip(self.members, cache["members"], strict=True)
        return joined([member.reorder_cache(own, rows) for member, own in pairs])

    def compact_cache(self, cache, sentences, capacity):
        """Returns the cache of some sentences, with room for `capacity` tokens."""
        pairs = zip(self.members, cache["members"], strict=True)
        return joined([member.compact_cache(own, sentences, capacity) for member, own in pairs])


def log_mean(logits):
    """Computes the logarithm of the mean of the probabilities that several logits stand for.

    Args:
        logits: a list of tensors (..., V).

    Returns:
        Tensor (..., V), float32.
    """
    log_probs = ops.stack([ops.log_softmax(ops.cast(x, "float32"), axis=-1) for x in logits])
    return ops.logsumexp(log_probs, axis=0) - math.log(len(logits))


def joined(caches):
    """Returns the cache of an ensemble: those of its members, and the mean of their coverage."""
    cache = {"members": caches}
    if "coverage" in caches[0]:
        cache["coverage"] = sum(own["coverage"] for own in caches) / len(caches)  # (B, K, S)
        cache["source_padding_mask"] = caches[0]["source_padding_mask"]
    return cache
