"""Runs that start when there is something to do: on the platform, through Airflow's triggerer, and with two of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.e2e.project import TAKEN_OVER_S, Project
from tests.e2e.runs import Runs, asset_events, saved_ranges
from tests.topics import make_topic, write
from tidegate.airflow.remote.api import AirflowApi
from tidegate.waiting import wait_until
from tidegate_local.airflow import TRIGGERER
from tidegate_local.platform import Platform

LAG = 50
RECORD = b'{"carrier":"AA"}'
FIRST_S = 300.0


@pytest.fixture
def kafka(platform: Platform) -> dict[str, str]:
    return {"bootstrap.servers": platform.bootstrap_servers}


def lagging(project: Project, name: str, **schedule: Any) -> None:
    """A pipeline of a topic of its own name."""
    what = {"source": {"topics": [name]}, "sink": {"table": f"lake.demo.{name}"}, "limits": {}, "retries": 0, "wait_s": 0}
    project.write(name, **what, schedule={"poll": "1s", **schedule})


def ended(api: AirflowApi, dag_id: str, count: int) -> list[dict[str, Any]]:
    """The runs of the DAG, the oldest first, once there are so many and all have ended."""

    def all_ended() -> bool:
        runs = api.dag_runs(dag_id)
        return len(runs) >= count and all(run["state"] in ("success", "failed") for run in runs)

    assert wait_until(all_ended, FIRST_S, poll_s=0.5)
    return sorted(api.dag_runs(dag_id), key=lambda run: str(run["queued_at"]))


def test_a_run_starts_when_the_lag_crosses_its_threshold_and_none_while_the_topic_is_idle(
    api: AirflowApi, project: Project, kafka: dict[str, str]
) -> None:
    """By an event of the pipeline's own asset, which says how far it lagged; the table's asset has the commits, as always."""
    make_topic(kafka, "crossed", 2)
    lagging(project, "crossed", lag=LAG)
    Runs(api, "crossed")
    write(kafka, "crossed", 0, [RECORD] * (LAG - 1))
    time.sleep(3)  # three polls, or the trigger has yet to start: either way there is no event
    assert api.dag_runs("crossed") == []
    write(kafka, "crossed", 1, [RECORD])
    (run,) = ended(api, "crossed", 1)
    assert (run["state"], run["run_type"]) == ("success", "asset_triggered")
    assert saved_ranges(api, "crossed", run["dag_run_id"]) == {"crossed": {"0": [0, LAG - 1], "1": [0, 1]}}
    write(kafka, "crossed", 0, [RECORD] * LAG)
    first, second = ended(api, "crossed", 2)
    assert first["dag_run_id"] == run["dag_run_id"]
    assert saved_ranges(api, "crossed", second["dag_run_id"]) == {"crossed": {"0": [LAG - 1, 2 * LAG - 1]}}
    time.sleep(3)
    assert len(api.dag_runs("crossed")) == 2
    payloads = [event["payload"] for event in asset_events(api, "tidegate.crossed")]
    assert [(p["pipeline"], p["reason"], p["lag"]) for p in payloads] == [("crossed", "lag", LAG)] * 2
    assert [event["seq"] for event in asset_events(api, "lake.demo.crossed")] == [2, 1]


@contextmanager
def second_triggerer(platform: Platform, project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """Another triggerer of the same Airflow, ended with all it started."""
    command, env = platform.airflow_command(["triggerer", "--skip-serve-logs"])
    with (project.root / "second_triggerer.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=project.root)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process and its children that do not run meanwhile."""
    process = psutil.Process(pid)
    stopped = [process, *process.children(recursive=True)]
    for one in stopped:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in reversed(stopped):
            os.kill(one.pid, signal.SIGCONT)


def test_a_triggerer_that_was_frozen_costs_one_skipped_run_at_most(
    api: AirflowApi, project: Project, kafka: dict[str, str], platform: Platform
) -> None:
    """Another one takes over its triggers meanwhile, and both see the same crossing."""
    make_topic(kafka, "frozen")
    lagging(project, "frozen", lag=LAG)
    runs = Runs(api, "frozen")
    write(kafka, "frozen", 0, [RECORD] * LAG)
    ended(api, "frozen", 1)
    (server,) = (server for server in platform.servers() if server.name == TRIGGERER)
    assert server.pid is not None
    with second_triggerer(platform, project):
        with frozen(server.pid):
            write(kafka, "frozen", 0, [RECORD] * LAG)
            ended(api, "frozen", 2)
        time.sleep(TAKEN_OVER_S)  # the one that was frozen looks around
        write(kafka, "frozen", 0, [RECORD] * LAG)
        done = ended(api, "frozen", 3)
    taken = [runs.ended(run["dag_run_id"])["tasks"]["plan"] for run in done]
    assert taken.count("success") == 3
    assert taken.count("skipped") <= 1
    assert len(taken) <= 4
