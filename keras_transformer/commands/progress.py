"""Shows that work goes on: a moving bar on a terminal, a plain line now and then in a log.

All goes to standard error, where results do not go. `rich` draws the bar from a thread of its own,
so that it moves also while a graph is compiled.
"""

import os
import sys
import threading
import time

from keras_transformer.commands.messages import log, spelled

# Seconds between two lines in a log, and those before the first one.
LOG_INTERVAL = 30.0
# A stage that is shorter is not timed.
SHORTEST = 1.0


class Progress:
    """The progress of one piece of work; use it in a `with` statement.

    Args:
        what: what is done, such as "translating".
        total: how much there is to do; None if this is not known.
        unit: what is counted, in the plural.
        quiet: whether to show nothing.
        keep: whether a terminal keeps the last line.
        announce: whether a log has a line at the beginning.
        done: how much an earlier start has done.
    """

    def __init__(
        self, what, total=None, unit="lines", *, quiet=False, keep=False, announce=False, done=0
    ):
        self.what, self.total, self.unit, self.keep = what, total, unit, keep
        self.quiet, self.announce = quiet, announce
        self.done, self.before, self.note = done, done, ""
        self._bar = self._timer = None

    def __enter__(self):
        self.start = time.monotonic()
        if self.quiet:
            return self
        if is_terminal():
            self._bar = _rich_progress(self.total)
            fields = {"unit": self.unit, "note": "", "rate": ""}
            fields["completed"] = self.done
            self._task = self._bar.add_task(spelled(self.what), total=self.total, **fields)
            self._bar.start()
        else:
            if self.announce:
                log(self.what)
            self._end = threading.Event()
            self._timer = threading.Thread(target=self._write_lines, daemon=True)
            self._timer.start()
        return self

    def __exit__(self, kind, *_):
        if self._bar is not None:
            self._bar.stop()
        if self._timer is not None:
            self._end.set()
        if self.keep and self._bar is not None and kind is None:
            seconds = time.monotonic() - self.start
            log(self.what + (f" ({duration(seconds)})" if seconds >= SHORTEST else ""))

    def advance(self, number: int = 1, note: str | None = None) -> None:
        """Counts what was done; `note` stands behind the bar."""
        self.done += number
        self.note = self.note if note is None else note
        if self._bar is not None:
            seconds = time.monotonic() - self.start
            rate = f"{(self.done - self.before) / seconds:,.1f}/s" if seconds >= SHORTEST else ""
            shown = {"note": self.note, "rate": rate}
            self._bar.update(self._task, completed=self.done, **shown)

    def _write_lines(self):
        while not self._end.wait(LOG_INTERVAL):
            log(self._line())

    def _line(self) -> str:
        seconds = time.monotonic() - self.start
        if not self.total:
            done = f": {self.done:,} {self.unit}" if self.done else ""
            return f"{self.what}{done}, {duration(seconds)} so far"
        left, done = "", self.done - self.before
        if done and not self.note:
            left = f", {duration(seconds / done * (self.total - self.done))} left"
        rate = f", {done / max(seconds, 1e-9):,.1f} {self.unit}/s"
        share = f"{self.done:,} of {self.total:,} {self.unit} ({self.done / self.total:.0%})"
        return f"{self.what}: {share}{rate}{left}{self.note and ', '}{self.note}"


def stage(what: str, *, quiet: bool = False) -> Progress:
    """Shows a stage of a command by a line that stays, and for how long it lasts."""
    return Progress(what, keep=True, announce=True, quiet=quiet)


def is_terminal() -> bool:
    """Whether a person watches who can see a bar."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def duration(seconds: float) -> str:
    """Writes seconds as people do: 40 ms, 42 s, 3 min, 2 h 5 min.

    >>> duration(0.04), duration(41.6), duration(185), duration(7500)
    ('40 ms', '42 s', '3 min', '2 h 5 min')
    """
    if seconds < 0.95:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _rich_progress(total):
    """Makes the bar, or without a total what turns."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if total is not None:
        columns += [
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
        ]
        columns += [TextColumn("{task.fields[rate]}"), TimeRemainingColumn(compact=True)]
    else:
        columns += [TimeElapsedColumn()]
    columns += [TextColumn("{task.fields[note]}", markup=False)]
    # Standard output may be results in a file.
    settings = {"transient": True, "redirect_stdout": False}
    return Progress(*columns, console=Console(stderr=True), **settings)
