"""Quality on any corpus: this library, what changes it, and OpenNMT-tf, side by side.

    python benchmarks/corpora.py recipe plain opennmt_tf_pre --data DIRECTORY --out runs/corpus \\
        --source-language en --target-language de --seeds 1 2 --python PATH

DIRECTORY holds `train`, `valid` or `val`, and `test` or one `test_NAME`, each as `.en.gz` and
`.de.gz`. The lines differ from `recipe` in what `OURS` says; `plain` is the command without an
option. All but `plain` read the same pieces, as often. The text to validate on chooses the length
penalty of each run; the text to test on is only measured. The paired bootstrap compares each line
with the first one, seed by seed. A command that is given again goes on with what is there.
"""

import argparse
import gzip
import json
import statistics
import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from arguments import interpreter, positive
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from side_by_side import AVERAGE, BEAM_SIZE, opennmt_tf, tokenizer_at, train_command_line

from keras_transformer import Beam, load_translator, presets
from keras_transformer.data.text_lines import read_lines
from keras_transformer.evaluation.scores import score_translations

RECIPE = {
    "preset": "tiny",
    "norm_first": True,
    "dropout": 0.3,
    "batch_tokens": 2048,
    "warmup_steps": 2000,
    "learning_rate_scale": 2,
    "cooldown": 0.5,
    "average": AVERAGE,
    "early_stopping": 0,
}
# What each line has instead; None leaves an option out.
OURS = {
    "recipe": {},
    "plain": dict.fromkeys(RECIPE),
    "norm_last": {"norm_first": None, "norm_last": True},
    "mixed_lengths": {"num_buckets": 4},
    "warmup_1000": {"warmup_steps": 1000},
    "warmup_4000": {"warmup_steps": 4000},
    "rate_1": {"learning_rate_scale": 1},
    "no_cooldown": {"cooldown": 0},
    "no_average": {"average": 0},
    "ema": {"average": 0, "ema": 0.999},
    "dropout_0.2": {"dropout": 0.2},
    "dropout_0.1": {"dropout": 0.1},
    "no_label_smoothing": {"label_smoothing": 0},
    "bpe_dropout": {"bpe_dropout": 0.1},
    "r_drop": {"r_drop": 5, "r_drop_delay": 10},
    "batches_of_4096": {"batch_tokens": 4096},
    "batches_of_8192": {"batch_tokens": 8192, "learning_rate_scale": 2.5},
}
# Its batches mix lengths within 8 tokens: from those of one length each it learns no end of
# sentences. Normalized after its sub-layers, it bears half of the rate.
OPENNMT_TF = {
    **presets.TINY,
    **{name: RECIPE[name] for name in ("dropout", "batch_tokens", "warmup_steps")},
    "length_bucket_width": 8,
}
THEIRS = {
    "opennmt_tf_pre": {**OPENNMT_TF, "pre_norm": True, "learning_rate_scale": 2},
    "opennmt_tf_post": {**OPENNMT_TF, "pre_norm": False, "learning_rate_scale": 1},
}
LENGTH_PENALTIES = 0.2, 0.6, 1.0, 1.4
EPOCHS = 30
SPLITS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test", "test_*")}


class Corpus(NamedTuple):
    """The two files of each split, source first."""

    train: tuple[str, str]
    valid: tuple[str, str]
    test: tuple[str, str]


def main(arguments=None):
    options = parse_options(arguments)
    corpus = find_corpus(options)
    refuse_other_settings(Path(options.out), options)
    if options.limit:
        corpus = shortened(corpus, Path(options.out) / "text", options.limit)
    tokenizer = tokenizer_at(
        Path(options.out) / "tokenizer.model", corpus.train, options.vocab_size
    )
    rows = [
        measured(line, seed, corpus, tokenizer, options)
        for seed in options.seeds
        for line in options.lines
    ]
    print("\n".join(table(rows, read_lines(corpus.test[1]))))


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    lines = (*OURS, *THEIRS)
    parser.add_argument(
        "lines", nargs="+", choices=lines, metavar="LINE", help=f"of {', '.join(lines)}"
    )
    parser.add_argument("--data", required=True, metavar="DIRECTORY", help="the corpus")
    parser.add_argument("--source-language", required=True, metavar="NAME")
    parser.add_argument("--target-language", required=True, metavar="NAME")
    parser.add_argument("--out", required=True, metavar="DIRECTORY", help="runs are kept here")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument(
        "--epochs", type=positive, metavar="N", help=f"{EPOCHS}; of plain, as it chooses"
    )
    parser.add_argument("--vocab-size", type=positive, default=8000, metavar="N")
    parser.add_argument("--limit", type=positive, metavar="PAIRS", help="of each split")
    parser.add_argument(
        "--python", type=interpreter, default=sys.executable, help="of OpenNMT-tf's environment"
    )
    return parser.parse_args(arguments)


def find_corpus(options) -> Corpus:
    """Finds the files of each split under the names that corpora give them."""
    folder, splits = Path(options.data), []
    languages = options.source_language, options.target_language
    for names in SPLITS.values():
        found = [path for name in names for path in folder.glob(f"{name}.{languages[0]}.gz")]
        # `test_2016.lc.en.gz` is another form of a split, not of these languages alone.
        found = [path for path in found if path.name.count(".") == 2]
        if len(found) != 1:
            what = f"{len(found)} files for" if found else "no file for"
            sys.exit(
                f"{folder} has {what} {names[0]}.{languages[0]}.gz; one is read of each split."
            )
        stem = found[0].name.removesuffix(f".{languages[0]}.gz")
        splits.append(tuple(str(folder / f"{stem}.{language}.gz") for language in languages))
    return Corpus(*splits)


