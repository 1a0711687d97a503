"""A training run in TensorBoard: every step, every epoch, the vocabulary, what attention reads."""

import io
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.checks import check_int
from keras_transformer.event_file import EventFile
from keras_transformer.files import replacing
from keras_transformer.training.callbacks import number
from keras_transformer.type_hints import Floats, Integers, Numbers, StrPath, TensorLike

# The files of TensorBoard; their names begin with the time, so their order is that of time.
EVENTS = "events.out.tfevents.*"


class TensorBoardMonitor(keras.callbacks.Callback):
    """Writes curves that continue when a run is resumed.

    Every step it writes `step_loss`, `step_learning_rate`, and for a `TokenModel`
    `step_gradient_norm` and `step_tokens_per_second`. Every epoch it writes all logs under the same
    names as Keras's own callback, training and validation in one chart. Keras's callback, however,
    counts steps from 0 in each `fit`. Place this one after the callbacks that add to the logs.

    Args:
        log_dir: where TensorBoard reads.
        settings: the run's settings by name, numbers, strings or booleans, for the tab HParams.
        profile_steps: the first and the last step of this `fit` to profile, or None.

    Raises:
        ValueError: if `profile_steps` is not a pair of rising step numbers, counted from 1.

    Example:
        >>> monitor = TensorBoardMonitor("runs/example/logs", settings={"dropout": 0.1})
    """

    def __init__(
        self,
        log_dir: StrPath,
        *,
        settings: Mapping[str, float | str | bool] | None = None,
        profile_steps: tuple[int, int] | None = None,
    ):
        super().__init__()
        self.log_dir = Path(log_dir)
        self.settings = settings or {}
        self.profile_steps = profile_steps and _checked_steps(profile_steps)
        self.files = {}
        self.num_steps = 0

    def on_train_begin(self, logs=None):
        self.num_steps = 0
        self.files = {name: EventFile(self.log_dir / name) for name in ("train", "validation")}
        if self.settings:
            self.files["train"].settings(self.settings, self.log_dir.parent.name)

    def on_epoch_begin(self, epoch, logs=None):
        self.time, self.tokens = time.perf_counter(), None

    def on_train_batch_begin(self, batch, logs=None):
        if self.tokens is None:  # it is not 0 in an epoch that is resumed
            metrics = getattr(self.model, "step_metrics", None)
            self.tokens = 0.0 if metrics is None else number(metrics.tokens.result())
        if self.profile_steps and self.num_steps + 1 == self.profile_steps[0]:
            _start_profile(str(self.log_dir))

    def on_train_batch_end(self, batch, logs=None):
        self.num_steps += 1
        values = {"learning_rate": number(self.model.optimizer.learning_rate)}
        metrics = getattr(self.model, "step_metrics", None)
        if metrics is None:
            values["loss"] = (logs or {}).get("loss")  # the mean of the epoch so far
        else:
            values["loss"] = number(metrics.step_loss.result())
            values["gradient_norm"] = number(metrics.gradient_norm.result())
            now, tokens = time.perf_counter(), number(metrics.tokens.result())
            values["tokens_per_second"] = (tokens - self.tokens) / (now - self.time)
            self.time, self.tokens = now, tokens
        values = {f"step_{name}": value for name, value in values.items()}
        self._write("train", values, number(self.model.optimizer.iterations))
        if self.profile_steps and self.num_steps == self.profile_steps[1]:
            _stop_profile()

    def on_epoch_end(self, epoch, logs=None):
        logs = {**(logs or {}), "learning_rate": number(self.model.optimizer.learning_rate)}
        for name, value in logs.items():
            side = "validation" if name.startswith("val_") else "train"
            self._write(side, {f"epoch_{name.removeprefix('val_')}": value}, epoch + 1)
        self.flush()

    def flush(self) -> None:
        """Makes sure that all that was written is in the files."""
        for file in self.files.values():
            file.flush()

    def on_train_end(self, logs=None):
        first, last = self.profile_steps or (0, 0)
        if first <= self.num_steps < last:
            _stop_profile()
        if self.num_steps < first:
            warnings.warn(
                f"profile_steps begin at {first}, but training ended after {self.num_steps} steps: "
                "nothing was profiled.",
                stacklevel=2,
            )
        self.close()

    def close(self) -> None:
        """Closes the files; `fit` does not where an exception ends it."""
        for file in self.files.values():
            file.close()

    def forget_after(self, step: int, epoch: int) -> None:
        """Removes what a stopped run has logged after the state that it goes on from.

        It is trained and logged again. Otherwise the curves would have these steps twice. Files of
        other callbacks in `log_dir` are looked at, too.

        Args:
            step: the last step to keep, of the curves `step_...`.
            epoch: the last epoch to keep, of all others.

        Example:
            >>> monitor = TensorBoardMonitor("runs/example/logs")
            >>> checkpoint = TrainingCheckpoint("runs/example/checkpoints", save_minutes=10)
            >>> # after `checkpoint.restore(model)`
            >>> monitor.forget_after(checkpoint.total_steps, checkpoint.epoch)
        """
        for folder in sorted({path.parent for path in self.log_dir.rglob(EVENTS)}):
            for path in sorted(folder.glob(EVENTS), reverse=True):
                kept, dropped = _sorted_events(path, step, epoch)
                if dropped:
                    _rewrite(path, kept)
                elif len(kept) > 1:  # the first event says only which format it is
                    break  # the files before it were cleared when this one was begun

    def _write(self, side, values, step):
        for name, value in values.items():
            if value is not None:
                self.files[side].number(name, value, int(step))


