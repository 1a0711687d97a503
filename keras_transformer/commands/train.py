"""`keras-transformer train`: from parallel text to a run directory."""

import json
import shutil
import sys
import time
from pathlib import Path

import keras

from keras_transformer import presets
from keras_transformer.checks import check_directory
from keras_transformer.commands.training_callbacks import CHECKPOINTS, LOGS, Callbacks
from keras_transformer.commands.training_text import log, read_texts, refuse_without_validation
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.evaluation.scores import check_bleu_tokenize, score_translations
from keras_transformer.inference.run_directory import CONFIG, TOKENIZER, WEIGHTS, is_run
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.checkpoints import TrainingCheckpoint, replacing
from keras_transformer.training.distribution import strategy_scope
from keras_transformer.training.losses import MaskedCrossentropy
from keras_transformer.training.precision import fastest_precision, policy, product_rates
from keras_transformer.training.schedules import TransformerSchedule
from keras_transformer.training.shards import share_cores_between_shards

# A translation may be longer than any text of the training.
MODEL_LENGTH = 2048
# In the folder of checkpoints: the precision in which a run began and is resumed.
PRECISION = "precision.json"


def run(options) -> None:
    """Reads the text, trains, and leaves the best epoch in the run directory."""
    share_cores_between_shards()
    check_bleu_tokenize(options.bleu_tokenize)
    check_together(options)
    out = Path(options.out)
    resumes = options.resume and bool(TrainingCheckpoint(out / CHECKPOINTS).paths())
    if not resumes:
        check_out(options)
    texts = read_texts(options)
    options.precision = chosen_precision(options, resumes)
    keras.utils.set_random_seed(options.seed)
    tokenizer = make_tokenizer(texts, options, resumes)
    train, valid = batches(texts, tokenizer, options)
    total_steps = train.num_batches * options.epochs
    report(texts, tokenizer, train, valid, total_steps, options)
    with strategy_scope(options.strategy):
        model = build_model(tokenizer, total_steps, options)
    callbacks = Callbacks(model, tokenizer, texts, train, valid, options)
    first_epoch = 0
    if resumes:
        first_epoch = callbacks.restore()
        log(f"going on after epoch {first_epoch}")
    else:
        # The old model stays until that of the first epoch replaces it.
        for name in (LOGS, CHECKPOINTS):
            shutil.rmtree(out / name, ignore_errors=True)
        if not is_run(out):
            out.mkdir(parents=True, exist_ok=True)
            tokenizer.save(out / TOKENIZER)
    keep_precision(out / CHECKPOINTS, options.precision)
    start = time.monotonic()
    if first_epoch < options.epochs and not callbacks.has_stopped():
        model.fit(
            train.dataset(first_epoch),
            validation_data=None if valid is None else valid.dataset(),
            initial_epoch=first_epoch,
            epochs=options.epochs,
            shuffle=False,
            verbose=verbosity(options.quiet),
            callbacks=callbacks.all,
        )
    callbacks.finish()
    log(f"trained {(time.monotonic() - start) / 60:.1f} minutes")
    log(f"wrote {options.out}; next: keras-transformer export {options.out} DIRECTORY")


def check_together(options) -> None:
    """Refuses options that mean nothing without others, before any work."""
    if options.r_drop_delay is not None and not options.r_drop:
        raise ValueError("--r-drop-delay needs R-Drop; add --r-drop 5.")
    if not (options.valid_source or options.tfds or options.synthetic):
        refuse_without_validation(options)


def check_out(options) -> None:
    """Refuses to write over something, unless it is a run and --force allows it."""
    out = Path(options.out)
    check_directory("--out", out)
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    # A run that was stopped before it was saved leaves at most these, and always the first.
    leftovers = {TOKENIZER, LOGS, CHECKPOINTS, CONFIG, WEIGHTS, f".new-{WEIGHTS}"}
    if not names or TOKENIZER in names and names <= leftovers:
        return
    if not is_run(out):
        raise ValueError(f"--out {out} holds other files; name a new or an empty directory.")
    if not options.force:
        fault = "already; name another, or add --force or --resume"
        if options.resume:
            fault = "but no state to go on from; add --force to train it again"
        raise ValueError(f"--out {out} holds a run {fault}.")


def chosen_precision(options, resumes) -> str:
    """Returns the precision asked for; for "auto", the one a run began in, or the faster one."""
    kept = Path(options.out) / CHECKPOINTS / PRECISION
    if options.precision != "auto":
        return options.precision
    if resumes and kept.is_file():
        precision = json.loads(kept.read_text("utf-8"))["precision"]
        log(f"precision: {precision}, as the run began")
        return precision
    preset = getattr(presets, options.preset.upper())
    sizes = preset["d_model"], preset["d_ff"]
    precision, rates = fastest_precision(*sizes), product_rates(*sizes)
    figures = ", ".join(f"{rate / 1e9:.0f} GFLOP/s in {name}" for name, rate in rates.items())
    log(f"precision: {precision} (products of the model's size: {figures})")
    return precision


