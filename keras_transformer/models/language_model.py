"""The decoder-only model: a text's next token from those before it."""

import keras
from keras import ops

from keras_transformer.checks import check_choice, check_positive_int
from keras_transformer.data.special_tokens import END_ID, PAD_ID
from keras_transformer.layers.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    segment_mask,
)
from keras_transformer.layers.positional_embedding import PositionalEmbedding
from keras_transformer.models.decoder import Decoder
from keras_transformer.models.decoding_weights import (
    decoding_weights,
    logits_of_step,
    rows_of_step,
)
from keras_transformer.models.exportable import Exportable
from keras_transformer.models.search_cache import advance, extend_visible, reorder, resize
from keras_transformer.training.token_trainer import TokenTrainer

POSITIONS = ("sinusoidal", "rotary")


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(TokenTrainer, Exportable, keras.Model):
    """Reads a text and predicts its next token at every position.

    The decoder of "Attention Is All You Need" without cross-attention (Liu et al., 2018,
    "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3), pre-norm as since GPT-2
    (Radford et al., 2019). The embedding times sqrt(d_model) begins it, and the same matrix ends
    it. The decoder of most language models since 2023 is
    `LanguageModel(positions="rotary", norm="rms_norm", activation="swiglu", ...)`.

    A text begins with the end token of the one before it. A row may hold several texts, one after
    another (see `data.packing`): positions start anew with each, and none sees another.

    Args:
        num_layers: N.
        d_model: D, the width; a multiple of `num_heads`.
        num_heads: H.
        d_ff: the width inside the feed-forward networks.
        vocab_size: V, the number of token ids, the four special ones included.
        dropout: rate applied to each sub-layer's output and to the embeddings.
        attention_dropout: rate applied to the attention weights.
        feed_forward_dropout: rate applied inside the feed-forward networks.
        activation: activation of the feed-forward networks; see `FeedForward`.
        norm_first: pre-norm instead of the paper's post-norm.
        norm: "layer_norm" or "rms_norm".
        positions: "sinusoidal", added to the embeddings, or "rotary", which turn queries and keys.
        max_length: the most tokens that it is to read at a time, those it was trained on.

    Call arguments:
        inputs: integers (B, T), padded with 0 at the end.
        training: whether dropout is applied.

    Returns:
        Logits (B, T, V), float32: at each position those of the token after it.

    Raises:
        ValueError: for a size or a rate out of range, or another choice.

    Example:
        >>> model = LanguageModel(num_layers=1, d_model=8, num_heads=2, d_ff=16, vocab_size=12)
        >>> ops.shape(model(np.array([[3, 5, 6]])))
        (1, 3, 12)
    """

    def __init__(
        self,
        *,
        num_layers,
        d_model,
        num_heads,
        d_ff,
        vocab_size,
        dropout=0.1,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        activation="relu",
        norm_first=True,
        norm="layer_norm",
        positions="sinusoidal",
        max_length=1024,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # else ids that are floats are rounded
        self.vocab_size = check_positive_int("vocab_size", vocab_size)
        self.positions = check_choice("positions", positions, POSITIONS)
        self.max_length = check_positive_int("max_length", max_length)
        self.embedding = PositionalEmbedding(
            vocab_size,
            d_model,
            dropout=dropout,
            max_length=max_length,
            sinusoids=positions == "sinusoidal",
            name="embedding",
            dtype=self.dtype_policy,
        )
        self.decoder = Decoder(
            num_layers,
            d_model,
            num_heads,
            d_ff,
            dropout=dropout,
            attention_dropout=attention_dropout,
            feed_forward_dropout=feed_forward_dropout,
            activation=activation,
            norm_first=norm_first,
            norm=norm,
            rotary=positions == "rotary",
            cross_attention=False,
            name="decoder",
            dtype=self.dtype_policy,
        )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        self.embedding.build()
        self.decoder.build((None, None, self.embedding.d_model))
        self.built = True

    def call(self, inputs, training=None):
        return self.embedding.logits(self.hidden(inputs, training))  # (B, T, V)

    def hidden(self, inputs, training=None):
        """The decoder's output (B, T, D), whose product with `output_embeddings` are the logits."""
        return self._read(inputs, training=training)

    def _read(self, ids, *, cache=None, training=None):
        """The decoder's output for ids (B, T); each token sees those of its text up to itself."""
        visible = combine_masks(causal_mask(ops.shape(ids)[1]), segment_mask(text_numbers(ids)))
        positions = ops.sum(ops.cast(visible, "int32"), axis=2) - 1  # (B, T)
        return self.decoder(
            self.embedding(ids, positions=positions, training=training),
            attention_mask=combine_masks(visible, padding_mask(ids, PAD_ID)),  # (B, T, T)
            cache=cache,
            position=None if cache is None else 0,
            positions=positions,
            training=training,
        )

    def output_embeddings(self):
        """The matrix (V, D) whose product with the decoder's output are the logits."""
        return ops.copy(self.embedding.embeddings.value)  # a tensor, also eagerly

    def decoding_weights(self):
        """What a search multiplies with: `decoding_weights.decoding_weights`.

        Whoever keeps them may lay them out anew, by `in_blocks` or `in_spaced_rows` of the same
        file.
        """
        return decoding_weights(self.decoder, ops.transpose(self.embedding.embeddings))

    def init_cache(self, context_ids, *, max_length, beam_size=1):
        """Reads what comes before the first token of a search, and makes room for what follows.

        All tokens of the contexts go through the model at once. Contexts may differ in length: a
        hypothesis goes on from the end of its own, and does not see the padding of a shorter one.
        All beams of a text share the keys of its context; see `search_cache`.

        Args:
            context_ids: integers (B, P), padded with 0; see `split_prompts`.
            max_length: L, the largest number of tokens that follow.
            beam_size: K, the number of hypotheses of a text.

        Returns:
            A dict: "layers", from `Decoder.init_cache`; "start" (B,), the number of tokens that the
            first of a search sees; "length", the number of tokens that followed so far; "used", the
            number of keys; "visible" (B, K, M), which of them each hypothesis sees.
        """
        batch_size, length = ops.shape(context_ids)
        self.embedding.check_positions(length, max_length)
        context_ids = ops.pad(context_ids, ((0, 0), (0, -length % beam_size)))  # keys, K at a time
        length, room = ops.shape(context_ids)[1], max_length * beam_size
        cache = self.decoder.init_cache(None, batch_size, length)
        _, layers = self._read(context_ids, cache=cache, training=False)
        texts = text_numbers(context_ids)  # (B, P)
        is_last = ops.equal(texts, ops.max(texts, axis=1, keepdims=True, initial=0))
        seen = ops.logical_and(is_last, padding_mask(context_ids, PAD_ID))  # (B, P)

        def with_room(x):
            return ops.pad(x, ((0, 0), (0, 0), (0, room), (0, 0)))  # (H, B, P + L * K, D/H)

        visible = ops.tile(ops.expand_dims(seen, 1), (1, beam_size, 1))  # (B, K, P)
        unseen = ops.zeros((batch_size, beam_size, room), "bool")
        return {
            "layers": [{"self": tuple(map(with_room, layer["self"]))} for layer in layers],
            "start": ops.sum(ops.cast(seen, "int32"), axis=1),
            "length": ops.convert_to_tensor(0, "int32"),
            "used": ops.convert_to_tensor(length, "int32"),
            "visible": ops.concatenate([visible, unseen], axis=2),
        }

    def decode_step(self, token_ids, cache, position, rows=None, weights=None):
        """One token for every hypothesis: the `step_fn` of the searches.

        Args:
            token_ids: integers (B * K,), the last token of each hypothesis, a text's K hypotheses
                side by side.
            cache: from `init_cache`, `reorder_cache`, `resize_cache` or the last step.
            position: integer scalar, the number of earlier steps.
            rows: integers (R,), the hypotheses whose logits are wanted; all by default.
            weights: from `decoding_weights`, to use instead of reading the weights anew.

        Returns:
            Logits (R, V), by default (B * K, V), float32, and the new cache.
        """
        beam_size, d_model = cache["visible"].shape[1], self.embedding.d_model
        visible = extend_visible(cache["visible"], cache["used"])  # (B, K, M)
        positions = ops.repeat(cache["start"] + position, beam_size)  # (B * K,)
        x = self.embedding(
            ops.expand_dims(token_ids, 1), positions=ops.expand_dims(positions, 1), training=False
        )
        x, layers = self.decoder(
            ops.reshape(x, (-1, beam_size, d_model)),
            attention_mask=visible,
            cache=cache["layers"],
            position=cache["used"],
            positions=ops.reshape(positions, (-1, beam_size)),
            step_weights=weights and weights["decoder"],
            training=False,
        )  # (B, K, D)
        x = rows_of_step(x, rows)  # (R, D)
        if weights:
            logits = logits_of_step(x, weights, self.vocab_size)  # (R, V)
        else:
            logits = self.embedding.logits(x)  # (R, V)
        return logits, advance(cache, layers, visible)

    def reorder_cache(self, cache, rows):
        """The cache after each hypothesis went on from row `rows[i]`; see `search_cache`."""
        return reorder(cache, rows)

    def resize_cache(self, cache, sentences, max_length):
        """The cache of some texts, with room for more tokens; see `search_cache`."""
        return resize(cache, sentences, max_length)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.vocab_size)

    def get_config(self):
        stack = self.decoder.get_config()
        del stack["rotary"], stack["cross_attention"]
        own = {
            "vocab_size": self.vocab_size,
            "positions": self.positions,
            "max_length": self.max_length,
        }
        return {**stack, **own, **super().get_config()}


