"""What people do to runs in Airflow's UI, through the API that it calls: tasks cleared, runs marked failed or deleted."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs, saved_ranges
from tidegate.airflow.remote.api import AirflowApi
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights
from tidegate.testing.failpoints import arm, reached
from tidegate.waiting import wait_until

NAME = "cleared"
TASKS = ("plan", "load", "commit")
SETTINGS = {"source": {"topics": [NAME]}, "limits": {"max_records": 50}, "retries": 0, "sink": {"table": f"lake.bad.{NAME}"}}


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    """A pipeline of small batches; a task that dies has failed."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    produce(settings, read_flights(150), topic=NAME)
    project.write(NAME, **SETTINGS)
    platform.sync_pools({f"tidegate_lake_bad_{NAME}": 1})
    return settings


@pytest.fixture
def runs(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    return Runs(api, NAME)


@pytest.fixture(scope="module")
def three(kafka: dict[str, str], platform: Platform) -> list[str]:
    """Three runs that are over, the oldest first."""
    with platform.api() as api:
        runs = Runs(api, NAME)
        ended = [runs.run() for _ in range(3)]
    assert [run["state"] for run in ended] == ["success"] * 3
    return [run["dag_run_id"] for run in ended]


def broken(runs: Runs, fail_points: Path, point: str) -> dict[str, Any]:
    """A run whose task is killed at this point."""
    arm(fail_points, point, "kill")
    run = runs.run()
    assert run["state"] == "failed"
    return run


def saved(api: AirflowApi, run_id: str) -> Any:
    """The range of a run."""
    return saved_ranges(api, NAME, run_id)


@pytest.mark.parametrize("age", ["newest", "oldest"])
@pytest.mark.parametrize("tasks", [("plan",), ("load",), ("commit",), TASKS], ids="+".join)
def test_a_cleared_task_does_its_runs_range_again_and_moves_nothing(
    api: AirflowApi, runs: Runs, three: list[str], tasks: tuple[str, ...], age: str
) -> None:
    """One or all of them, of the newest run or of an old one."""
    run_id = three[{"newest": -1, "oldest": 0}[age]]
    state, ranges = api.variables(f"tidegate.{NAME}."), saved(api, run_id)
    again = runs.cleared(run_id, *tasks)
    assert again["tasks"] == dict.fromkeys(TASKS, "success")
    assert saved(api, run_id) == ranges
    assert api.variables(f"tidegate.{NAME}.") == state
    if "load" in tasks:
        assert "rows written" in runs.log(again, "load")


@pytest.mark.parametrize(
    ("point", "tasks"), [("after-range", TASKS), ("before-write", ("load", "commit")), ("before-cursor", ("commit",))]
)
@pytest.mark.usefixtures("three")
def test_a_failed_run_whose_tasks_are_cleared_commits_its_own_range(
    api: AirflowApi, runs: Runs, fail_points: Path, kafka: dict[str, str], point: str, tasks: tuple[str, ...]
) -> None:
    """Wherever it died."""
    produce(kafka, read_flights(10), topic=NAME)
    failed = broken(runs, fail_points, point)
    before = [key for key in api.variables(f"tidegate.{NAME}.") if ".range." in key]
    again = runs.cleared(failed["dag_run_id"], *tasks)
    assert again["state"] == "success"
    assert [key for key in api.variables(f"tidegate.{NAME}.") if ".range." in key] == before
    assert api.xcom(NAME, failed["dag_run_id"], "plan")["origin"] == ("own" if "plan" in tasks else "planned")


@pytest.mark.usefixtures("three")
def test_a_failed_run_that_is_cleared_after_another_took_its_range_moves_nothing(
    api: AirflowApi, runs: Runs, fail_points: Path, kafka: dict[str, str]
) -> None:
    """Both own the same range; the table holds it once."""
    produce(kafka, read_flights(10), topic=NAME)
    failed = broken(runs, fail_points, "before-write")
    other = runs.run()
    assert other["state"] == "success"
    assert saved(api, other["dag_run_id"]) == saved(api, failed["dag_run_id"])
    cursor = api.variable(f"tidegate.{NAME}.cursor")
    assert runs.cleared(failed["dag_run_id"], *TASKS)["state"] == "success"
    assert api.variable(f"tidegate.{NAME}.cursor") == cursor


@pytest.mark.usefixtures("three")
def test_a_run_that_was_marked_failed_or_deleted_does_not_block_the_next(
    api: AirflowApi, runs: Runs, fail_points: Path, kafka: dict[str, str]
) -> None:
    """The next one adopts its range."""
    produce(kafka, read_flights(20), topic=NAME)
    arm(fail_points, "before-write", "stop")
    marked = api.trigger(NAME)
    assert wait_until(lambda: reached(fail_points, "before-write") is not None, 300, poll_s=0.1)
    held = reached(fail_points, "before-write")
    assert held is not None
    path = f"/dags/{NAME}/dagRuns/{marked}"
    api.patch(path, {"state": "failed"})
    with suppress(ProcessLookupError):
        os.kill(held[0], signal.SIGKILL)
    ranges = saved(api, marked)
    adopting = runs.run()
    assert adopting["state"] == "success", runs.log(adopting, "load")
    assert f"adopted from run {marked}" in runs.log(adopting, "plan")
    assert saved(api, adopting["dag_run_id"]) == ranges

    produce(kafka, read_flights(20), topic=NAME)
    deleted = broken(runs, fail_points, "before-cursor")["dag_run_id"]
    ranges = saved(api, deleted)
    api.delete(f"/dags/{NAME}/dagRuns/{deleted}")
    adopting = runs.run()
    assert adopting["state"] == "success"
    assert f"adopted from run {deleted}" in runs.log(adopting, "plan")
    assert saved(api, adopting["dag_run_id"]) == ranges
    assert "nothing written" in runs.log(adopting, "load")


@pytest.mark.usefixtures("three")
def test_a_run_that_hangs_has_failed_after_its_timeout_and_the_next_takes_up_its_range(
    project: Project, api: AirflowApi, runs: Runs, kafka: dict[str, str]
) -> None:
    """Here for want of a slot; Airflow itself waits for ever."""
    produce(kafka, read_flights(10), topic=NAME)
    pool = f"tidegate_lake_bad_{NAME}"
    project.write(NAME, **SETTINGS, timeout_s=20)
    assert wait_until(lambda: api.get(f"/dags/{NAME}/details")["dag_run_timeout"] is not None, 300, poll_s=0.5)
    api.patch(f"/pools/{pool}", {"pool": pool, "slots": 0, "include_deferred": False})
    hung = runs.run()
    assert (hung["state"], hung["tasks"]["load"]) == ("failed", "skipped")
    api.patch(f"/pools/{pool}", {"pool": pool, "slots": 1, "include_deferred": False})
    project.write(NAME, **SETTINGS)
    assert wait_until(lambda: api.get(f"/dags/{NAME}/details")["dag_run_timeout"] is None, 300, poll_s=0.5)
    adopting = runs.run()
    assert adopting["state"] == "success"
    assert saved(api, adopting["dag_run_id"]) == saved(api, hung["dag_run_id"])


@pytest.mark.usefixtures("three")
def test_after_all_of_it_the_table_holds_each_record_once(project: Project) -> None:
    """From broker and table."""
    assert project.tidegate("ledger", "verify", NAME)["holds"]
