"""What a training finds in its run directory: whether to begin, to go on, or to refuse."""

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path

from keras_transformer.checks import check_directory
from keras_transformer.commands.messages import log
from keras_transformer.commands.options import OPTIONS, Option, dashed
from keras_transformer.files import FileError, fingerprint, make_directory
from keras_transformer.inference.run_files import CONFIG, MANIFEST, TOKENIZER, WEIGHTS, is_run
from keras_transformer.training.card import HISTORY
from keras_transformer.training.run_record import RECORD, RunRecord, TextRecord, present_versions

CHECKPOINTS, LOGS = "checkpoints", "logs"
STORE, SAMPLED = "store", "sampled"  # of a large text; what BPE-dropout has made of it
TEXT_FILES = ("source", "target", "tsv", "valid_source", "valid_target", "valid_tsv")
# Options of one start, which the record leaves out.
UNRECORDED = {"out", "force", "resume", "quiet"}
# Options that you may change when you resume.
CHANGEABLE = {"epochs", "max_steps", "max_minutes", "early_stopping"}
CHANGEABLE |= {"save_minutes", "keep", "strategy"}
RECORDED = [
    option.key
    for option in OPTIONS["train"]
    if isinstance(option, Option) and option.key not in UNRECORDED
]
# What earlier versions took for options that now follow from the size of the text.
FORMER_DEFAULTS = {
    "vocab_size": 8000,
    "batch_tokens": 4096,
    "epochs": 20,
    "warmup_steps": 4000,
    "learning_rate_scale": 1.0,
    "cooldown": 0.0,
}
# Of the options that a record of an earlier version lacks.
DEFAULTS = {
    option.key: False if option.values is None else option.default
    for option in OPTIONS["train"]
    if isinstance(option, Option)
} | FORMER_DEFAULTS
# A run that was stopped before it was saved leaves at most these.
LEFTOVERS = {RECORD, TOKENIZER, LOGS, CHECKPOINTS, HISTORY, CONFIG, WEIGHTS, STORE, SAMPLED}


@contextmanager
def locked(directory):
    """Makes a directory, and keeps others from writing a run there; drops it if it stays empty.

    The kernel frees the lock when the process ends, however it ends.

    Raises:
        ValueError: if another process has the lock.
    """
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    make_directory(directory)
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            _lock(descriptor, directory)
            yield
        finally:
            os.close(descriptor)
    finally:
        with suppress(OSError):  # it holds a run
            for path in made:
                path.rmdir()


def _lock(descriptor, directory):
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError) as error:
        if getattr(error, "errno", None) in (errno.EWOULDBLOCK, errno.EACCES):
            raise ValueError(
                f"{directory}: another process is writing a run there; wait for its end, or name "
                "another directory."
            ) from None
        log(f"note: {directory} cannot be locked ({error}); let no other process write a run there")


def states(out) -> list[Path]:
    """Lists the states of a run to go on from, oldest first."""
    from keras_transformer.training.state_file import ANY_STATE

    return sorted((out / CHECKPOINTS).glob(ANY_STATE))


def record_to_go_on_with(options) -> RunRecord | None:
    """Returns the record of the run to resume, and gives `options` its values; None to begin.

    Raises:
        ValueError: if an option was typed with another value, or something else is in the way.
    """
    out = Path(options.out)
    if not (options.resume and (out / RECORD).is_file()):
        check_out(options)
        return None
    try:
        record = RunRecord.read(out)
    except FileError as error:
        if options.force:
            return None
        raise ValueError(f"{error} With --force it is trained again.") from error
    if is_run(out) and record.has_begun and not (out / CHECKPOINTS).is_dir():
        check_out(options)
        return None
    _refuse_other_options(record, options)
    typed = getattr(options, "typed", RECORDED)
    for name in RECORDED:
        if name not in typed:
            value = record.options.get(name, DEFAULTS[name])
            is_one_file = name in TEXT_FILES and isinstance(value, str)
            setattr(options, name, [value] if is_one_file else value)
    if "epochs" in typed and "max_steps" not in typed:
        options.max_steps = None
    chosen = [name for name in record.chosen if name not in typed]
    options.chosen = [name for name in chosen if getattr(options, name) is not None]
    return record


def is_done(record, options) -> bool:
    """Returns whether a run is finished, and the options ask for no more than it was given."""
    if record is None or not record.is_finished:
        return False
    if options.early_stopping != record.options.get("early_stopping"):
        return False
    limit = record.options.get("max_steps")
    if options.max_steps is not None:
        return limit is not None and options.max_steps <= limit
    return limit is None and options.epochs <= record.options.get("epochs", 0)


