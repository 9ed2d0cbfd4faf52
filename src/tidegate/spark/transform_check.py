"""Whether transforms can be imported and found, without importing them in this process.

A transform's module is the user's code: it may fail, end the process, or never return. So a process of its own
(`tidegate.spark.transform_check`) imports the modules and reports one transform after the other. A transform that ends or blocks that
process is reported as broken, and another process checks the rest.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 60.0
"""For all transforms that one process imports; pyspark itself takes about two seconds."""


def broken_transforms(names: Sequence[str], spark_jobs: Path, *, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """What is wrong, by transform; empty where nothing is, or where pyspark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        return {}
    broken: dict[str, str] = {}
    unchecked = list(names)
    while unchecked:
        faults, end = _probe(unchecked, spark_jobs, timeout_s)
        broken |= {name: fault for name, fault in faults.items() if fault}
        unchecked = [name for name in unchecked if name not in faults]
        if unchecked:
            broken[unchecked[0]] = f"importing {unchecked[0]} {end}. Move the code that does so out of the module's top level"
            del unchecked[0]
    return broken


def _probe(names: Sequence[str], spark_jobs: Path, timeout_s: float) -> tuple[dict[str, str | None], str]:
    """The fault of each transform, None where it has none, as far as the process came; and how it ended."""
    with tempfile.TemporaryDirectory(prefix="tidegate-check-") as folder:
        answers = Path(folder) / "answers"
        answers.touch()
        command = [sys.executable, "-m", "tidegate.spark.transform_check", str(spark_jobs), str(answers), *names]
        try:
            ended = subprocess.run(  # noqa: S603
                command,
                # as in a load: functions of pyspark make expressions of Spark Connect, which need no session
                env={**os.environ, "SPARK_CONNECT_MODE_ENABLED": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
            how = f"ends Python (exit code {ended.returncode})"
        except subprocess.TimeoutExpired:
            how = f"does not end within {timeout_s:g} s"
        return dict(json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()), how
