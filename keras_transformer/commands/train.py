"""`keras-transformer train`: from parallel text to a run directory."""

import hashlib
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

import keras

from keras_transformer.commands.messages import counted, log
from keras_transformer.commands.progress import duration, stage
from keras_transformer.commands.training_run import resume, workers
from keras_transformer.commands.training_run.callbacks import Callbacks
from keras_transformer.commands.training_run.data import (
    dataset_of,
    drop_sampled,
    report,
    set_last_epoch,
    stream_of,
    training_data,
)
from keras_transformer.commands.training_run.model_size import model_size
from keras_transformer.commands.training_run.progress import Plan
from keras_transformer.commands.training_run.resume import (
    CHECKPOINTS,
    HISTORY,
    LOGS,
    SAMPLED,
    STORE,
)
from keras_transformer.commands.training_run.run_history import is_useless, sentence
from keras_transformer.commands.training_run.time_plan import fit_into_time
from keras_transformer.data.token_store import TokenStore
from keras_transformer.files import replacing
from keras_transformer.inference.run_directory import TOKENIZER, is_run
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.distribution import model_scope, run_scope
from keras_transformer.training.jax_devices import start_devices
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
    data = training_data(options, files, record, resumes)
    asked = resume.recorded_options(options)
    precision = chosen_precision(options, record if resumes else None)
    options.precision = workers.agreed(options, precision)
    keras.utils.set_random_seed(options.seed)
    vocabulary = tokenizer_record(data.tokenizer)
    facts = {name: text.sha256 for name, text in files.items()}
    facts |= {"vocabulary": vocabulary, "number of batches": data.train.num_batches}
    workers.refuse_differences(options, asked, facts)
    model, plan = planned_model(data, record is None, options)
    set_last_epoch(data.train, plan.total_steps)
    report(data, plan.total_steps, options)
    # There may be another number of steps since; the precision stays as it was asked for.
    asked = resume.recorded_options(options) | {"precision": asked["precision"]}
    # It may refuse an option, so nothing is cleared before.
    callbacks = Callbacks(model, data, plan, options)
    if resumes:
        record = record.changed(options=asked, chosen=options.chosen, is_finished=False)
    else:
        known = {**vocabulary, "vocab_size": data.tokenizer.vocab_size}
        chosen = {"chosen": options.chosen}
        record = RunRecord(asked, data.records, known, options.precision, **chosen)
        if not isinstance(data.texts.train, TokenStore):
            shutil.rmtree(out / STORE, ignore_errors=True)  # of an earlier run
        record = begin(record, data.tokenizer, out)
    record.write(out)
    callbacks.on_kept = lambda kept: record.changed(kept=kept).write(out)
    fit(model, callbacks, data, resumes, options)
    is_finished = not callbacks.steps_left() or callbacks.has_stopped()
    if is_finished:
        drop_sampled(out / SAMPLED, data.train)
    kept = callbacks.kept()
    record.changed(is_finished=is_finished, kept=kept).write(out)
    if workers.is_first(options):
        report_kept(kept, callbacks.checkpoint.total_steps, options)


def report_kept(kept, num_steps, options) -> None:
    """Says what the run directory has after so many steps, and which command comes next."""
    log(sentence(kept))
    if is_useless(kept):
        log(
            "note: with such a score the model translates next to nothing. Train it longer than "
            f"{counted(num_steps, 'step')}, or on more text; and look whether line n of the target "
            "is the translation of line n of the source, in the text to validate on, too"
        )
    where = "" if find_spec("tensorflow") else ", where TensorFlow is installed"
    run = quote(options.out)
    log(f"wrote {options.out}; next{where}: keras-transformer export {run} DIRECTORY")


def planned_model(data, begins, options) -> tuple[Transformer, Plan]:
    """Builds the model, and plans how long it trains: of a new run, what there is time for."""
    plan = Plan.of(options, data.train.num_batches)
    with stage("building the model", quiet=options.quiet), model_scope(options.strategy):
        model = build_model(data.tokenizer, plan.total_steps, options)
    log(f"{model.count_params():,} parameters, {model.dtype_policy.name}")
    if begins and options.max_minutes and "epochs" in options.chosen:
        fit_into_time(model, data, options)
        plan = Plan.of(options, data.train.num_batches)
        with model_scope(options.strategy):
            compile_model(model, plan.total_steps, options)
    return model, plan


def goes_on(record, out) -> bool:
    """Returns whether there is a state to go on from; says so if only a record is there."""
    if record is None:
        return False
    if record.has_begun and resume.states(out):
        resume.check_tokenizer(record, resume.tokenizer_path(out))
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
    # A model that is there keeps its own until it is replaced.
    with replacing((out / CHECKPOINTS if is_run(out) else out) / TOKENIZER) as path:
        tokenizer.save(path)
    return record.changed(has_begun=True)


def fit(model, callbacks, data, resumes, options) -> None:
    """Trains the steps that are left, if any, and finishes the run."""
    start, checkpoint, plan = time.monotonic(), callbacks.checkpoint, callbacks.plan
    if resumes:
        callbacks.restore()
        epoch, step = checkpoint.epoch, checkpoint.step and checkpoint.total_steps
        log(f"going on after step {step:,}" if step else f"going on after epoch {epoch}")
    if callbacks.has_no_time():
        log(f"its --max-minutes {options.max_minutes:g} are over; give more to train it longer")
    elif callbacks.has_stopped():
        callbacks.report_stop()
    elif callbacks.steps_left():
        begun = checkpoint.total_steps - checkpoint.step
        place = divmod(checkpoint.total_steps, data.train.num_batches)
        with callbacks.stopping():
            model.fit(
                stream_of(data.train, *place, callbacks.steps_left()),
                validation_data=None if data.valid is None else dataset_of(data.valid),
                initial_epoch=checkpoint.epoch,
                epochs=checkpoint.epoch + plan.epochs_left(begun),
                steps_per_epoch=plan.epoch_steps,
                shuffle=False,
                verbose=0,
                callbacks=[*callbacks.all, *workers.callbacks(options)],
            )
        callbacks.report_stop()
    callbacks.finish()
    log(f"trained {duration(time.monotonic() - start)}")


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


def tokenizer_record(tokenizer) -> dict:
    """Returns the fingerprint that the tokenizer's file will have."""
    digest = hashlib.sha256(tokenizer.model).hexdigest()
    return {"size": len(tokenizer.model), "sha256": digest}


def build_model(tokenizer, total_steps, options) -> Transformer:
    """Builds the model of the preset and compiles it as the options say."""
    size = model_size(options)
    dtype = policy(options.precision, size["d_model"], size["d_ff"])
    size |= {"max_length": max(MODEL_LENGTH, options.max_length), "dtype": dtype}
    model = Transformer(**size, source_vocab_size=tokenizer.vocab_size)
    compile_model(model, total_steps, options)
    return model


def compile_model(model, total_steps, options) -> None:
    """Gives a model its optimizer, with the schedule for so many steps, and its loss."""
    rise = model_size(options)["d_model"], options.warmup_steps, options.learning_rate_scale
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