def text_numbers(ids):
    """Which text of its row each token belongs to.

    Args:
        ids: integers (B, T); each end token begins a text.

    Returns:
        Integers (B, T), from 0 or 1 on in each row.

    Example:
        >>> np.array(text_numbers(np.array([[3, 5, 6, 3, 7], [8, 9, 3, 5, 0]]))).tolist()
        [[1, 1, 1, 2, 2], [0, 0, 1, 1, 1]]
    """
    return ops.cumsum(ops.cast(ops.equal(ids, END_ID), "int32"), axis=1)


def split_prompts(prompt_ids):
    """What a search for continuations begins with.

    A prompt is read after the end token of the text before it; the search takes over its last
    token.

    Args:
        prompt_ids: integers (B, P), padded with 0 at the end; empty prompts are of padding alone.

    Returns:
        The tokens before the last of each, (B, P), padded with 0, for `init_cache`, and that last
        token, (B,), the `start_ids` of a search.

    Example:
        >>> context_ids, start_ids = split_prompts(np.array([[5, 6, 7], [8, 0, 0], [0, 0, 0]]))
        >>> np.array(context_ids).tolist(), np.array(start_ids).tolist()
        ([[3, 5, 6], [3, 0, 0], [0, 0, 0]], [7, 8, 3])
    """
    prompt_ids = ops.cast(prompt_ids, "int32")
    lengths = ops.sum(ops.cast(padding_mask(prompt_ids, PAD_ID), "int32"), axis=1, keepdims=True)
    ids = ops.pad(prompt_ids, ((0, 0), (1, 0)), constant_values=END_ID)  # (B, 1 + P)
    start_ids = ops.take_along_axis(ids, lengths, axis=1)[:, 0]
    before = ops.arange(ops.shape(prompt_ids)[1]) < lengths  # (B, P)
    return ops.where(before, ids[:, :-1], PAD_ID), start_ids
