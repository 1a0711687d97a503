"""`keras-transformer train`: from parallel text to a run directory."""

import shutil
import sys
import time
from pathlib import Path

import keras

from keras_transformer import presets
from keras_transformer.checks import check_directory
from keras_transformer.commands.training_callbacks import CHECKPOINTS, LOGS, NO_BLEU, Callbacks
from keras_transformer.commands.training_text import read_texts, say
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.evaluation.scores import check_bleu_tokenize, score_translations
from keras_transformer.export.run_directory import CONFIG, TOKENIZER, WEIGHTS, is_run
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.checkpoints import TrainingCheckpoint
from keras_transformer.training.distribution import strategy_scope
from keras_transformer.training.losses import MaskedCrossentropy
from keras_transformer.training.precision import policy
from keras_transformer.training.schedules import TransformerSchedule
from keras_transformer.training.streams import share_cores_between_streams

# A translation may be longer than all that was trained on.
MODEL_LENGTH = 2048


def run(options) -> None:
    """Reads the text, trains, and leaves the best epoch in the run directory."""
    share_cores_between_streams()
    check_bleu_tokenize(options.bleu_tokenize)
    check_together(options)
    out = Path(options.out)
    resumes = options.resume and bool(TrainingCheckpoint(out / CHECKPOINTS).paths())
    if not resumes:
        check_out(options)
    texts = read_texts(options)
    keras.utils.set_random_seed(options.seed)
    tokenizer = make_tokenizer(texts, options, resumes)
    train, valid = batches(texts, tokenizer, options)
    total_steps = train.num_batches * options.epochs
    report(texts, tokenizer, train, valid, options)
    if total_steps <= options.warmup_steps:
        say(warmup_note(total_steps, options.warmup_steps))
    with strategy_scope(options.strategy):
        model = build_model(tokenizer, total_steps, options)
    callbacks = Callbacks(model, tokenizer, texts, train, valid, options)
    first_epoch = 0
    if resumes:
        first_epoch = callbacks.restore()
        say(f"going on after epoch {first_epoch}")
    else:
        # The old model stays until the first epoch's replaces it.
        for name in (LOGS, CHECKPOINTS):
            shutil.rmtree(out / name, ignore_errors=True)
        if not is_run(out):
            out.mkdir(parents=True, exist_ok=True)
            tokenizer.save(out / TOKENIZER)
    start = time.monotonic()
    if first_epoch < options.epochs and not callbacks.has_stopped():
        model.fit(
            train.dataset(first_epoch),
            validation_data=None if valid is None else valid.dataset(),
            initial_epoch=first_epoch,
            epochs=options.epochs,
            shuffle=False,
            verbose=verbosity(options.quiet),
            callbacks=callbacks.all(),
        )
    callbacks.finish()
    say(f"trained {(time.monotonic() - start) / 60:.1f} minutes")
    say(f"wrote {options.out}; next: keras-transformer export {options.out} DIRECTORY")


def check_together(options) -> None:
    """Refuses options that mean nothing without others, before any work."""
    if options.r_drop_delay is not None and not options.r_drop:
        raise ValueError("--r-drop-delay needs R-Drop; add --r-drop 5.")
    may_validate = options.valid_source is not None or options.tfds or options.synthetic
    if options.early_stopping is not None and not may_validate:
        raise ValueError(NO_BLEU)


def check_out(options) -> None:
    """Refuses to write over something, unless it is a run and --force allows it."""
    out = Path(options.out)
    check_directory("--out", out)
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    # A run that was stopped before it was saved has left no more than these, and always the first.
    leftovers = {TOKENIZER, LOGS, CHECKPOINTS, CONFIG, WEIGHTS, f".new-{WEIGHTS}"}
    if not names or TOKENIZER in names and names <= leftovers:
        return
    if not is_run(out):
        raise ValueError(f"--out {out} holds other files; name a new or an empty directory.")
    if options.resume and not options.force:
        raise ValueError(
            f"--out {out} holds a run but no state to go on from; add --force to train it anew."
        )
    if not options.force:
        raise ValueError(
            f"--out {out} holds a run already; name another, or add --force or --resume."
        )


