"""Text to text: a tokenizer, a model and a search as one object."""

import warnings
from typing import TypedDict, Unpack

from keras_transformer.checks import check_aligned, check_int, check_number, check_texts
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.strategies import NUMBERS, Strategy, as_strategy
from keras_transformer.evaluation.perplexity import TextPerplexity, text_perplexity
from keras_transformer.inference.answers import (
    Alignments,
    TextScores,
    Translations,
    aligned_row,
)
from keras_transformer.inference.run_directory import load_class
from keras_transformer.inference.text_module import TextModule, check_is_one_model
from keras_transformer.inference.text_search import as_tensor, ask_in_batches
from keras_transformer.inference.translation_graph import TranslationGraph
from keras_transformer.models.ensemble import Ensemble
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.card import read_card
from keras_transformer.type_hints import StrPath

# The strings of one call of a graph, which splits them further.
TEXTS_AT_A_TIME, ALIGNED_AT_A_TIME = 4096, 512


class TranslatorOptions(TypedDict, total=False):
    """The arguments of `Translator` that are numbers."""

    max_source_length: int
    max_length: int
    batch_size: int
    num_parallel_batches: int


class Translator(TextModule):
    """Translates strings with a trained `Transformer`.

    Tokenization, the search and detokenization are one TensorFlow graph, the same in Python and
    in the exported SavedModel. So both give the same translations, if they compute in one
    precision: here that of the model, in an export float32 by default. A sentence's translation
    does not depend on the others in its batch. A text that shows nothing (blanks, zero width
    spaces) is translated as "", score 0; a text for which the model computes no finite number as
    "", score -1e9. Of a text that is longer than `max_source_length` the beginning is translated,
    and a warning says how many there are.

    Args:
        model: a `Transformer` or an `Ensemble`.
        tokenizer: the `Tokenizer` that the model was trained with.
        strategy: how to search: `Beam(...)`, `Greedy(...)` or `Sample(...)`; "beam" and "greedy"
            are short for those with their defaults.
        max_source_length: tokens read of a source, the end token included, at least 2; what
            follows is cut off.
        max_length: the most tokens of a translation. A translation also ends at three tokens for
            each source token plus 20.
        batch_size: sentences searched at a time; more in a call are sorted by length and split.
        num_parallel_batches: how many such batches are searched at the same time, each in a thread.
            Best with as many as there are cores, and a TensorFlow that gives an operation one
            thread: `tf.config.threading.set_intra_op_parallelism_threads(1)` before anything else.

    Call arguments:
        texts: a list of strings.

    Returns:
        A list of strings, one for each text.

    Raises:
        ValueError: if an argument is out of range, or tokenizer and model do not fit.
        TypeError: if `texts` is not a list of strings, or `model` or `tokenizer` is something else.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> model = Transformer(
        ...     num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=tokenizer.vocab_size
        ... )
        >>> translator = Translator(model, tokenizer, "greedy")
        >>> translator(["", "  "])
        ['', '']
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        strategy: Strategy | str = "beam",
        *,
        max_source_length: int = 256,
        max_length: int = 256,
        batch_size: int = 128,
        num_parallel_batches: int = 2,
    ):
        sizes = ("source_vocab_size", "target_vocab_size")
        lengths = max_source_length, max_length
        parts = model, tokenizer, as_strategy(strategy), *lengths, batch_size, num_parallel_batches
        super().__init__(TranslationGraph(*parts), "Transformer", sizes)
        if self.graph.max_tokens > model.source_embedding.max_length:
            raise ValueError(
                f"max_source_length and max_length must be at most the model's max_length of "
                f"{model.source_embedding.max_length}, but the larger is {self.graph.max_tokens}."
            )
        self.translate_tensor = self.graph.serving_default

    def __call__(self, texts: list[str]) -> list[str]:
        return self._translate(texts).texts

    def translate(
        self,
        texts: list[str],
        *,
        prefix: str | list[str] | None = None,
        length_penalty: float | list[float] | None = None,
        max_length: int | list[int] | None = None,
    ) -> Translations:
        """Translations and their scores, in the order of `texts`.

        Args:
            texts: list of strings.
            prefix: what the translations begin with, one string for all or one for each. Its last
                word may go on: "Hu" may become "Hund". After a space at its end the next word
                begins.
            length_penalty: that of the strategy by default; a number for all or one for each.
            max_length: the most tokens of a translation, at most the translator's `max_length`; a
                number for all or one for each.

        Returns:
            `Translations`: lists of texts, scores, and whether each source was cut and each
            translation ended.

        Raises:
            ValueError: if an option is out of range, or there is not one value for each text.
        """
        return self._translate(texts, prefix, length_penalty, max_length)

    def _translate(self, texts, *options):
        texts = check_texts("texts", texts)
        options = self._row_options(len(texts), *options)
        function = self.graph.translate if options else self.translate_tensor
        translations = translate_in_batches(texts, function, **options)
        warn_of_cuts(translations.source_cut, self.graph, stacklevel=4)
        return translations

    def nbest(
        self,
        texts: list[str],
        *,
        prefix: str | list[str] | None = None,
        length_penalty: float | list[float] | None = None,
        max_length: int | list[int] | None = None,
    ) -> list[Translations]:
        """The K best translations of each text by a beam of K, best first, and their scores.

        If the strategy is not a `Beam`, the beam has the default size.

        Args:
            texts, prefix, length_penalty, max_length: those of `translate`.

        Returns:
            `Translations` for each text, which hold the K of this text.

        Raises:
            ValueError: as `translate`.
        """
        texts = check_texts("texts", texts)
        options = self._row_options(len(texts), prefix, length_penalty, max_length)
        function = self.graph.nbest_with_options if options else self.graph.nbest
        outputs = ("translations", "scores", "source_cut", "ended")
        answers = ask_in_batches(function, texts, outputs, TEXTS_AT_A_TIME, **options)
        warn_of_cuts([cut for _, _, cut, _ in answers], self.graph, stacklevel=3)
        return [
            Translations([text.decode() for text in row], scores.tolist(), [cut] * len(row), ended)
            for row, scores, cut, ended in answers
        ]

    def align(
        self,
        texts: list[str],
        *,
        prefix: str | list[str] | None = None,
        length_penalty: float | list[float] | None = None,
        max_length: int | list[int] | None = None,
    ) -> Alignments:
        """Translations, and which words and pieces of the sources theirs come from.

        Attention is a hint at what is translated by what, no more: end tokens and punctuation draw
        it, too.

        Args:
            texts, prefix, length_penalty, max_length: those of `translate`.

        Returns:
            `Alignments`: lists with an entry for each text.

        Raises:
            ValueError: as `translate`.
        """
        texts = check_texts("texts", texts)
        options = self._row_options(len(texts), prefix, length_penalty, max_length)
        function = self.graph.align_with_options if options else self.graph.align
        outputs = ("translation", "score", "source_pieces", "target_pieces", "attention")
        answers = ask_in_batches(
            function, texts, (*outputs, "source_cut"), ALIGNED_AT_A_TIME, **options
        )
        warn_of_cuts([answer[-1] for answer in answers], self.graph, stacklevel=3)
        rows = [aligned_row(*answer[:-1]) for answer in answers]
        return Alignments(*map(list, zip(*rows, strict=True))) if rows else Alignments(*[[]] * 5)

    def score(self, sources: list[str], targets: list[str]) -> list[float]:
        """The log-probability of each target, and its end token, as its source's translation.

        Args:
            sources: list of strings.
            targets: a list of as many.

        Returns:
            A log-probability for each target, in nats.

        Raises:
            ValueError: if the lists differ in length, or a target has more tokens than
                `max_source_length` and `max_length`.
        """
        return self._score(sources, targets).log_probs

    def score_tokens(self, sources: list[str], targets: list[str]) -> TextScores:
        """`score`, and the log-probability of each token of a target, the end token last.

        Args:
            sources, targets: those of `score`.

        Returns:
            `TextScores`: the log-probabilities of the targets, and lists of those of their tokens.
        """
        return self._score(sources, targets)

    def perplexity(self, sources: list[str], targets: list[str]) -> TextPerplexity:
        """How well the model predicts targets from their sources.

        Args:
            sources, targets: those of `score`.

        Returns:
            `TextPerplexity`: of all targets together, per token and per byte.
        """
        log_probs, per_token = self._score(sources, targets)
        num_bytes = sum(len(text.encode()) for text in check_texts("targets", targets))
        return text_perplexity(sum(log_probs), sum(map(len, per_token)), num_bytes)

    def _score(self, sources, targets) -> TextScores:
        sources, targets = check_aligned(sources=sources, targets=targets)
        lengths = self.tokenizer.tokenize(as_tensor(targets)).row_lengths() + 1
        for i, length in enumerate(lengths.numpy()):
            if length > self.graph.max_tokens:
                raise ValueError(
                    f"targets[{i}] has {length} tokens with its end token, of which "
                    f"{self.graph.max_tokens} would be scored; make max_length larger."
                )
        output = self.graph.score(as_tensor(sources), as_tensor(targets))
        warn_of_cuts(output["source_cut"].numpy(), self.graph, stacklevel=4)
        rows = zip(output["token_log_probs"].numpy(), output["length"].numpy(), strict=True)
        per_token = [log_probs[:length].tolist() for log_probs, length in rows]
        return TextScores(output["log_prob"].numpy().tolist(), per_token)

    def _row_options(self, count, prefix=None, length_penalty=None, max_length=None) -> dict:
        """The inputs of the signature `translate` beside `text`; empty if no option is given."""
        if prefix is None and length_penalty is None and max_length is None:
            return {}
        graph, alpha = self.graph, NUMBERS["length_penalty"]
        prefix = "" if prefix is None else prefix
        max_length = graph.max_length if max_length is None else max_length
        if length_penalty is None:
            length_penalty = graph.strategy.length_penalty
        prefixes = [prefix] * count if isinstance(prefix, str) else prefix
        options = {
            "prefix": check_texts("prefix", prefixes),
            "length_penalty": [
                check_number("length_penalty", value, *alpha)
                for value in per_row(length_penalty, count)
            ],
            "max_length": [
                check_int("max_length", value, 1, graph.max_length)
                for value in per_row(max_length, count)
            ],
        }
        for name, values in options.items():
            if len(values) != count:
                raise ValueError(
                    f"{name} must have one value for each of {count} texts, or be one for all, but "
                    f"has {len(values)}."
                )
        return options

    def export_ctranslate2(
        self, directory: StrPath, *, quantization: str | None = None, overwrite: bool = False
    ) -> str:
        """Writes the model for CTranslate2; see `export.ctranslate2`."""
        from keras_transformer.export.ctranslate2 import export_ctranslate2

        check_is_one_model(self.model)
        options = {"quantization": quantization, "overwrite": overwrite}
        return export_ctranslate2(self.model, self.tokenizer, directory, **options)


def translate_in_batches(
    texts, function, batch_size: int = TEXTS_AT_A_TIME, **options
) -> Translations:
    """Translates a list of strings, `batch_size` of similar length at a time.

    Args:
        texts: list of strings.
        function: from a string tensor `text` to a dict of "translation", "score", "source_cut" and
            "ended", such as `Translator.translate_tensor` or the signature of an exported model.
        batch_size: the number of strings in a call; the graph splits them further.
        options: other inputs of the function, lists of one value for each text.

    Returns:
        `Translations`, in the order of `texts`.
    """
    outputs = ("translation", "score", "source_cut", "ended")
    answers = ask_in_batches(function, texts, outputs, batch_size, **options)
    columns = zip(*answers, strict=True) if answers else [()] * len(outputs)
    translations, scores, cut, ended = columns
    return Translations(
        [text.decode() for text in translations], list(map(float, scores)), cut, ended
    )


def load_translator(
    directory: StrPath, strategy: Strategy | str = "beam", **options: Unpack[TranslatorOptions]
) -> Translator:
    """A `Translator` from a run directory.

    Args:
        directory: that of `save_run`.
        strategy, options: arguments of `Translator`.

    Returns:
        A `Translator`.

    Raises:
        RunError, ValueError: as `load_run` and `Translator`.

    Example:
        >>> import tempfile
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
        >>> directory = tempfile.mkdtemp()
        >>> save_run(model, tokenizer, directory)
        >>> load_translator(directory, "greedy", max_length=9)(["", " "])
        ['', '']
    """
    parts = load_class(directory, Transformer, "load_generator")
    translator = Translator(*parts, strategy, **options)
    translator.run_card = read_card(directory, compares=False)
    return translator


def per_row(value, count) -> list:
    """One value for each of `count` rows: a list as it is, a number for all of them."""
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy
    return list(value) if hasattr(value, "__iter__") else [value] * count


def warn_of_cuts(cut, graph, stacklevel=4) -> None:
    """Warns if any of `cut` is true: of those sources only the beginning was read."""
    if any(cut):
        warnings.warn(
            f"{sum(cut)} of {len(cut)} texts are longer than max_source_length="
            f"{graph.max_source_length} tokens, so only their beginnings were read; give one "
            "sentence per text, or make max_source_length larger.",
            stacklevel=stacklevel,
        )