class AttentionMonitor(keras.callbacks.Callback):
    """Shows after every epoch what each target token reads of the source, for a few pairs.

    Args:
        attention: function from a pair of id arrays (1, S) and (1, T) to scores (1, T, S), such as
            `Transformer.cross_attention_scores`.
        pairs: a list of such pairs.
        log_dir: where TensorBoard reads.
        cell: the width of a score's square, in pixels.

    Example:
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
        >>> model = Transformer(**sizes, source_vocab_size=12)
        >>> pair = np.array([[5, 6, 3]]), np.array([[2, 7]])
        >>> monitor = AttentionMonitor(model.cross_attention_scores, [pair], "runs/example/logs")
    """

    def __init__(
        self,
        attention: Callable[[tuple[TensorLike, TensorLike]], TensorLike],
        pairs: Sequence[tuple[TensorLike, TensorLike]],
        log_dir: StrPath,
        *,
        cell: int = 16,
    ):
        super().__init__()
        self.attention = attention
        self.pairs = pairs
        self.log_dir = log_dir
        self.cell = cell

    def on_epoch_end(self, epoch, logs=None):
        with EventFile(self.log_dir) as file:
            for i, pair in enumerate(self.pairs):
                scores = keras.ops.convert_to_numpy(self.attention(pair))
                file.picture(f"attention/{i}", scores_image(scores[0], self.cell), epoch + 1)


def scores_image(scores, cell: int) -> bytes:
    """Draws attention scores (T, S), 1 as white: a PNG file of (T * cell, S * cell) pixels."""
    from matplotlib.image import imsave

    picture, image = np.kron(np.asarray(scores, "float32"), np.ones((cell, cell))), io.BytesIO()
    imsave(image, picture, format="png", cmap="gray", vmin=0, vmax=1)
    return image.getvalue()


def write_projector(log_dir: StrPath, embeddings: Numbers, pieces: Sequence[str]) -> None:
    """Writes the embeddings of a vocabulary for TensorBoard's tab Projector.

    Args:
        log_dir: where TensorBoard reads.
        embeddings: array (V, D).
        pieces: V strings.

    Example:
        >>> import tempfile
        >>> write_projector(tempfile.mkdtemp(), np.eye(2), ["a", "b"])
    """
    log_dir = Path(log_dir)
    log_dir.mkdir(parents=True, exist_ok=True)
    rows = ["\t".join(f"{x:.5g}" for x in row) for row in np.asarray(embeddings)]
    labels = [piece.translate({9: " ", 10: " ", 13: " "}) or " " for piece in pieces]
    (log_dir / "vectors.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    (log_dir / "metadata.tsv").write_text("\n".join(labels) + "\n", "utf-8")
    (log_dir / "projector_config.pbtxt").write_text(
        'embeddings {\n  tensor_name: "embeddings"\n  tensor_path: "vectors.tsv"\n'
        '  metadata_path: "metadata.tsv"\n}\n',
        "utf-8",
    )


def read_curve(log_dir: StrPath, name: str) -> tuple[Integers, Floats] | None:
    """Reads a curve that a `TensorBoardMonitor` wrote.

    Args:
        log_dir: the folder `train` or `validation` in the monitor's `log_dir`.
        name: the name of the curve, such as `step_learning_rate`.

    Returns:
        Arrays of steps, which rise, and of values; None if there is no such curve.

    Example:
        >>> read_curve("runs/no-such-run/logs/train", "step_loss") is None
        True
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    if not Path(log_dir).is_dir():
        return None
    accumulator = EventAccumulator(str(log_dir), size_guidance={"tensors": 0})  # 0: all of them
    accumulator.Reload()
    if name not in accumulator.Tags()["tensors"]:
        return None
    curve = {
        event.step: float(tensor_util.make_ndarray(event.tensor_proto))
        for event in accumulator.Tensors(name)
    }
    steps = np.array(sorted(curve))
    return steps, np.array([curve[step] for step in steps])


def _sorted_events(path, step, epoch) -> tuple[list[bytes], int]:
    """Reads the events to keep, and counts the others."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    def is_before(data):
        event = Event.FromString(data)
        is_step = any(value.tag.startswith("step_") for value in event.summary.value)
        return event.step <= (step if is_step else epoch)

    events = list(RawEventFileLoader(str(path)).Load())
    kept = list(filter(is_before, events))
    return kept, len(events) - len(kept)


def _rewrite(path, events):
    from tensorboard.summary.writer.record_writer import RecordWriter

    with replacing(path) as new, open(new, "wb") as file:
        writer = RecordWriter(file)
        for data in events:
            writer.write(data)


def _checked_steps(profile_steps) -> tuple[int, int]:
    if not isinstance(profile_steps, (tuple, list)) or len(profile_steps) != 2:
        raise ValueError(
            f"profile_steps must be a pair, the first and the last step, but is {profile_steps!r}."
        )
    first, last = profile_steps
    first = check_int("profile_steps[0]", first, 1)
    return first, check_int("profile_steps[1]", last, first)


def _start_profile(log_dir):
    if STEPS_ARE_PURE:
        import jax

        jax.profiler.start_trace(log_dir)
    else:
        import tensorflow as tf

        tf.profiler.experimental.start(log_dir)


def _stop_profile():
    if STEPS_ARE_PURE:
        import jax

        jax.profiler.stop_trace()
    else:
        import tensorflow as tf

        tf.profiler.experimental.stop()
