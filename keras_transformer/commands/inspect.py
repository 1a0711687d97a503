"""`keras-transformer inspect`: a page of all that a model does with one sentence."""

from pathlib import Path

import numpy as np

from keras_transformer.checks import check_new_file, without_surrogates
from keras_transformer.commands.pictures import model_figures, sentence_figures, shown_word
from keras_transformer.commands.search import search_options
from keras_transformer.commands.training_callbacks import LOGS
from keras_transformer.files import write_text
from keras_transformer.inference.inspection import (
    CROSS,
    DECODER,
    ENCODER,
    check_text,
    inspect_translation,
)
from keras_transformer.inference.run_directory import load_translator
from keras_transformer.training.tensorboard import read_curve
from keras_transformer.visualization import pages
from keras_transformer.visualization.figures import new_figure

# What a reader sees in each picture.
EXPLANATIONS = {
    "Attention": "Choose a word on the left: the lines and the shares on the right show where it "
    "looks. In the decoder, a word on the left is being written; it looks at the words before it.",
    "Translation": "The probability of each piece, given the pieces before it.",
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


def run(options) -> None:
    """Translates the sentence and writes the page."""
    out = Path(options.out)
    check_text(options.sentence)
    # Bytes that are not UTF-8 arrive as surrogates, which no file can hold.
    sentence = without_surrogates(options.sentence)
    check_new_file("--out", out)
    new_figure(1, 1)  # before the model is loaded: fails without matplotlib
    translator = load_translator(options.run, **search_options(options))
    inspection = inspect_translation(translator, options.sentence)
    shown = shown_word(inspection, options.word)
    measured = read_curve(Path(options.run) / LOGS / "train", "step_learning_rate")
    figures = sentence_figures(inspection, shown) | model_figures(translator.model, measured)
    parts = {"Attention": pages.attention_part(inspection.maps(), shown)}
    parts |= translation_parts(inspection)
    parts |= {name: pages.picture(figure, EXPLANATIONS[name]) for name, figure in figures.items()}
    body = []
    for name, part in parts.items():
        body += [pages.heading(name, EXPLANATIONS[name]), part]
    write_text(out, pages.page(f"{sentence} → {inspection.texts[0]}", body))
    print(out)


def translation_parts(inspection) -> dict[str, str]:
    """Makes the HTML of the best translation, piece by piece, and of all hypotheses."""
    percents = [f"{probability:.1%}" for probability in np.exp(inspection.log_probs)]
    ranks = range(1, 1 + len(inspection.texts))
    hypotheses = zip(ranks, inspection.scores, inspection.texts, strict=True)
    return {
        "Translation": pages.pieces_with_notes(inspection.target_pieces, percents),
        "Hypotheses": pages.table(["rank", "score", "text"], hypotheses),
    }
