"""What a command prints: one line for one line, and nothing that a terminal would obey."""

import re
import sys

CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
# The operation that failed, which TensorFlow puts around the words of an error.
OPERATION = re.compile(r"\{\{function_node [^}]*\}\} | \[Op:\w+\]")


def one_line(text: str) -> str:
    """Replaces the line breaks of a translation, which would shift all lines after it."""
    return text.replace("\r", " ").replace("\n", " ")


def counted(number: int, noun: str) -> str:
    """Writes how many there are of something.

    >>> counted(1, "epoch"), counted(2_000, "pair")
    ('1 epoch', '2,000 pairs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spelled(text: str) -> str:
    r"""Spells control characters as `\x1b`: a terminal would obey them."""
    return CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def error_line(error) -> str:
    """Writes an error in one line."""
    return spelled(" ".join(OPERATION.sub("", str(error)).split())) or type(error).__name__


def log(line: str) -> None:
    """Prints a message to standard error, where results do not go."""
    print(spelled(line), file=sys.stderr, flush=True)


def log_warning(message, *_, **__) -> None:
    """Prints a warning of Python's in one line; for `warnings.showwarning`."""
    log(f"note: {' '.join(str(message).split())}")
