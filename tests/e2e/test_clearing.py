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
from tests.failpoints import arm, reached
from tidegate.airflow.remote.api import AirflowApi
from tidegate.waiting import wait_until
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

NAME = "cleared"
TASKS = ("plan", "load", "commit")
SETTINGS = {"source": {"topics": [NAME]}, "limits": {"max_records": 50}, "retries": 0}
HANGING, TIMEOUT_S = "hanging", 60


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    """A pipeline of small batches; a task that dies has failed."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    produce(settings, read_flights(150), topic=NAME)
    project.write(NAME, **SETTINGS, sink={"table": f"lake.bad.{NAME}"})
    project.write(HANGING, **SETTINGS, sink={"table": f"lake.bad.{HANGING}"}, timeout_s=TIMEOUT_S)
    platform.sync_pools({f"tidegate_lake_bad_{NAME}": 1, f"tidegate_lake_bad_{HANGING}": 0})
    return settings


@pytest.fixture(scope="module", autouse=True)
def hung(platform: Platform, kafka: dict[str, str]) -> str:
    """A run that hangs while the others here go on: its load finds no slot, and Airflow itself waits for ever."""
    with platform.api() as api:
        Runs(api, HANGING)
        return api.trigger(HANGING)


@pytest.fixture
def runs(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    return Runs(api, NAME)


@pytest.fixture(scope="module", autouse=True)
def three(hung: str, platform: Platform) -> list[str]:
    """Three runs that are over, the oldest first."""
    with platform.api() as api:
        runs = Runs(api, NAME)
        ended = [runs.run() for _ in range(3)]
    assert [run["state"] for run in ended] == ["success"] * 3
    return [run["dag_run_id"] for run in ended]


def saved(api: AirflowApi, run_id: str) -> Any:
    """The range of a run."""
    return saved_ranges(api, NAME, run_id)


@pytest.mark.parametrize("tasks", [("load",), TASKS], ids="+".join)
def test_a_cleared_task_does_its_runs_range_again_and_moves_nothing(
    api: AirflowApi, runs: Runs, three: list[str], tasks: tuple[str, ...]
) -> None:
    """One or all of them, of an old run."""
    run_id = three[0]
    state, ranges = api.variables(f"tidegate.{NAME}."), saved(api, run_id)
    again = runs.cleared(run_id, *tasks)
    assert again["tasks"] == dict.fromkeys(TASKS, "success")
    assert saved(api, run_id) == ranges
    assert api.variables(f"tidegate.{NAME}.") == state
    if "load" in tasks:
        assert "rows written" in runs.log(again, "load")


def test_a_run_that_was_marked_failed_does_not_block_the_next_and_can_be_cleared_after_it(
    api: AirflowApi, runs: Runs, fail_points: Path, kafka: dict[str, str]
) -> None:
    """The next one adopts its range, so both own the same one; the table holds it once."""
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
    cursor = api.variable(f"tidegate.{NAME}.cursor")
    assert runs.cleared(marked, *TASKS)["state"] == "success"
    assert api.variable(f"tidegate.{NAME}.cursor") == cursor


def test_a_run_that_hangs_has_failed_after_its_timeout_and_the_next_takes_up_its_range(api: AirflowApi, hung: str) -> None:
    """Here for want of a slot."""
    runs, pool = Runs(api, HANGING), f"tidegate_lake_bad_{HANGING}"
    ended = runs.ended(hung)
    assert (ended["state"], ended["tasks"]["load"]) == ("failed", "skipped")
    api.patch(f"/pools/{pool}", {"pool": pool, "slots": 1, "include_deferred": False})
    adopting = runs.run()
    assert adopting["state"] == "success"
    assert saved_ranges(api, HANGING, adopting["dag_run_id"]) == saved_ranges(api, HANGING, hung)


def test_after_all_of_it_the_table_holds_each_record_once(project: Project) -> None:
    """From broker and table."""
    assert project.tidegate("ledger", "verify", NAME)["holds"]
