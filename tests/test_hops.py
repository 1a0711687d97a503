"""A new reader's way through the code: the files that one call crosses, and how often it moves.

A move is a call in another file of the package than the call before it. When a number grows, the
way has become longer: find out where, or say why it must.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer import MaskedCrossentropy, Tokenizer, Transformer, Translator

PACKAGE = str(Path(keras_transformer.__file__).parent)
SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}


@pytest.fixture
def files_and_moves():
    """files_and_moves(function): the files that a call crosses, and the moves between them."""

    def trace(function):
        way = []

        def see(frame, event, _):
            file = frame.f_code.co_filename
            if event == "call" and file.startswith(PACKAGE) and way[-1:] != [file]:
                way.append(file)

        before = sys.getprofile()
        sys.setprofile(see)
        try:
            function()
        finally:
            sys.setprofile(before)
        return {file.removeprefix(PACKAGE) for file in way}, len(way) - 1

    return trace


def test_a_translation_crosses_few_files(files_and_moves):
    tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
    model = Transformer(**SIZES, source_vocab_size=tokenizer.vocab_size)
    translator = Translator(model, tokenizer)
    files, moves = files_and_moves(lambda: translator(["a dog"]))
    assert len(files) <= 30, sorted(files)
    assert moves <= 173


def test_a_training_step_crosses_few_files(files_and_moves):
    model = Transformer(**SIZES, source_vocab_size=20)
    model.compile(keras.optimizers.Adam(), MaskedCrossentropy())
    inputs, labels = (np.array([[5, 6, 3]]), np.array([[2, 7]])), np.array([[7, 3]])
    files, moves = files_and_moves(lambda: model.train_on_batch(inputs, labels))
    assert len(files) <= 22, sorted(files)
    assert moves <= 216
