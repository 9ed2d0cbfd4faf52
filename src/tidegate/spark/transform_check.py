"""Whether transforms can be imported and found, without importing them in this process.

A transform's module is the user's code: it may fail, end the process, or never return. So a process of its own imports the
modules (`python -m tidegate.spark.transform_check FOLDER ANSWERS NAME...`) and reports one transform after the other. A
transform that ends or blocks that process is reported as broken, and another process checks the rest.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.core.model.errors import TidegateError

TIMEOUT_S = 60.0
"""For all transforms that one process imports; pyspark itself takes about two seconds."""


def broken_transforms(names: Sequence[str], spark_jobs: Path, *, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """What is wrong, by transform; empty where nothing is, or where pyspark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        return {}
    broken: dict[str, str] = {}
    unchecked = list(names)
    while unchecked:
        faults, end = answers_of("transform_check", spark_jobs, *unchecked, timeout_s=timeout_s)
        broken |= {name: fault for name, fault in faults.items() if fault}
        unchecked = [name for name in unchecked if name not in faults]
        if unchecked:
            broken[unchecked[0]] = f"importing {unchecked[0]} {end}. Move the code that does so out of the module's top level"
            del unchecked[0]
    return broken


def answers_of(
    module: str, spark_jobs: Path, *names: str, timeout_s: float, given: str = "", env: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """What a process of a module of this package answers, by name, as far as it came; and how it ended."""
    with tempfile.TemporaryDirectory(prefix="tidegate-check-") as folder:
        answers = Path(folder) / "answers"
        answers.touch()
        command = [sys.executable, "-m", f"{__package__}.{module}", str(spark_jobs), str(answers), *names]
        try:
            ended = subprocess.run(  # noqa: S603
                command,
                # as in a load: functions of pyspark make expressions of Spark Connect, which need no session
                env={**os.environ, "SPARK_CONNECT_MODE_ENABLED": "1", **(env or {})},
                input=given.encode(),
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
            how = f"ends Python (exit code {ended.returncode})"
        except subprocess.TimeoutExpired:
            how = f"does not end within {timeout_s:g} s"
        return dict(json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()), how


NEEDS_SESSION = ("NO_ACTIVE_OR_DEFAULT_SESSION", "SESSION_OR_CONTEXT_NOT_EXISTS")


def find_each(folder: Path, answers: Path, names: list[str]) -> None:
    """Find every transform in the folder, in this process.

    Its fault is added to the file of answers at once, as one line of JSON, `[name, fault or null]`.
    """
    from tidegate.spark.transforms import find_transform  # noqa: PLC0415 - imports pyspark

    for name in names:
        try:
            find_transform(name, folder)
            fault = None
        except TidegateError as error:
            fault = None if _needs_session(error.__cause__) else str(error)
        with answers.open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, fault]) + "\n")


def _needs_session(error: BaseException | None) -> bool:
    """Whether the import fails for want of a Spark session, which a load has before it imports a transform."""
    return error is not None and getattr(error, "getCondition", str)() in NEEDS_SESSION


if __name__ == "__main__":
    find_each(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
