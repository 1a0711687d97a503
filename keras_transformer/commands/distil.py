"""`keras-transformer distil`: a training text in the words of teachers, for a fast student."""

from shlex import quote

from keras_transformer.commands.lines.jobs import answer_files
from keras_transformer.commands.messages import log, one_line
from keras_transformer.commands.progress import stage
from keras_transformer.commands.search import what_is_asked
from keras_transformer.data.blank_text import is_blank
from keras_transformer.evaluation.scores import nearest


def run(options) -> None:
    """Writes a line for each line of the source, and says how to go on.

    Kim and Rush (2016), "Sequence-Level Knowledge Distillation": a student learns from what the
    beam search of its teacher finds, which is easier to predict than what people wrote.
    """
    paths = {"text": options.source, "target": options.target}
    paths = {name: path for name, path in paths.items() if path}
    what = what_is_asked(options)
    counts, lines = answer_files(options, what, paths, options.out, written, load_teachers)
    report_what_is_missing(options, counts, lines)
    if options.shard is None:
        log(
            f"Now train a student: keras-transformer train --source {quote(options.source)} "
            f"--target {quote(options.out)} --tokenizer {quote(options.model[0])}/tokenizer.model "
            "--decoder-layers 1 ..."
        )


def load_teachers(options, what):
    """Loads the teachers as one model, `loading.Loaded`. Each of its answers is one of `chosen`."""
    with stage(f"loading {', '.join(options.model)}", quiet=options.quiet):
        # Only now, since it imports TensorFlow.
        from keras_transformer.commands.loading import load_runs

        teachers = load_runs(options.model, options, what)

    def ask(columns):
        answers = teachers.ask({"text": columns["text"]})
        references = columns.get("target", [""] * len(answers))
        return [chosen(options, *pair) for pair in zip(answers, references, strict=True)]

    return teachers._replace(ask=ask)


def chosen(options, answer, reference) -> dict:
    """Returns an answer with the one `translation` that is taken, "" if none is whole."""
    if options.nbest:
        texts, ended = (answer[name][: options.nbest] for name in ("translations", "ended"))
    else:
        texts, ended = [answer["translation"]], [answer["ended"]]
    whole = [text for text, end in zip(texts, ended, strict=True) if end and not is_blank(text)]
    place = nearest(whole, reference, options.by or "chrf") if len(whole) > 1 else 0
    return {
        "translation": whole[place] if whole else "",
        "ended": any(ended),
        "source_cut": answer["source_cut"],
    }


def written(window, answers, first, counts) -> bytes:
    """Returns what is written for the lines of a window: a whole translation, or a substitute.

    Args:
        window, answers: of `batches.answered`.
        first: the number of the first line, from 0.
        counts: a `Counter`, changed.
    """
    references = window.columns.get("target", [""] * len(answers))
    rows = zip(answers, window.columns["text"], references, window.line_cut, strict=True)
    lines = []
    for answer, source, reference, line_cut in rows:
        counts["line_cut"] += line_cut
        counts["source_cut"] += bool(answer["source_cut"])
        counts["not_ended"] += not answer["ended"]
        text = answer["translation"]
        if is_blank(source):
            counts["blank"] += 1
            text = ""
        elif not text or answer["source_cut"] or line_cut:
            counts["replaced"] += 1
            text = reference
        lines.append(one_line(text))
    return "".join(f"{line}\n" for line in lines).encode()


def report_what_is_missing(options, counts, lines) -> None:
    """Prints how many lines are no translation of the teachers, and what they are."""
    if counts["blank"]:
        log(
            f"note: {counts['blank']:,} of {lines:,} lines of {options.source} are blank, and so "
            f"are those of {options.out}; train leaves such pairs out"
        )
    if counts["replaced"]:
        those = f"those of {options.target}" if options.target else "blank; train leaves them out"
        log(
            f"note: {counts['replaced']:,} of {lines:,} lines have no whole translation: they are "
            f"{those}"
        )
