"""What attention reads besides its input, and what it records.

All are plain objects, which pass Keras's calls as they are: Keras copies the lists and dicts that
it is given.
"""

from typing import NamedTuple

from keras_transformer._typing import Tensor
from keras_transformer.backend import write_slice, write_slice_in_place


class Memory(NamedTuple):
    """What cross-attention reads, projected once for many calls.

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
    """Keys and values of the positions so far, for a call that computes the next ones.

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
        self, keys: Tensor | None = None, values: Tensor | None = None, index: int | Tensor = 0
    ):
        self.keys, self.values, self.index = keys, values, index

    def update(self, key, value):
        """Writes keys and values (B, H, T, D/H) at the index.

        Returns:
            Those of all places, two tensors (B, H, L, D/H).
        """
        if self.keys is None:
            self.keys, self.values = key, value
        else:
            self.keys = self._write(self.keys, key, self.index)
            self.values = self._write(self.values, value, self.index)
        return self.keys, self.values

    _write = staticmethod(write_slice)


class InPlaceKVCache(KVCache):
    """One whose tensors nobody else holds: `update` writes into their memory.

    L and the index must be multiples of T.

    Args:
        keys: tensor (B, H, L, D/H).
        values: tensor (B, H, L, D/H).
        index: integer scalar, the first free place.
        rows: from `slice_rows`, for all caches of a step alike.
    """

    def __init__(self, keys, values, index=0, rows=None):
        super().__init__(keys, values, index)
        self.rows = rows

    def _write(self, old, new, index):
        return write_slice_in_place(old, new, index, self.rows)


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
    """Calls a `MultiHeadAttention`, and appends its scores to the list `record`, if there is one.

    Returns:
        Its output alone.
    """
    if record is None:
        return layer(*inputs, **options)
    output, scores = layer(*inputs, return_attention_scores=True, **options)
    record.append(scores)
    return output
