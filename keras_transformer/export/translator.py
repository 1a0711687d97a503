"""Text to text: a tokenizer, a model and a search as one object."""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.checks import check_texts
from keras_transformer.export.ctranslate2 import export_ctranslate2
from keras_transformer.export.saved_model import export_saved_model
from keras_transformer.export.search_settings import SearchSettings, check_settings
from keras_transformer.export.signatures import translation_signatures
from keras_transformer.export.strings import as_tensor, check_fit
from keras_transformer.export.translation_graph import TranslationGraph


class Translations(NamedTuple):
    """Translated texts, and each one's score: log-probability over length penalty."""

    texts: list[str]
    scores: list[float]


class Translator(tf.Module):
    """Translates strings with a trained `Transformer`.

    Tokenization, the search and detokenization are one TensorFlow graph, the same in Python and
    in the exported SavedModel, so both give the same translations. A sentence's translation does
    not depend on the others in its batch. An empty or blank text is translated as "", score 0; a
    text for which the model computes no finite number as "", score -1e9.

    Args:
        model: a `Transformer`.
        tokenizer: the `Tokenizer` whose ids the model was trained on.
        search: "beam", "greedy" or "sample".
        beam_size: K, hypotheses kept at each step of a beam search.
        length_penalty: alpha of `((5 + n) / 6) ** alpha`; see `length_penalty`.
        coverage_penalty: beta of a beam search; see `decoding.coverage_penalty`.
        min_length: the fewest tokens of a translation, its end token included.
        no_repeat_ngram: n, if no n tokens in a row may occur twice; 0 for any.
        sampler: what `decoding.sampling.sampler` returns, for `search="sample"`.
        max_source_length: tokens read of a source, the end token included; what follows is cut
            off.
        max_length: the most tokens of a translation. A translation also ends at three tokens for
            each source token plus 20.
        batch_size: sentences searched at a time; more in a call are sorted by length and split.
        num_streams: how many such batches are searched at the same time, each in a thread. Best
            with as many as there are cores, and a TensorFlow that gives an operation one thread:
            `tf.config.threading.set_intra_op_parallelism_threads(1)` before anything else.

    Call arguments:
        texts: a list of strings.

    Returns:
        A list of strings, one for each text.

    Raises:
        ValueError: if an argument is out of range, or tokenizer and model do not fit.
        TypeError: if `texts` is no list of strings.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> model = Transformer(
        ...     num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=tokenizer.vocab_size
        ... )
        >>> translator = Translator(model, tokenizer, search="greedy")
        >>> translator(["", "  "])
        ['', '']
    """

    def __init__(
        self,
        model,
        tokenizer,
        *,
        search="beam",
        beam_size=4,
        length_penalty=0.6,
        coverage_penalty=0.0,
        min_length=0,
        no_repeat_ngram=0,
        sampler=None,
        max_source_length=256,
        max_length=256,
        batch_size=128,
        num_streams=2,
    ):
        super().__init__(name="translator")
        self.settings = check_settings(
            SearchSettings(
                search=search,
                beam_size=beam_size,
                length_penalty=length_penalty,
                coverage_penalty=coverage_penalty,
                min_length=min_length,
                no_repeat_ngram=no_repeat_ngram,
                sampler=sampler,
                max_source_length=max_source_length,
                max_length=max_length,
                batch_size=batch_size,
                num_streams=num_streams,
            )
        )
        check_fit("Translator", model, ("source_vocab_size", "target_vocab_size"), tokenizer)
        _check_max_length(model, self.longest)
        self.model = model
        self.tokenizer = tokenizer
        self._functions = self.signatures(model)
        self.translate_tensor = self._functions["serving_default"]

    def __call__(self, texts) -> list[str]:
        return self.translate(texts).texts

    def translate(self, texts) -> Translations:
        """Translations and their scores, in the order of `texts`."""
        return translate_in_batches(check_texts("texts", texts), self.translate_tensor)

    def nbest(self, texts) -> list[Translations]:
        """The `beam_size` best translations of each text, best first, and their scores."""
        output = self._functions["nbest"](as_tensor(check_texts("texts", texts)))
        rows = zip(output["translations"].numpy(), output["scores"].numpy(), strict=True)
        return [Translations([t.decode() for t in row], scores.tolist()) for row, scores in rows]

    def score(self, sources, targets) -> list[float]:
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
            if length > self.settings.longest:
                raise ValueError(
                    f"targets[{i}] has {length} tokens with its end token, of which "
                    f"{self.settings.longest} would be scored; make max_length larger."
                )
        output = self._functions["score"](as_tensor(sources), as_tensor(targets))
        return output["log_prob"].numpy().tolist()

    def export(
        self, directory, *, precision="float32", signatures=None, overwrite=False, warmup=None
    ) -> str:
        """Writes `directory/<version>/`, a SavedModel for TensorFlow Serving.

        See `export.signatures` for what it can be asked. Before it appears in `directory`, it is
        loaded and translates.

        Args:
            directory: the model's directory; versions count up from 1. If its name is a number,
                it is the version itself.
            precision: "float32" or "bfloat16", of attention and feed-forward networks; see
                `serving_copy`.
            signatures: names of those wanted beside `serving_default`; all by default. Fewer are
                smaller and load faster.
            overwrite: whether a version that exists is replaced.
            warmup: texts for warm-up requests, which TensorFlow Serving sends to itself before it
                serves; needs the extra `[serving]`. None for no such file.

        Returns:
            The path of the new version.

        Raises:
            ValueError: if the version exists, or `precision` is another.
            TypeError: if `signatures` or `warmup` is no list of strings.
            RuntimeError: if the exported model fails its self-test.
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
        return self.settings.longest

    def signatures(self, model, weights=None) -> dict:
        """What can be asked of a model like this one; `weights` as in `SearchGraph`."""
        graph = TranslationGraph(model, self.tokenizer, self.settings, weights)
        return translation_signatures(graph)

    def export_ctranslate2(self, directory, *, quantization=None, overwrite=False) -> str:
        """Writes the model for CTranslate2; see `export.ctranslate2`."""
        return export_ctranslate2(
            self.model,
            self.tokenizer,
            directory,
            quantization=quantization,
            overwrite=overwrite,
        )


def translate_in_batches(texts, function, batch_size: int = 4096) -> Translations:
    """Translates a list of strings, `batch_size` of similar length at a time.

    Args:
        texts: list of strings.
        function: from a string tensor `text` to a dict of "translation" and "score", such as
            `Translator.translate_tensor` or the signature of an exported model.
        batch_size: the number of strings in a call; the graph splits them further.

    Returns:
        `Translations`, in the order of `texts`.
    """
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    translations, scores = [""] * len(texts), [0.0] * len(texts)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        output = function(text=as_tensor([texts[i] for i in rows]))
        results = zip(output["translation"].numpy(), output["score"].numpy(), strict=True)
        for i, (translation, score) in zip(rows, results, strict=True):
            translations[i], scores[i] = translation.decode(), float(score)
    return Translations(translations, scores)


def _check_max_length(model, max_length) -> None:
    if max_length > model.source_embedding.max_length:
        raise ValueError(
            f"max_source_length and max_length must be at most the model's max_length of "
            f"{model.source_embedding.max_length}, but the larger is {max_length}."
        )
