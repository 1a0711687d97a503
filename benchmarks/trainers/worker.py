"""One engine's process: does what each line that it reads says, and answers with a line.

    python worker.py ENGINE DIRECTORY

"epoch" trains one; what else an engine knows ("pipeline", "products", "device_mib") is a method of
its class. It needs no more than the engine's own framework, so that each runs in an environment of
its own.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A module with a class Engine, and what its constructor is told beside the case.
ENGINES = {
    "keras_transformer": ("keras_transformer_engine", {}),
    "keras_jax": ("keras_jax_engine", {}),
    "opennmt_tf": ("opennmt_tf_engine", {}),
    "keras_hub": ("keras_hub_engine", {}),
    "torch_eager": ("torch_engine", {}),
    "torch_compiled": ("torch_engine", {"compiled": True}),
    "marian": ("marian_engine", {}),
    "marian_translator": ("marian_translator", {}),
    "marian_translator_int8": ("marian_translator", {"int8": True}),
}
PREFIX = "@"  # libraries print lines of their own


def main():
    name, directory = sys.argv[1], Path(sys.argv[2])
    case = json.loads((directory / "case.json").read_text("utf-8"))
    module, options = ENGINES[name]
    engine = importlib.import_module(module).Engine(case, directory, **options)
    answer({"ready": True})
    for line in sys.stdin:
        start = time.perf_counter()
        value = float(getattr(engine, line.strip())())
        seconds = time.perf_counter() - start
        answer({"seconds": seconds, "value": value, "peak_mib": peak_mib(engine)})


def peak_mib(engine):
    """The most memory of this process, or of the one in which an engine works."""
    if hasattr(engine, "peak_mib"):
        return engine.peak_mib()
    # `getrusage` would begin with the peak of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def answer(value):
    print(PREFIX + json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
