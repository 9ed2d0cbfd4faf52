"""A project folder with a platform of its own, Airflow included, and a shell in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.projects import REPO, copy_project
from tidegate_local.platform import Platform

BIN = Path(sys.executable).parent
FIRST_PIPELINE = REPO.joinpath("README.md").read_text().split("## Your first pipeline")[1].split("\n## ")[0]


def blocks(language: str) -> list[str]:
    """The README's code blocks of one language, under its first pipeline."""
    return re.findall(rf"```{language}\n(.+?)```", FIRST_PIPELINE, re.DOTALL)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class Shell:
    """A project folder with a platform, and a shell in it that has the virtual environment's commands."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.platform = Platform(root / ".tidegate", root)
        self.first = Done(1, "", "")

    def run(self, script: str, stdin: str = "") -> Done:
        """Run a shell script to its first failure."""
        done = subprocess.run(
            ["/bin/bash", "-euc", f'export PATH="{BIN}:$PATH"\n{script}'],
            cwd=self.root,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def json(self, script: str, stdin: str = "") -> Any:
        """What a command prints as JSON."""
        done = self.run(f"{script} --json", stdin)
        assert done.code == 0, done.err
        return json.loads(done.out)

    def refused(self, script: str, stdin: str = "") -> str:
        """The one line of a command that fails."""
        done = self.run(script, stdin)
        assert done.code == 1, done.out + done.err
        assert len(done.err.strip().splitlines()) == 1, done.err
        return done.err


@contextmanager
def new_shell(root: Path) -> Iterator[Shell]:
    """The README's pipeline in a project of its own, on a platform that `tidegate up` started."""
    copy_project(root)
    for text, name in zip(
        [*blocks("yaml"), *blocks("python")],
        ["dags/pipelines/orders.yaml", "spark_jobs/transforms/orders.py"],
        strict=True,
    ):
        assert f"`{name}`" in FIRST_PIPELINE
        (root / name).write_text(text)
    pipelines = root / "dags" / "pipelines"
    # Airflow makes backfills of DAGs with a schedule only
    text = (pipelines / "flights.yaml").read_text().replace("lake.demo.flights", "lake.demo.daily")
    (pipelines / "daily.yaml").write_text(f'{text}schedule: "0 0 * * *"\n')
    made = Shell(root)
    try:
        made.first = made.run("tidegate up --no-warm-up")
        assert made.first.code == 0, made.first.err
        yield made
    finally:
        made.platform.down()
