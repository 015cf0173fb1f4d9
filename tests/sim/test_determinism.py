"""The same seed gives the same trace, whatever the hash seed and wherever objects lie in memory."""

import os
import subprocess
import sys
from pathlib import Path

CANARY = Path(__file__).parent / "canary.py"


def trace_of(seed: int, *, hash_seed: str, noise: int) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(CANARY), str(seed), str(noise)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_same_seed_gives_the_same_trace_in_every_process() -> None:
    runs = [("0", 0), ("1", 7), ("4242", 50), ("random", 1)]
    traces = {trace_of(1, hash_seed=hash_seed, noise=noise) for hash_seed, noise in runs}
    assert len(traces) == 1
    assert int(traces.pop().split()[0]) > 200  # the trace is worth comparing


def test_another_seed_gives_another_trace() -> None:
    assert trace_of(1, hash_seed="0", noise=0) != trace_of(2, hash_seed="0", noise=0)