def refuse_other_settings(out, options) -> None:
    """Writes what the runs in a folder have in common, or stops if they have something else."""
    names = ("data", "source_language", "target_language", "limit", "vocab_size")
    settings = {name: getattr(options, name) for name in names}
    path = out / "settings.json"
    if path.is_file() and (kept := json.loads(path.read_text("utf-8"))) != settings:
        sys.exit(f"{out} has runs of {kept}, but asked are {settings}; name another --out.")
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings) + "\n", "utf-8")


def shortened(corpus, folder, number) -> Corpus:
    """Writes the first pairs of each split to files of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = []
    for files in corpus:
        paths = [folder / f"{number}-{Path(file).name}" for file in files]
        for file, path in zip(files, paths, strict=True):
            if not path.is_file():
                with gzip.open(file, "rb") as lines:
                    path.write_bytes(gzip.compress(b"".join(islice(lines, number)), mtime=0))
        splits.append(tuple(map(str, paths)))
    return Corpus(*splits)


def measured(line, seed, corpus, tokenizer, options) -> dict:
    """Trains a line with a seed, if it is not done, and returns its scores and translations."""
    run = Path(options.out) / f"{line}-{seed}"
    path = run / f"scores-{options.epochs or 'default'}.json"
    if path.is_file():
        return json.loads(path.read_text("utf-8"))
    make = opennmt_tf_translator if line in THEIRS else our_translator
    translate = make(line, run, seed, corpus, tokenizer, options)
    references = read_lines(corpus.valid[1])
    valid = {
        str(penalty): score_translations(translations, references).bleu
        for penalty, translations in zip(
            LENGTH_PENALTIES, translate(corpus.valid[0], LENGTH_PENALTIES), strict=True
        )
    }
    best = max(LENGTH_PENALTIES, key=lambda penalty: valid[str(penalty)])
    (translations,) = translate(corpus.test[0], [best])
    scores = score_translations(translations, read_lines(corpus.test[1]))._asdict()
    row = {"line": line, "seed": seed, "valid": valid, "length_penalty": best, "test": scores}
    row["translations"] = translations
    path.write_text(json.dumps(row, indent=2) + "\n", "utf-8")
    return row


def our_translator(line, run, seed, corpus, tokenizer, options):
    """Trains with the command line; returns a function that translates a file."""
    arguments = {**RECIPE, **OURS[line], "seed": seed}
    arguments["epochs"] = options.epochs or (None if line == "plain" else EPOCHS)
    if line != "plain":
        arguments["tokenizer"] = Path(options.out) / "tokenizer.model"
    given = {name: value for name, value in arguments.items() if value is not None}
    train_command_line(run, corpus.train, corpus.valid, **given)

    translator = load_translator(run, Beam(size=BEAM_SIZE))

    def translate(file, penalties):
        texts = read_lines(file)
        return [translator.translate(texts, length_penalty=x).texts for x in penalties]

    return translate


def opennmt_tf_translator(line, run, seed, corpus, tokenizer, options):
    """Returns a function that trains OpenNMT-tf, if it is not done, and translates a file."""
    case = {**THEIRS[line], "seed": seed, "epochs": options.epochs or EPOCHS}

    def translate(file, penalties):
        searches = [(file, penalty) for penalty in penalties]
        return opennmt_tf(run, corpus.train, tokenizer, case, searches, options.python)

    return translate


def table(rows, references) -> list[str]:
    """Returns the lines of a table of all runs, and of the mean of each line over its seeds."""
    head = ("line", "seed", "length penalty", "validation BLEU", "BLEU", "chrF", "p")
    lines = [head, ["---"] * len(head)]
    baseline = {row["seed"]: row for row in rows if row["line"] == rows[0]["line"]}
    for row in rows:
        base = baseline[row["seed"]]
        p = "" if base is row else f"{p_value(base, row, references):.3f}"
        lines.append([row["line"], row["seed"], row["length_penalty"], *figures([row]), p])
    for line in dict.fromkeys(row["line"] for row in rows) if len(baseline) > 1 else ():
        own = [row for row in rows if row["line"] == line]
        lines.append([f"{line}, mean", "", "", *figures(own), ""])
    signatures = (rows[0]["test"][f"{name}_signature"] for name in ("bleu", "chrf"))
    return [f"| {' | '.join(map(str, line))} |" for line in lines] + ["", *signatures]


def figures(rows) -> list[str]:
    """The means of the scores of runs: BLEU on the validation text, BLEU and chrF on the other."""
    columns = [[max(row["valid"].values()) for row in rows]]
    columns += [[row["test"][name] for row in rows] for name in ("bleu", "chrf")]
    return [f"{statistics.mean(column):.2f}" for column in columns]


def p_value(base, row, references) -> float:
    """How probable a difference of BLEU as large would be between equals, by paired bootstrap."""
    systems = [(name, other["translations"]) for name, other in (("base", base), ("other", row))]
    test = PairedTest(systems, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=1000)
    return test()[1]["BLEU"][1].p_value


if __name__ == "__main__":
    main()
