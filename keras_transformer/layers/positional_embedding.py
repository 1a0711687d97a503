"""Token embeddings plus the sinusoids of the paper's section 3.5."""

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import take
from keras_transformer.checks import check_positive_int, check_rate
from keras_transformer.keras_names import KerasNames
from keras_transformer.layers.arguments import config_of, keep_arguments
from keras_transformer.layers.dropout import Dropout
from keras_transformer.type_hints import Floats, KerasOptions

# How a model learns the order of its tokens: from sinusoids added to the embeddings, or from
# rotations of queries and keys.
POSITIONS = ("sinusoidal", "rotary")


def sinusoidal_positions(length: int, d_model: int) -> Floats:
    """Computes the positional encoding of "Attention Is All You Need", section 3.5.

    `PE(pos, 2i) = sin(pos / 10000^(2i/d))` and `PE(pos, 2i+1) = cos(pos / 10000^(2i/d))`. Each
    pair (2i, 2i+1) turns by a fixed angle per position, so a fixed rotation takes the encoding at
    `pos` to the one at `pos + k`. For odd `d_model` the last sine has no cosine beside it.

    Args:
        length: the number of positions.
        d_model: the width of the encoding, odd or even.

    Returns:
        Array (length, d_model), float32, rounded once from float64.

    Example:
        >>> print(sinusoidal_positions(2, 4).round(2))
        [[0.   1.   0.   1.  ]
         [0.84 0.54 0.01 1.  ]]
    """
    position = np.arange(length)[:, None]  # (T, 1)
    column = np.arange(d_model)[None, :]  # (1, D)
    angle = position / 10000.0 ** ((column - column % 2) / d_model)  # (T, D)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle)).astype("float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEmbedding(KerasNames, keras.layers.Layer):
    """Embeds token ids and adds their positions.

    Attention alone sees a set; the sinusoids tell it the order. The embedding is multiplied by
    sqrt(d_model) so that they do not drown it: `E[id] * sqrt(d_model) + PE(position)`
    ("Attention Is All You Need", sections 3.4 and 3.5).

    Args:
        vocab_size: V, the number of token ids.
        d_model: D, the width of the embedding.
        dropout: rate applied to the sum.
        max_length: the number of positions in the table. It is extended for a longer sequence, if
            its length is known when the graph is built.
        sinusoids: whether to add positions; `rotary` attention does not need them.

    Call arguments:
        ids: integers (B, T) in [0, vocab_size).
        position_ids: integers (T,) or (B, T), the position of each token; 0, 1, ... by default.
        training: whether dropout is applied; Keras passes it on to the layers inside.

    Returns:
        Tensor (B, T, D) in the layer's compute dtype.

    Raises:
        ValueError: if a size is below 1 or the rate outside [0, 1).

    Example:
        >>> layer = PositionalEmbedding(vocab_size=10, d_model=4)
        >>> ops.shape(layer(np.array([[2, 5, 3]])))
        (1, 3, 4)
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        dropout: float = 0.0,
        max_length: int = 2048,
        sinusoids: bool = True,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(autocast=False, **kwargs)  # it would round ids given as floats
        self.supports_masking = True
        keep_arguments(self, locals())
        self.vocab_size = check_positive_int("vocab_size", vocab_size)
        self.d_model = check_positive_int("d_model", d_model)
        check_rate("dropout", dropout)
        self.max_length = check_positive_int("max_length", max_length)
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)
        self.sinusoids = sinusoids
        self.table = sinusoidal_positions(max_length, d_model) if sinusoids else None

    def build(self, ids_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            autocast=False,  # it would cast the whole matrix for every lookup
        )

    def call(self, ids, position_ids=None):
        # Under a MirroredStrategy, `fit` traces the model with a mean of ids, which is a float.
        ids = ops.cast(ids, "int32")
        x = self.lookup(ids) * self.d_model**0.5  # (B, T, D)
        if self.sinusoids:
            x = x + self.positions(ops.shape(ids)[1], position_ids)  # (B, T, D)
        return self.dropout_layer(ops.cast(x, self.compute_dtype))

    def lookup(self, ids):
        """Returns the rows of the embedding matrix for `ids` (B, T): float32 (B, T, D)."""
        return ops.cast(take(self.embeddings, ids), "float32")

    def positions(self, length, position_ids=None):
        """Returns the sinusoids of `position_ids`, by default of the first `length` positions.

        Returns:
            float32 tensor, (T, D) or (B, T, D).
        """
        table = self.table
        if isinstance(length, int) and length > self.max_length:
            table = sinusoidal_positions(length, self.d_model)
        if position_ids is not None:
            return take(table, position_ids)
        return ops.convert_to_tensor(table)[:length]

    def check_positions(self, first, number):
        """Refuses a search that would need more positions than the table has.

        Args:
            first: the number of tokens before the search.
            number: the largest number of tokens that the search adds.
        """
        known = isinstance(first, int) and isinstance(number, int)
        if self.sinusoids and known and first + number > self.max_length:
            raise ValueError(
                f"max_length={number} tokens after {first} others need {first + number} positions, "
                f"but the model has max_length={self.max_length}; search for fewer tokens, or make "
                "the model with a larger max_length."
            )

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)

    def get_config(self):
        return {**super().get_config(), **config_of(self)}
