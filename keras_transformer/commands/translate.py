"""`keras-transformer translate`: one line in, exactly one line out."""

import sys
from collections import Counter
from itertools import islice

from keras_transformer.commands.lines.batches import Window, answered
from keras_transformer.commands.lines.formats import json_line, text_lines
from keras_transformer.commands.lines.jobs import answer_files, load_model, output_of, report
from keras_transformer.commands.lines.reading import (
    INPUT,
    arriving_lines,
    decode,
    file_rows,
    is_cut,
)
from keras_transformer.commands.messages import log
from keras_transformer.commands.progress import stage
from keras_transformer.commands.search import what_is_asked


def run(options) -> None:
    """Translates a file or standard input to its end."""
    what = what_is_asked(options)

    def write(*arguments):
        return written(options, *arguments)

    if options.input is None:
        translate_arriving(options, what, write)
        return
    paths = {"text": options.input, "prefix": options.prefix_file}
    paths = {name: path for name, path in paths.items() if path}
    answer_files(options, what, paths, options.output, write)


def translate_arriving(options, what, write) -> None:
    """Translates the lines of standard input as they arrive."""
    is_dialogue = sys.stdin.isatty()
    options.quiet = options.quiet or not is_dialogue
    model = load_model(options, what)
    if is_dialogue:
        names = ["text", "prefix"] if options.prefix_file else ["text"]
        with stage("making its graph", quiet=options.quiet):
            model.ask({name: [""] for name in names})
        log("Type a sentence and press Enter; Ctrl-D ends.")
    counts = Counter()
    with output_of(options.output) as output:
        windows = arriving_windows(options.prefix_file, show_prompt if is_dialogue else None)
        for window, answers in answered(windows, model, ahead=0):
            counts["undecoded"] += window.num_undecoded
            output.write(write(window, answers, output.lines, counts), len(answers), counts)
    report(counts, output.lines, model.limit, INPUT)


def arriving_windows(prefix_file, prompt):
    """Yields windows of the lines that have arrived, each with its line of the prefixes."""
    prefixes = file_rows([prefix_file]) if prefix_file else None
    for lines in arriving_lines(sys.stdin.buffer, prompt):
        columns = {"text": [decode(line) for line in lines]}
        if prefixes is not None:
            columns["prefix"] = [text for (text,), _ in islice(prefixes, len(lines))]
            if len(columns["prefix"]) < len(lines):
                raise ValueError(
                    f"{prefix_file} ends before {INPUT}; give a line for each, empty for none."
                )
        yield Window(columns, [is_cut(line) for line in lines])


def show_prompt() -> None:
    """Shows that a line is waited for."""
    print("> ", end="", file=sys.stderr, flush=True)


def written(options, window, answers, first, counts) -> bytes:
    """Returns what is written for the lines of a window, and counts what was cut.

    Args:
        options: those of `translate`.
        window, answers: of `batches.answered`.
        first: the number of the first line, from 0.
        counts: a `Counter`, changed.
    """
    lines = []
    for number, (answer, line_cut) in enumerate(zip(answers, window.line_cut, strict=True), first):
        if options.nbest:
            several = {name: answer[name] for name in ("translations", "scores", "ended")}
            answer |= {name: values[: options.nbest] for name, values in several.items() if values}
        ended = answer.get("ended")
        counts["line_cut"] += line_cut
        counts["source_cut"] += bool(answer["source_cut"])
        counts["not_ended"] += (ended[0] if options.nbest and ended else ended) is False
        answer["source_cut"] = answer["source_cut"] or line_cut
        lines += [json_line(answer)] if options.json else text_lines(options, answer, number)
    return "".join(f"{line}\n" for line in lines).encode()
