"""Prompt to text: a tokenizer, a language model and a search as one object."""

import warnings
from typing import NamedTuple, TypedDict, Unpack

from keras_transformer.checks import check_texts
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.strategies import Strategy, as_strategy_of_prompts
from keras_transformer.evaluation.perplexity import TextPerplexity, text_perplexity
from keras_transformer.inference.answers import TextScores
from keras_transformer.inference.generation_graph import GenerationGraph
from keras_transformer.inference.run_directory import load_class
from keras_transformer.inference.text_module import TextModule
from keras_transformer.inference.text_search import as_tensor, ask_in_batches
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.training.card import read_card
from keras_transformer.type_hints import StrPath

# How many texts of similar length make one matrix of tokens.
SCORED_AT_A_TIME = 64


class Generations(NamedTuple):
    """Whole texts, the continuations that they end with, and the scores of those.

    A score is the log-probability of a continuation over the length penalty. `ended` says whether
    a continuation reached its end, and not a limit of its length.

    Example:
        >>> Generations(["a dog runs"], [" runs"], [-0.5], [True]).continuations
        [' runs']
    """

    texts: list[str]
    continuations: list[str]
    scores: list[float]
    ended: list[bool]


class GeneratorOptions(TypedDict, total=False):
    """The arguments of `TextGenerator` that are numbers."""

    max_length: int
    batch_size: int
    num_parallel_batches: int


class TextGenerator(TextModule):
    """Continues strings with a trained `LanguageModel`, and scores them.

    Tokenization, the search and detokenization are one TensorFlow graph, the same in Python and
    in the exported SavedModel. A prompt is read at once; its continuation does not depend on the
    others in its batch. A space at the end of a prompt belongs to the word that follows; the other
    pieces of a prompt stay as they are, so end it after a whole word. A text for which the model
    computes no finite number is continued by "", score -1e9.

    Args:
        model: a `LanguageModel`.
        tokenizer: the `Tokenizer` that the model was trained with.
        strategy: how to search: `Greedy(...)`, `Sample(...)` or `Beam(...)`; "greedy" and "beam"
            are short for those with their defaults.
        max_length: the most tokens of a continuation. Of a prompt the last
            `model.max_length - max_length` tokens are read.
        batch_size: prompts searched at a time; more in a call are sorted by length and split.
        num_parallel_batches: as in `Translator`.

    Call arguments:
        prompts: a list of strings, "" for a text from its beginning.

    Returns:
        A list of strings, each a prompt and its continuation.

    Raises:
        ValueError: if an argument is out of range, or tokenizer and model do not fit.
        TypeError: if `prompts` is no list of strings, or `model` or `tokenizer` is something else.

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
        model: LanguageModel,
        tokenizer: Tokenizer,
        strategy: Strategy | str = "greedy",
        *,
        max_length: int = 64,
        batch_size: int = 32,
        num_parallel_batches: int = 2,
    ):
        parts = model, tokenizer, as_strategy_of_prompts(strategy), max_length
        graph = GenerationGraph(*parts, batch_size, num_parallel_batches)
        super().__init__(graph, "LanguageModel", ("vocab_size",))
        if self.graph.max_length >= model.max_length:
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
        self.generate_tensor = self.graph.serving_default

    def __call__(self, prompts: list[str]) -> list[str]:
        return self.generate(prompts).texts

    def generate(self, prompts: list[str]) -> Generations:
        """Continues prompts.

        Args:
            prompts: list of strings.

        Returns:
            `Generations`: lists of texts, continuations, their scores and whether they ended, in
            the order of `prompts`.
        """
        output = self.generate_tensor(as_tensor(check_texts("prompts", prompts)))
        if any(cut := output["prompt_cut"].numpy()):
            room = self.model.max_length - self.graph.max_length
            warnings.warn(
                f"{sum(cut)} of {len(cut)} prompts are longer than the {room} tokens that "
                "max_length leaves of those of the model, so only their ends were read; make "
                "max_length smaller.",
                stacklevel=2,
            )
        texts, continuations = (
            [text.decode() for text in output[name].numpy()] for name in ("text", "continuation")
        )
        scores, ended = (output[name].numpy().tolist() for name in ("score", "ended"))
        return Generations(texts, continuations, scores, ended)

    def score(self, texts: list[str]) -> TextScores:
        """The log-probabilities of texts from their beginning to their end.

        Args:
            texts: list of strings, of any length.

        Returns:
            `TextScores`: the log-probabilities of the texts in nats, and lists of those of their
            tokens.
        """
        texts = check_texts("texts", texts)
        outputs = ("log_prob", "token_log_probs", "length")
        answers = ask_in_batches(self.graph.score, texts, outputs, SCORED_AT_A_TIME)
        per_token = [log_probs[:length].tolist() for _, log_probs, length in answers]
        return TextScores([float(log_prob) for log_prob, _, _ in answers], per_token)

    def perplexity(self, texts: list[str]) -> TextPerplexity:
        """How well the model predicts texts.

        Args:
            texts: list of strings, of any length.

        Returns:
            `TextPerplexity`: of all texts together, per token and per byte.
        """
        texts = check_texts("texts", texts)
        log_probs, per_token = self.score(texts)
        num_bytes = sum(len(text.encode()) for text in texts)
        return text_perplexity(sum(log_probs), sum(map(len, per_token)), num_bytes)


def load_generator(
    directory: StrPath, strategy: Strategy | str = "greedy", **options: Unpack[GeneratorOptions]
) -> TextGenerator:
    """A `TextGenerator` from a run directory.

    Args:
        directory: that of `save_run`.
        strategy, options: arguments of `TextGenerator`.

    Returns:
        A `TextGenerator`.

    Raises:
        RunError, ValueError: as `load_run` and `TextGenerator`.

    Example:
        >>> import tempfile
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = LanguageModel(**sizes, vocab_size=tokenizer.vocab_size)
        >>> directory = tempfile.mkdtemp()
        >>> save_run(model, tokenizer, directory)
        >>> load_generator(directory, max_length=9).strategy == Greedy()
        True
    """
    parts = load_class(directory, LanguageModel, "load_translator")
    generator = TextGenerator(*parts, strategy, **options)
    generator.run_card = read_card(directory, compares=False)
    return generator
