"""Prompt to text: a tokenizer, a language model and a search as one object."""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.checks import check_texts
from keras_transformer.evaluation.perplexity import TextPerplexity, text_perplexity
from keras_transformer.export.generation_graph import GenerationGraph
from keras_transformer.export.generation_signatures import generation_signatures
from keras_transformer.export.saved_model import export_saved_model
from keras_transformer.export.search_settings import SearchSettings, check_settings
from keras_transformer.export.strings import as_tensor, check_fit

# Texts of similar length whose tokens make one matrix.
SCORED_AT_A_TIME = 64


class Generations(NamedTuple):
    """Whole texts, the continuations that they end with, and the scores of those.

    A score is the log-probability of a continuation over the length penalty.
    """

    texts: list[str]
    continuations: list[str]
    scores: list[float]


class TextScores(NamedTuple):
    """The log-probability of each text, and of each of its tokens, the end token last."""

    log_probs: list[float]
    token_log_probs: list[list[float]]


class TextGenerator(tf.Module):
    """Continues strings with a trained `LanguageModel`, and scores them.

    Tokenization, the search and detokenization are one TensorFlow graph, the same in Python and
    in the exported SavedModel. A prompt is read at once; its continuation does not depend on the
    others in its batch. A text for which the model computes no finite number is continued by "",
    score -1e9.

    Args:
        model: a `LanguageModel`.
        tokenizer: the `Tokenizer` whose ids the model was trained on.
        search: "greedy", "beam" or "sample".
        beam_size: K, hypotheses kept at each step of a beam search.
        length_penalty: alpha of `((5 + n) / 6) ** alpha`; see `length_penalty`.
        min_length: the fewest tokens of a continuation, its end token included.
        no_repeat_ngram: n, if no n tokens in a row may occur twice in a continuation; 0 for any.
        sampler: what `decoding.sampling.sampler` returns, for `search="sample"`.
        max_length: the most tokens of a continuation. Of a prompt the last
            `model.max_length - max_length` tokens are read.
        batch_size: prompts searched at a time; more in a call are sorted by length and split.
        num_streams: as in `Translator`.

    Call arguments:
        prompts: a list of strings, "" for a text from its beginning.

    Returns:
        A list of strings, each a prompt and its continuation.

    Raises:
        ValueError: if an argument is out of range, or tokenizer and model do not fit.
        TypeError: if `prompts` is no list of strings.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> model = LanguageModel(
        ...     num_layers=1, d_model=8, num_heads=2, d_ff=8, vocab_size=tokenizer.vocab_size
        ... )
        >>> generator = TextGenerator(model, tokenizer, max_length=5)
        >>> generator.perplexity(["a dog runs"]).per_token > 1
        True
    """

    def __init__(
        self,
        model,
        tokenizer,
        *,
        search="greedy",
        beam_size=4,
        length_penalty=0.6,
        min_length=0,
        no_repeat_ngram=0,
        sampler=None,
        max_length=64,
        batch_size=32,
        num_streams=2,
    ):
        super().__init__(name="text_generator")
        self.settings = check_settings(
            SearchSettings(
                search=search,
                beam_size=beam_size,
                length_penalty=length_penalty,
                min_length=min_length,
                no_repeat_ngram=no_repeat_ngram,
                sampler=sampler,
                max_length=max_length,
                batch_size=batch_size,
                num_streams=num_streams,
            )
        )
        check_fit("TextGenerator", model, ("vocab_size",), tokenizer)
        if max_length >= model.max_length:
            raise ValueError(
                f"max_length must leave room for a prompt among the {model.max_length} tokens that "
                f"the model reads, its max_length, but is {max_length}; make it smaller."
            )
        if not tokenizer.detokenize(tokenizer.tokenize([" a"])).numpy()[0].startswith(b" "):
            raise ValueError(
                "The tokenizer forgets the space at the beginning of a text, so that continuations "
                "would stick to their prompts; make it with Tokenizer.train, or have SentencePiece "
                "train it with add_dummy_prefix=False and remove_extra_whitespaces=False."
            )
        self.model = model
        self.tokenizer = tokenizer
        self._functions = self.signatures(model)
        self.generate_tensor = self._functions["serving_default"]

    def __call__(self, prompts) -> list[str]:
        return self.generate(prompts).texts

    def generate(self, prompts) -> Generations:
        """Texts, continuations and their scores, in the order of `prompts`."""
        output = self.generate_tensor(as_tensor(check_texts("prompts", prompts)))
        texts, continuations = (
            [text.decode() for text in output[name].numpy()] for name in ("text", "continuation")
        )
        return Generations(texts, continuations, output["score"].numpy().tolist())

    def score(self, texts) -> TextScores:
        """The log-probabilities of texts from their beginning to their end, of any length."""
        texts = check_texts("texts", texts)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        scores = TextScores([0.0] * len(texts), [[]] * len(texts))
        for start in range(0, len(order), SCORED_AT_A_TIME):
            rows = order[start : start + SCORED_AT_A_TIME]
            output = self._functions["score"](as_tensor([texts[i] for i in rows]))
            values = (output[name].numpy() for name in ("log_prob", "token_log_probs", "length"))
            for i, log_prob, per_token, length in zip(rows, *values, strict=True):
                scores.log_probs[i] = float(log_prob)
                scores.token_log_probs[i] = per_token[:length].tolist()
        return scores

    def perplexity(self, texts) -> TextPerplexity:
        """How well the model predicts texts, per token and per byte."""
        texts = check_texts("texts", texts)
        log_probs, per_token = self.score(texts)
        num_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
        return text_perplexity(sum(log_probs), sum(map(len, per_token)), num_bytes)

    def export(
        self, directory, *, precision="float32", signatures=None, overwrite=False, warmup=None
    ) -> str:
        """Writes `directory/<version>/`, a SavedModel for TensorFlow Serving.

        See `export.generation_signatures` for what it can be asked; arguments, result and errors
        are those of `Translator.export`.
        """
        return export_saved_model(
            self,
            directory,
            precision=precision,
            names=signatures,
            overwrite=overwrite,
            warmup=warmup,
        )

    @property
    def longest(self) -> int:
        """The longest sequence that the model meets, in tokens."""
        return self.model.max_length

    def signatures(self, model, weights=None) -> dict:
        """What can be asked of a model like this one; `weights` as in `SearchGraph`."""
        graph = GenerationGraph(model, self.tokenizer, self.settings, weights)
        return generation_signatures(graph)
