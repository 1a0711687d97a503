"""What the workers of one training agree on: the run to go on from, and that all read the same."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

from keras_transformer.commands.options import dashed
from keras_transformer.commands.training_run.resume import (
    CHECKPOINTS,
    TEXT_FILES,
    states,
    tokenizer_path,
)
from keras_transformer.files import make_directory
from keras_transformer.training import jax_devices, workers
from keras_transformer.training.run_record import RECORD


def several(options) -> bool:
    """Returns whether other processes take part in the training."""
    return options.strategy == "multi_worker" or jax_devices.process()[1] > 1


def is_first(options) -> bool:
    """Returns whether this process writes the run."""
    return not several(options) or workers.rank() == 0


def together(options) -> workers.SaveTogether | None:
    """Returns what decides when to save; None where a process may read metrics without others."""
    return workers.SaveTogether() if options.strategy == "multi_worker" else None


@contextmanager
def writing_for_one(options):
    """Lets all workers but the first write to a directory that is dropped at the end.

    All have the same callbacks, since to read a metric is work of all of them.
    """
    if is_first(options):
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        options.out, options.quiet = directory, True
        yield


def share_run(options) -> None:
    """Gives all workers what the first one's run directory has to go on from."""
    if not (several(options) and options.resume):
        return
    out, names = Path(options.out), []
    if is_first(options):
        newest = [f"{CHECKPOINTS}/{path.name}" for path in states(out)[-1:]]
        tokenizer = str(tokenizer_path(out).relative_to(out))
        names = [name for name in (RECORD, tokenizer, *newest) if (out / name).is_file()]
    share_files(options, names)


def share_files(options, names: list[str]) -> list[Path]:
    """Gives all workers files of the first one's run directory.

    Args:
        options: those of `train`.
        names: the paths in the run directory, of the first worker; those of others are not used.

    Returns:
        The paths of the files, which are this worker's own.
    """
    out, names = Path(options.out), agreed(options, names)
    for name in names if several(options) else ():
        data = workers.broadcast_bytes((out / name).read_bytes() if is_first(options) else b"")
        if not is_first(options):
            make_directory((out / name).parent)
            (out / name).write_bytes(data)
    return [out / name for name in names]


def agreed(options, value):
    """Returns the value of the first worker, such as one that depends on the machine."""
    return workers.broadcast_json(value) if several(options) else value


def refuse_differences(options, asked, facts: dict) -> None:
    """Raises a ValueError if this worker was asked for something else than the first one.

    Args:
        options: those of `train`.
        asked: what a record has of them; the paths of files may differ.
        facts: JSON values by name of what was read.
    """
    if not several(options):
        return
    paths = {*TEXT_FILES, "tokenizer"}
    facts |= {dashed([name]): value for name, value in asked.items() if name not in paths}
    of_first, rank = workers.broadcast_json(facts), workers.rank()
    if others := sorted(name for name in facts if facts[name] != of_first.get(name)):
        raise ValueError(
            f"worker {rank} has another {', '.join(others)} than worker 0; give all workers the "
            "same options and the same files."
        )


def callbacks(options) -> list:
    """Returns the callbacks that come after all others."""
    return [workers.StopTogether()] if several(options) else []


def wait_for_all(options) -> None:
    """Waits until all workers have come here, since none may end while another still works."""
    agreed(options, None)
