"""Real loads before the first run, so that the JVM has loaded and compiled what every load needs (`warm_up_loads`).

`tidegate up` runs them in a process of its own, beside the start of Airflow: one that hangs can be ended, and what pyspark sets
in its process stays out of the caller's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.model.errors import PlatformError
from tidegate_local.process import last_meaningful_line

NAME = "warm-up"
TIMEOUT_S = 120.0


def run(state_dir: Path, project_dir: Path, env: Mapping[str, str], log: Path) -> None:
    """Warm the running Spark Connect server up, and wait for the end.

    Raises:
        PlatformError: it failed or took too long; the servers are as they were.
    """
    # -P: a module of the folder in which the command was called must not hide one of the library's
    command = [sys.executable, "-P", "-m", "tidegate_local.warm_up_loads", str(state_dir), str(project_dir)]
    fix = "Nothing has to be done: the first runs take longer"
    with log.open("wb") as output:
        try:
            ended = subprocess.run(  # noqa: S603
                command, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise PlatformError(f"The warm-up of Spark took more than {TIMEOUT_S:.0f} s", fix=fix, log=log) from error
    if ended.returncode != 0:
        why = last_meaningful_line(log.read_text(errors="replace"))
        raise PlatformError(f"Spark could not be warmed up: {why} (see {log})", fix=fix, log=log)
