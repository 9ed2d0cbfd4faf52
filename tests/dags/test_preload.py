"""Laws of what Airflow's processes import before they fork others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidegate.airflow.preload import DAGS, TASKS, TRIGGERS

IMPORTED = "import sys; from tidegate.airflow.preload import preload; print(*preload(sys.argv))"
RECEIVERS = ("tidegate_receivers.config.files", "tidegate_receivers.airflow.dag")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (["scheduler", "--skip-serve-logs"], TASKS + RECEIVERS),
        (["dag-processor"], DAGS + RECEIVERS),
        (["triggerer"], TRIGGERS),
        (["api-server"], ()),
        (["dags", "list"], ()),
    ],
)
def test_processes_that_fork_others_import_what_those_need(words: list[str], modules: tuple[str, ...]) -> None:
    """All of it is there; other processes import nothing."""
    done = subprocess.run([sys.executable, "-c", IMPORTED, *words], capture_output=True, text=True, check=True, timeout=120)
    assert tuple(done.stdout.split()) == modules
