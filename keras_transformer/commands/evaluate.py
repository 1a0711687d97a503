"""`keras-transformer evaluate`: BLEU and chrF with their signatures."""

from keras_transformer.checks import check_new_file
from keras_transformer.commands.loading import loaded
from keras_transformer.commands.messages import one_line
from keras_transformer.data.corpus import read_lines
from keras_transformer.evaluation.scores import check_bleu_tokenize, score_translations
from keras_transformer.files import write_text


def run(options) -> None:
    """Translates the source file and prints how close the result is to the target file."""
    check_bleu_tokenize(options.bleu_tokenize)
    if options.output:
        check_new_file("--output", options.output)
    sources, references = read_lines(options.source), read_lines(options.target)
    if len(sources) != len(references):
        raise ValueError(
            f"{options.source} has {len(sources)} lines, but {options.target} has "
            f"{len(references)}; line n of the second must be the reference of line n of the first."
        )
    with loaded(options.model, options) as translate:
        translations = translate(sources)
    scores = score_translations(translations, references, options.bleu_tokenize)
    print(f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}")
    print(f"chrF {scores.chrf:.2f}  {scores.chrf_signature}")
    if options.output:
        lines = "".join(one_line(translation) + "\n" for translation in translations)
        write_text(options.output, lines)