def check_out(options) -> None:
    """Refuses to write over something, unless it is a run and --force allows it."""
    out = Path(options.out)
    check_directory("--out", out)
    if _is_free(out):
        return
    if not (is_run(out) or (out / RECORD).is_file()):
        raise ValueError(f"--out {out} holds other files; name a new or an empty directory.")
    if not options.force:
        fault = "already; name another, or add --force or --resume"
        if options.resume:
            fault = "but no state to go on from; add --force to train it again"
            if states(out):
                fault = f"but no {RECORD} of what made it; add --force to train it again"
        raise ValueError(f"--out {out} holds a run {fault}.")


def _is_free(out) -> bool:
    """Returns whether a directory holds nothing, or only what a stopped training has left."""
    found = {path.name for path in out.iterdir()} if out.is_dir() else set()
    half = {name.removeprefix(".new-") for name in found if name.startswith(".new-")}
    whole = {name for name in found if not name.startswith(".new-")}
    if not (whole <= LEFTOVERS and half <= LEFTOVERS | {MANIFEST}):
        return False
    checkpoints = {path.name for path in (out / CHECKPOINTS).glob("*")}
    if whole == {CHECKPOINTS}:
        return all(name.startswith(".new-") for name in checkpoints)
    # Logs alone may be those of something else.
    is_ours = not found or half or {RECORD, TOKENIZER} & whole or _is_our_store(out / STORE)
    return bool(is_ours) and not states(out)


def _is_our_store(path) -> bool:
    from keras_transformer.data.prepare import PARTS
    from keras_transformer.data.store_files import is_store

    return is_store(path) or (path / PARTS).is_dir()


def _refuse_other_options(record, options) -> None:
    """Raises a ValueError that names each option that was typed with another value."""
    faults = []
    typed = getattr(options, "typed", RECORDED)
    for name in sorted(set(typed) & set(RECORDED) - CHANGEABLE):
        # A record of an older version lacks the options that are new since.
        kept = record.options.get(name, DEFAULTS[name])
        value = recorded(name, getattr(options, name))
        if value != kept and not (name == "precision" and value == record.precision):
            typed_now = "typed" if value is True else f"typed {value}"
            faults.append(f"{dashed([name])} is {_shown(kept)}, but {typed_now}")
    if faults:
        raise ValueError(
            f"{options.out} was begun with other options: {'; '.join(faults)}; leave them out to "
            "go on, or train it again with --force and without --resume."
        )


def _shown(value):
    return "not given" if value is None or value is False else value


def recorded(name, value):
    """Returns the value of an option as a record has it: files by their whole paths."""
    if name in TEXT_FILES and value is not None:
        paths = [os.path.abspath(path) for path in ([value] if isinstance(value, str) else value)]
        return paths[0] if len(paths) == 1 else paths
    is_path = name in ("tokenizer", "store") and value is not None
    return os.path.abspath(value) if is_path else value


def recorded_options(options) -> dict:
    """Returns the values of all options that a record has."""
    return {name: recorded(name, getattr(options, name)) for name in RECORDED}


def text_records(options) -> dict[str, TextRecord]:
    """Describes the files that the options name."""
    records = {}
    for name in TEXT_FILES:
        for i, path in enumerate(getattr(options, name) or (), start=1):
            records[name if i == 1 else f"{name}_{i}"] = TextRecord.of_file(path)
    if options.store:
        # It has the hashes of the other files.
        records["store"] = TextRecord.of_file(os.path.join(options.store, "store.json"))
    return records


def refuse_other_texts(record, found) -> None:
    """Raises a ValueError that names each text that is not what the run began with."""
    faults = []
    for name, text in found.items():
        kept = record.texts.get(name)
        if kept is not None and text.sha256 is None:
            # A file that is missing is refused when it is read, if it still is.
            if os.path.exists(text.name):
                log(f"note: {text.name} is no file that can be read twice, so it is not compared")
        elif kept != text:
            faults.append(f"{dashed([name])} {text.name}")
    if faults:
        raise ValueError(
            f"the text has changed since the run began: {', '.join(faults)}; restore it, or train "
            "again with --force and without --resume."
        )


def tokenizer_path(out) -> Path:
    """Returns the path of the tokenizer of the run that trains, not of an older model there."""
    path = Path(out) / CHECKPOINTS / TOKENIZER
    return path if path.is_file() else Path(out) / TOKENIZER


def check_tokenizer(record, path) -> None:
    """Raises a ValueError if the tokenizer of a run is not the one that it began with."""
    known = fingerprint(path) if path.is_file() else {}
    if not known.items() <= record.tokenizer.items() or not known:
        raise ValueError(
            f"{path} is not the tokenizer that the run began with; restore it, or train again with "
            "--force and without --resume."
        )


def note_other_versions(record) -> None:
    """Says which versions have changed, as the result may then differ in its last digits."""
    present = present_versions()
    changed = [
        f"{name} {kept}, now {present[name]}"
        for name, kept in record.versions.items()
        if present.get(name, kept) != kept
    ]
    if changed:
        log(f"note: the run began with {'; '.join(changed)}; its last digits may differ")
