"""Types of the benchmarks' arguments: what is wrong is said before anything is measured."""

import argparse
import shutil
from pathlib import Path


def positive(text):
    """A count of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of at least 1")
    return int(text)


def new_file(text):
    """A path at which a file can be written."""
    if Path(text).is_dir() or not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a directory that exists")
    return text


def interpreter(text):
    """A program of Python, by its path or its name."""
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no program; name another environment's python"
        )
    return text


def engine_and_interpreter(text):
    """`ENGINE=PATH`, as a pair."""
    engine, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not ENGINE=PATH")
    return engine, interpreter(path)
