"""The benchmark for GPUs, on the CPU: what it measures there is no speed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "jax", reason="jax is not installed: pip install 'keras-transformer-layers[jax]'"
)
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu_training.py"


@pytest.mark.slow
def test_the_benchmark_trains_on_jax_and_writes_its_rate(tmp_path):
    arguments = ["--presets", "small", "--engines", "keras_jax", "--device", "cpu"]
    arguments += ["--batch-tokens", "64", "--length", "8", "--batches", "2", "--vocab-size", "50"]
    arguments += ["--repeats", "1", "--precision", "float32", "--json", str(tmp_path / "rates")]
    # Programs that run once are not worth the time to optimize them.
    run = subprocess.run(
        [sys.executable, str(BENCHMARK), *arguments],
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert json.loads((tmp_path / "rates").read_text())["small"]["keras_jax"] > 0
    assert "128 target tokens an epoch, float32" in run.stdout
