"""`keras-transformer evaluate`: BLEU and chrF with their signatures."""

from collections import Counter

from keras_transformer.commands.lines.batches import answered, in_windows
from keras_transformer.commands.lines.jobs import load_model, report
from keras_transformer.commands.messages import log, one_line
from keras_transformer.commands.progress import Progress
from keras_transformer.commands.text_notes import bleu_note
from keras_transformer.data.text_lines import read_lines
from keras_transformer.evaluation.scores import check_bleu_tokenize, score_translations
from keras_transformer.files import FileError, write_text
from keras_transformer.training.run_record import RunRecord


def run(options) -> None:
    """Translates the source file and prints how close the result is to the target file."""
    tokenize = check_bleu_tokenize(options.bleu_tokenize or bleu_tokenize_of(options.model))
    sources, references = read_lines(options.source), read_lines(options.target)
    if len(sources) != len(references):
        raise ValueError(
            f"{options.source} has {len(sources)} lines, but {options.target} has "
            f"{len(references)}; line n of the second must be the reference of line n of the first."
        )
    if note := bleu_note(references, tokenize):
        log(note)
    translations = translate_all(options, sources)
    scores = score_translations(translations, references, tokenize)
    print(f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}")
    print(f"chrF {scores.chrf:.2f}  {scores.chrf_signature}")
    if options.output:
        lines = "".join(one_line(translation) + "\n" for translation in translations)
        write_text(options.output, lines)


def bleu_tokenize_of(model) -> str:
    """Returns the --bleu-tokenize that a run was trained with; 13a where no record says it."""
    try:
        return RunRecord.read(model).options.get("bleu_tokenize", "13a")
    except FileError:
        return "13a"


def translate_all(options, sources) -> list[str]:
    """Translates strings by the model and the search of the command line."""
    counts, translations = Counter(), []
    model = load_model(options, "best")
    windows = in_windows((([source], False) for source in sources), ["text"])
    with Progress("translating", len(sources), quiet=options.quiet, keep=True) as progress:
        for _, answers in answered(windows, model, progress.advance):
            translations += [answer["translation"] for answer in answers]
            counts["source_cut"] += sum(bool(answer["source_cut"]) for answer in answers)
            counts["not_ended"] += sum(answer.get("ended") is False for answer in answers)
    report(counts, len(sources), model.limit, options.source)
    return translations
