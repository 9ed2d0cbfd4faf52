"""The whole platform, once for all tests here, in a project folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from catalogs import let_pyiceberg_find

from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.offsets.ranges import ranges_to_json
from tidegate.core.state.codec import decode
from tidegate.core.state.ledger import Ledger
from tidegate.local import Platform
from tidegate.testing.failpoints import VARIABLE
from tidegate.waiting import wait_until

REPO = Path(__file__).parents[2]
# every process of the platform looks here whether it is to be killed; a test arms the points
FAIL_POINTS = Path(os.environ.setdefault(VARIABLE, tempfile.mkdtemp(prefix="tidegate-fail-")))
FLIGHTS: dict[str, Any] = {
    "source": {"topics": ["flights"]},
    "limits": {"max_records": 1500},
    "transform": "transforms.flights:flights",
    "sink": {"table": "lake.demo.flights"},
    "retry_delay_s": 1,
}


class Project:
    """A copy of this repo's DAGs and jobs whose pipelines a test may change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("dags", "spark_jobs", "plugins"):
            if (REPO / folder).exists():
                shutil.copytree(REPO / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.write("flights")

    def write(self, name: str, **changes: Any) -> None:
        """Write a pipeline like `flights`, changed."""
        (self.root / "dags" / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump({**FLIGHTS, **changes}))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of `tidegate` in this folder."""
        command = [Path(sys.executable).parent / "tidegate", *words]
        return subprocess.Popen(command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tidegate(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What a command prints as JSON, and ends with this exit code."""
        return answer(self.start(*words, "--json"), code)


def answer(process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    """What a command printed as JSON, once it ended; well, unless another exit code is expected."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err + out
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project folder."""
    return Project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def platform(project: Project) -> Iterator[Platform]:
    """Kafka, Spark Connect and Airflow, stopped by their pid files whatever happens."""
    made = Platform(project.root / ".tidegate", project.root)
    try:
        made.up()
        made.sync_pools({"tidegate_lake_demo_flights": 4})
        yield made
    finally:
        made.down()


@pytest.fixture
def api(platform: Platform) -> Iterator[AirflowApi]:
    """Airflow's REST API."""
    with platform.api() as client:
        yield client


@pytest.fixture
def catalog(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg in this process knows the platform's catalog."""
    let_pyiceberg_find(platform, monkeypatch)


def saved_ranges(api: AirflowApi, pipeline: str, run_id: str) -> dict[str, dict[str, list[int]]]:
    """The range that a run has saved, by the key that its plan hands on."""
    key = api.xcom(pipeline, run_id, "plan")["key"]
    return ranges_to_json(Ledger(ApiStore(api), pipeline).saved_range(key).ranges)


def state_of(api: AirflowApi, key: str) -> dict[str, Any]:
    """What a Variable of ours holds."""
    return decode(key.split(".")[2], api.variable(key), key=key, repair="")


class Runs:
    """Triggers runs of one pipeline and tells how they ended."""

    def __init__(self, api: AirflowApi, dag_id: str) -> None:
        self.api, self.dag_id = api, dag_id
        api.wait_dag(dag_id)
        api.unpause(dag_id)

    def run(self, **conf: Any) -> dict[str, Any]:
        """One run to its end; its tasks' states are under `tasks`."""
        run_id = self.api.trigger(self.dag_id, conf)
        return self.ended(run_id)

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it ended."""
        run = self.api.wait_run(self.dag_id, run_id, timeout_s=600)
        tasks = self.api.task_instances(self.dag_id, run_id)
        return {**run, "tasks": {t["task_id"]: t["state"] for t in tasks}}

    def cleared(self, run_id: str, *tasks: str | list[str | int]) -> dict[str, Any]:
        """The run, once these of its tasks (a mapped one with its index) were cleared and ended again."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(tasks), "only_failed": False}
        self.api.post(f"/dags/{self.dag_id}/clearTaskInstances", body)
        return self.ended(run_id)

    def log(self, run: dict[str, Any], task_id: str) -> str:
        """The log of the last try of a task."""
        tries = {t["task_id"]: t["try_number"] for t in self.api.task_instances(self.dag_id, run["dag_run_id"])}
        return self.api.task_log(self.dag_id, run["dag_run_id"], task_id, tries[task_id])

    def wait_task(self, run_id: str, task_id: str, *states: str, timeout_s: float = 300) -> None:
        """Wait until a task of the run is in one of the states."""

        def is_there() -> bool:
            return any(t["task_id"] == task_id and t["state"] in states for t in self.api.task_instances(self.dag_id, run_id))

        assert wait_until(is_there, timeout_s, poll_s=0.05)
