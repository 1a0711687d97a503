"""`keras-transformer train`: from parallel text to a run directory."""

import hashlib
import itertools
import shutil
import time
from pathlib import Path

import keras

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.commands import resume, workers
from keras_transformer.commands.messages import log
from keras_transformer.commands.model_size import model_size
from keras_transformer.commands.progress import duration, stage
from keras_transformer.commands.resume import CHECKPOINTS, HISTORY, LOGS, SAMPLED, STORE
from keras_transformer.commands.run_history import sentence
from keras_transformer.commands.training_callbacks import Callbacks
from keras_transformer.commands.training_progress import Plan
from keras_transformer.commands.training_text import corpus_records, read_texts, training_store
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.epochs import EpochSequence, Share, endless_ahead
from keras_transformer.data.sampled_epochs import SampledEpochs
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.data.vocabulary import draw_sample
from keras_transformer.evaluation.scores import score_translations
from keras_transformer.files import replacing
from keras_transformer.inference.run_directory import TOKENIZER, is_run
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.distribution import model_scope, run_scope
from keras_transformer.training.jax_devices import num_batch_shards, process, start_devices
from keras_transformer.training.losses import MaskedCrossentropy
from keras_transformer.training.precision import fastest_precision, policy, product_rates
from keras_transformer.training.run_record import RunRecord
from keras_transformer.training.schedules import TransformerSchedule
from keras_transformer.training.shards import share_cores_between_shards
from keras_transformer.training.workers import naming_lost_workers

# A translation may be longer than any text of the training.
MODEL_LENGTH = 2048


def run(options) -> None:
    """Reads the text, trains, and leaves the best epoch in the run directory."""
    share_cores_between_shards()
    start_devices()
    with run_scope(options.strategy), workers.writing_for_one(options), naming_lost_workers():
        begin_or_go_on(options)


def begin_or_go_on(options) -> None:
    """Trains, unless the run is finished already."""
    out = Path(options.out)
    with resume.locked(out):
        workers.share_run(options)
        record = resume.record_to_go_on_with(options)
        files = resume.text_records(options)
        if record is not None:
            resume.refuse_other_texts(record, files)
            if resume.is_done(record, options):
                more = "--epochs" if options.max_steps is None else "--max-steps"
                log(f"the run in {out} is finished; give more {more} to train it longer")
                return
            resume.note_other_versions(record)
        train(options, record, files)
        workers.wait_for_all(options)


def train(options, record, files) -> None:
    """Trains from the beginning, or on from the last state of the run of a record."""
    out = Path(options.out)
    resumes = goes_on(record, out)
    store = training_store(options, files, record if resumes else None)
    with stage("reading the text", quiet=options.quiet):
        texts = read_texts(options, store)
    corpora = corpus_records(options, texts)
    if record is not None:
        resume.refuse_other_texts(record, corpora)
    with stage(vocabulary_stage(options, resumes or store), quiet=options.quiet):
        tokenizer = make_tokenizer(texts, options, record if resumes else None)
    refuse_other_vocabulary(store, tokenizer)
    asked = resume.recorded_options(options)
    precision = chosen_precision(options, record if resumes else None)
    options.precision = workers.agreed(options, precision)
    keras.utils.set_random_seed(options.seed)
    with stage("splitting the text into subwords", quiet=options.quiet):
        batches_of = batches(texts, tokenizer, options)
    plan = Plan.of(options, batches_of[0].num_batches)
    if isinstance(batches_of[0].sample, SampledEpochs):
        batches_of[0].sample.end = -(-plan.total_steps // batches_of[0].num_batches)
    report(texts, tokenizer, *batches_of, plan.total_steps, options)
    facts = {name: text.sha256 for name, text in files.items()}
    facts |= {"vocabulary": tokenizer_record(tokenizer), "number of steps": plan.total_steps}
    workers.refuse_differences(options, asked, facts)
    with stage("building the model", quiet=options.quiet), model_scope(options.strategy):
        model = build_model(tokenizer, plan.total_steps, options)
    # It may refuse an option, so nothing is cleared before.
    callbacks = Callbacks(model, tokenizer, texts, *batches_of, plan, options)
    if resumes:
        record = record.changed(options=asked, is_finished=False)
    else:
        known = {**tokenizer_record(tokenizer), "vocab_size": tokenizer.vocab_size}
        record = RunRecord(asked, files | corpora, known, options.precision)
        if store is None:
            shutil.rmtree(out / STORE, ignore_errors=True)  # of an earlier run
        record = begin(record, tokenizer, out)
    record.write(out)
    callbacks.on_kept = lambda kept: record.changed(kept=kept).write(out)
    fit(model, callbacks, *batches_of, resumes, options)
    is_finished = not callbacks.steps_left() or callbacks.has_stopped()
    if is_finished:
        drop_sampled(out / SAMPLED, batches_of[0])
    kept = callbacks.kept()
    record.changed(is_finished=is_finished, kept=kept).write(out)
    if not workers.is_first(options):
        return
    log(sentence(kept))
    log(f"wrote {options.out}; next: keras-transformer export {options.out} DIRECTORY")


def drop_sampled(folder, batches) -> None:
    """Removes what BPE-dropout has made of a store, after the epoch that is made has ended."""
    if isinstance(batches.sample, SampledEpochs):
        batches.sample.close()
    shutil.rmtree(folder, ignore_errors=True)


def goes_on(record, out) -> bool:
    """Returns whether there is a state to go on from; says so if only a record is there."""
    if record is None:
        return False
    if record.has_begun and resume.states(out):
        resume.check_tokenizer(record, out / TOKENIZER)
        return True
    log("the run was stopped before its first state, so it starts from the beginning")
    return False


def begin(record, tokenizer, out) -> RunRecord:
    """Clears what an earlier run has left, but for its model, which the first epoch replaces."""
    record.write(out)  # from now on `--resume` takes nothing that is left for its own
    for name in (LOGS, CHECKPOINTS):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / CHECKPOINTS).mkdir(exist_ok=True)
    (out / HISTORY).unlink(missing_ok=True)
    if not is_run(out):
        with replacing(out / TOKENIZER) as path:
            tokenizer.save(path)
    return record.changed(has_begun=True)


