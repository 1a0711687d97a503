"""A small form of benchmarks/damage.py: a damaged file is refused in a line, or as it was."""

import importlib
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_no_damage_of_a_run_goes_unnoticed(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    outcomes, faults = importlib.import_module("damage").try_damages(tmp_path, count=200, seed=1)
    assert not faults
    assert len({name for name, _ in outcomes}) == 9  # of every file
