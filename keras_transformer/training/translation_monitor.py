"""Scores of real translations after every epoch, as a Keras callback."""

from collections.abc import Callable, Mapping, Sequence

import keras

from keras_transformer.event_file import EventFile
from keras_transformer.type_hints import StrPath


class TranslationMonitor(keras.callbacks.Callback):
    """Scores real translations after every epoch, and shows some in TensorBoard.

    Accuracy and loss look at one token after a correct prefix. Only a decoded translation shows
    what a user will get. Each score is added to the epoch's logs, "bleu" as `val_bleu`, for the
    callbacks after this one.

    Args:
        translate: function from a list of strings to a list of strings, such as a `Translator`.
        score: function from translations and references to numbers by name.
        sources: validation sentences.
        references: their translations.
        log_dir: where TensorBoard reads; None shows nothing.
        num_samples: how many translations to show as text.

    Attributes:
        samples: those of the last epoch, a list of (source, translation, reference).

    Example:
        >>> def score(translations, references):
        ...     return {"exact": exact_match(translations, references)}
        >>> monitor = TranslationMonitor(lambda texts: texts, score, ["a dog"], ["ein Hund"])
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[str]],
        score: Callable[[Sequence[str], list[str]], Mapping[str, float]],
        sources: Sequence[str],
        references: Sequence[str],
        *,
        log_dir: StrPath | None = None,
        num_samples: int = 5,
    ):
        super().__init__()
        self.translate, self.score = translate, score
        self.sources, self.references = list(sources), list(references)
        self.log_dir, self.num_samples, self.samples = log_dir, num_samples, []

    def on_epoch_end(self, epoch, logs=None):
        translations = self.translate(self.sources)
        scores = self.score(translations, self.references)
        logs.update({f"val_{name}": value for name, value in scores.items()})
        rows = list(zip(self.sources, translations, self.references, strict=True))
        self.samples = rows[: self.num_samples]
        if self.log_dir is not None:
            with EventFile(self.log_dir) as file:
                file.text("translations", samples_table(self.samples), epoch + 1)


def samples_table(rows) -> str:
    """Writes rows of (source, translation, reference) as a Markdown table."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    header = ["| source | translation | reference |", "| --- | --- | --- |"]
    return "\n".join(header + [f"| {' | '.join(row)} |" for row in cells])
