"""The decoder-only model: predicts a text's next token from the tokens before it."""

from typing import Unpack

import keras
from keras import ops

from keras_transformer.data.special_tokens import END_ID, PAD_ID
from keras_transformer.decoding.strategies import Strategy, as_strategy_of_prompts
from keras_transformer.layers.arguments import keep_arguments, layer_options
from keras_transformer.layers.attention_memory import KVCache
from keras_transformer.layers.masks import causal_mask, combine_masks, padding_mask, segment_mask
from keras_transformer.models.decoder import Decoder
from keras_transformer.models.generation import Rows, padded_rows, search_ids
from keras_transformer.models.search_cache import pad_keys, with_row_tables
from keras_transformer.models.token_model import TokenModel
from keras_transformer.type_hints import Elementwise, KerasOptions, Tensor, TensorLike


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(TokenModel):
    """Reads a text and predicts its next token at every position.

    The decoder of "Attention Is All You Need" without cross-attention (Liu et al., 2018,
    "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3), pre-norm as since GPT-2
    (Radford et al., 2019). One matrix embeds the tokens, times sqrt(d_model), and makes the
    logits. Most language models since 2023 use the decoder of
    `LanguageModel(positions="rotary", norm="rms_norm", activation="swiglu", ...)`.

    A text begins with the end token of the text before it. A row may hold several texts, one after
    another (see `PackedBatches`). Positions start again with each text, and no text sees another.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff: the sizes of each layer; see `DecoderLayer`.
        vocab_size: V, the number of token ids, the four special ones included.
        dropout: rate applied to the output of each sub-layer and to the embeddings.
        attention_dropout, feed_forward_dropout, activation, norm_first, norm, use_bias: as in
            `DecoderLayer`, but pre-norm by default.
        positions: "sinusoidal" adds them to the embeddings; "rotary" turns queries and keys.
        max_length: the most tokens that it reads at a time. Train it on rows of that length.

    Call arguments:
        inputs: integers (B, T), padded with 0 at the end.
        training: whether dropout is applied.

    Returns:
        Logits (B, T, V), float32: at each position, of the token after it.

    Raises:
        ValueError: for a size or a rate out of range, or an unknown `norm` or `positions`.

    Example:
        >>> model = LanguageModel(num_layers=1, d_model=8, num_heads=2, d_ff=16, vocab_size=12)
        >>> ops.shape(model(np.array([[3, 5, 6]])))
        (1, 3, 12)
    """

    def __init__(
        self,
        *,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        vocab_size: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str | Elementwise = "relu",
        norm_first: bool = True,
        norm: str = "layer_norm",
        use_bias: bool = True,
        positions: str = "sinusoidal",
        max_length: int = 1024,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(**kwargs)
        arguments = keep_arguments(self, locals())
        self.embedding = self.make_embedding(vocab_size, "embedding", positions)
        self.target_embedding = self.embedding  # the name that `decode_states` reads
        self.vocab_size, self.max_length = self.embedding.vocab_size, self.embedding.max_length
        options = {**layer_options(arguments), "rotary": positions == "rotary"}
        options |= {"name": "decoder", "dtype": self.dtype_policy}
        sizes = d_model, num_heads, d_ff
        self.decoder = Decoder(num_layers, *sizes, cross_attention=False, **options)
        self.build()

    def hidden_states(self, inputs, training=None, cache=None):
        """Computes the decoder's output. Its product with `lm_head_kernel` is the logits.

        Each token sees its own text, up to itself.

        Args:
            inputs: integers (B, T).
            training: whether dropout is applied.
            cache: a list of empty `KVCache`, one per layer, to fill.

        Returns:
            Tensor (B, T, D).
        """
        same_text = segment_mask(text_numbers(inputs))  # (B, T, T)
        visible = combine_masks(causal_mask(ops.shape(inputs)[1]), same_text)  # (B, T, T)
        position_ids = ops.sum(ops.cast(visible, "int32"), axis=2) - 1  # (B, T)
        return self.decoder(
            self.embedding(inputs, position_ids=position_ids, training=training),
            attention_mask=combine_masks(visible, padding_mask(inputs, PAD_ID)),  # (B, T, T)
            position_ids=position_ids,
            cache=cache,
            training=training,
        )

    def lm_head_kernel(self):
        """Returns the matrix (V, D) that turns the decoder's output into logits."""
        return ops.copy(self.embedding.embeddings.value)  # a tensor, also eagerly

    def init_cache(self, context_ids, *, max_length, beam_size=1):
        """Reads the contexts of a search, and makes its cache.

        All tokens of the contexts go through the model at once. Contexts may differ in length: a
        hypothesis continues from the end of its own context and does not see padding. All beams of
        a text share the keys of its context.

        Args:
            context_ids: integers (B, P), padded with 0; see `split_prompts`.
            max_length: L, the largest number of tokens that follow.
            beam_size: K, the number of hypotheses per text.

        Returns:
            The cache, a dict of tensors; see `search_cache`. Its "context_lengths" (B,) are the
            numbers of context tokens that the searches see.
        """
        self.embedding.check_positions(ops.shape(context_ids)[1], max_length)
        caches = [KVCache() for _ in self.decoder.layers]
        self.hidden_states(context_ids, training=False, cache=caches)  # which fills them
        texts = text_numbers(context_ids)  # (B, P)
        is_last = ops.equal(texts, ops.max(texts, axis=1, keepdims=True, initial=0))
        seen = ops.logical_and(is_last, padding_mask(context_ids, PAD_ID))  # (B, P)
        visible = ops.tile(ops.expand_dims(seen, 1), (1, beam_size, 1))  # (B, K, P)
        # What follows begins at a multiple of K.
        missing = -ops.shape(context_ids)[1] % beam_size
        more = missing + max_length * beam_size
        cache = {
            "layers": [(pad_keys(x.keys, more), pad_keys(x.values, more)) for x in caches],
            "context_lengths": ops.sum(ops.cast(seen, "int32"), axis=1),
            "length": ops.convert_to_tensor(0, "int32"),
            "used": ops.convert_to_tensor(ops.shape(context_ids)[1] + missing, "int32"),
            "visible": ops.pad(visible, ((0, 0), (0, 0), (0, more))),  # (B, K, M)
        }
        return with_row_tables(cache)

    def generate(
        self, prompt_ids: Rows, strategy: Strategy | str = "greedy", *, max_length: int = 64
    ) -> list[list[int]]:
        """Continues ids by ids, for a tokenizer of your own; `TextGenerator` continues texts.

        Args:
            prompt_ids: rows of ids; 0 at the end is padding. An empty row begins a text. The token
                3 ends a text, as in training.
            strategy: `Greedy(...)`, `Sample(...)`, `Beam(...)`, or "greedy" or "beam".
            max_length: the most tokens of a continuation, the end token included.

        Returns:
            A list of ids for each row: the continuation, without the end token.

        Raises:
            ValueError: if `prompt_ids` are not rows of ids, or an argument is out of range.

        Example:
            >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
            >>> model = LanguageModel(**sizes, vocab_size=12)
            >>> [len(ids) <= 4 for ids in model.generate([[5, 6], []], max_length=4)]
            [True, True]
        """
        ids = padded_rows("prompt_ids", prompt_ids, self.vocab_size)
        strategy = as_strategy_of_prompts(strategy)

        def begin(ids):
            return split_prompts(ids)[::-1]

        return search_ids(self, ids, strategy, begin, end_id=END_ID, max_length=max_length)

    def check_batch(self, inputs, labels=None, sample_weight=None):
        if isinstance(inputs, (tuple, list, dict)):
            raise ValueError(
                f"LanguageModel takes ids (B, T), one tensor, but received {len(inputs)} in a "
                f"{type(inputs).__name__}."
            )
        super().check_batch(inputs, labels, sample_weight)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.vocab_size)


def text_numbers(ids):
    """Numbers the texts of each row: which of them each token belongs to.

    Args:
        ids: integers (B, T); each end token begins a text.

    Returns:
        Integers (B, T). A row begins with 1, or with 0 if it begins inside a text.

    Example:
        >>> np.array(text_numbers(np.array([[3, 5, 6, 3, 7], [8, 9, 3, 5, 0]]))).tolist()
        [[1, 1, 1, 2, 2], [0, 0, 1, 1, 1]]
    """
    return ops.cumsum(ops.cast(ops.equal(ids, END_ID), "int32"), axis=1)


def split_prompts(prompt_ids: TensorLike) -> tuple[Tensor, Tensor]:
    """Splits prompts into the contexts and the first tokens of a search.

    A prompt follows the end token of the text before it, and its last token begins the search.

    Args:
        prompt_ids: integers (B, P), padded with 0 at the end; a row of padding is an empty prompt.

    Returns:
        The contexts (B, P), padded with 0, for `init_cache`, and the last tokens (B,), the
        `start_ids` of a search.

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
