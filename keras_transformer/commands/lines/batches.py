"""Many lines through a model: sorted by length in windows, on all cores, answered in order."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import NamedTuple

# A window is so many lines, or so many characters if they are long. While one is written, the next
# are computed, so that no core waits at its end.
LINES, CHARACTERS, WINDOWS_AHEAD = 8192, 2**24, 2
# The first windows have so many lines, others as many as take so many seconds, or somewhat more.
FIRST_LINES, LEAST_LINES, SECONDS_OF_WINDOW = 1024, 128, 30.0
SECONDS = 1.0  # between signs of life
UNDECODED = "\ufffd"


class Window(NamedTuple):
    """Lines that follow one another.

    Attributes:
        columns: lists of strings, by the names of what a model reads.
        line_cut: for each line, whether only its beginning is there.
    """

    columns: dict[str, list[str]]
    line_cut: list[bool]

    @property
    def num_undecoded(self) -> int:
        """How many lines have U+FFFD, which stands for bytes that are not UTF-8."""
        texts = zip(*self.columns.values(), strict=True)
        return sum(any(UNDECODED in text for text in row) for row in texts)


class Pace:
    """How many lines a window has: not too many, since a stop loses the windows that are not done.

    Attributes:
        lines: the most lines of the next window.
    """

    def __init__(self):
        self.lines, self._last = min(LINES, FIRST_LINES), time.monotonic()

    def finished(self, number: int) -> None:
        """Notes that a window of so many lines is done, just after the one before it."""
        now = time.monotonic()
        seconds, self._last = max(now - self._last, 1e-9), now
        self.lines = round(min(LINES, max(LEAST_LINES, SECONDS_OF_WINDOW * number / seconds)))


def in_windows(
    rows: Iterable[tuple[list[str], bool]], names, pace: Pace | None = None
) -> Iterator[Window]:
    """Collects rows into windows.

    Args:
        rows: for each line its texts, one for each of `names`, and whether it was cut.
        names: those of the columns.
        pace: says how many lines a window has; by default `LINES`.
    """
    texts, cuts, size = [], [], 0
    for row, cut in rows:
        texts.append(row)
        cuts.append(cut)
        size += sum(map(len, row))
        if len(texts) >= (pace.lines if pace else LINES) or size >= CHARACTERS:
            yield _window(names, texts, cuts)
            texts, cuts, size = [], [], 0
    if texts:
        yield _window(names, texts, cuts)


def _window(names, texts, cuts) -> Window:
    columns = map(list, zip(*texts, strict=True))
    return Window(dict(zip(names, columns, strict=True)), cuts)


def answered(
    windows, model, advance=None, ahead=WINDOWS_AHEAD
) -> Iterator[tuple[Window, list[dict]]]:
    """Yields each window with the answers to its lines, in order.

    Args:
        windows: iterator of `Window`, read only as far as needed.
        model: `loading.Loaded`.
        advance: called with the number of lines that were answered, now and then with 0; or None.
        ahead: how many windows are read before the first of them is done.
    """
    pool, pending = ThreadPoolExecutor(model.threads), deque()
    try:
        for window in windows:
            pending.append((window, _start(pool, window, model)))
            if len(pending) > ahead:
                yield _finish(*pending.popleft(), advance)
        while pending:
            yield _finish(*pending.popleft(), advance)
    finally:
        pool.shutdown(cancel_futures=True)


def _start(pool, window, model) -> dict:
    """Lets the pool answer batches of lines of similar length, the longest first."""
    texts = list(zip(*window.columns.values(), strict=True))
    order = sorted(range(len(texts)), key=lambda i: -sum(map(len, texts[i])))
    batches = [order[i : i + model.batch_size] for i in range(0, len(order), model.batch_size)]
    futures = {}
    for rows in batches:
        columns = {name: [values[i] for i in rows] for name, values in window.columns.items()}
        futures[pool.submit(model.ask, columns)] = rows
    return futures


def _finish(window, futures, advance) -> tuple[Window, list[dict]]:
    """Waits for the answers to a window, and puts them in the order of its lines."""
    answers, running = [{}] * len(window.line_cut), set(futures)
    while running:
        done, running = wait(running, SECONDS, FIRST_COMPLETED)
        for future in done:
            for i, answer in zip(futures[future], future.result(), strict=True):
                answers[i] = answer
        if advance is not None:
            advance(sum(len(futures[future]) for future in done))
    return window, answers
