"""Files through a model: line n of each makes line n of the output; a stopped job can resume."""

import os
import sys
from collections import Counter
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

from keras_transformer.commands.lines.batches import Pace, answered, in_windows
from keras_transformer.commands.lines.journal import Journal
from keras_transformer.commands.lines.reading import file_rows, is_stream, survey
from keras_transformer.commands.messages import log, spelled
from keras_transformer.commands.options import given_options
from keras_transformer.commands.progress import Progress, stage
from keras_transformer.commands.search import ALL_OPTIONS
from keras_transformer.data.text_lines import cut_note
from keras_transformer.files import naming, sha256
from keras_transformer.inference.run_files import MANIFEST as RUN_MANIFEST
from keras_transformer.inference.run_files import is_run
from keras_transformer.version_directory import MANIFEST, saved_model_path

DOING = {"best": "translating", "nbest": "translating", "align": "translating", "score": "scoring"}
# The options that say what is written, beside those of the search.
FORM = ("nbest", "by", "scores", "alignments", "json", "shard")


class Stream:
    """An output that cannot be resumed: what a `Journal` is, without its journal."""

    def __init__(self, name, stream, is_terminal=False):
        self.name, self.stream, self.is_terminal = name, stream, is_terminal
        self.lines, self.counts = 0, {}

    def write(self, data: bytes, lines: int, counts) -> None:
        """Writes the answers to some more lines."""
        if self.is_terminal:
            data = "\n".join(map(spelled, data.decode().split("\n"))).encode()
        with naming(self.name, "make room or name another place."):
            self.stream.write(data)
            self.stream.flush()
        self.lines += lines


class LateFile:
    """A file that is opened and emptied only at its first `write`."""

    def __init__(self, path):
        self.path, self.file = path, None

    def write(self, data: bytes) -> None:
        """Writes bytes."""
        self.file = self.file or open(self.path, "wb")
        self.file.write(data)

    def flush(self) -> None:
        """Gives what was written to the system."""
        self.file.flush()

    def close(self) -> None:
        """Closes the file, if it was opened."""
        if self.file is not None:
            with suppress(OSError):  # which `flush` has raised before
                self.file.close()


def manifest_of(path) -> Path:
    """Returns the file that stands for a run or an export: it holds the hashes of the others."""
    if is_run(path):
        return Path(path) / RUN_MANIFEST
    exported = saved_model_path(path)
    manifest = exported / MANIFEST
    return manifest if manifest.is_file() else exported / "saved_model.pb"


def hash_of(model):
    """Returns the hash that stands for a run or an export; of several a list."""
    if isinstance(model, list):
        return [hash_of(path) for path in model]
    return sha256(manifest_of(model))


def load_model(options, what):
    """Returns the model of a command, `loading.Loaded`, and shows that it is being loaded."""
    with stage(f"loading {options.model}", quiet=options.quiet):
        # Only now, since it imports TensorFlow.
        from keras_transformer.commands.loading import load

        return load(options.model, options, what)


def answer_files(options, what, paths, output, write, load=load_model):
    """Asks a model for every line of some files, many at a time, and writes what it answers.

    Args:
        options: those of the command, with `model`, `quiet` and `batch_size`; a `shard` leaves out
            all other lines.
        what: as in `loading.load`.
        paths: by the name of what the model reads, the files.
        output: the file to write, or None for standard output.
        write: from a window, its answers, the number of the first line and a `Counter`, which it
            changes, to bytes.
        load: from `options` and `what` to the model.

    Returns:
        The `Counter`, and the number of lines.
    """
    surveys = {name: survey(path) for name, path in paths.items()}
    check_lengths(paths, surveys)
    facts = None
    if None not in surveys.values():
        facts = {name: found.sha256 for name, found in surveys.items()}
        facts["model"] = hash_of(options.model)
        facts["options"] = given_options(options, (*ALL_OPTIONS, *FORM))
    total = next((found.lines for found in surveys.values() if found), None)
    first, end = asked_lines(options, total)
    with output_of(output, facts) as written:
        done, counts = written.lines, Counter(written.counts)
        if done:
            log(f"{output}: going on after line {done:,}")
        elif output and os.path.isfile(output) and os.path.getsize(output):
            log(f"note: {output} is there, and will be replaced")
        model = load(options, what)
        rows = file_rows(list(paths.values()), first + done)
        left = None if total is None else end - first - done
        pace = Pace()
        windows = in_windows(rows if end == total else islice(rows, left), list(paths), pace)
        with Progress(DOING[what], left, quiet=options.quiet, keep=True) as progress:
            for window, answers in answered(windows, model, progress.advance):
                counts["undecoded"] += window.num_undecoded
                data = write(window, answers, first + written.lines, counts)
                written.write(data, len(answers), counts)
                pace.finished(len(answers))
    report(counts, written.lines, model.limit, next(iter(paths.values())))
    return counts, written.lines


def asked_lines(options, total) -> tuple[int, int | None]:
    """Returns the first line that is asked for, from 0, and the line after the last."""
    shard = getattr(options, "shard", None)
    if shard is None:
        return 0, total
    lines = shard.lines(total)
    which = f"lines {lines.start + 1:,} to {lines.stop:,} of {total:,}" if lines else "no line"
    log(f"part {shard.index:,} of {shard.count:,}: {which}")
    return lines.start, lines.stop


def check_lengths(paths, surveys) -> None:
    """Raises a ValueError if files that were read have different numbers of lines."""
    found = [(paths[name], survey.lines) for name, survey in surveys.items() if survey]
    for path, lines in found[1:]:
        if lines != found[0][1]:
            raise ValueError(
                f"{found[0][0]} has {found[0][1]} lines, but {path} has {lines}; line n of one "
                "must belong to line n of the other."
            )


@contextmanager
def output_of(path, facts=None):
    """Yields what to write to: a `Journal` if a file is made of known `facts`, or a `Stream`.

    What was in a file is there until the first answers are written.
    """
    if path is None:
        if getattr(sys.stdout, "name", None) == os.devnull:  # which `cli` has put in its place
            raise ValueError("standard output is closed; name a file by --output.")
        yield Stream("standard output", sys.stdout.buffer, sys.stdout.isatty())
        return
    if facts is None or is_stream(path):
        with closing(LateFile(path)) as file:
            yield (stream := Stream(path, file))
            stream.write(b"", 0, {})
        return
    with Journal(path, facts).writing() as journal:
        try:
            yield journal
        except (KeyboardInterrupt, SystemExit):
            log(f"{path}: stopped after line {journal.lines:,}; the same command again goes on")
            raise


def report(counts, lines, limit, name) -> None:
    """Prints how many lines are not UTF-8, were cut, or ended at a limit."""
    if counts["undecoded"]:
        log(
            f"note: {counts['undecoded']:,} of {lines:,} lines have U+FFFD, which stands for bytes "
            "that are not UTF-8; convert the file, as with iconv"
        )
    if counts["line_cut"]:
        log(f"note: {cut_note(name, counts['line_cut'])}")
    if counts["source_cut"]:
        log(f"note: {counts['source_cut']:,} of {lines:,} lines {limit}")
    if counts["target_cut"]:
        log(
            f"note: of {counts['target_cut']:,} of {lines:,} translations only the beginning is "
            "scored; give a larger --max-length"
        )
    if counts["not_ended"]:
        log(
            f"note: {counts['not_ended']:,} of {lines:,} translations end at a limit of their "
            "length: --max-length, or three tokens for each of the source and 20; where there are "
            "many, the model has learnt little, or its targets are longer than that"
        )
