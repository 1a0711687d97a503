"""`keras-transformer translate`: one line in, exactly one line out."""

import sys

from keras_transformer.commands.loading import loaded
from keras_transformer.commands.messages import log, one_line, spelled
from keras_transformer.data.corpus import MAX_LINE_BYTES, cut_line, cut_note, without_mark

CHUNK_BYTES, MOST_LINES = 1 << 16, 512
INPUT = "standard input"
# As many bytes tell a byte order mark.
LONGEST_MARK = 4


def run(options) -> None:
    """Translates standard input to its end, in batches of the lines that have arrived."""
    num_cut, is_terminal = 0, sys.stdout.isatty()
    with loaded(options.model, options) as translate:
        for lines in arriving_lines(sys.stdin.buffer):
            num_cut += sum(len(line) > MAX_LINE_BYTES for line in lines)
            for translation in translate([decode(line) for line in lines]):
                text = one_line(translation)
                text = spelled(text) if is_terminal else text
                sys.stdout.buffer.write(text.encode() + b"\n")
            sys.stdout.buffer.flush()
    if num_cut:
        log(f"note: {cut_note(INPUT, num_cut)}")


def arriving_lines(stream):
    """Yields lists of the lines that have arrived, as bytes without their ends.

    It does not wait for more than one line. A byte order mark at the beginning is not text. Of a
    line of over `MAX_LINE_BYTES` it yields one byte more than that.
    """
    rest, is_text = b"", False
    while data := stream.read1(CHUNK_BYTES):
        if len(rest) > MAX_LINE_BYTES and b"\n" not in data:
            continue
        rest += data
        if not is_text:
            if len(rest) < LONGEST_MARK and b"\n" not in rest:
                continue
            rest, is_text = without_mark(rest, INPUT), True
        *lines, rest = (line[: MAX_LINE_BYTES + 1] for line in rest.split(b"\n"))
        for start in range(0, len(lines), MOST_LINES):
            yield lines[start : start + MOST_LINES]
    if rest := rest if is_text else without_mark(rest, INPUT):
        yield [rest]


def decode(line: bytes) -> str:
    """Decodes a line, or the beginning of a long one; bytes that are not UTF-8 become U+FFFD."""
    line = line.removesuffix(b"\r")
    line = cut_line(line) if len(line) > MAX_LINE_BYTES else line
    return line.decode("utf-8", "replace")
