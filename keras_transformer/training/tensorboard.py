"""A training run in TensorBoard: every step, every epoch, the vocabulary, what attention reads."""

import time
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_transformer.checks import check_int


class TensorBoardMonitor(keras.callbacks.Callback):
    """Writes curves whose steps go on over a resumed run.

    Every step: `step_loss`, `step_learning_rate`, and what a `TokenTrainer` knows,
    `step_gradient_norm` and `step_tokens_per_second`. Every epoch: all logs, named as Keras's own
    callback names them, those of the validation beside those of training. That callback counts the
    steps of each `fit` from 0 anew. Place this one after the callbacks that add to the logs.

    Args:
        log_dir: where TensorBoard reads.
        settings: the run's settings by name, shown in the tab HParams; numbers, strings, booleans.
        profile_steps: the first and the last step of this `fit` to profile, or None.

    Raises:
        ValueError: if the steps to profile are not two, in order, from 1.

    Example:
        >>> monitor = TensorBoardMonitor("runs/example/logs", settings={"dropout": 0.1})
    """

    def __init__(self, log_dir, *, settings=None, profile_steps=None):
        super().__init__()
        self.log_dir = Path(log_dir)
        self.settings = settings or {}
        self.profile_steps = profile_steps and _checked_steps(profile_steps)
        self.writers = {}
        self.num_steps = 0

    def on_train_begin(self, logs=None):
        import tensorflow as tf
        from tensorboard.plugins.hparams import api as hparams

        for name in ("train", "validation"):
            self.writers[name] = tf.summary.create_file_writer(str(self.log_dir / name))
        if self.settings:
            with self.writers["train"].as_default():
                hparams.hparams(dict(self.settings), trial_id=self.log_dir.parent.name)

    def on_epoch_begin(self, epoch, logs=None):
        self.time, self.tokens = time.perf_counter(), 0.0

    def on_train_batch_begin(self, batch, logs=None):
        if self.profile_steps and self.num_steps + 1 == self.profile_steps[0]:
            _profiler().start(str(self.log_dir))

    def on_train_batch_end(self, batch, logs=None):
        self.num_steps += 1
        values = {"learning_rate": _number(self.model.optimizer.learning_rate)}
        trackers = getattr(self.model, "trackers", None)
        if trackers is None:
            values["loss"] = (logs or {}).get("loss")  # the mean of the epoch so far
        else:
            values["loss"] = _number(trackers.step_loss.result())
            values["gradient_norm"] = _number(trackers.gradient_norm.result())
            now, tokens = time.perf_counter(), _number(trackers.tokens.result())
            values["tokens_per_second"] = (tokens - self.tokens) / (now - self.time)
            self.time, self.tokens = now, tokens
        values = {f"step_{name}": value for name, value in values.items()}
        self._write("train", values, _number(self.model.optimizer.iterations))
        if self.profile_steps and self.num_steps == self.profile_steps[1]:
            _profiler().stop()

    def on_epoch_end(self, epoch, logs=None):
        values = {"train": {}, "validation": {}}
        for name, value in (logs or {}).items():
            side = "validation" if name.startswith("val_") else "train"
            values[side][f"epoch_{name.removeprefix('val_')}"] = value
        values["train"]["epoch_learning_rate"] = _number(self.model.optimizer.learning_rate)
        for side, numbers in values.items():
            self._write(side, numbers, epoch + 1)
            self.writers[side].flush()

    def on_train_end(self, logs=None):
        first, last = self.profile_steps or (0, 0)
        if first <= self.num_steps < last:
            _profiler().stop()
        if self.num_steps < first:
            warnings.warn(
                f"profile_steps begin at {first}, but training ended after {self.num_steps} steps: "
                "nothing was profiled.",
                stacklevel=2,
            )
        for writer in self.writers.values():
            writer.close()

    def _write(self, side, values, step):
        import tensorflow as tf

        with self.writers[side].as_default(step=int(step)):
            for name, value in values.items():
                if value is not None:
                    tf.summary.scalar(name, float(value))


class AttentionMonitor(keras.callbacks.Callback):
    """Shows after every epoch what each target token reads of the source, for a few pairs.

    Args:
        attention: function of a pair of id arrays (1, S) and (1, T) to the weights (1, T, S), such
            as `Transformer.cross_attention_weights`.
        pairs: a list of such pairs.
        log_dir: where TensorBoard reads.
        cell: the side of a weight, in pixels.
    """

    def __init__(self, attention, pairs, log_dir, *, cell=16):
        super().__init__()
        self.attention = attention
        self.pairs = pairs
        self.log_dir = str(log_dir)
        self.cell = cell

    def on_epoch_end(self, epoch, logs=None):
        import tensorflow as tf

        writer = tf.summary.create_file_writer(self.log_dir)
        with writer.as_default(step=epoch + 1):
            for i, pair in enumerate(self.pairs):
                weights = keras.ops.convert_to_numpy(self.attention(pair))
                tf.summary.image(f"attention/{i}", weights_image(weights[0], self.cell))
        writer.close()


def weights_image(weights, cell: int) -> np.ndarray:
    """Weights (T, S) in [0, 1] as a picture (1, T * cell, S * cell, 1), white where 1."""
    picture = np.kron(np.asarray(weights, "float32"), np.ones((cell, cell), "float32"))
    return picture[None, :, :, None]


def write_projector(log_dir, embeddings, pieces) -> None:
    """Writes the embeddings of a vocabulary for TensorBoard's tab Projector.

    Args:
        log_dir: where TensorBoard reads.
        embeddings: array (V, D).
        pieces: V strings.
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


def read_curve(log_dir, name: str):
    """What a `TensorBoardMonitor` wrote under a name, such as `step_learning_rate`.

    Args:
        log_dir: its folder `train` or `validation`.
        name: of the curve.

    Returns:
        Arrays of steps and of values, in rising order of the steps; None if there is no such curve.
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


def _checked_steps(profile_steps) -> tuple[int, int]:
    try:
        first, last = profile_steps
    except (TypeError, ValueError):
        raise ValueError(
            f"profile_steps must be a pair, the first and the last step, but is {profile_steps!r}."
        ) from None
    first = check_int("profile_steps[0]", first, 1)
    return first, check_int("profile_steps[1]", last, first)


def _profiler():
    import tensorflow as tf

    return tf.profiler.experimental


def _number(value) -> float:
    return float(keras.ops.convert_to_numpy(value))
