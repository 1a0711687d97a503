"""Whether Marian computes what this library does: all hypotheses of a beam, and their scores.

    python benchmarks/marian_parity.py --python ENVIRONMENT/bin/python

A small `Transformer` of random weights is given what Marian does differently (`marian_model.py`),
written under Marian's names, and searched by both: sentences of several lengths in one batch, a
beam of 4, no end before the last step.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import engines
import keras
import numpy as np
from arguments import interpreter
from keras import ops
from marian_model import NEVER, sinusoids, write_marian

from keras_transformer import Beam, Tokenizer, Transformer, beam_search
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID

SIZES = {"num_layers": 3, "d_model": 64, "num_heads": 4, "d_ff": 128, "source_vocab_size": 500}
LENGTHS = range(5, 21)  # of the sentences, the end token included
BEAM_SIZE = 4
TOLERANCE = 1e-3  # of sums of log-probabilities, which Marian writes with six digits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=interpreter, required=True, help="with pymarian")
    python = parser.parse_args().python
    keras.utils.set_random_seed(0)
    tokenizer = Tokenizer(engines.vocabulary(SIZES["source_vocab_size"]))
    model = like_marian(MarianTransformer(**SIZES))
    texts = sentences()
    ours = search(model, tokenizer, texts)
    theirs = search_by_marian(model, tokenizer, texts, python)
    equal = sum(ours[i][0] == theirs[i][0] for i in range(len(ours)))
    difference = max(abs(a[1] - b[1]) for a, b in zip(ours, theirs, strict=True))
    print(f"{equal} of {len(ours)} hypotheses are equal, {max(LENGTHS)} tokens each")
    print(f"scores differ by at most {difference:.1e}; the first is {ours[0][1]:.4f}")
    sys.exit(1 if equal < len(ours) or difference > TOLERANCE else 0)


class MarianTransformer(Transformer):
    """Gives forbidden tokens no probability, as the bias of Marian's logits does."""

    def logits(self, states):
        forbidden = np.zeros(self.target_vocab_size, "float32")
        forbidden[[PAD_ID, UNK_ID, START_ID, END_ID]] = NEVER
        return super().logits(states) + forbidden


def like_marian(model):
    """Gives a model other weights, Marian's sinusoids, and zeros for the start token's vector."""
    generator = np.random.default_rng(0)
    for weight in model.trainable_weights:  # no bias stays 0, no scale 1
        noise = generator.normal(scale=0.1, size=weight.shape)
        weight.assign(ops.convert_to_numpy(weight) + noise)
    embedding = model.source_embedding
    embedding.table = sinusoids(embedding.max_length, embedding.d_model)
    rows = np.ones((embedding.vocab_size, 1))
    rows[START_ID] = 0
    embedding.embeddings.assign(embedding.embeddings * rows)
    return model


def sentences():
    generator = random.Random(0)
    words = [engines.word(i) for i in range(200)]
    # A made-up word is one piece after a space, and many without.
    return [" ".join(["a", *generator.choices(words, k=length - 2)]) for length in LENGTHS]


def search(model, tokenizer, texts):
    """This library's hypotheses: pairs of pieces and score, best first, sentence by sentence."""
    rows = [[*ids, END_ID] for ids in tokenizer.tokenize(texts).to_list()]
    assert [len(row) for row in rows] == list(LENGTHS)
    length = max(LENGTHS)
    source_ids = np.array([row + [PAD_ID] * (length - len(row)) for row in rows], "int32")
    strategy = Beam(size=BEAM_SIZE, num_hypotheses=BEAM_SIZE, length_penalty=0.0)
    cache = model.init_cache(source_ids, max_length=length, beam_size=BEAM_SIZE)
    start_ids = np.full(len(rows), START_ID, "int32")
    options = {"end_id": END_ID, "max_length": length}
    result = beam_search(model, start_ids, cache, strategy, **options)
    ids, scores = (ops.convert_to_numpy(x) for x in (result.ids, result.scores))
    ids = ids.reshape(-1, length)
    return list(zip(map(tokenizer.pieces, ids), scores.ravel(), strict=True))


def search_by_marian(model, tokenizer, texts, python):
    """Marian's hypotheses, in the same form."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "marian"
        write_marian(model, tokenizer, directory, may_end=False)
        vocabulary = str(directory / "vocabulary.spm")
        command = [python, "-m", "pymarian", "decode", "--models", str(directory / "model.npz")]
        command += ["--vocabs", vocabulary, vocabulary, "--no-spm-decode", "--quiet", "--n-best"]
        command += ["--allow-special"]  # control characters, which bytes of this vocabulary are
        command += ["--beam-size", str(BEAM_SIZE), "--mini-batch", str(len(texts))]
        command += ["--max-length-factor", "1", "--cpu-threads", "1"]
        text = "\n".join(texts) + "\n"
        options = {"input": text, "stdout": subprocess.PIPE, "text": True, "check": True}
        lines = subprocess.run(command, **options).stdout.splitlines()
    parts = [line.split(" ||| ") for line in lines]
    return [(pieces.split(), float(score)) for _, pieces, _, score in parts]


if __name__ == "__main__":
    main()
