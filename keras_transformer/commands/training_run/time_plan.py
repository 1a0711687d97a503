"""A training of --max-minutes: some steps are timed, and the schedule is for as many as fit."""

import time

import keras

from keras_transformer.commands.messages import counted, log
from keras_transformer.commands.progress import duration, stage
from keras_transformer.commands.training_run import workers
from keras_transformer.commands.training_run.data import stream_of, text_size
from keras_transformer.commands.training_run.recipe import choose
from keras_transformer.training.variables import as_arrays, assign, training_variables

NUM_TIMED = 12
# The share of --max-minutes for steps, validation and files; the rest is a reserve.
SHARE_OF_STEPS = 0.8
# Validating and translating a token takes as long as training on so many.
VALIDATION = 3
# Seconds in which the files of an epoch are written.
WRITING = 0.5


class _TimeEpochs(keras.callbacks.Callback):
    """Measures the seconds of each epoch."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self.begun)


def fit_into_time(model, data, options) -> None:
    """Chooses as many epochs as there is time for, if these are fewer than suit the text.

    Without time for one, it chooses a number of steps. The other settings follow.

    Args:
        model: the compiled model; its optimizer is of no use afterwards.
        data: the `TrainingData`.
        options: those of `train`.
    """
    with stage(f"timing {2 * NUM_TIMED} steps", quiet=options.quiet):
        measured = seconds_of_a_step(model, data.train)
        seconds, compiling = workers.agreed(options, measured)
    left = max(seconds, SHARE_OF_STEPS * 60 * options.max_minutes - compiling)
    of_epoch = seconds * data.train.num_batches
    between = WRITING
    if data.valid is not None:
        share = data.valid.num_target_tokens / data.train.num_target_tokens
        between += VALIDATION * share * of_epoch
    epochs = int(left / (of_epoch + between))
    log(
        f"a step takes {duration(seconds)}, an epoch about {duration(of_epoch + between)}: "
        f"--max-minutes {options.max_minutes:g} are {amount(epochs, left / seconds)}"
    )
    if epochs < options.epochs:
        length = {"epochs": epochs} if epochs else {"max_steps": max(1, int(left / seconds))}
        length["batch_tokens"] = options.batch_tokens
        size = text_size(data.texts, data.tokenizer, options.max_length)
        choose(options, size, data.tokenizer.vocab_size, **length)


def amount(epochs: int, steps: float) -> str:
    """Says for how much there is time: for epochs, or for less than one."""
    return counted(epochs, "epoch") if epochs else f"less than one, {counted(int(steps), 'step')}"


def seconds_of_a_step(model, batches) -> list[float]:
    """Trains some steps twice, measures them, and takes them back.

    Returns:
        The seconds of a step, and those of the compilation before the first one.
    """
    variables = training_variables(model)
    before, timer = as_arrays(variables), _TimeEpochs()
    model.fit(
        stream_of(batches, 0, 0, 2 * NUM_TIMED),
        steps_per_epoch=NUM_TIMED,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[timer],
    )
    assign(training_variables(model), before)
    first, second = timer.seconds
    return [second / NUM_TIMED, max(0.0, first - second)]