def keep_precision(directory, precision) -> None:
    """Keeps the precision in the run, so that another measurement does not change it."""
    directory.mkdir(parents=True, exist_ok=True)
    with replacing(directory / PRECISION) as temporary:
        temporary.write_text(json.dumps({"precision": precision}), "utf-8")


def make_tokenizer(texts, options, resumes) -> Tokenizer:
    """Learns the vocabulary, or loads that of a run that is resumed."""
    path = Path(options.out) / TOKENIZER
    if resumes and path.is_file():
        return Tokenizer.load(path)
    both_languages = texts.train.sources + texts.train.targets
    return Tokenizer.train_on_texts(both_languages, vocab_size=options.vocab_size)


def bleu_note(references, tokenize) -> str | None:
    """Returns a note if BLEU will be 0 whatever the translations are, or None."""
    if score_translations(references, references, tokenize).bleu > 0:
        return None
    return (
        f"note: with --bleu-tokenize {tokenize} even the references have BLEU 0, as none has four "
        "words; for a language without spaces give char, zh, ja-mecab or ko-mecab"
    )


def batches(texts, tokenizer, options):
    """Makes the `TokenBatches` to train and to validate on; the latter may be None."""
    sizes = {"batch_tokens": options.batch_tokens, "max_pair_length": options.max_length}
    random = {"seed": options.seed, "bpe_dropout": options.bpe_dropout}
    train = TokenBatches(*texts.train[:2], tokenizer, **sizes, **random)
    if texts.valid is None:
        return train, None
    # A batch then needs as much memory as a part of a training batch.
    sizes["batch_tokens"] = -(-options.batch_tokens // options.micro_batches)
    try:
        return train, TokenBatches(*texts.valid[:2], tokenizer, **sizes, shuffle=False)
    except ValueError as error:
        raise ValueError(f"the text to validate on: {error}") from error


def report(texts, tokenizer, train, valid, total_steps, options) -> None:
    """Logs what there is to train on, what was left out and why, and what looks like a mistake."""
    log(f"{len(train.kept)} training pairs (skipped: {skipped(texts.train, train) or 'none'})")
    log(f"{tokenizer.vocab_size} subwords, {train.num_target_tokens} target tokens per epoch")
    if valid is not None:
        if note := bleu_note(texts.valid.targets, options.bleu_tokenize):
            log(note)
        if reasons := skipped(texts.valid, valid):
            # Pairs with too many tokens are still translated for BLEU.
            log(f"{len(valid.kept)} validation pairs (skipped: {reasons})")
    if total_steps <= options.warmup_steps:
        log(
            f"note: all {total_steps} steps are within --warmup-steps {options.warmup_steps}, "
            "before the learning rate is at its largest; give more --epochs, fewer --batch-tokens "
            "or fewer --warmup-steps (a quarter of the steps is usual)"
        )


def skipped(corpus, batches) -> str:
    """Says why pairs of a corpus are not in its batches, and how many."""
    reasons = corpus.skipped | {"more tokens than --max-length": batches.num_too_long}
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)


def build_model(tokenizer, total_steps, options) -> Transformer:
    """Builds the model of the preset and compiles it as the options say."""
    size = dict(getattr(presets, options.preset.upper()))
    if options.dropout is not None:
        size["dropout"] = options.dropout
    dtype = policy(options.precision, size["d_model"], size["d_ff"])
    size |= {"max_length": max(MODEL_LENGTH, options.max_length), "dtype": dtype}
    model = Transformer(**size, source_vocab_size=tokenizer.vocab_size)
    rise = size["d_model"], options.warmup_steps, options.learning_rate_scale
    cooldown_steps = int(options.cooldown * total_steps)
    schedule = TransformerSchedule(*rise, cooldown_steps=cooldown_steps, total_steps=total_steps)
    adam = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}
    average = {} if options.ema is None else {"use_ema": True, "ema_momentum": options.ema}
    model.compile(
        keras.optimizers.Adam(schedule, **adam, global_clipnorm=options.clip_norm, **average),
        loss=MaskedCrossentropy(label_smoothing=options.label_smoothing),
        micro_batches=options.micro_batches,
        r_drop=options.r_drop,
    )
    log(f"{model.count_params():,} parameters, {dtype}")
    return model


def verbosity(quiet: bool) -> int:
    """Returns Keras's `verbose`: a bar on a terminal, a line per epoch in a file, or nothing."""
    return 0 if quiet else 1 if sys.stdout.isatty() else 2
