"""Files through a pipeline: line n of the input makes line n of the output."""

import gzip
import uuid
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import count, islice

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

from keras_transformer.commands.lines.batches import Window
from keras_transformer.commands.lines.reading import arriving_lines, decode, is_cut
from keras_transformer.commands.translate import written
from keras_transformer.data.text_lines import GZIP_ERRORS, bad_gzip

# Workers share the lines in pieces; the translations are written in blocks, a file for each.
PIECE, BLOCK = 256, 4096
COPIED_BYTES = 1 << 20
# What is counted, as metrics of the run.
NAMESPACE = "keras_transformer"
COUNTED = ("lines", "undecoded", "line_cut", "source_cut", "not_ended")
AS_IT_IS = {"compression_type": CompressionTypes.UNCOMPRESSED}


class TranslateFiles(beam.PTransform):
    """Translates files line by line into one file, in their order.

    A pipeline has no order, so each line has its file and its number as a key. The translations of
    some lines that follow one another become a file of their own; when all are written, they are
    joined, and the result gets its name. So the name stands for all of the output or is not there.

    Args:
        paths: the files, in their order; `.gz` by suffix.
        output: the file to write.
        handler: a `TranslationHandler`.
        scores, json: what a line of the output is, as in `translate`.
    """

    def __init__(self, paths, output, handler, *, scores=False, json=False):
        super().__init__()
        self.paths, self.output, self.handler = list(paths), output, handler
        self.form = Namespace(nbest=None, alignments=False, scores=scores, json=json)
        self.parts = f"{output}.parts-{uuid.uuid4().hex[:8]}"

    def expand(self, pipeline):
        with suppress(BeamIOError, OSError):  # some file systems have no directories
            FileSystems.mkdirs(self.parts)
        parts = (
            pipeline
            | "Files" >> beam.Create(list(enumerate(self.paths)))
            | "Read" >> beam.FlatMapTuple(read)
            | "Spread" >> beam.Reshuffle()
            | "Lines" >> beam.FlatMapTuple(keyed)
            | "Translate" >> RunInference(KeyedModelHandler(self.handler))
            | "By block" >> beam.MapTuple(by_block)
            | "Join blocks" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(WriteBlock(self.parts, self.form))
        )
        # A side input is there when all of it is.
        start = pipeline | "Start" >> beam.Create([self.parts])
        return start | "Join files" >> beam.Map(join, beam.pvalue.AsList(parts), self.output)

    def remove_parts(self) -> None:
        """Removes the blocks that were written, of a run that has ended in whatever way."""
        # Some file systems know folders only by the slash at their end, others only without it.
        for path in (f"{self.parts}/", self.parts):
            with suppress(BeamIOError, OSError):
                FileSystems.delete([path])


def read(file: int, path: str) -> Iterable[tuple[int, int, list[tuple[str, bool]]]]:
    """Yields a file in pieces: its number, that of the first line, the lines and which were cut."""
    with FileSystems.open(path, **AS_IT_IS) as stream:
        stream = gzip.GzipFile(fileobj=stream) if path.endswith(".gz") else stream
        lines = (line for some in arriving_lines(stream, name=path) for line in some)
        try:
            for number in count(0, PIECE):
                if not (piece := [(decode(line), is_cut(line)) for line in islice(lines, PIECE)]):
                    return
                yield file, number, piece
        except GZIP_ERRORS as error:
            raise bad_gzip(path, number, error) from None


def keyed(file: int, first: int, piece: list) -> Iterable[tuple[tuple[int, int, bool], str]]:
    """Yields each line of a piece with a key: its file, its number, whether it was cut."""
    for number, (text, cut) in enumerate(piece, first):
        yield (file, number, cut), text


def by_block(key: tuple, answer: dict) -> tuple[tuple[int, int], tuple[int, bool, dict]]:
    """Returns the block of a line, and what is to be known of the line in it."""
    file, number, cut = key
    return (file, number // BLOCK), (number, cut, answer)


class WriteBlock(beam.DoFn):
    """Writes the translations of a block to a file, and returns the block and the file's path."""

    def __init__(self, parts, form):
        self.parts, self.form = parts, form

    def process(self, element):
        (file, number), lines = element
        _, cuts, answers = zip(*sorted(lines, key=lambda line: line[0]), strict=True)
        window = Window({"text": [answer["text"] for answer in answers]}, list(cuts))
        counts = Counter(lines=len(answers), undecoded=window.num_undecoded)
        data = written(self.form, window, answers, 0, counts)
        # A runner may try a block twice, even at the same time.
        path = FileSystems.join(self.parts, f"{file}-{number}-{uuid.uuid4().hex[:8]}")
        with FileSystems.create(path, **AS_IT_IS) as part:
            part.write(data)
        for name in COUNTED:
            Metrics.counter(NAMESPACE, name).inc(counts[name])
        yield (file, number), path


def join(folder: str, parts: list, output: str) -> str:
    """Joins the files of all blocks in their order, and gives the result its name."""
    new = FileSystems.join(folder, f"joined-{uuid.uuid4().hex[:8]}")
    with FileSystems.create(new, **AS_IT_IS) as joined:
        for _, path in sorted(parts):
            with FileSystems.open(path, **AS_IT_IS) as part:
                while data := part.read(COPIED_BYTES):
                    joined.write(data)
    FileSystems.rename([new], [output])
    return output


def counters(result) -> Counter:
    """Returns what a run has counted: lines, those cut or ended at a limit, models loaded."""
    found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
    # Some runners know only what was attempted; `result` is the best that they know.
    counts = Counter({entry.key.metric.name: entry.result for entry in found["counters"]})
    for entry in found["distributions"]:
        if entry.key.metric.name.startswith("load_model_latency"):
            counts["models"] += entry.result.count
    return counts
