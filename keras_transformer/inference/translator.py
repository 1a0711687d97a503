"""Text to text: a tokenizer, a model and a search as one object."""

import warnings
from typing import NamedTuple

from keras_transformer.checks import check_texts
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.strategies import Strategy, as_strategy
from keras_transformer.inference.text_module import TextModule
from keras_transformer.inference.text_search import as_tensor, ask_in_batches
from keras_transformer.inference.translation_graph import TranslationGraph
from keras_transformer.models.transformer import Transformer


class Translations(NamedTuple):
    """Translated texts, and the score of each: its log-probability over the length penalty.

    Attributes:
        texts: list of strings.
        scores: list of floats, at most 0; higher is better.

    Example:
        >>> texts, scores = Translations(["Ein Hund rennt."], [-0.5])
        >>> texts
        ['Ein Hund rennt.']
    """

    texts: list[str]
    scores: list[float]


class Translator(TextModule):
    """Translates strings with a trained `Transformer`.

    Tokenization, the search and detokenization are one TensorFlow graph, the same in Python and
    in the exported SavedModel, so both give the same translations. A sentence's translation does
    not depend on the others in its batch. A text that shows nothing (blanks, zero width spaces) is
    translated as "", score 0; a text for which the model computes no finite number as "", score
    -1e9. Of a text that is longer than `max_source_length` the beginning is translated, and a
    warning says how many there are.

    Args:
        model: a `Transformer`.
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
        model: Transformer,
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

    def translate(self, texts: list[str]) -> Translations:
        """Translations and their scores, in the order of `texts`."""
        return self._translate(texts)

    def _translate(self, texts):
        texts = check_texts("texts", texts)
        translations, cut = translate_in_batches(texts, self.translate_tensor)
        warn_of_cuts(cut, self.graph)
        return translations

    def nbest(self, texts: list[str]) -> list[Translations]:
        """The K best translations of each text by a beam of K, best first, and their scores.

        If the strategy is not a `Beam`, the beam has the default size.
        """
        output = self.graph.nbest(as_tensor(check_texts("texts", texts)))
        warn_of_cuts(output["source_cut"].numpy(), self.graph, stacklevel=3)
        rows = zip(output["translations"].numpy(), output["scores"].numpy(), strict=True)
        return [Translations([t.decode() for t in row], scores.tolist()) for row, scores in rows]

    def score(self, sources: list[str], targets: list[str]) -> list[float]:
        """The log-probability of each target, and its end token, as its source's translation.

        Raises:
            ValueError: if the lists differ in length, or a target has more tokens than
                `max_source_length` and `max_length`.
        """
        sources, targets = check_texts("sources", sources), check_texts("targets", targets)
        if len(sources) != len(targets):
            raise ValueError(
                f"sources and targets must be pairs, but there are {len(sources)} sources and "
                f"{len(targets)} targets."
            )
        lengths = self.tokenizer.tokenize(as_tensor(targets)).row_lengths() + 1
        for i, length in enumerate(lengths.numpy()):
            if length > self.graph.max_tokens:
                raise ValueError(
                    f"targets[{i}] has {length} tokens with its end token, of which "
                    f"{self.graph.max_tokens} would be scored; make max_length larger."
                )
        output = self.graph.score(as_tensor(sources), as_tensor(targets))
        warn_of_cuts(output["source_cut"].numpy(), self.graph, stacklevel=3)
        return output["log_prob"].numpy().tolist()

    def export_ctranslate2(self, directory, *, quantization=None, overwrite=False) -> str:
        """Writes the model for CTranslate2; see `export.ctranslate2`."""
        from keras_transformer.export.ctranslate2 import export_ctranslate2

        options = {"quantization": quantization, "overwrite": overwrite}
        return export_ctranslate2(self.model, self.tokenizer, directory, **options)


def translate_in_batches(
    texts, function, batch_size: int = 4096
) -> tuple[Translations, list[bool]]:
    """Translates a list of strings, `batch_size` of similar length at a time.

    Args:
        texts: list of strings.
        function: from a string tensor `text` to a dict of "translation", "score" and "source_cut",
            such as `Translator.translate_tensor` or the signature of an exported model.
        batch_size: the number of strings in a call; the graph splits them further.

    Returns:
        `Translations`, and whether each source was cut, in the order of `texts`.
    """
    answers = ask_in_batches(function, texts, ("translation", "score", "source_cut"), batch_size)
    translations, scores, cut = zip(*answers, strict=True) if answers else ((), (), ())
    translations = Translations([text.decode() for text in translations], list(map(float, scores)))
    return translations, list(map(bool, cut))


def warn_of_cuts(cut, graph, stacklevel=4) -> None:
    """Warns if any of `cut` is true: of those sources only the beginning was read."""
    if any(cut):
        warnings.warn(
            f"{sum(cut)} of {len(cut)} texts are longer than max_source_length="
            f"{graph.max_source_length} tokens, so only their beginnings were read; give one "
            "sentence per text, or make max_source_length larger.",
            stacklevel=stacklevel,
        )
