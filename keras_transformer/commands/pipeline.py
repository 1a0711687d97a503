"""`keras-transformer pipeline`: files through Apache Beam, on this machine or a cluster."""

import logging
import threading

from keras_transformer.commands.lines.jobs import report
from keras_transformer.commands.messages import log
from keras_transformer.commands.path_checks import refuse_same_file
from keras_transformer.commands.progress import stage

# Beam's runner of one machine, with a process for each core, which it says as 0. Its `DirectRunner`
# would first try to download another program.
LOCAL = {
    "--runner": "FnApiRunner",
    "--direct_running_mode": "multi_processing",
    "--direct_num_workers": "0",
}
LIMIT = "are longer than the model reads; give one sentence per line"


def run(options) -> None:
    """Translates all files of a pattern into one file."""
    logging.getLogger().setLevel(logging.WARNING if options.verbose else logging.CRITICAL)
    # An option that Beam does not know would have no effect.
    logging.getLogger("apache_beam.options.pipeline_options").setLevel(logging.WARNING)
    if not options.verbose:
        # Beam raises what ended a thread once more, where it waits for the result.
        threading.excepthook = lambda _: None
    translate(options)


def translate(options) -> None:
    """Builds the pipeline and runs it to its end."""
    # Only now, since Beam logs while it is imported.
    import apache_beam as beam
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineState

    from keras_transformer.apache_beam.files import TranslateFiles, counters
    from keras_transformer.apache_beam.translation import TranslationHandler

    (found,) = FileSystems.match([options.input])
    paths = sorted(file.path for file in found.metadata_list)
    if not paths:
        raise ValueError(f"--input {options.input} names no file; check the pattern.")
    refuse_same_file("--output", options.output, "--input", paths)
    sizes = {"batch_size": options.batch_size or 128, "threads": options.threads}
    handler = TranslationHandler(options.model, **sizes)
    form = {"scores": options.scores, "json": options.json}
    transform = TranslateFiles(paths, options.output, handler, **form)
    pipeline = beam.Pipeline(options=PipelineOptions(beam_options(options.rest)))
    files = f"{len(paths)} files" if len(paths) > 1 else paths[0]
    try:
        with stage(f"translating {files} with Apache Beam", quiet=options.quiet):
            _ = pipeline | transform
            result = pipeline.run()
            if (state := result.wait_until_finish()) != PipelineState.DONE:
                raise RuntimeError(f"it ended as {state}")
    except Exception as error:
        raise RuntimeError(
            f"the pipeline failed: {last_line(error)}; there is no new {options.output}, run it "
            "again."
        ) from error
    finally:
        transform.remove_parts()
    counts = counters(result)
    models = f"models loaded: {counts['models']}"
    log(f"wrote {counts['lines']:,} lines to {options.output}; {models}")
    report(counts, counts["lines"], LIMIT, options.input)


def last_line(error: Exception) -> str:
    """Returns the cause of an error of Beam's, which follows the traceback of a worker."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip().removesuffix(".")


def beam_options(given: list[str]) -> list[str]:
    """Returns Beam's options; without a --runner, those of this machine, unless they are given."""
    names = {word.partition("=")[0] for word in given}
    if "--runner" in names:
        return given
    missing = [f"{name}={value}" for name, value in LOCAL.items() if name not in names]
    return [*given, *missing]