def fit(model, callbacks, train, valid, resumes, options) -> None:
    """Trains the steps that are left, if any, and finishes the run."""
    start, checkpoint, plan = time.monotonic(), callbacks.checkpoint, callbacks.plan
    if resumes:
        callbacks.restore()
        epoch, step = checkpoint.epoch, checkpoint.step and checkpoint.total_steps
        log(f"going on after step {step:,}" if step else f"going on after epoch {epoch}")
    if callbacks.has_no_time():
        log(f"its --max-minutes {options.max_minutes:g} are over; give more to train it longer")
    elif callbacks.steps_left() and not callbacks.has_stopped():
        begun = checkpoint.total_steps - checkpoint.step
        place = divmod(checkpoint.total_steps, train.num_batches)
        with callbacks.stopping():
            model.fit(
                stream_of(train, *place, callbacks.steps_left()),
                validation_data=None if valid is None else dataset_of(valid),
                initial_epoch=checkpoint.epoch,
                epochs=checkpoint.epoch + plan.epochs_left(begun),
                steps_per_epoch=plan.epoch_steps,
                shuffle=False,
                verbose=0,
                callbacks=[*callbacks.all, *workers.callbacks(options)],
            )
    if workers.is_first(options):
        callbacks.finish()
    log(f"trained {duration(time.monotonic() - start)}")


def stream_of(batches, *place):
    """Returns the endless batches to train on, on JAX as arrays: this process's rows."""
    if STEPS_ARE_PURE:
        return map(share_of_process().of, endless_ahead(batches, *place))
    return batches.stream(*place)


def dataset_of(batches):
    """Returns the batches to validate on, on JAX as arrays: this process's rows."""
    if STEPS_ARE_PURE:
        return EpochSequence(batches, share=share_of_process())
    return batches.dataset()


def share_of_process() -> Share:
    """Returns which rows of each batch this process takes, on JAX."""
    return Share(*process(), num_batch_shards())


def chosen_precision(options, record) -> str:
    """Returns the precision asked for; for "auto", the one a run began in, or the faster one."""
    if record is not None:
        log(f"precision: {record.precision}, as the run began")
        return record.precision
    if options.precision != "auto":
        return options.precision
    size = model_size(options)
    sizes = size["d_model"], size["d_ff"]
    with stage("timing products in float32 and bfloat16", quiet=options.quiet):
        precision, rates = fastest_precision(*sizes), product_rates(*sizes)
    figures = ", ".join(f"{rate / 1e9:.0f} GFLOP/s in {name}" for name, rate in rates.items())
    log(f"precision: {precision} (products of the model's size: {figures})")
    return precision


def make_tokenizer(texts, options, record) -> Tokenizer:
    """Learns the vocabulary, or loads the one that is named or of a run that is resumed."""
    if record is not None:
        return Tokenizer.load(Path(options.out) / TOKENIZER)
    if options.tokenizer is not None:
        return Tokenizer.load(options.tokenizer)
    if isinstance(texts.train, TokenStore):
        return Tokenizer(texts.train.tokenizer_model)
    pairs = zip(*texts.train[:2], strict=True)
    pairs = draw_sample(pairs, max(options.tokenizer_lines // 2, 1), options.seed)
    both_languages = itertools.chain.from_iterable(zip(*pairs, strict=True))
    return Tokenizer.train_on_texts(both_languages, vocab_size=options.vocab_size)


def refuse_other_vocabulary(store, tokenizer) -> None:
    """Raises a ValueError for a store whose ids are not those of the run's tokenizer."""
    if store is not None and store.tokenizer_model != tokenizer.model:
        raise ValueError(
            f"the ids in {store.path} are those of another vocabulary than the run's; restore it, "
            "or train again with --force and without --resume."
        )


def vocabulary_stage(options, is_known) -> str:
    """Says where the vocabulary comes from."""
    if is_known or options.tokenizer is not None:
        return "loading the vocabulary"
    return f"learning a vocabulary of {options.vocab_size:,} subwords"


def tokenizer_record(tokenizer) -> dict:
    """Returns the fingerprint that the tokenizer's file will have."""
    digest = hashlib.sha256(tokenizer.model).hexdigest()
    return {"size": len(tokenizer.model), "sha256": digest}


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
    if isinstance(texts.train, TokenStore):
        train = texts.train.batches(**sizes, **random, folder=Path(options.out) / SAMPLED)
    else:
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
    log(f"{len(train.kept):,} training pairs (skipped: {skipped(texts.train, train) or 'none'})")
    is_learnt = options.tokenizer is None and options.store is None
    log(f"{tokenizer.vocab_size:,} subwords, {train.num_target_tokens:,} target tokens per epoch")
    if is_learnt and tokenizer.vocab_size < options.vocab_size:
        log(
            f"note: the text has only {tokenizer.vocab_size} subwords, fewer than --vocab-size "
            f"{options.vocab_size}; give fewer (some thousand is usual for little text), or more "
            "text"
        )
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
    size = model_size(options)
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
