"""Lines in, translations with scores out: a model in Beam's `RunInference`."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, RunInference

from keras_transformer.checks import check_positive_int
from keras_transformer.commands.lines.batches import LINES, Window, answered


class TranslationHandler(ModelHandler[str, dict, Callable]):
    """How Beam's `RunInference` loads a translator, and translates with it.

    Beam loads it once for each worker process. It collects thousands of lines; they are sorted by
    length and translated a batch at a time.

    Args:
        model: path of what `train` or `export` wrote, on the disks of the workers.
        batch_size: sentences in a batch.
        threads: batches at a time. One is right for a worker process on each core, which is what
            runners start.

    Example:
        >>> from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
        >>> handler = KeyedModelHandler(TranslationHandler("exports/en-de"))
        >>> translate = RunInference(handler)  # from (key, line) to (key, translation)
    """

    def __init__(self, model: str, *, batch_size: int = 128, threads: int = 1):
        super().__init__(min_batch_size=LINES, max_batch_size=LINES)
        self.model = str(model)
        self.batch_size = check_positive_int("batch_size", batch_size)
        self.threads = check_positive_int("threads", threads)

    def load_model(self) -> Callable[[Sequence[str]], list[dict]]:
        # Only in the workers, since it takes seconds.
        import tensorflow as tf

        from keras_transformer.commands.loading import load

        with suppress(RuntimeError):  # TensorFlow has started its threads already
            tf.config.threading.set_inter_op_parallelism_threads(self.threads)
        options = Namespace(model=self.model, batch_size=self.batch_size)
        model = load(self.model, options, "best")._replace(threads=self.threads)

        def translate(lines):  # Beam refers to it weakly, which no tuple allows
            window = Window({"text": list(lines)}, [False] * len(lines))
            ((_, answers),) = answered([window], model)
            return [{"text": line, **answer} for line, answer in zip(lines, answers, strict=True)]

        return translate

    def run_inference(
        self, batch: Sequence[str], model: Callable, inference_args: dict | None = None
    ) -> Iterable[dict]:
        """Translates lines.

        Returns:
            For each line a dict: the `text`, its `translation`, the `score`, and whether the
            translation has `ended` and the `source_cut`, as `translate --json` writes them.
        """
        return model(batch)

    def get_num_bytes(self, batch: Sequence[str]) -> int:
        return sum(map(len, batch))  # Beam would pickle the batch to count them

    def get_metrics_namespace(self) -> str:
        return "keras_transformer"


class Translate(beam.PTransform):
    """Translates the lines of a collection; lines in, dicts with a translation and its score out.

    A pipeline has no order. Where you need to know which line is which, use `TranslationHandler`
    with keys.

    Args:
        model, batch_size, threads: those of `TranslationHandler`.

    Example:
        >>> def scored(pipeline):
        ...     lines = pipeline | beam.io.ReadFromText("big.en")
        ...     return lines | Translate("exports/en-de")  # {"text": ..., "score": ..., ...}
    """

    def __init__(self, model: str, *, batch_size: int = 128, threads: int = 1):
        super().__init__()
        self.handler = TranslationHandler(model, batch_size=batch_size, threads=threads)

    def expand(self, lines):
        return lines | RunInference(self.handler)
