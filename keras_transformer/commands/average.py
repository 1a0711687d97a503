"""`keras-transformer average`: the mean of several epochs of a run, as a new run."""

from pathlib import Path

from keras_transformer.checks import check_directory
from keras_transformer.commands.messages import counted
from keras_transformer.commands.training_run.resume import CHECKPOINTS, locked
from keras_transformer.files import FileError
from keras_transformer.inference.run_directory import is_run, load_run, save_run
from keras_transformer.training.checkpoints import read_history
from keras_transformer.training.epoch_weights import EpochWeights, average_weights
from keras_transformer.training.run_record import RunRecord


def run(options) -> None:
    """Averages the last or the best epochs and writes a run directory."""
    out = Path(options.out)
    check_directory("OUT", out)
    with locked(out):
        if any(not path.name.startswith(".new-") for path in out.iterdir()):
            raise ValueError(f"{out} is not empty; name a new directory.")
        average(options)


def average(options) -> None:
    """Averages the epochs that the options name, and writes the mean as a run."""
    if not is_run(options.run):
        raise ValueError(f"{options.run} is not a run; name a directory that train has written.")
    model, tokenizer = load_run(options.run)
    weights = EpochWeights(Path(options.run) / CHECKPOINTS, monitor=f"val_{_metric(options.run)}")
    history = read_history(weights.directory)
    if options.best is not None and not any(weights.monitor in logs for logs in history):
        raise ValueError(
            f"{options.run} was trained without text to validate on, so no epoch is known to be "
            f"the best; give --last {options.best}."
        )
    number = options.last or options.best
    if number > len(history):
        raise ValueError(
            f"{options.run} has only {counted(len(history), 'epoch')}, not {number}; give at most "
            f"{len(history)}."
        )
    for epoch, logs in enumerate(history):
        weights.replay(epoch, logs)
    paths = weights.best(options.best) if options.last is None else weights.last(options.last)
    average_weights(model, paths)
    save_run(model, tokenizer, options.out)
    print(f"averaged {', '.join(path.name.split('.')[0] for path in paths)}")


def _metric(run) -> str:
    """Returns the score by which a run compared its epochs; older runs had only BLEU."""
    try:
        return RunRecord.read(run).options.get("metric", "bleu")
    except FileError:
        return "bleu"
