"""`make bench` on platforms of its own: what needs one runs to its end. What it measures here means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def own_pipelines() -> None:
    """None of the shared platform's."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "few", "contenders"),
    [("runs", ("--restarts", "1"), 6), ("throughput", ("--records", "2000"), 14), ("growth", ("--most", "10"), 2)],
)
def test_a_benchmark_measures_each_of_its_contenders(name: str, few: tuple[str, ...], contenders: int) -> None:
    """With one round of few records; it tells on which commit."""
    command = [sys.executable, "-m", f"tests.bench.{name}", "--rounds", "1", "--warm-up", "0", *few]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["machine"]["commit"]
    assert len(told["medians"]) == contenders
    assert all(value >= 0 for measures in told["medians"].values() for value in measures.values())
