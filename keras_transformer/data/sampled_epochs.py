"""BPE-dropout for a store: worker processes split the text of the next epoch while one is read."""

import functools
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np

from keras_transformer.data.bpe_dropout import BpeDropout
from keras_transformer.data.processes import num_cores, work
from keras_transformer.data.store_files import MANIFEST, StoredPairs, write_store
from keras_transformer.data.token_rows import TokenPairs, TokenRows, limited
from keras_transformer.files import FileError, fingerprint, make_directory

CHUNK = 20_000  # pairs that are split together: what is drawn depends on it


class SampledEpochs:
    """The pairs of a store, split again for every epoch: the `sample` of `PairBatches`.

    What an epoch has is a function of the store, the rate, the seed and the number of the epoch.
    It is written to a folder, where a training that goes on finds it. The first epoch stays there,
    for the shapes of all batches come from it; the others go when they are of no more use.

    Args:
        store: the `StoredPairs`, such as a `TokenStore`.
        rate: the probability that a merge is dropped.
        seed: of what is drawn.
        folder: where the epochs are written; None for a temporary folder.
        processes: how many split the text; None for one fewer than the cores, at least two.

    Attributes:
        end: the number of epochs, if it is known; no later epoch is made.
    """

    def __init__(self, store, rate, seed, folder=None, processes=None):
        self.store, self.rate, self.seed = store, rate, seed
        self.processes = processes or max(num_cores() - 1, 2)
        self.folder = Path(folder or tempfile.mkdtemp())
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.end = None
        self._has_shapes, self._ahead, self._stop = False, None, threading.Event()

    def __call__(self, epoch: int, attempt: int, longest: int) -> TokenPairs:
        """Returns the pairs of an epoch, and begins to make the next one.

        Args:
            epoch, attempt: what is drawn depends on both.
            longest: the tokens of the longest pair that is read, the end token included. A text
                that would get longer keeps its plain ids.
        """
        self._wait()
        pairs = self._read(epoch, attempt, longest) or self._make(epoch, attempt, longest)
        if self._has_shapes:
            self._drop_others(epoch)
            if epoch + 1 != self.end:
                following = epoch + 1, 0, longest
                self._ahead = threading.Thread(target=self._make_ahead, args=following, daemon=True)
                self._ahead.start()
        self._has_shapes = True
        return pairs

    def close(self) -> None:
        """Stops making the next epoch."""
        self._stop.set()
        self._wait()
        self._stop.clear()

    def _path(self, epoch, attempt) -> Path:
        return self.folder / f"epoch-{epoch:05d}-{attempt}"

    def _plan(self, epoch, attempt, longest) -> dict:
        made_of = fingerprint(self.store.path / MANIFEST)["sha256"]
        drawn = {"rate": self.rate, "seed": self.seed, "longest": longest, "chunk": CHUNK}
        return {"store": made_of, "epoch": epoch, "attempt": attempt, **drawn}

    def _read(self, epoch, attempt, longest) -> TokenPairs | None:
        try:
            found = StoredPairs(self._path(epoch, attempt))
        except FileError:
            return None
        is_wanted = found.manifest["plan"] == self._plan(epoch, attempt, longest)
        return found.pairs if is_wanted else None

    def _make(self, epoch, attempt, longest) -> TokenPairs | None:
        path = self._path(epoch, attempt)
        shutil.rmtree(path, ignore_errors=True)
        make_directory(path)
        path_of_store = str(self.store.path)
        jobs = (
            (path_of_store, begin, self.rate, (self.seed, epoch, attempt), longest)
            for begin in range(0, len(self.store), CHUNK)
        )
        manifest = {
            "vocab_size": self.store.manifest["vocab_size"],
            "corpora": [],
            "plan": self._plan(epoch, attempt, longest),
        }
        parts = self._until_stopped(work(split_chunk, jobs, self.processes))
        try:
            write_store(path, parts, self.store.tokenizer_model, manifest)
        except InterruptedError:
            return None
        return StoredPairs(path).pairs

    def _until_stopped(self, parts):
        for part in parts:
            if self._stop.is_set():
                raise InterruptedError
            yield part

    def _make_ahead(self, *epoch):
        with suppress(OSError, ValueError):  # it is tried again when it is needed
            if self._read(*epoch) is None:
                self._make(*epoch)

    def _wait(self):
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None

    def _drop_others(self, epoch):
        for path in self.folder.glob("epoch-*-*"):
            number = int(path.name.split("-")[1])
            if number not in (0, epoch, epoch + 1):
                shutil.rmtree(path, ignore_errors=True)


@functools.lru_cache(2)
def _opened(path) -> tuple[StoredPairs, BpeDropout]:
    store = StoredPairs(path)
    return store, BpeDropout(store.tokenizer_model)


def split_chunk(path, begin, rate, seed, longest) -> TokenPairs:
    """Splits the pairs of a store from `begin` on, as many as a chunk has, at random."""
    store, dropout = _opened(path)
    seeds = np.random.default_rng((*seed, begin)).integers(2**31, size=2)
    sides = []
    for side, side_seed in zip(store.pairs, seeds, strict=True):
        offsets = side.offsets[begin : begin + CHUNK + 1]
        values = side.values[offsets[0] : offsets[-1]].astype("int32")
        plain = TokenRows(values, offsets - offsets[0])
        rows = dropout.sample_ids(plain, rate, side_seed)
        sides.append(limited(rows, plain, longest))
    return TokenPairs(*sides)
