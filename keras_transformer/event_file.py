"""A file of events for TensorBoard: numbers, texts and pictures by step, without TensorFlow."""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path


class EventFile:
    """Writes a new file of events into a folder that TensorBoard reads.

    TensorBoard's own messages and records are used, but not its `EventFileWriter`, which imports
    TensorFlow where it is installed.

    Args:
        folder: created where it is missing.
    """

    def __init__(self, folder):
        # They take a while, and a folder that nobody writes to needs none of them.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        Path(folder).mkdir(parents=True, exist_ok=True)
        # The order of these names is that of time, for TensorBoard as well.
        owner = f"{socket.gethostname()}.{os.getpid()}"
        name = f"events.out.tfevents.{time.time_ns() / 1e9:017.6f}.{owner}"
        self._event, self._records = Event, RecordWriter(open(Path(folder) / name, "xb"))
        self._write(file_version="brain.Event:2")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def number(self, name: str, value: float, step: int) -> None:
        """Adds a point to a curve."""
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        self._write(step=step, summary=scalar_pb(name, float(value)))

    def text(self, name: str, text: str, step: int) -> None:
        """Adds a text in Markdown."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._write(step=step, summary=text_pb(name, text))

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Adds a picture, the bytes of a PNG file."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.image.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        size = struct.unpack(">II", png[16:24])  # where each PNG has its width and its height
        values = [*(str(pixels).encode() for pixels in size), png]
        kind = create_summary_metadata(display_name=None, description=None)
        value = Summary.Value(tag=name, metadata=kind, tensor=make_tensor_proto(values))
        self._write(step=step, summary=Summary(value=[value]))

    def settings(self, settings: Mapping[str, float | str | bool], run: str) -> None:
        """Adds the settings of a run, for the tab HParams."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        self._write(step=0, summary=hparams_pb(dict(settings), trial_id=run))

    def flush(self) -> None:
        """Makes sure that a reader finds all events."""
        self._records.flush()

    def close(self) -> None:
        """Closes the file."""
        self._records.close()

    def _write(self, **fields):
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())
