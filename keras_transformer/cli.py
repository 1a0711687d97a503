"""The command line: runs a command, and turns a failure into an exit code and one line.

Nothing here imports TensorFlow or Keras; a command does so when it runs. So `--help` and the error
for a misspelt option come at once.
"""

import os
import platform
import signal
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module

from keras_transformer.commands.messages import error_line, log_warning
from keras_transformer.commands.parser import build_parser
from keras_transformer.commands.progress import Progress


def main(arguments=None) -> int:
    """Runs one command; returns 0, or 1 if it failed. Bad usage exits with 2."""
    _reopen_closed_streams()
    options = build_parser().parse_args(arguments)
    if not options.verbose:
        _silence_native_log()
    _turn_on_onednn()
    _exit_when_terminated()
    try:
        # Not for a help or an error of options, which it would make slower.
        from keras_transformer.commands.early_checks import check_early, keras_backend

        check_early(options)
        with warnings.catch_warnings():
            warnings.showwarning = log_warning
            with starting(options, keras_backend()):
                command = import_module(f"keras_transformer.commands.{options.command}")
            command.run(options)
            sys.stdout.flush()
        return 0
    except BrokenPipeError:
        _drop_output()
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted", options)
    except Exception as error:
        if options.debug:
            raise
        return _fail(error_line(error), options)


def starting(options, backend) -> Progress:
    """Shows that Keras is imported, which takes seconds; in a log, only before long work."""
    quiet = getattr(options, "quiet", False) or "tensorflow" in sys.modules
    is_long = options.command in ("train", "demo")
    name = {"tensorflow": "TensorFlow", "jax": "JAX"}.get(backend, backend)
    return Progress(f"starting Keras and {name}", quiet=quiet, announce=is_long)


def _reopen_closed_streams() -> None:
    """Opens closed standard streams on the null device.

    Otherwise the files opened next would take their place, and TensorFlow would log into them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def _silence_native_log() -> None:
    """Drops what C++ libraries write to stderr, because no setting silences all of it.

    Python's own stderr, with progress and errors, stays.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if sys.stderr is sys.__stderr__:
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _turn_on_onednn() -> None:
    """Turns on oneDNN's matrix products.

    By default TensorFlow uses them only on processors with AVX-512 VNNI, but they are faster with
    AVX2, too.
    """
    if platform.machine() in {"x86_64", "AMD64"}:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def _exit_when_terminated() -> None:
    """Exits with cleanup at SIGTERM, by which containers and schedulers stop a process."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _drop_output() -> None:
    """Keeps the interpreter from flushing what is left into a closed pipe or on a full disk."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(line, options) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    print(f"keras-transformer {options.command}: {line}", file=sys.stderr)
    return 1
