"""What attention reads besides its input, and what it records.

`KVCache` and `ScoreRecorder` are plain objects, because Keras copies the lists and dicts that a
layer is called with. A `Memory` is a tuple, and Keras treats its tensors as it does any input.
"""

from typing import NamedTuple

from keras_transformer.backend import write_slice, write_slice_in_place
from keras_transformer.type_hints import Tensor, TensorLike


class Memory(NamedTuple):
    """The keys and values that cross-attention reads, projected once for many calls.

    Attributes:
        keys: tensor (B, H, S, D/H).
        values: tensor (B, H, S, D/H).

    Example:
        >>> attention = MultiHeadAttention(d_model=8, num_heads=2)
        >>> attention.build((None, None, 8))
        >>> memory = attention.project_memory(np.ones((1, 5, 8)))
        >>> ops.shape(attention(np.ones((1, 3, 8)), memory))
        (1, 3, 8)
    """

    keys: Tensor
    values: Tensor


class KVCache:
    """The keys and values of earlier positions, for a call that computes the next ones.

    Args:
        keys: tensor (B, H, L, D/H) with room for L positions; None if there are none yet.
        values: tensor (B, H, L, D/H); None if there are none yet.
        index: integer scalar, the first free place.

    Example:
        >>> layer = DecoderLayer(d_model=8, num_heads=2, d_ff=16, cross_attention=False)
        >>> cache = KVCache(ops.zeros((1, 2, 5, 4)), ops.zeros((1, 2, 5, 4)), index=0)
        >>> first = np.arange(5)[None, None] < 1  # the first token sees the first of 5 places
        >>> ops.shape(layer(np.ones((1, 1, 8)), attention_mask=first, cache=cache))
        (1, 1, 8)
    """

    def __init__(
        self,
        keys: TensorLike | None = None,
        values: TensorLike | None = None,
        index: int | TensorLike = 0,
    ):
        self.keys, self.values, self.index = keys, values, index

    def update(self, key, value):
        """Writes keys and values (B, H, T, D/H) at `index`, which stays where it is.

        Returns:
            All keys and all values, (B, H, L, D/H) each.
        """
        if self.keys is None:
            self.keys, self.values = key, value
        else:
            self.keys, self.values = self._write(self.keys, key), self._write(self.values, value)
        return self.keys, self.values

    def _write(self, old, new):
        return write_slice(old, new, self.index)


class InPlaceKVCache(KVCache):
    """A cache that may overwrite its tensors, because nothing else refers to them.

    L and `index` must be multiples of T.

    Args:
        keys: tensor (B, H, L, D/H).
        values: tensor (B, H, L, D/H).
        index: integer scalar, the first free place.
        rows: from `slice_rows`; the caches of all layers can share them in a step.
        length: L, if it is known without looking at the keys.
    """

    def __init__(self, keys, values, index=0, rows=None, length=None):
        super().__init__(keys, values, index)
        self.rows, self.length = rows, length

    def _write(self, old, new):
        return write_slice_in_place(old, new, self.index, self.rows, self.length)


class ScoreRecorder:
    """Records the attention scores of a call, layer by layer.

    Attributes:
        self_attention: a list of tensors (B, H, T, T), or (B, H, T, L) with a cache.
        cross_attention: a list of tensors (B, H, T, S).

    Example:
        >>> encoder = Encoder(num_layers=2, d_model=8, num_heads=2, d_ff=16)
        >>> scores = ScoreRecorder()
        >>> x = encoder(np.ones((1, 3, 8)), scores=scores)
        >>> [ops.shape(layer) for layer in scores.self_attention]
        [(1, 2, 3, 3), (1, 2, 3, 3)]
    """

    def __init__(self):
        self.self_attention, self.cross_attention = [], []


def attend(layer, *inputs, record=None, **options):
    """Calls a `MultiHeadAttention` and returns its output, without the scores.

    If `record` is a list, the scores are appended to it.
    """
    if record is None:
        return layer(*inputs, **options)
    output, scores = layer(*inputs, return_attention_scores=True, **options)
    record.append(scores)
    return output
