"""Seconds from the record that crosses `schedule.lag` to the queued run, and what a trigger costs while its topic is idle.

    python -m tests.bench.lag_trigger [--rounds 10] [--poll 2] [--idle 120]

One embedded platform in a temporary folder, started and stopped here. The CPU is that of the triggerer's process that runs the
triggers, without a trigger (for two minutes) and with that of a pipeline that is idle for `--idle` seconds.
"""

from __future__ import annotations

import statistics
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from tests.bench.cli import run
from tests.projects import copy_project, whole_platform, write_files
from tests.topics import make_topic, write
from tidegate.airflow.remote.api import AirflowApi
from tidegate_local.airflow import TRIGGERER
from tidegate_local.platform import Platform

LAG = 100
RECORD = b'{"carrier":"AA"}'
PATIENCE_S = 300.0
SHORT_S = 120.0


def runner(platform: Platform) -> psutil.Process:
    """The process of the triggerer in which the triggers run."""
    (server,) = (server for server in platform.servers() if server.name == TRIGGERER)
    (child,) = psutil.Process(server.pid).children()
    return child


def cpu_of(process: psutil.Process, seconds: float) -> float:
    """Percent of a core that it takes."""
    before, started = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    return 100 * (after.user + after.system - before.user - before.system) / (time.monotonic() - started)


def wait_runs(api: AirflowApi, count: int) -> dict[str, Any]:
    """The newest run, once there are so many and all have ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        runs = sorted(api.dag_runs("lagging"), key=lambda run: str(run["queued_at"]))
        if len(runs) >= count and all(run["state"] in ("success", "failed") for run in runs):
            return dict(runs[-1])
        time.sleep(0.2)
    raise SystemExit(f"there are no {count} runs that have ended")


def crossings(api: AirflowApi, kafka: dict[str, str], rounds: int) -> list[float]:
    """Seconds from the acknowledged record that crosses to the queued run, after a run that warms up."""
    write(kafka, "lagging", 0, [RECORD] * LAG)
    wait_runs(api, 1)
    taken = []
    for number in range(rounds):
        time.sleep(3 + number * 0.37)  # the cursor has moved, and the poll is at another phase
        write(kafka, "lagging", 0, [RECORD] * (LAG - 1))
        write(kafka, "lagging", 0, [RECORD])
        crossed = time.time()
        run = wait_runs(api, number + 2)
        taken.append(datetime.fromisoformat(run["queued_at"]).timestamp() - crossed)
    return taken


def measure(rounds: int, poll_s: float, idle_s: float, folder: Path) -> dict[str, Any]:
    """All figures."""
    copy_project(folder)
    with whole_platform(folder) as platform:
        platform.sync_pools({"tidegate_lake_demo_lagging": 4})
        without = cpu_of(runner(platform), min(idle_s, SHORT_S))
        kafka = {"bootstrap.servers": platform.bootstrap_servers}
        make_topic(kafka, "lagging")
        lagging = {
            "source": {"topics": ["lagging"]},
            "transform": "transforms.flights:flights",
            "sink": {"table": "lake.demo.lagging"},
            "schedule": {"lag": LAG, "poll": poll_s},
        }
        write_files(folder, "pipelines", {"lagging": lagging})
        with platform.api() as api:
            api.wait_dag("lagging")
            api.unpause("lagging")
            taken = crossings(api, kafka, rounds)
            before = len(api.dag_runs("lagging"))
            idle = cpu_of(runner(platform), idle_s)
            after = len(api.dag_runs("lagging"))
    return {
        "poll_s": poll_s,
        "queued_after_s": {"median": statistics.median(taken), "most": max(taken), "all": taken},
        "cpu_percent": {"no trigger": without, "idle trigger": idle, "trigger alone": idle - without},
        "idle_s": idle_s,
        "runs_while_idle": after - before,
    }


if __name__ == "__main__":
    run(__doc__, measure, rounds=10, poll=2.0, idle=120.0)
