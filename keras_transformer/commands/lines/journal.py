"""A file of answers that grows, and a journal from which it goes on where it was stopped."""

import errno
import hashlib
import json
import os
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from keras_transformer.files import naming, remove, replacing, sync

SUFFIX, FORMAT, CHUNK = ".journal", 1, 1 << 20


class Journal:
    """What makes an output, and how much of it is on the disk.

    The journal is beside the output, `NAME.journal`, JSON lines. The first says what the output is
    made of; each of the others, after some lines of output, how far it is, with the hash of all of
    it. What follows the last line that both agree on is written again. When the output is whole,
    the journal is removed. What was in the output before is there until the first `write`.

    Args:
        output: path of the output.
        facts: what the output is made of, JSON values by name.

    Attributes:
        lines: how many lines of the input are done.
        counts: what `write` was given last.

    Raises:
        ValueError: if the output was begun with other facts, or is no longer what was written.
    """

    def __init__(self, output, facts: dict):
        self.output, self.path = Path(output), Path(f"{output}{SUFFIX}")
        self.head = {"format": FORMAT, **json.loads(json.dumps(facts))}
        self.lines, self.counts, self.size = 0, {}, 0
        self._hash, self._file, self._log = hashlib.sha256(), None, None
        if self.path.exists():
            self._go_on(_read_objects(self.path))

    def _go_on(self, entries) -> None:
        """Finds the last entry with which the output agrees."""
        if not entries:
            return
        head, *entries = entries
        if not entries:
            return
        names = sorted(head.keys() | self.head.keys())
        if differing := [name for name in names if head.get(name) != self.head.get(name)]:
            raise ValueError(
                f"{self.output} was begun otherwise, says {self.path}: not with the same "
                f"{' and '.join(differing)}; give the same again to go on, name another file, or "
                "remove the journal to start over."
            )
        best = None
        with suppress(FileNotFoundError), open(self.output, "rb") as file:
            for entry in entries:
                if not _read_to(file, entry["bytes"], self._hash):
                    break
                if self._hash.hexdigest() != entry["sha256"]:
                    raise ValueError(
                        f"{self.output} was altered since it was begun; restore it, or remove "
                        f"{self.path} to start over."
                    )
                best, verified = entry, self._hash.copy()
        self._hash = hashlib.sha256() if best is None else verified
        if best is not None:
            self.lines, self.size, self.counts = best["lines"], best["bytes"], best["counts"]

    @contextmanager
    def writing(self):
        """Opens the output; at the end it is whole, and the journal is gone."""
        is_new = not self.output.exists()
        with ExitStack() as self._opened_files:
            self._file = self._opened_files.enter_context(_opened(self.output))
            try:
                yield self
            except BaseException:
                if self._log is None and is_new:  # before the first answer
                    remove(self.output)
                raise
            if self._log is None:
                self._begin()
        with naming(self.output):
            sync(self.output.parent)
            self.path.unlink()

    def _begin(self) -> None:
        """Removes what is to be replaced, and writes the journal's head."""
        entries = [self.head, *([self._entry()] if self.lines else [])]
        with naming(self.output), replacing(self.path) as new:
            new.write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
        self._log = self._opened_files.enter_context(_opened(self.path))
        self._file.truncate(self.size)

    def write(self, data: bytes, lines: int, counts: dict) -> None:
        """Appends the answers to some more lines; they are on the disk when it returns."""
        if self._log is None:
            self._begin()
        self._hash.update(data)
        self.lines, self.size, self.counts = self.lines + lines, self.size + len(data), counts
        entry = json.dumps(self._entry()) + "\n"
        with naming(self.output, "make room, and give the same command again to go on."):
            for file, text in ((self._file, data), (self._log, entry.encode())):
                file.write(text)
                file.flush()
                os.fsync(file.fileno())

    def _entry(self) -> dict:
        done = {"lines": self.lines, "bytes": self.size, "counts": self.counts}
        return {**done, "sha256": self._hash.hexdigest()}


@contextmanager
def _opened(path):
    """Opens a file to append to, which no other process does at the same time."""
    with naming(path):
        file = open(path, "ab")
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (ImportError, OSError) as error:  # where nothing can be locked, nothing is
            if getattr(error, "errno", None) in (errno.EACCES, errno.EAGAIN):
                raise ValueError(
                    f"{path}: another process is writing it; wait for its end, or name another."
                ) from None
        yield file


def _read_objects(path) -> list[dict]:
    """Reads JSON lines up to the first that is torn."""
    entries = []
    for line in path.read_text("utf-8", "replace").split("\n")[:-1]:
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                entries.append(entry)
                continue
        break
    return entries


def _read_to(file, end, digest) -> bool:
    """Adds a file to a hash, from where it is up to the byte `end`; whether it is so long."""
    while (left := end - file.tell()) > 0:
        if not (data := file.read(min(left, CHUNK))):
            return False
        digest.update(data)
    return True
