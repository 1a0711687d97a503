"""Memory that is freed and taken again: how often the system has to make pages for it."""

import os
import platform
import subprocess
import sys

import pytest

from keras_transformer.memory import keep_freed_memory

# Blocks larger than those that the C library keeps by itself, in the main thread and in another.
COUNT_FAULTS = """
import resource, sys, threading
from keras_transformer.memory import keep_freed_memory

if "keep" in sys.argv:
    assert keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def take_and_free():
    for size in (40, 80):
        b"x" * (size << 20)

def take_in_a_thread():
    thread = threading.Thread(target=take_and_free)
    thread.start()
    thread.join()

for take in (take_and_free, take_in_a_thread):
    take()
    before = faults()
    for _ in range(5):
        take()
    print(faults() - before)
"""
VARIABLES = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "18446744073709551615",
}


def faults(*arguments, **variables):
    """Of the main thread and of another, in a process of its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    result = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS, *arguments],
        env={**others, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in result.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_is_kept_for_what_comes_next():
    assert min(faults()) > 100  # of 2 MiB, if pages are large
    assert max(faults("keep")) < 50
    assert max(faults(**VARIABLES)) < 50


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
