"""`keras-transformer inspect`: a page of all that a model does with one sentence."""

import warnings
from pathlib import Path

import numpy as np

from keras_transformer.checks import check_new_file, without_surrogates
from keras_transformer.commands.inspect_server import serve
from keras_transformer.commands.messages import log
from keras_transformer.commands.pictures import model_figures, sentence_figures, shown_word
from keras_transformer.commands.search import search_options
from keras_transformer.commands.training_run.resume import LOGS
from keras_transformer.files import write_text
from keras_transformer.inference.inspection import (
    CROSS,
    DECODER,
    ENCODER,
    check_text,
    inspect_translation,
)
from keras_transformer.inference.translator import load_translator
from keras_transformer.training.tensorboard import read_curve
from keras_transformer.visualization import pages
from keras_transformer.visualization.figures import new_figure

# What a reader sees in each picture.
EXPLANATIONS = {
    "Attention": "Choose a word on the left: the lines and the shares on the right show where it "
    "looks. In the decoder, a word on the left is being written; it looks at the words before it.",
    "Translation": "The probability of each word, and of the pieces of longer ones, given what "
    "stands before it.",
    "Hypotheses": "All results of the search, best first. The score is log P over the length "
    "penalty.",
    "Beam": "Each column adds a token; below each piece stands the log-probability up to there. "
    "Dark lines lead to the hypotheses above. A cross marks one that the search dropped, because "
    "others of its length were more probable.",
    ENCODER: "Each row is a source piece, and the columns are what it looks at.",
    DECODER: "Each row is a piece as it is written. It looks at the pieces before "
    "it, from the start token on; what comes later is masked.",
    CROSS: "Each row is a piece as it is written; the columns are the source. A head "
    "that has learnt to align shows a line from top left to bottom right.",
    "One word": "Each row is a head. The number is its largest share.",
    "Masks": "As the layers see them, with two positions of padding as in a batch with a longer "
    "sentence. Blue: may look; white: may not.",
    "Positions": "What is added to a word's embedding for its place. Each pair of columns is a "
    "sine and a cosine; the waves grow longer from left to right.",
    "Similarity of positions": "Near positions are alike; only the distance counts.",
    "Schedule": "The paper's learning rate at this model's width, with half, once and twice the "
    "warm-up; dashed: what this run has logged.",
}


# The pictures that are small enough to stand side by side.
SIDE_BY_SIDE = {"One word", "Masks", "Positions", "Similarity of positions", "Schedule"}


def run(options) -> None:
    """Translates the sentence and writes the page, or serves pages of sentences that are typed."""
    # Bytes that are not UTF-8 arrive as surrogates, which no file can hold.
    sentence = without_surrogates(" ".join(options.sentence or ()))
    if not options.serve:
        check_text(sentence)
        check_new_file("--out", options.out)
    new_figure(1, 1)  # before the model is loaded: fails without matplotlib
    translator = load_translator(options.run, **search_options(options))
    measured = read_curve(Path(options.run) / LOGS / "train", "step_learning_rate")
    if not options.serve:
        write_text(options.out, sentence_page(translator, sentence, options.word, measured))
        print(options.out)
        return

    def answer(text):
        if not text:
            return pages.page("What does the model do with a sentence?", [pages.form()])
        return sentence_page(translator, text, options.word, measured, pages.form(text))

    serve(answer, options.port, sentence)


def sentence_page(translator, sentence, word=None, measured=None, top=None) -> str:
    """Makes the page of one sentence.

    Args:
        translator: a `Translator`.
        sentence: the text to translate.
        word: the word to look at on its own, or None.
        measured: steps and learning rates of the training, or None.
        top: HTML above the first section, or None.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        inspection = inspect_translation(translator, sentence)
    notes = [" ".join(str(warning.message).split()) for warning in caught]
    for note in notes:
        log(f"note: {note}")
    shown = shown_word(inspection, word)
    figures = sentence_figures(inspection, shown) | model_figures(translator.model, measured)
    parts = {"Attention": pages.attention_part(inspection.maps(), shown)}
    parts |= translation_parts(inspection)
    parts |= {name: pages.picture(figure, EXPLANATIONS[name]) for name, figure in figures.items()}
    body = [*([top] if top else []), *map(pages.note, notes)]
    for name, part in parts.items():
        is_wide = name not in SIDE_BY_SIDE
        body.append(pages.section(name, EXPLANATIONS[name], part, is_wide=is_wide))
    return pages.page(f"{sentence} → {inspection.texts[0]}", body)


def translation_parts(inspection) -> dict[str, str]:
    """Makes the HTML of the best translation, word by word, and of all hypotheses."""
    pieces, log_probs = inspection.target_pieces, inspection.log_probs
    words = [log_probs[word].sum() for word in pages.words_of(pieces)]
    percents, word_percents = ([f"{p:.1%}" for p in np.exp(x)] for x in (log_probs, words))
    ranks = range(1, 1 + len(inspection.texts))
    hypotheses = zip(ranks, inspection.scores, inspection.texts, strict=True)
    return {
        "Translation": pages.words_with_notes(pieces, percents, word_percents),
        "Hypotheses": pages.table(["rank", "score", "text"], hypotheses),
    }
