"""Marian's search by its package pymarian: text to pieces, float32 or int8.

A thread has a graph and a batch of its own, so that the sentences are shared out among threads.
"""

import json
import subprocess
import sys

import pymarian


class Engine:
    def __init__(self, case, directory, int8=False):
        self.texts = json.loads((directory.parent / "texts.json").read_text("utf-8"))
        vocabulary = str(directory / "vocabulary.spm")
        threads = min(case["threads"], len(self.texts))
        self.translator = pymarian.Translator(
            models=integers(directory) if int8 else directory / "model.npz",
            vocabs=[vocabulary, vocabulary],
            beam_size=case["beam_size"],
            max_length_factor=case["length"] / case["source_length"],
            mini_batch=-(-len(self.texts) // threads),
            cpu_threads=threads,
            skip_cost="" if case["beam_size"] == 1 else None,  # greedy: no need of the normalizer
            no_spm_decode="",
            # The model's own logits forbid what must not be chosen.
            allow_unk="",
            allow_special="",
            quiet="",
        )

    def translate(self):
        """Translates the sentences; returns the number of their tokens."""
        return sum(len(line.split()) for line in self.translator.translate(self.texts))


def integers(directory):
    """The model with matrices of 8-bit integers, for whatever instructions the processor has."""
    path = directory / "model.bin"
    command = "-m", "pymarian", "convert", "-f", directory / "model.npz", "-t", path
    options = {"check": True, "stderr": subprocess.DEVNULL}  # it names every matrix
    subprocess.run([sys.executable, *command, "-g", "intgemm8"], **options)
    return path
