"""Counts of a load whose tasks and stages Spark runs again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_a_load_whose_task_fails_and_whose_executor_dies_counts_each_record_once(tmp_path: Path) -> None:
    """Spark runs the task again, and the stage whose files were lost with the executor."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.lost_executors", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert (tmp_path / "died").exists()
    assert json.loads(ran.stdout.splitlines()[-1]) == {"observed": [30, 30], "ids": [*range(30)]}
