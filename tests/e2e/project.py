"""A project folder as a user has it, whose pipelines a test may change, and the commands of `tidegate` in it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.catalogs import let_pyiceberg_find
from tests.projects import copy_project, write_files
from tidegate.cli import main
from tidegate.failpoints import VARIABLE
from tidegate_local.platform import Platform

REPO = Path(__file__).parents[2]
READ_AGAIN_S, READING_S = 30, 2.0
"""Serializing all DAGs takes seconds: a third of this suite's CPU where Airflow does it every 5 s, as `tidegate up` sets it."""
TAKEN_OVER_S = 15
"""Another triggerer gets the triggers of one without a heartbeat; by default after 30 s."""
INTERRUPTED = 130
"""How a command ends that Ctrl-C stops."""
FLIGHTS: dict[str, Any] = {
    "source": {"topics": ["flights"]},
    "limits": {"max_records": 1500},
    "transform": "transforms.flights:flights",
    "sink": {"table": "lake.demo.flights"},
    "retry_delay_s": 1,
}


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Project:
    """A copy of this repo's DAGs and jobs whose pipelines a test may change.

    Every process of the platform looks into `fail_points` whether it is to be killed; a test arms the points.
    """

    called: ClassVar[set[tuple[str, int]]] = set()
    """Commands of all projects, with the exit codes that they were to end with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fail_points = root / "fail_points"
        self.fail_points.mkdir(parents=True)
        self.environment = {
            VARIABLE: str(self.fail_points),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": str(READ_AGAIN_S),
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": str(TAKEN_OVER_S),
        }
        copy_project(root)
        self.write("flights")

    @property
    def pipelines(self) -> Path:
        """Where its pipelines' files are."""
        return self.root / "dags" / "pipelines"

    def write(self, name: str, **changes: Any) -> None:
        """Write a pipeline like `flights`, changed."""
        write_files(self.root, "pipelines", {name: {**FLIGHTS, **changes}})
        self.let_airflow_read()

    def remove_pipelines(self) -> None:
        """Remove all pipelines but `flights`."""
        for file in self.pipelines.glob("*.yaml"):
            if file.stem != "flights":
                file.unlink()
        self.let_airflow_read()

    def let_airflow_read(self) -> None:
        """Let the DAG processor read the pipelines now; by itself it reads them every `READ_AGAIN_S`."""
        # later than the end of a reading that is under way, after which it would count as unchanged
        soon = time.time() + READING_S
        os.utime(self.root / "dags" / "tidegate_dags.py", (soon, soon))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of `tidegate` in this folder."""
        command, pipe = [str(Path(sys.executable).parent / "tidegate"), *words], subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.root, env={**os.environ, **self.environment}, stdout=pipe, stderr=pipe, text=True
        )

    def call(self, *words: str, code: int = 0) -> Ended:
        """A command of `tidegate`, once it ended as expected.

        It is a process where no test before has called this command with this end. Others run in this process: most of what a
        command takes is starting Python and importing.
        """
        command = " ".join(words[: 2 if words[0] in ("ledger", "accept") else 1])
        if (command, code) in self.called:
            ended = self._call_here(words)
        else:
            self.called.add((command, code))
            process = self.start(*words)
            out, err = process.communicate(timeout=600)
            ended = Ended(process.returncode, out, err)
        assert ended.code == code, ended.err + ended.out
        return ended

    def tidegate(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What a command prints as JSON, and ends with this exit code."""
        printed: dict[str, Any] = json.loads(self.call(*words, "--json", code=code).out)
        return printed

    def _call_here(self, words: tuple[str, ...]) -> Ended:
        """A command in this process, with the environment, the folder and the command line of one of its own."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            let_pyiceberg_find(Platform(self.root / ".tidegate", self.root), patch)
            patch.chdir(self.root)
            patch.setattr(sys, "argv", ["tidegate", *words])
            with pytest.raises(SystemExit) as exit_:
                main()
        if exit_.value.code == INTERRUPTED:  # whoever stops the tests means all of them
            raise KeyboardInterrupt
        return Ended(int(exit_.value.code or 0), out.getvalue(), err.getvalue())


def answer(process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    """What a command printed as JSON, once it ended; well, unless another exit code is expected."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err + out
    printed: dict[str, Any] = json.loads(out)
    return printed