def make_tokenizer(texts, options, resumes) -> Tokenizer:
    """Learns the vocabulary; a run that goes on has one."""
    path = Path(options.out) / TOKENIZER
    if resumes and path.is_file():
        return Tokenizer.load(path)
    return Tokenizer.train_on_texts(
        texts.train.sources + texts.train.targets, vocab_size=options.vocab_size
    )


def bleu_note(references, tokenize) -> str | None:
    """What is said where BLEU will be 0 whatever the translations are."""
    if score_translations(references, references, tokenize).bleu > 0:
        return None
    return (
        f"note: by --bleu-tokenize {tokenize} even the references have BLEU 0, since none has four "
        "words; for a language without spaces give char, zh, ja-mecab or ko-mecab"
    )


def batches(texts, tokenizer, options):
    """Training and validation `TokenBatches`; the latter None without validation text."""
    sizes = {"batch_tokens": options.batch_tokens, "max_length": options.max_length}
    train = TokenBatches(
        *texts.train[:2], tokenizer, **sizes, seed=options.seed, bpe_dropout=options.bpe_dropout
    )
    if texts.valid is None:
        return train, None
    # As much memory as a part of a training batch needs.
    sizes["batch_tokens"] = -(-options.batch_tokens // options.micro_batches)
    try:
        return train, TokenBatches(*texts.valid[:2], tokenizer, **sizes, shuffle=False)
    except ValueError as error:
        raise ValueError(f"the text to validate on: {error}") from error


def report(texts, tokenizer, train, valid, options) -> None:
    """Says what there is to train on, and what was left out and why."""
    say(f"{len(train.rows)} training pairs (skipped: {skipped(texts.train, train) or 'none'})")
    say(f"{tokenizer.vocab_size} subwords, {train.num_target_tokens} target tokens an epoch")
    if valid is None:
        return
    if note := bleu_note(texts.valid.targets, options.bleu_tokenize):
        say(note)
    if skipped(texts.valid, valid):
        # Those with too many tokens are still translated for BLEU.
        say(f"{len(valid.rows)} validation pairs (skipped: {skipped(texts.valid, valid)})")


def skipped(corpus, batches) -> str:
    """Why pairs of a corpus are not in its batches, with their numbers."""
    reasons = dict(corpus.skipped)
    if batches.num_too_long:
        reasons["more tokens than --max-length"] = batches.num_too_long
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())


def warmup_note(total_steps, warmup_steps) -> str:
    """What is said of a training that ends before its learning rate has risen."""
    return (
        f"note: all {total_steps} steps are within --warmup-steps {warmup_steps}, before the "
        "learning rate is at its largest; give more --epochs, fewer --batch-tokens or fewer "
        "--warmup-steps (a quarter of the steps is usual)"
    )


def build_model(tokenizer, total_steps, options) -> Transformer:
    """The model of the preset, compiled with the optimizer and the loss of the options."""
    size = dict(getattr(presets, options.preset.upper()))
    if options.dropout is not None:
        size["dropout"] = options.dropout
    dtype = policy(options.precision)
    model = Transformer(
        **size,
        source_vocab_size=tokenizer.vocab_size,
        max_length=max(MODEL_LENGTH, options.max_length),
        dtype=dtype,
    )
    schedule = TransformerSchedule(
        size["d_model"],
        options.warmup_steps,
        options.learning_rate_scale,
        cooldown_steps=int(options.cooldown * total_steps),
        total_steps=total_steps,
    )
    adam = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}
    average = {} if options.ema is None else {"use_ema": True, "ema_momentum": options.ema}
    model.compile(
        keras.optimizers.Adam(schedule, **adam, global_clipnorm=options.clip_norm, **average),
        loss=MaskedCrossentropy(label_smoothing=options.label_smoothing),
        micro_batches=options.micro_batches,
        r_drop=options.r_drop,
    )
    say(f"{model.count_params():,} parameters, {dtype}")
    return model


def verbosity(quiet: bool) -> int:
    """Keras's `verbose`: a bar on a terminal, a line an epoch in a file, or nothing."""
    if quiet:
        return 0
    return 1 if sys.stdout.isatty() else 2
