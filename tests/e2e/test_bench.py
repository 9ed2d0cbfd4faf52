"""`tidegate bench` on platforms of its own: each comparison runs to its end. What it measures here means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.bench.catalog import COMPARISONS
from tidegate.bench.suite import from_json

TIDEGATE = Path(sys.executable).with_name("tidegate")


@pytest.fixture(scope="module", autouse=True)
def own_pipelines() -> None:
    """None of the shared platform's."""


def test_every_comparison_runs_to_its_end_and_is_saved_and_shown(tmp_path: Path) -> None:
    """With one round of few records: it measures what its table has, and each contender is there."""
    saved, page = tmp_path / "results.json", tmp_path / "page.md"
    command: list[str | Path] = [TIDEGATE, "bench", "--rounds", "1", "--records", "2000", "--json", saved, "--page", page]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    results = from_json(saved.read_text(), saved.name)
    assert [result.name for result in results] == [comparison.name for comparison in COMPARISONS]
    for comparison, result in zip(COMPARISONS, results, strict=True):
        medians = result.medians
        measured = {name for measures in medians.values() for name in measures}
        assert measured == set(comparison.measures), comparison.name
        assert all(value >= 0 for measures in medians.values() for value in measures.values())
        assert f"{comparison.name}.svg)" in page.read_text()
        assert (page.with_suffix("") / f"{comparison.name}.svg").is_file()
    assert json.loads(saved.read_text())["results"][0]["machine"]["cores"]
