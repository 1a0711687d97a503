"""Memory that is freed and taken again: how often the system has to make pages for it."""

import os
import platform
import subprocess
import sys

import pytest

from keras_transformer.training.memory import keep_freed_memory

# Blocks larger than those that the C library keeps by itself.
COUNT_FAULTS = """
import resource, sys
from keras_transformer.training.memory import keep_freed_memory

if "keep" in sys.argv:
    assert keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def take_and_free():
    for size in (40, 80):
        b"x" * (size << 20)

take_and_free()
before = faults()
for _ in range(5):
    take_and_free()
print(faults() - before)
"""


def faults(*arguments):
    """How many pages the system made, in a process of its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    result = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS, *arguments],
        env=others,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(result.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_is_kept_for_what_comes_next():
    assert faults() > 100  # of 2 MiB, if pages are large
    assert faults("keep") < 50


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
