"""The files of a store, mapped into memory: a reader reads only the rows that it needs.

STORE/
  store.json        what made it, the sizes and hashes of the other files, the format
  tokenizer.model   what the ids are ids of
  source.ids        the ids of all sentences, one after another; uint16, or uint32
  source.offsets    where each sentence begins and the last one ends, int64
  target.ids, target.offsets
"""

import hashlib
import mmap
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from keras_transformer.data.token_rows import TokenPairs, TokenRows
from keras_transformer.files import (
    FileError,
    fingerprint,
    put_in_place,
    read_bytes,
    read_json,
    replacing,
    write_json,
    writing_new,
)
from keras_transformer.type_hints import StrPath

MANIFEST, TOKENIZER, FORMAT = "store.json", "tokenizer.model", 1
SIDES = "source", "target"
COLUMNS = [f"{side}.{column}" for side in SIDES for column in ("ids", "offsets")]
FILES = (TOKENIZER, *COLUMNS)
OFFSET_TYPE = np.dtype("<i8")
MAX_MODEL_BYTES = 2**28


def is_store(path) -> bool:
    """Returns whether a directory holds a whole store."""
    return (Path(path) / MANIFEST).is_file()


def id_type(vocab_size: int) -> np.dtype:
    """Returns the smallest type of a store's ids."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


class StoredPairs:
    """What `write_store` has written, mapped into memory; `TokenStore` says what it has."""

    def __init__(self, path: StrPath):
        self.path = Path(path)
        if not is_store(path):
            raise FileError(f"{path} is no store; name a directory that prepare has written.")
        self.manifest = read_json(self.path / MANIFEST)
        if self.manifest.get("format") != FORMAT:
            raise FileError(
                f"{path} is a store of format {self.manifest.get('format')!r}, but this version "
                f"reads format {FORMAT}; prepare it again."
            )
        for name in self.manifest["files"]:
            self._check(name, whole=not name.endswith(".ids"))
        self.pairs = TokenPairs(*map(self._rows, SIDES))

    def __len__(self) -> int:
        """The number of pairs."""
        return self.manifest["pairs"]

    @property
    def tokenizer_model(self) -> bytes:
        """The bytes of the tokenizer's model: `Tokenizer(store.tokenizer_model)`."""
        return read_bytes(self.path / TOKENIZER, MAX_MODEL_BYTES)

    def check(self) -> None:
        """Reads all files and compares their hashes; raises a `FileError` that names one."""
        for name in self.manifest["files"]:
            self._check(name, whole=True)

    def _check(self, name, whole):
        path, known = self.path / name, self.manifest["files"][name]
        size = path.stat().st_size if path.is_file() else None
        if size != known["size"] or whole and fingerprint(path) != known:
            fault = "is missing" if size is None else "was altered or damaged"
            raise FileError(f"{path} {fault}; restore it, or remove {self.path} and prepare again.")

    def _rows(self, side):
        ids = self._mapped(f"{side}.ids", id_type(self.manifest["vocab_size"]), is_random=True)
        return TokenRows(ids, self._mapped(f"{side}.offsets", OFFSET_TYPE))

    def _mapped(self, name, kind, is_random=False):
        if not self.manifest["files"][name]["size"]:
            return np.zeros(0, kind)  # of a shard without a usable pair
        with open(self.path / name, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if is_random and hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM)  # read no neighbours of a row
        return np.frombuffer(mapped, kind)


def write_store(path, parts: Iterable[TokenPairs], model: bytes, manifest: dict) -> None:
    """Writes a store of parts that follow each other, whole or not at all.

    Args:
        path: an existing directory.
        parts: the ids; one part at a time is in memory.
        model: the bytes of the tokenizer's model.
        manifest: what `store.json` says besides files and format; it has "vocab_size".
    """
    path, kind = Path(path), id_type(manifest["vocab_size"])
    hashes, number = {name: hashlib.sha256() for name in COLUMNS}, 0
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(open(stack.enter_context(writing_new(path / name)), "wb"))
            for name in COLUMNS
        }

        def add(name, array):
            files[name].write(array)
            hashes[name].update(array)

        ends = dict.fromkeys(SIDES, 0)
        for side in SIDES:
            add(f"{side}.offsets", np.zeros(1, OFFSET_TYPE))
        for pairs in parts:
            number += len(pairs.sources.offsets) - 1
            for side, rows in zip(SIDES, pairs, strict=True):
                add(f"{side}.ids", rows.values.astype(kind))
                add(f"{side}.offsets", (rows.offsets[1:] + ends[side]).astype(OFFSET_TYPE))
                ends[side] += int(rows.offsets[-1])
        known = {
            name: {"size": files[name].tell(), "sha256": hashes[name].hexdigest()}
            for name in COLUMNS
        }
    for name in COLUMNS:
        put_in_place(path / name)
    with replacing(path / TOKENIZER) as new:
        new.write_bytes(model)
    known[TOKENIZER] = fingerprint(model)
    content = {"format": FORMAT, "pairs": number, "files": known}
    write_json(path / MANIFEST, content | manifest)
