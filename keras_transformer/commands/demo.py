"""`keras-transformer demo`: the whole way, from generated text to a served translation."""

import subprocess
import sys
import time
from pathlib import Path
from shlex import quote

from keras_transformer.commands import train
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.progress import stage
from keras_transformer.data.synthetic import synthetic_pairs
from keras_transformer.evaluation.scores import exact_match, score_translations
from keras_transformer.inference.translator import load_translator

TRAIN_OPTIONS = [
    *("--synthetic", "--num-pairs", "34000", "--preset", "tiny", "--dropout", "0"),
    *("--vocab-size", "1000", "--batch-tokens", "2048", "--label-smoothing", "0"),
    *("--warmup-steps", "300", "--learning-rate-scale", "0.6", "--cooldown", "0.7"),
    *("--epochs", "2", "--norm-last", "--average", "0", "--early-stopping", "0", "--force"),
]
NUM_TEST_PAIRS, NUM_SHOWN = 500, 5
MODULE_COMMAND = "python -m keras_transformer"

# Runs in a process of its own without this package: it needs only TensorFlow and the text ops.
FRESH_PROCESS = """
import sys
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load(sys.argv[1])
translate = model.signatures["serving_default"]
output = translate(tf.constant(sys.argv[2:]))
for source, target in zip(sys.argv[2:], output["translation"].numpy(), strict=True):
    print(f"  {source}\\n  -> {target.decode()}")
assert "keras_transformer" not in sys.modules
"""


def run(options) -> None:
    """Trains, scores on held-out sentences, exports, and translates with the export."""
    run_directory, exports = Path(options.out) / "run", Path(options.out) / "export"
    start = time.monotonic()
    show("Training on generated English sentences and their German translations")
    quiet = ["--quiet"] if options.quiet else []
    arguments = ["train", *TRAIN_OPTIONS, *quiet, "--out", str(run_directory)]
    train.run(build_parser().parse_args(arguments))

    sources, references = zip(*synthetic_pairs(NUM_TEST_PAIRS, split="test"), strict=True)
    with stage(f"translating {NUM_TEST_PAIRS} other sentences", quiet=options.quiet):
        translator = load_translator(run_directory)
        translations = translator(sources)
    scores = score_translations(translations, references)
    show(f"\nOn {len(sources)} sentences that training never saw:")
    show(f"  exact match {exact_match(translations, references):.1f} %")
    show(f"  BLEU {scores.bleu:.1f}  {scores.bleu_signature}")

    with stage("exporting and testing the export", quiet=options.quiet):
        exported = translator.export(exports)
    show(f"\nExported to {exported}. A process without this library translates:")
    translate_in_fresh_process(exported, sources[:NUM_SHOWN], options.quiet)

    command = sys.argv[0] if Path(sys.argv[0]).stem == "keras-transformer" else MODULE_COMMAND
    show(f"\nThat took {(time.monotonic() - start) / 60:.1f} minutes. Next, a sentence of yours:")
    show(f'  echo "{sources[0]}" | {command} translate {quote(str(exports))}')


def translate_in_fresh_process(exported: str, texts, quiet: bool = False) -> None:
    """Shows what an export answers in a process that imports TensorFlow, but not this library."""
    command = [sys.executable, "-I", "-c", FRESH_PROCESS, exported, *texts]
    with stage("starting a process", quiet=quiet):
        result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if result.returncode:
        raise RuntimeError(f"the exported model failed in a fresh process: {result.stderr[-500:]}")
    show(result.stdout.rstrip())


def show(line: str) -> None:
    """Prints a result at once, even if standard output is a pipe."""
    print(line, flush=True)
