"""A project folder as a user has it, whose pipelines a test may change, and the commands of `tidegate` in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tidegate.testing.failpoints import VARIABLE

REPO = Path(__file__).parents[2]
FLIGHTS: dict[str, Any] = {
    "source": {"topics": ["flights"]},
    "limits": {"max_records": 1500},
    "transform": "transforms.flights:flights",
    "sink": {"table": "lake.demo.flights"},
    "retry_delay_s": 1,
}


class Project:
    """A copy of this repo's DAGs and jobs whose pipelines a test may change.

    Every process of the platform looks into `fail_points` whether it is to be killed; a test arms the points.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fail_points = root / "fail_points"
        self.fail_points.mkdir(parents=True)
        self.environment = {VARIABLE: str(self.fail_points)}
        for folder in ("dags", "spark_jobs", "plugins"):
            if (REPO / folder).exists():
                shutil.copytree(REPO / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.write("flights")

    def write(self, name: str, **changes: Any) -> None:
        """Write a pipeline like `flights`, changed."""
        (self.root / "dags" / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump({**FLIGHTS, **changes}))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of `tidegate` in this folder."""
        command, pipe = [str(Path(sys.executable).parent / "tidegate"), *words], subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.root, env={**os.environ, **self.environment}, stdout=pipe, stderr=pipe, text=True
        )

    def tidegate(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What a command prints as JSON, and ends with this exit code."""
        return answer(self.start(*words, "--json"), code)


def answer(process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    """What a command printed as JSON, once it ended; well, unless another exit code is expected."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err + out
    printed: dict[str, Any] = json.loads(out)
    return printed
