"""Engines that train, each in a process of its own."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parent / "trainers" / "worker.py"


class Worker:
    """One engine's process, in an environment that may be another one.

    Args:
        engine: its name in `trainers/worker.py`.
        directory: what `write_case` of `training.py` has written.
        python: the interpreter of the engine's environment.
    """

    def __init__(self, engine, directory, python=sys.executable):
        self.engine = engine
        self.messages = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            [python, str(SCRIPT), engine, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages,
            text=True,
        )
        self._read()

    def ask(self, what):
        """Has it do something; returns a dict of `seconds`, `value` and `peak_mib`."""
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self._read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.messages.close()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        code = self.process.wait()
        self.messages.seek(0)
        raise SystemExit(
            f"{self.messages.read()[-3000:]}\n{self.engine} ended with {code}: see above"
        )
