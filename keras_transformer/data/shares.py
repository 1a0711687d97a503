"""Batches as NumPy arrays for `model.fit` on any backend; each process can take its own rows."""

import keras
import numpy as np


class Share:
    """Which rows of a batch a process takes: equal blocks, in the order of the processes.

    Args:
        process: the number of this process, from 0.
        num_processes: the number of processes.
        multiple: each batch gets empty rows until its rows are a multiple of it, such as the number
            of devices of all processes.
    """

    def __init__(self, process: int = 0, num_processes: int = 1, multiple: int = 1):
        self.process, self.num_processes, self.multiple = process, num_processes, multiple

    def of(self, batch):
        """Returns the rows of a nested structure of arrays (B, ...)."""
        return keras.tree.map_structure(self._rows, batch)

    def _rows(self, x):
        empty = -len(x) % self.multiple
        x = np.pad(x, ((0, empty), *[(0, 0)] * (x.ndim - 1))) if empty else x
        size = len(x) // self.num_processes
        return x[self.process * size : (self.process + 1) * size]


class EpochSequence(keras.utils.PyDataset):
    """The batches of one epoch, which goes on to the next one at its end.

    Args:
        batches: `PairBatches`, or another object with `num_batches` and `plan(index).batch(step)`.
        first_epoch: the first epoch that is read.
        share: the rows to take.
    """

    def __init__(self, batches, first_epoch: int = 0, share: Share | None = None):
        super().__init__()
        self.batches, self.epoch, self.share = batches, first_epoch, share or Share()
        self._plan = None

    def __len__(self):
        return self.batches.num_batches

    def __getitem__(self, index):
        self._plan = self._plan or self.batches.plan(self.epoch)
        return self.share.of(self._plan.batch(index))

    def on_epoch_end(self):
        self.epoch, self._plan = self.epoch + 1, None
