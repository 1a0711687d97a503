"""The encoder-decoder model of "Attention Is All You Need", figure 1."""

from functools import partial
from typing import NamedTuple, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_choice, check_int, check_positive_int
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID
from keras_transformer.decoding.strategies import Strategy
from keras_transformer.layers.arguments import keep_arguments, layer_options
from keras_transformer.layers.attention_memory import ScoreRecorder
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.masks import padding_mask
from keras_transformer.models.decoder import Decoder
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.generation import Rows, padded_rows, search_ids
from keras_transformer.models.search_cache import empty_cache
from keras_transformer.models.sequence_model import ids_spec
from keras_transformer.models.token_model import TokenModel
from keras_transformer.type_hints import Elementwise, KerasOptions, Tensor

TIED_EMBEDDINGS = ("all", "source_target", "target_output", "none")


class AttentionScores(NamedTuple):
    """The scores of the paper's three uses of attention (section 3.2.3), without dropout.

    Row t of a map says how much position t takes from each position that it may attend to, and sums
    to 1. In the decoder, position t is the one that predicts target token t.

    Attributes:
        encoder: float32 (N, B, H, S, S), source positions to source positions.
        decoder: float32 (N, B, H, T, T), target positions to those up to themselves.
        cross: float32 (N, B, H, T, S), target positions to source positions.

    Example:
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
        >>> model = Transformer(**sizes, source_vocab_size=12)
        >>> scores = model.attention_scores((np.array([[5, 6, 3]]), np.array([[2, 7]])))
        >>> ops.shape(scores.cross)
        (1, 1, 2, 2, 3)
    """

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(TokenModel):
    """Reads a source sentence and predicts the target's next token at every position.

    "Attention Is All You Need" (Vaswani et al., 2017), sections 3.1 to 3.5: embeddings times
    sqrt(d_model) plus sinusoids, a stack of encoder layers, a stack of decoder layers, and logits
    by the embedding matrix itself. `Transformer(**presets.BASE, source_vocab_size=37000)` is the
    paper's base model. The weights exist from the start; you need not call `build`.

    Args:
        num_layers: N, the number of layers of the encoder and of the decoder.
        d_model, num_heads, d_ff: the sizes of each layer; see `EncoderLayer`.
        source_vocab_size: the number of source token ids, the four special ones included.
        target_vocab_size: V, the number of target token ids; `source_vocab_size` by default.
        num_decoder_layers: the number of layers of the decoder; `num_layers` by default.
        dropout: rate applied to the output of each sub-layer and to the embeddings.
        attention_dropout, feed_forward_dropout, activation, norm_first, norm, use_bias: as in
            `EncoderLayer`; the defaults are the paper's.
        positions: "sinusoidal" adds them to the embeddings; "rotary" turns queries and keys of
            self-attention.
        tied_embeddings: which of the source embedding, the target embedding and the output
            projection are one matrix: "all" (the paper), "source_target", "target_output", "none".
        max_length: the longest sequence that a graph of unknown length can read.

    Call arguments:
        inputs: a pair `(source_ids, target_ids)`, integers (B, S) and (B, T), padded with 0; or a
            dict with these names. Targets begin with the start token.
        training: whether dropout is applied.

    Returns:
        Logits (B, T, V), float32: at each position, of the token after it.

    Raises:
        ValueError: for a size or a rate out of range, an unknown name, or `tied_embeddings` that
            need one vocabulary where there are two.

    Example:
        >>> model = Transformer(
        ...     num_layers=1, d_model=8, num_heads=2, d_ff=16, source_vocab_size=12
        ... )
        >>> ops.shape(model((np.array([[5, 6, 3]]), np.array([[2, 7]]))))
        (1, 2, 12)
    """

    def __init__(
        self,
        *,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        num_decoder_layers: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str | Elementwise = "relu",
        norm_first: bool = False,
        norm: str = "layer_norm",
        use_bias: bool = True,
        positions: str = "sinusoidal",
        tied_embeddings: str = "all",
        max_length: int = 2048,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(**kwargs)
        arguments = keep_arguments(self, locals())
        self.source_vocab_size = check_positive_int("source_vocab_size", source_vocab_size)
        self.target_vocab_size = self.source_vocab_size
        if target_vocab_size is not None:
            self.target_vocab_size = check_positive_int("target_vocab_size", target_vocab_size)
        self.tied_embeddings = check_choice("tied_embeddings", tied_embeddings, TIED_EMBEDDINGS)
        self._check_tying()
        if num_decoder_layers is not None:
            check_positive_int("num_decoder_layers", num_decoder_layers)
        options = {**layer_options(arguments), "rotary": positions == "rotary"}
        sizes, policy = (d_model, num_heads, d_ff), self.dtype_policy
        embedding = partial(self.make_embedding, positions=positions)
        self.source_embedding = embedding(self.source_vocab_size, "source_embedding")
        self.target_embedding, self.output_projection = self.source_embedding, None
        if tied_embeddings in ("target_output", "none"):
            self.target_embedding = embedding(self.target_vocab_size, "target_embedding")
        if tied_embeddings in ("source_target", "none"):
            self.output_projection = Dense(
                self.target_vocab_size, use_bias=False, name="output_projection", dtype=policy
            )
            self.output_projection.is_matrix = True
        self.encoder = Encoder(num_layers, *sizes, name="encoder", dtype=policy, **options)
        depth = num_decoder_layers or num_layers
        self.decoder = Decoder(depth, *sizes, name="decoder", dtype=policy, **options)
        self.build()

    def input_signature(self):
        return [(ids_spec("source_ids"), ids_spec("target_ids"))]

    def hidden_states(self, inputs, training=None, scores=None):
        """Computes the decoder's output. Its product with `lm_head_kernel` is the logits.

        Args:
            inputs: as in the call.
            training: whether dropout is applied.
            scores: a pair of `ScoreRecorder`, for the encoder and for the decoder; or None.

        Returns:
            Tensor (B, T, D).
        """
        source_ids, target_ids = as_pair(inputs)
        encoder_scores, decoder_scores = scores or (None, None)
        return self.decoder(
            self.target_embedding(target_ids, training=training),
            self.encode(source_ids, training=training, scores=encoder_scores),
            padding_mask=padding_mask(target_ids, PAD_ID),
            source_padding_mask=padding_mask(source_ids, PAD_ID),
            scores=decoder_scores,
            training=training,
        )  # (B, T, D)

    def encode(self, source_ids, training=None, scores=None):
        """Computes the encoder's output (B, S, D) for `source_ids` (B, S)."""
        return self.encoder(
            self.source_embedding(source_ids, training=training),
            padding_mask=padding_mask(source_ids, PAD_ID),
            scores=scores,
            training=training,
        )

    def attention_scores(self, inputs) -> AttentionScores:
        """Computes what every head of every layer attends to."""
        encoder, decoder = ScoreRecorder(), ScoreRecorder()
        self.hidden_states(inputs, training=False, scores=(encoder, decoder))
        kinds = encoder.self_attention, decoder.self_attention, decoder.cross_attention
        return AttentionScores(*map(ops.stack, kinds))

    def cross_attention_scores(self, inputs):
        """Computes what the last decoder layer reads of the source: (B, T, S), its heads' mean."""
        return ops.mean(self.attention_scores(inputs).cross[-1], axis=1)

    def lm_head_kernel(self):
        """Returns the matrix (V, D) that turns the decoder's output into logits."""
        if self.output_projection is None:
            return ops.copy(self.target_embedding.embeddings.value)  # a tensor, also eagerly
        return ops.transpose(self.output_projection.kernel)

    def init_cache(self, source_ids, *, max_length, beam_size=1, track_coverage=False):
        """Encodes the source once, and makes the cache of a search for the target.

        Args:
            source_ids: integers (B, S), padded with 0.
            max_length: L, the largest number of target tokens.
            beam_size: K, the number of hypotheses per sentence.
            track_coverage: whether to add up how much attention each source token gets.

        Returns:
            The cache, a dict of tensors; see `search_cache`.
        """
        self.target_embedding.check_positions(0, max_length)
        batch_size, source_length = ops.shape(source_ids)
        cache = empty_cache(self.decoder, batch_size, max_length, beam_size)
        cache["memory"] = self.decoder.project_memory(self.encode(source_ids, training=False))
        cache["source_padding_mask"] = padding_mask(source_ids, PAD_ID)
        if track_coverage:
            cache["coverage"] = ops.zeros((batch_size, beam_size, source_length), "float32")
        return cache

    def translate(
        self,
        source_ids: Rows,
        strategy: Strategy | str = "beam",
        *,
        max_length: int = 256,
        start_id: int = START_ID,
        end_id: int = END_ID,
    ) -> list[list[int]]:
        """Translates ids to ids, for a tokenizer of your own; `Translator` translates texts.

        Args:
            source_ids: rows of ids as in training, usually with an end token; 0 at the end is
                padding.
            strategy: `Beam(...)`, `Greedy(...)`, `Sample(...)`, or "beam" or "greedy".
            max_length: the most tokens of a translation, the end token included.
            start_id: the token that targets began with in training.
            end_id: the token that ended them.

        Returns:
            A list of ids for each row, without `start_id`, `end_id` and padding.

        Raises:
            ValueError: if `source_ids` are not rows of ids, or an argument is out of range.

        Example:
            >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
            >>> model = Transformer(**sizes, source_vocab_size=12)
            >>> [len(ids) <= 4 for ids in model.translate([[5, 6, 3], [7, 3]], max_length=4)]
            [True, True]
        """
        ids = padded_rows("source_ids", source_ids, self.source_vocab_size)
        check_int("start_id", start_id, 0, self.target_vocab_size - 1)

        def begin(ids):
            return np.full(len(ids), start_id, "int32"), ids

        return search_ids(self, ids, strategy, begin, end_id=end_id, max_length=max_length)

    def check_batch(self, inputs, labels=None, sample_weight=None):
        super().check_batch(as_pair(inputs), labels, sample_weight)

    def _check_tying(self):
        same_vocabulary = self.tied_embeddings in ("all", "source_target")
        if same_vocabulary and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f'tied_embeddings="{self.tied_embeddings}" needs one vocabulary, but '
                f"source_vocab_size={self.source_vocab_size} and "
                f"target_vocab_size={self.target_vocab_size}; "
                'use tied_embeddings="target_output" or "none".'
            )

    def compute_output_shape(self, input_shape):
        return (*as_pair(input_shape)[1], self.target_vocab_size)


def as_pair(inputs):
    """Returns the inputs of a `Transformer` as a pair; raises a ValueError for others."""
    names = ("source_ids", "target_ids")
    if isinstance(inputs, dict) and set(inputs) == set(names):
        return tuple(inputs[name] for name in names)
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        found = f"the names {sorted(inputs)}" if isinstance(inputs, dict) else type(inputs).__name__
        raise ValueError(
            "Transformer takes a pair, (source_ids, target_ids), or a dict of these two names, but "
            f"received {found}."
        )
    return inputs
