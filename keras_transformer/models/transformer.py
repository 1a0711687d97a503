"""The encoder-decoder model of "Attention Is All You Need", figure 1."""

import keras
from keras import ops

from keras_transformer.checks import check_choice, check_positive_int
from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.layers.linear import Linear
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.positional_embedding import PositionalEmbedding
from keras_transformer.models.attention_weights import attention_weights_of
from keras_transformer.models.decoder import Decoder
from keras_transformer.models.decoding_weights import decoding_weights, logits_of_step, rows_of_step
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.exportable import Exportable, ids_spec
from keras_transformer.models.search_cache import advance, extend_visible, reorder, resize
from keras_transformer.training.token_trainer import TokenTrainer

TYINGS = ("all", "source_target", "target_output", "none")


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(TokenTrainer, Exportable, keras.Model):
    """Reads a source sentence and predicts the target's next token at every position.

    "Attention Is All You Need" (Vaswani et al., 2017), sections 3.1 to 3.5: embeddings times
    sqrt(d_model) plus sinusoids, a stack of encoder layers, a stack of decoder layers, and logits
    by the embedding matrix itself. `Transformer(**presets.BASE, source_vocab_size=37000)` is the
    paper's base model. Weights exist from the start, so no `build` is needed.

    Args:
        num_layers: layers of the encoder, and of the decoder.
        d_model: D, the width; a multiple of `num_heads`.
        num_heads: H.
        d_ff: the width inside the feed-forward networks.
        source_vocab_size: number of source token ids, the four special ones included.
        target_vocab_size: V, `source_vocab_size` by default.
        dropout: rate applied to each sub-layer's output and to the sums of embeddings and
            positions.
        attention_dropout: rate applied to the attention weights.
        feed_forward_dropout: rate applied inside the feed-forward networks.
        activation: activation of the feed-forward networks.
        norm_first: pre-norm instead of the paper's post-norm.
        tied_embeddings: which of the source embedding, the target embedding and the output
            projection are one matrix: "all" (the paper), "source_target", "target_output", "none".
        max_length: the longest source or target, in tokens, when lengths are unknown to the graph.

    Call arguments:
        inputs: a pair `(source_ids, target_ids)`, integers (B, S) and (B, T), padded with 0.
            Targets begin with the start token.
        training: whether dropout is applied.

    Returns:
        Logits (B, T, V), float32: at each position those of the token after it.

    Raises:
        ValueError: for a size or a rate out of range, or a tying that the vocabularies forbid.

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
        num_layers,
        d_model,
        num_heads,
        d_ff,
        source_vocab_size,
        target_vocab_size=None,
        dropout=0.1,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        activation="relu",
        norm_first=False,
        tied_embeddings="all",
        max_length=2048,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # else ids that are floats are rounded
        self.source_vocab_size = check_positive_int("source_vocab_size", source_vocab_size)
        self.target_vocab_size = self.source_vocab_size
        if target_vocab_size is not None:
            self.target_vocab_size = check_positive_int("target_vocab_size", target_vocab_size)
        self.tied_embeddings = check_choice("tied_embeddings", tied_embeddings, TYINGS)
        self._check_tying()
        policy = self.dtype_policy

        def embedding(vocab_size, name):
            sizes = {"vocab_size": vocab_size, "d_model": d_model, "max_length": max_length}
            return PositionalEmbedding(**sizes, dropout=dropout, name=name, dtype=policy)

        stack = {
            "num_layers": num_layers,
            "d_model": d_model,
            "num_heads": num_heads,
            "d_ff": d_ff,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "feed_forward_dropout": feed_forward_dropout,
            "activation": activation,
            "norm_first": norm_first,
            "dtype": policy,
        }
        self.source_embedding = embedding(source_vocab_size, "source_embedding")
        self.target_embedding = self.source_embedding
        if tied_embeddings in ("target_output", "none"):
            self.target_embedding = embedding(self.target_vocab_size, "target_embedding")
        self.encoder = Encoder(**stack, name="encoder")
        self.decoder = Decoder(**stack, name="decoder")
        self.output_projection = None
        if tied_embeddings in ("source_target", "none"):
            self.output_projection = Linear(
                self.target_vocab_size, use_bias=False, name="output_projection", dtype=policy
            )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        vectors = (None, None, self.source_embedding.d_model)
        self.source_embedding.build()
        self.target_embedding.build()
        self.encoder.build(vectors)
        self.decoder.build(vectors, vectors)
        if self.output_projection is not None:
            self.output_projection.build(vectors)
        self.built = True

    def input_signature(self):
        return [(ids_spec("source_ids"), ids_spec("target_ids"))]

    def call(self, inputs, training=None):
        return self.logits(self.hidden(inputs, training))  # (B, T, V)

    def hidden(self, inputs, training=None):
        """The decoder's output (B, T, D), whose product with `output_embeddings` are the logits."""
        if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
            raise ValueError(
                "Transformer takes a pair, (source_ids, target_ids), but has got a "
                f"{type(inputs).__name__}."
            )
        source_ids, target_ids = inputs
        return self.decoder(
            self.target_embedding(target_ids, training=training),
            self.encode(source_ids, training=training),
            padding_mask=padding_mask(target_ids, PAD_ID),
            source_padding_mask=padding_mask(source_ids, PAD_ID),
            training=training,
        )  # (B, T, D)

    def encode(self, source_ids, training=None, step_weights=None):
        """The encoder's output (B, S, D) for `source_ids` (B, S); `step_weights` are its own."""
        return self.encoder(
            self.source_embedding(source_ids, training=training),
            padding_mask=padding_mask(source_ids, PAD_ID),
            step_weights=step_weights,
            training=training,
        )

    def attention_weights(self, inputs):
        """What every head of every layer attends to, each (N, B, H, T, S): `AttentionWeights`."""
        return attention_weights_of(self, inputs)

    def cross_attention_weights(self, inputs):
        """What the last decoder layer reads of the source, the mean of its heads: (B, T, S)."""
        return ops.mean(self.attention_weights(inputs).cross[-1], axis=1)

    def logits(self, x):
        """Scores (..., V), float32, of the decoder's output `x` (..., D)."""
        if self.output_projection is None:
            return self.target_embedding.logits(x)
        return ops.cast(self.output_projection(x), "float32")

    def output_embeddings(self):
        """The matrix (V, D) whose product with the decoder's output are the logits."""
        if self.output_projection is None:
            return ops.copy(self.target_embedding.embeddings.value)  # a tensor, also eagerly
        return ops.transpose(self.output_projection.kernel)

    def decoding_weights(self):
        """What a search multiplies with: `decoding_weights.decoding_weights`.

        Whoever keeps them may lay them out anew, by its `in_blocks` or `in_spaced_rows`.
        """
        if self.output_projection is None:
            kernel = ops.transpose(self.target_embedding.embeddings)  # (D, V)
        else:
            kernel = self.output_projection.kernel
        return decoding_weights(self.decoder, kernel, self.encoder)

    def init_cache(
        self, source_ids, *, max_length, beam_size=1, weights=None, track_coverage=False
    ):
        """Encodes the source once and makes room for the target.

        The keys and values of all beams of a sentence lie side by side; see `search_cache`.

        Args:
            source_ids: integers (B, S), padded with 0.
            max_length: L, the largest number of target tokens.
            beam_size: K, the number of hypotheses of a sentence.
            weights: from `decoding_weights`, to use instead of reading the weights anew.
            track_coverage: whether to add up how much attention each source token gets.

        Returns:
            A dict: "layers", from `Decoder.init_cache`; "source_padding_mask" (B, S); "length", the
            number of tokens so far; "used", the number of keys; "visible" (B, K, L * K), which of
            them each hypothesis sees; "coverage" (B, K, S), if tracked.
        """
        weights = weights or {}
        encoder_output = self.encode(source_ids, False, weights.get("encoder"))  # (B, S, D)
        batch_size, source_length = ops.shape(source_ids)
        self.target_embedding.check_positions(0, max_length)
        size = max_length * beam_size
        cache = {
            "layers": self.decoder.init_cache(
                encoder_output, batch_size, size, weights.get("decoder")
            ),
            "source_padding_mask": padding_mask(source_ids, PAD_ID),
            "length": ops.convert_to_tensor(0, "int32"),
            "used": ops.convert_to_tensor(0, "int32"),
            "visible": ops.zeros((batch_size, beam_size, size), "bool"),
        }
        if track_coverage:
            cache["coverage"] = ops.zeros((batch_size, beam_size, source_length), "float32")
        return cache

    def decode_step(self, token_ids, cache, position, rows=None, weights=None):
        """One token for every hypothesis: the `step_fn` of the searches.

        Args:
            token_ids: integers (B * K,), the last token of each hypothesis, a sentence's K
                hypotheses side by side.
            cache: from `init_cache`, `reorder_cache`, `resize_cache` or the last step.
            position: integer scalar, the number of earlier steps.
            rows: integers (R,), the hypotheses whose logits are wanted; all by default.
            weights: from `decoding_weights`, to use instead of reading the weights anew.

        Returns:
            Logits (R, V), by default (B * K, V), float32, and the new cache.
        """
        beam_size = cache["visible"].shape[1]
        visible = extend_visible(cache["visible"], cache["used"])  # (B, K, M)
        x = self.target_embedding(ops.expand_dims(token_ids, 1), position=position, training=False)
        d_model = x.shape[-1]
        x, scores, layers = self.decoder(
            ops.reshape(x, (-1, beam_size, d_model)),
            attention_mask=visible,
            source_padding_mask=cache["source_padding_mask"],
            cache=cache["layers"],
            position=cache["used"],
            step_weights=weights and weights["decoder"],
            return_attention_scores=True,
            training=False,
        )  # (B, K, D)
        x = rows_of_step(x, rows)  # (R, D)
        logits = logits_of_step(x, weights, self.target_vocab_size) if weights else self.logits(x)
        cache = advance(cache, layers, visible)
        if "coverage" in cache:
            attention = ops.mean(scores[-1]["cross"], axis=1)  # (B, K, S)
            cache["coverage"] = cache["coverage"] + attention
        return logits, cache

    def reorder_cache(self, cache, rows):
        """The cache after each hypothesis went on from row `rows[i]`; see `search_cache`."""
        return reorder(cache, rows)

    def resize_cache(self, cache, sentences, max_length):
        """The cache of some sentences, with room for more tokens; see `search_cache`."""
        return resize(cache, sentences, max_length)

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
        return (*input_shape[1], self.target_vocab_size)

    def get_config(self):
        stack = self.encoder.get_config()
        del stack["norm"], stack["rotary"]
        own = {
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "tied_embeddings": self.tied_embeddings,
            "max_length": self.source_embedding.max_length,
        }
        return {**stack, **own, **super().get_config()}
