"""A training of --max-minutes: some steps are timed, and the schedule is for as many as fit."""

import time

import keras

from keras_transformer.commands import workers
from keras_transformer.commands.messages import log
from keras_transformer.commands.progress import duration, stage
from keras_transformer.commands.recipe import choose
from keras_transformer.commands.training_data import stream_of, text_size
from keras_transformer.training.variables import as_arrays, assign, training_variables

NUM_TIMED = 12
# Of the minutes; the rest is for what is done between epochs.
SHARE_OF_STEPS = 0.8


class _TimeEpoch(keras.callbacks.Callback):
    """Measures the seconds of the last epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.begun


def fit_into_time(model, data, options) -> None:
    """Chooses as many epochs as there is time for, if these are fewer than suit the text.

    Without time for one, it chooses a number of steps. The other settings follow.

    Args:
        model: the compiled model; its optimizer is of no use afterwards.
        data: the `TrainingData`.
        options: those of `train`.
    """
    with stage(f"timing {NUM_TIMED} steps", quiet=options.quiet):
        seconds = workers.agreed(options, seconds_of_a_step(model, data.train))
    steps = max(1, int(SHARE_OF_STEPS * 60 * options.max_minutes / seconds))
    epochs = steps // data.train.num_batches
    log(
        f"a step takes {duration(seconds)}, an epoch {duration(seconds * data.train.num_batches)}: "
        f"--max-minutes {options.max_minutes:g} are {steps:,} steps"
    )
    if epochs < options.epochs:
        length = {"epochs": epochs} if epochs else {"max_steps": steps}
        length["batch_tokens"] = options.batch_tokens
        choose(options, text_size(data.texts, data.tokenizer), data.tokenizer.vocab_size, **length)


def seconds_of_a_step(model, batches) -> float:
    """Trains some steps twice, measures them the second time, and takes them back."""
    variables = training_variables(model)
    before, timer = as_arrays(variables), _TimeEpoch()
    model.fit(
        stream_of(batches, 0, 0, 2 * NUM_TIMED),
        steps_per_epoch=NUM_TIMED,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[timer],
    )
    assign(training_variables(model), before)
    return timer.seconds / NUM_TIMED
