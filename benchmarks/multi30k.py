"""Multi30k, English to German: trains, translates `test_2016_flickr` and scores, seed by seed.

    python benchmarks/multi30k.py anchor --data DIRECTORY --out runs/multi30k
    python benchmarks/multi30k.py opennmt_tf --data DIRECTORY --out runs/multi30k --python PATH

DIRECTORY holds `train`, `val` and `test_2016_flickr`, each as `.en.gz` and `.de.gz`, and as
`.lc.norm.tok.en.gz` and `.lc.norm.tok.de.gz`. A command that is given again goes on with what is
there, also with more --epochs; a seed that was scored after as many, by the same search, is only
shown.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from arguments import interpreter, positive
from side_by_side import (
    AVERAGE,
    BEAM_SIZE,
    call_ours,
    opennmt_tf,
    tokenizer_at,
    train_command_line,
)

from keras_transformer import presets
from keras_transformer.data.text_lines import read_lines
from keras_transformer.evaluation.scores import score_translations

TOKENIZED, RAW = ".lc.norm.tok", ""
SETTINGS = {"dropout": 0.3, "batch_tokens": 2048, "warmup_steps": 2000, "learning_rate_scale": 2}
SMALL_BATCHES = {**SETTINGS, "vocab_size": 9700, "cooldown": 0.5}
# As published: 8,000 times 8,192 tokens in all, at a rate of at most 0.005.
ANCHOR = {**SMALL_BATCHES, "batch_tokens": 8192, "learning_rate_scale": 2.5}
LINES = {
    "anchor": (TOKENIZED, ANCHOR),
    "anchor_r_drop": (TOKENIZED, {**ANCHOR, "r_drop": 3, "r_drop_delay": 60}),
    "anchor_small_batches": (TOKENIZED, SMALL_BATCHES),
    "anchor_small_batches_r_drop": (TOKENIZED, {**SMALL_BATCHES, "r_drop": 3, "r_drop_delay": 20}),
    "raw": (RAW, {**SETTINGS, "vocab_size": 8000, "cooldown": 0.5}),
    # Normalized after its sub-layers, it stops reading the source at this rate; from batches of one
    # length each, it does not learn where a sentence ends.
    "opennmt_tf": (
        RAW,
        {**SETTINGS, "vocab_size": 8000, "pre_norm": True, "length_bucket_width": 8},
    ),
}
# The recipes are the paper's, with its norm after each sub-layer.
OURS = {"preset": "tiny", "norm_last": True, "average": AVERAGE, "early_stopping": 0}
# The published protocol divides by the length, n. For captions, ((5 + n) / 6) ** 1.4 is as steep.
LENGTH_PENALTY = 1.4
BLEU_TOKENIZE = {TOKENIZED: "none", RAW: "13a"}
SCORES = "test_2016_flickr_{epochs}_{length_penalty}.json"


def main():
    options = parse_options()
    suffix, settings = LINES[options.line]
    train = train_opennmt_tf if options.line == "opennmt_tf" else train_keras_transformer
    scores = []
    for seed in options.seeds:
        run = Path(options.out) / f"{options.line}-{seed}"
        path = run / SCORES.format(**vars(options))
        if not path.is_file():
            translations = train(run, suffix, settings, seed, options)
            score(path, translations, suffix, options)
        scores.append(json.loads(path.read_text("utf-8")))
    report(options, scores)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("line", choices=LINES, help="the line of docs/results.md")
    parser.add_argument("--data", required=True, metavar="DIRECTORY", help="the corpus")
    parser.add_argument("--out", required=True, metavar="DIRECTORY", help="runs are kept here")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument(
        "--epochs", type=positive, default=149, metavar="N", help="passes over the text"
    )
    parser.add_argument("--length-penalty", type=float, default=LENGTH_PENALTY, metavar="A")
    parser.add_argument(
        "--python", type=interpreter, default=sys.executable, help="of OpenNMT-tf's environment"
    )
    return parser.parse_args()


def files(options, split, suffix):
    """The two files of a split, source first."""
    names = (f"{split}{suffix}.{language}.gz" for language in ("en", "de"))
    return [str(Path(options.data) / name) for name in names]


def train_keras_transformer(run, suffix, settings, seed, options):
    """Trains with the command line, or goes on, and translates with it."""
    arguments = {"cooldown": 0, **OURS, **settings, "epochs": options.epochs, "seed": seed}
    arguments["bleu_tokenize"] = BLEU_TOKENIZE[suffix]
    train_command_line(
        run, files(options, "train", suffix), files(options, "val", suffix), **arguments
    )
    source, target = files(options, "test_2016_flickr", suffix)
    arguments = {"source": source, "target": target, "output": run / "translations.txt"}
    arguments |= {"beam_size": BEAM_SIZE, "length_penalty": options.length_penalty}
    call_ours("evaluate", run, **arguments)
    return read_lines(run / "translations.txt")


def train_opennmt_tf(run, suffix, settings, seed, options):
    """Trains and translates in its own environment, in the pieces of this library's tokenizer."""
    train = files(options, "train", suffix)
    tokenizer = tokenizer_at(run / "tokenizer.model", train, settings["vocab_size"])
    case = {**presets.TINY, **settings, "seed": seed, "epochs": options.epochs}
    source, _ = files(options, "test_2016_flickr", suffix)
    searches = [(source, options.length_penalty)]
    return opennmt_tf(run, train, tokenizer, case, searches, options.python)[0]


def score(path, translations, suffix, options):
    """Keeps what sacreBLEU says of a run's translations."""
    _, target = files(options, "test_2016_flickr", suffix)
    scores = score_translations(translations, read_lines(target), BLEU_TOKENIZE[suffix])
    path.write_text(json.dumps(scores._asdict(), indent=2) + "\n", "utf-8")


def report(options, scores):
    for name in ("bleu", "chrf"):
        values = [score[name] for score in scores]
        spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
        print(f"{options.line}: {name} {statistics.mean(values):.2f}{spread}", end="  ")
        print(scores[0][f"{name}_signature"])


if __name__ == "__main__":
    main()
