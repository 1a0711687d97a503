"""`keras-transformer train`: from parallel text to a run directory."""

import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import keras

from keras_transformer import presets
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.corpus import Corpus, CorpusError, read_files, read_tfds, read_tsv
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.evaluation.scores import score_translations
from keras_transformer.export.run_directory import is_run, save_run
from keras_transformer.export.translator import Translator
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.callbacks import (
    KeepBest,
    TimeLimit,
    TokensPerSecond,
    TranslationMonitor,
)
from keras_transformer.training.distribution import strategy_scope
from keras_transformer.training.losses import MaskedCrossentropy
from keras_transformer.training.metrics import MaskedAccuracy
from keras_transformer.training.schedules import TransformerSchedule

NUM_SYNTHETIC_VALID = 500


class Texts(NamedTuple):
    """What a run trains and, if there is any, validates on."""

    train: Corpus
    valid: Corpus | None


def run(options) -> None:
    """Reads the text, trains, and leaves the best epoch in the run directory."""
    check_out(options)
    texts = read_texts(options)
    keras.utils.set_random_seed(options.seed)
    tokenizer = Tokenizer.train_on_texts(
        texts.train.sources + texts.train.targets, vocab_size=options.vocab_size
    )
    train, valid = batches(texts, tokenizer, options)
    report(texts, tokenizer, train)
    with strategy_scope(options.strategy):
        model = build_model(tokenizer, train.num_batches * options.epochs, options)
    # The old model stays until the first epoch's replaces it; only the old curves go.
    shutil.rmtree(Path(options.out) / "logs", ignore_errors=True)
    start = time.monotonic()
    model.fit(
        train.dataset(),
        validation_data=None if valid is None else valid.dataset(),
        epochs=options.epochs,
        shuffle=False,
        verbose=verbosity(options.quiet),
        callbacks=callbacks(model, tokenizer, texts, train, options),
    )
    say(f"trained {(time.monotonic() - start) / 60:.1f} minutes")
    say(f"wrote {options.out}; next: keras-transformer export {options.out} DIRECTORY")


def check_out(options) -> None:
    """Refuses to write over something, unless it is a run and --force allows it."""
    out = Path(options.out)
    if out.is_file():
        raise ValueError(f"--out {out} is a file; name a directory.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not is_run(out):
        raise ValueError(f"--out {out} holds other files; name a new or an empty directory.")
    if not options.force:
        raise ValueError(f"--out {out} holds a run already; name another, or add --force.")


def read_texts(options) -> Texts:
    """The corpora that the options name."""
    files = options.source is not None or options.target is not None
    given = [files, options.tsv is not None, options.tfds is not None, options.synthetic]
    if sum(given) != 1:
        raise ValueError("give one of --source and --target, --tsv, --tfds, --synthetic.")
    both_or_none("--source", options.source, "--target", options.target)
    both_or_none("--valid-source", options.valid_source, "--valid-target", options.valid_target)
    valid = None
    if options.valid_source is not None:
        valid = read_files(options.valid_source, options.valid_target, errors=options.errors)
    if files:
        return Texts(read_files(options.source, options.target, errors=options.errors), valid)
    if options.tsv is not None:
        return Texts(read_tsv(options.tsv, errors=options.errors), valid)
    if options.tfds is not None:
        return tfds_texts(options.tfds, valid)
    return synthetic_texts(options.num_pairs, options.seed)


def tfds_texts(name: str, valid: Corpus | None) -> Texts:
    """A set of tensorflow-datasets, validated on its own split where it has one."""
    train = read_tfds(name)
    try:
        return Texts(train, valid or read_tfds(name, split="validation"))
    except CorpusError:
        say(f"{name} has no validation split; name text with --valid-source and --valid-target")
        return Texts(train, None)


def synthetic_texts(num_pairs: int, seed: int) -> Texts:
    from keras_transformer.data.synthetic import synthetic_pairs

    splits = []
    for split, size in (("train", num_pairs), ("valid", NUM_SYNTHETIC_VALID)):
        sources, targets = zip(*synthetic_pairs(size, split=split, seed=seed), strict=True)
        splits.append(Corpus(list(sources), list(targets), {}))
    return Texts(*splits)


def both_or_none(first: str, first_value, second: str, second_value) -> None:
    if (first_value is None) != (second_value is None):
        missing = first if first_value is None else second
        raise ValueError(f"{first} and {second} go together; {missing} is missing.")


def batches(texts, tokenizer, options):
    """Training and validation `TokenBatches`; the latter None without validation text."""
    sizes = {"batch_tokens": options.batch_tokens, "max_length": options.max_length}
    train = TokenBatches(*texts.train[:2], tokenizer, **sizes, seed=options.seed)
    if texts.valid is None:
        return train, None
    return train, TokenBatches(*texts.valid[:2], tokenizer, **sizes, shuffle=False)


def report(texts, tokenizer, train) -> None:
    skipped = dict(texts.train.skipped)
    if train.num_too_long:
        skipped["more tokens than --max-length"] = train.num_too_long
    reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "none"
    say(f"{len(train.rows)} training pairs (skipped: {reasons})")
    say(f"{tokenizer.vocab_size} subwords, {train.num_target_tokens} target tokens an epoch")
    if texts.valid is not None and texts.valid.skipped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in texts.valid.skipped.items())
        say(f"{len(texts.valid.sources)} validation pairs (skipped: {reasons})")


def build_model(tokenizer, total_steps, options) -> Transformer:
    size = dict(getattr(presets, options.preset.upper()))
    if options.dropout is not None:
        size["dropout"] = options.dropout
    model = Transformer(**size, source_vocab_size=tokenizer.vocab_size)
    schedule = TransformerSchedule(
        size["d_model"],
        options.warmup_steps,
        options.learning_rate_scale,
        cooldown_steps=int(options.cooldown * total_steps),
        total_steps=total_steps,
    )
    model.compile(
        keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        loss=MaskedCrossentropy(label_smoothing=options.label_smoothing),
        metrics=[MaskedAccuracy()],
    )
    say(f"{model.count_params():,} parameters")
    return model


def callbacks(model, tokenizer, texts, train, options) -> list:
    """What is measured, shown and kept, in the order in which each needs the others' logs."""
    logs = Path(options.out) / "logs"
    monitor = [TokensPerSecond(train.num_target_tokens)]
    if texts.valid is not None:
        translator = Translator(model, tokenizer, search="greedy", batch_size=128)
        monitor.append(
            TranslationMonitor(
                translator,
                lambda translations, references: score_translations(translations, references).bleu,
                texts.valid.sources,
                texts.valid.targets,
                log_dir=logs / "translations",
            )
        )
    monitor.append(KeepBest(lambda: save_run(model, tokenizer, options.out)))
    if options.max_minutes is not None:
        monitor.append(TimeLimit(options.max_minutes))
    return [*monitor, keras.callbacks.TensorBoard(str(logs), write_graph=False)]


def verbosity(quiet: bool) -> int:
    """Keras's `verbose`: a bar on a terminal, a line an epoch in a file, or nothing."""
    if quiet:
        return 0
    return 1 if sys.stdout.isatty() else 2


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
