"""Trains this library's command line and OpenNMT-tf on the same text, in the same pieces.

What `multi30k.py` and `corpora.py` share. Whatever is called again goes on with what is there.
"""

import subprocess
import sys
from pathlib import Path

import tensorflow as tf
from training import as_pieces, write_case

from keras_transformer import Tokenizer
from keras_transformer.data.text_lines import read_lines

BEAM_SIZE = 5
# OpenNMT-tf averages these checkpoints, and the recipes these epochs.
AVERAGE = 10


def call(command):
    """Runs a command; where it fails it has said why, and the benchmark ends with its status."""
    if status := subprocess.run(command).returncode:
        sys.exit(status)


def call_ours(command, *words, **arguments):
    """Runs a command of this library; an argument that is True is an option without a value."""
    options = []
    for name, value in arguments.items():
        option = f"--{name.replace('_', '-')}"
        options += [option] if value is True else [option, str(value)]
    call([sys.executable, "-m", "keras_transformer", command, *map(str, words), *options])


def train_command_line(run, train, valid, **arguments):
    """Trains with the command line, or goes on; `train` and `valid` are pairs of files."""
    for name, pair in (("", train), ("valid_", valid)):
        arguments |= dict(zip((f"{name}source", f"{name}target"), pair, strict=True))
    call_ours("train", "--resume", **arguments, out=run)


def tokenizer_at(path, pair, vocab_size):
    """The tokenizer in a file, learnt from the texts of a pair of files if it is not there."""
    path = Path(path)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [line for file in pair for line in read_lines(file)]
        Tokenizer.train_on_texts(texts, vocab_size=vocab_size).save(path)
    return Tokenizer.load(path)


def opennmt_tf(run, train, tokenizer, case, searches, python):
    """Trains OpenNMT-tf in its own environment, or goes on, and translates with it.

    Args:
        run: the directory of the run.
        train: the pair of files to train on.
        tokenizer: the one that cuts all text into pieces.
        case: the sizes and the settings, as `trainers/opennmt_tf_engine.py` reads them.
        searches: (file of sentences, length penalty) of each translation.
        python: the interpreter of its environment.

    Returns:
        The translations of each search, a list of strings.
    """
    run.mkdir(parents=True, exist_ok=True)
    sides = [tokenizer.tokenize(read_lines(file)).to_list() for file in train]
    case = {**case, "vocab_size": tokenizer.vocab_size, "average": AVERAGE, "translations": []}
    case["search"] = {"beam_width": BEAM_SIZE}
    for i, (file, length_penalty) in enumerate(searches):
        pieces = as_pieces(tokenizer.tokenize(read_lines(file)).to_list())
        (run / f"source-{i}.txt").write_text(pieces, "utf-8")
        names = {"source": f"source-{i}.txt", "translation": f"translation-{i}.txt"}
        case["translations"].append({**names, "length_penalty": length_penalty})
    write_case(case, sides, run)
    call([python, str(Path(__file__).parent / "trainers" / "opennmt_tf_translator.py"), str(run)])
    return [joined(tokenizer, run / search["translation"]) for search in case["translations"]]


def joined(tokenizer, path):
    """The texts of a file of pieces."""
    lines = path.read_text("utf-8").split("\n")[:-1]
    ids = [[int(piece[1:]) for piece in line.split() if piece[1:].isdigit()] for line in lines]
    texts = tokenizer.detokenize(tf.ragged.constant(ids, dtype="int32")).numpy()
    return [text.decode("utf-8", "replace") for text in texts]
