"""The states from which a stopped run resumes."""

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras

from keras_transformer.checks import check_number, check_positive_int
from keras_transformer.files import FileError, make_directory
from keras_transformer.training.state_file import (
    ANY_STATE,
    STATE,
    STATE_WITHIN,
    State,
    read_state,
    write_state,
)
from keras_transformer.training.variables import (
    are_finite,
    as_arrays,
    assign,
    metric_variables,
    training_variables,
)
from keras_transformer.type_hints import StrPath

# The largest share of its time that training waits for copies.
LARGEST_SHARE = 0.05
# What asks for a state because of the time; a signal asks by its number.
DUE = -1
# What `stop_training` is when only the epoch ends: `fit` has no other way to end one early. It is
# not True, so that the run still ends where another callback says so.
END_OF_EPOCH = "end of epoch"


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing, damaged or of another model.

    Example:
        >>> try:
        ...     TrainingCheckpoint("runs/no-such-run").restore(keras.Sequential())
        ... except CheckpointError as error:
        ...     print(error)
        runs/no-such-run holds no state of a run to go on from (there is none); train it again.
    """


class TrainingCheckpoint(keras.callbacks.Callback):
    """Keeps what a run needs to resume as if it had never stopped, also in the middle of an epoch.

    Weights alone are not enough: a state also holds the optimizer's moments and step, the seeds of
    dropout, the metrics of the epoch that runs, and the logs of all epochs so far. A state is
    written after each epoch, and with `save_minutes` also between two steps. Training waits while
    the variables are copied, within an epoch for at most 5 % of its time. A thread writes the copy
    while training goes on; what goes wrong there is raised after the next step, by the next save,
    or at the end of `fit`. A state is one file with a hash of its bytes that appears whole or not
    at all, and the file before it stays, so there is always one to resume from. Place the callback
    after all callbacks that add to the logs or read them.

    To go on from the middle of an epoch, the data must begin there. Give `fit` the endless
    `stream` of a `TokenBatches` or `PackedBatches`, and `steps_per_epoch`.

    Args:
        directory: where to write the files; created if it is missing.
        keep: the number of states to keep.
        save_minutes: writes a state when the last one is older, in wall-clock minutes; None writes
            only after epochs.
        max_steps: ends training after this number of steps, those before a stop included.
        before_save: function without arguments that is called before each state is copied, such as
            `TensorBoardMonitor.flush`.
        together: function that lets several processes save at the same step, such as
            `training.workers.SaveTogether()`, which says what it takes and returns.

    Attributes:
        history: the logs of each finished epoch.
        step: the number of finished steps of the epoch after them.
        total_steps: the number of finished steps of all epochs; None after a state of an earlier
            version, until `fit` begins.

    Example:
        >>> checkpoint = TrainingCheckpoint("runs/example/checkpoints", save_minutes=10)
        >>> checkpoint.epoch  # after `checkpoint.restore(model)`, the `initial_epoch` for `fit`
        0
    """

    def __init__(
        self,
        directory: StrPath,
        *,
        keep: int = 2,
        save_minutes: float | None = None,
        max_steps: int | None = None,
        before_save: Callable[[], object] | None = None,
        together: Callable[[int, bool], int] | None = None,
    ):
        super().__init__()
        self.directory = Path(directory)
        self.keep = check_positive_int("keep", keep)
        if save_minutes is not None:
            allowed = "a number of at least 0, or None"
            check_number("save_minutes", save_minutes, float, allowed, lambda x: x >= 0)
        if max_steps is not None:
            check_positive_int("max_steps", max_steps)
        self.save_minutes, self.max_steps, self.before_save = save_minutes, max_steps, before_save
        self.together = together or (lambda wanted, at_once: wanted)
        self.history, self.step, self.total_steps = [], 0, 0
        self._damaged = set()  # states to remove when the next one is written
        self._resumed = None  # the state in the middle of the epoch that `fit` begins with
        self._writing, self._signal, self._copy_seconds = None, 0, 0.0
        self._saved = self._epoch_start = time.monotonic()

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return len(self.history)

    @property
    def seconds(self) -> float:
        """How long the epoch that runs has taken, what it took before a stop included."""
        return self.seconds_before + time.monotonic() - self._epoch_start

    @property
    def seconds_before(self) -> float:
        """How long the epoch that `fit` begins with had taken before a stop."""
        return self._resumed.seconds if self._resumed else 0.0

    def on_train_begin(self, logs=None):
        if self.paths() and not (self.history or self.step):
            raise CheckpointError(
                f"{self.directory} holds states of another run, such as {self.paths()[-1].name}; "
                "call restore() to go on with that run, or name an empty directory."
            )
        self._check_executions()
        if self.total_steps is None:
            self.total_steps = self.epoch * (self.params["steps"] or 0)
        self._saved = time.monotonic()

    def _check_executions(self):
        at_once, steps = self.model.steps_per_execution, self.params["steps"] or 0
        if steps % at_once or self.step % at_once:
            begin = f" from step {self.step} on" if self.step else ""
            raise ValueError(
                f"TrainingCheckpoint counts steps, so steps_per_execution={at_once} must divide "
                f"the {steps} steps of an epoch{begin}; compile with steps_per_execution=1."
            )

    def on_epoch_begin(self, epoch, logs=None):
        if signum := self.together(self._signal, True):
            self._exit(signum)
        self._epoch_start = time.monotonic()
        self.step = self._resumed.step if self._resumed else 0
        if self._resumed:  # only now, since `fit` has just cleared the metrics
            self._restore_metrics()

    def on_train_batch_end(self, batch, logs=None):
        step = batch + 1 + (self._resumed.step if self._resumed else 0)
        self.total_steps += step - self.step
        self.step = step
        if self._writing is not None and self._writing.done():
            self.wait()
        if self.max_steps is not None and self.total_steps >= self.max_steps:
            self.model.stop_training = True
        elif step == self.params["steps"]:
            if self._resumed:
                self.model.stop_training = self.model.stop_training or END_OF_EPOCH
        elif wanted := self.together(self._signal or (DUE if self._is_due() else 0), False):
            self._save(STATE_WITHIN.format(self.epoch + 1, step))
            if wanted != DUE:
                self._exit(wanted)

    def on_epoch_end(self, epoch, logs=None):
        self.history.append({name: float(value) for name, value in (logs or {}).items()})
        self.step, self._resumed = 0, None
        self._save(STATE.format(self.epoch))
        if self.model.stop_training == END_OF_EPOCH:
            self.model.stop_training = False

    def on_train_end(self, logs=None):
        self.wait()

    def save_and_exit(self, signum: int, frame: object = None) -> None:
        """Saves a state after the step that runs, and ends the program as the signal would.

        The status is 128 + `signum`, by a `SystemExit`. A signal after the last step of an epoch
        waits until the epoch has ended.

        Example:
            >>> import signal
            >>> checkpoint = TrainingCheckpoint("runs/example/checkpoints", save_minutes=10)
            >>> before = signal.signal(signal.SIGTERM, checkpoint.save_and_exit)
        """
        self._signal = signum

    def wait(self) -> None:
        """Waits until the last state is on the disk.

        Call it if something else than the checkpoint has ended `fit` by an error: nothing else
        would then say that the state could not be written.

        Raises:
            OSError: if it could not be written.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _exit(self, signum):
        self.wait()
        self.together(0, True)  # no process ends while another still writes
        raise SystemExit(128 + signum)

    def _is_due(self):
        if self.save_minutes is None or self._writing is not None:
            return False
        waited = time.monotonic() - self._saved
        return waited >= max(60 * self.save_minutes, self._copy_seconds / LARGEST_SHARE)

    def _save(self, name):
        """Copies all that training changes, and has a thread write it."""
        self.wait()
        start = time.monotonic()
        if self.before_save is not None:
            self.before_save()
        state = State(
            arrays=as_arrays(training_variables(self.model)),
            epoch=self.epoch,
            history=list(self.history),
            step=self.step,
            total_steps=self.total_steps,
            seconds=self.seconds if self.step else 0.0,
            metrics=as_arrays(metric_variables(self.model)) if self.step else [],
        )
        make_directory(self.directory)
        thread = ThreadPoolExecutor(1)  # for which Python waits before it exits
        self._writing = thread.submit(self._write, self.directory / name, state)
        thread.shutdown(wait=False)
        self._saved = time.monotonic()
        self._copy_seconds = self._saved - start

    def _restore_metrics(self):
        if not assign(metric_variables(self.model), self._resumed.metrics):
            warnings.warn(
                "the metrics of this epoch count only the steps from now on, since those given to "
                "compile have no variables before the first step",
                stacklevel=2,
            )

    def _write(self, path, state):
        if state.step and not are_finite(state.arrays):
            warnings.warn(
                f"{path.name} was not written: the weights after that step hold NaN or infinity",
                stacklevel=2,
            )
            return
        write_state(path, state)
        damaged = self._damaged - {path}
        whole = [other for other in self.paths() if other not in damaged]
        for old in [*damaged, *whole[: -self.keep]]:
            old.unlink(missing_ok=True)

    def paths(self) -> list[Path]:
        """Lists the states, oldest first."""
        return sorted(self.directory.glob(ANY_STATE))

    def restore(self, model) -> int:
        """Restores a compiled model from the newest state that can be read.

        Returns:
            The number of finished epochs, the `initial_epoch` for `fit`. The attribute `step` is
            the number of steps after them.

        Raises:
            CheckpointError: if no state can be read, or it belongs to another model.
        """
        self.wait()
        state, path = _newest(self.paths(), self.directory)
        if not assign(training_variables(model), state.arrays):
            raise CheckpointError(
                f"{path} belongs to another model or optimizer; use that run's options."
            )
        self.history, self.step, self.total_steps = state.history, state.step, state.total_steps
        self._resumed = state if state.step else None
        self._damaged = {other for other in self.paths() if other > path}
        return self.epoch


def read_history(directory) -> list[dict]:
    """Reads the logs of each finished epoch of a run; errors as in `TrainingCheckpoint.restore`."""
    return _newest(TrainingCheckpoint(directory).paths(), directory)[0].history


def _newest(paths, directory) -> tuple[State, Path]:
    """Reads the newest state that can be read; warns of those that cannot."""
    reasons = []
    for path in reversed(paths):
        try:
            state = read_state(path)
        except FileError as error:
            reasons.append(str(error))
            continue
        if reasons:
            warnings.warn(f"going on from {path}, since {'; '.join(reasons)}", stacklevel=3)
        return state, path
    reasons = "; ".join(reasons) or "there is none"
    raise CheckpointError(
        f"{directory} holds no state of a run to go on from ({reasons}); train it again."
    )
