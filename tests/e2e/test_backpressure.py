"""A backlog under a rate policy: bounded batches, one run after the other at once, and a slot for whoever else waits."""

from __future__ import annotations

from typing import Any

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tidegate.airflow.remote.api import AirflowApi
from tidegate.waiting import wait_until
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

BACKLOG = 300
POOL = "tidegate_catching_up"


def finished(api: AirflowApi, name: str) -> list[dict[str, Any]]:
    """The runs of a pipeline, oldest first, once the last of them has ended and started no other."""

    def last_one_stopped() -> bool:
        last = runs_of(api, name)[-1]
        if last["state"] not in ("success", "failed"):
            return False
        states = {t["task_id"]: t["state"] for t in api.task_instances(name, last["dag_run_id"])}
        return bool(last["state"] == "failed") or states.get("catch_up") == "skipped"

    assert wait_until(last_one_stopped, 600, poll_s=0.5)
    return runs_of(api, name)


def runs_of(api: AirflowApi, name: str) -> list[dict[str, Any]]:
    return sorted(api.dag_runs(name), key=lambda run: str(run["run_after"]))


def loads_of(api: AirflowApi, name: str) -> list[str]:
    """When each load started."""
    tasks = [task for run in runs_of(api, name) for task in api.task_instances(name, run["dag_run_id"])]
    return sorted(str(task["start_date"]) for task in tasks if task["task_id"] == "load")


def test_a_backlog_drains_by_bounded_runs_that_start_one_another_and_leave_others_their_turn(
    api: AirflowApi, platform: Platform, project: Project
) -> None:
    """From one trigger: each batch larger than the last, in order, until none waits. Others of the pool have their turn."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    for name, waiting in {"behind": BACKLOG, "beside": 20}.items():
        create_topic(kafka, name, 2)
        produce(kafka, read_flights(waiting), topic=name)
        table = {"table": f"lake.rates.{name}", "pool": POOL, "slots": 1}
        limits = {"source": {"topics": [name]}, "limits": {}, "sink": table}
        policy = {"backpressure": {"policy": "target", "initial_records": 10}, "catch_up": True}
        project.write(name, **limits, **(policy if name == "behind" else {}))
    platform.sync_pools({POOL: 1})
    first, beside = Runs(api, "behind"), Runs(api, "beside")
    planned = project.tidegate("plan", "behind")
    assert planned["rate"]["records"] == 10
    assert BACKLOG - 10 <= planned["remaining"] < BACKLOG
    started = api.trigger("behind")
    assert beside.run()["state"] == "success"
    runs = finished(api, "behind")
    assert {run["state"] for run in runs} == {"success"}
    assert runs[0]["dag_run_id"] == started
    assert [run["dag_run_id"].split("__")[:2] for run in runs[1:]] == [["catch_up", str(n)] for n in range(2, len(runs) + 1)]
    plans = [api.xcom("behind", run["dag_run_id"], "plan") for run in runs]
    records = [plan["records"] for plan in plans]
    assert sum(records) == BACKLOG
    assert records[0] <= 10
    assert records[:-1] == sorted(records[:-1])
    assert [plan["seq"] for plan in plans] == list(range(1, len(runs) + 1))
    assert plans[-1]["remaining"] == 0
    assert loads_of(api, "beside")[0] < loads_of(api, "behind")[-1]
    log = first.log(runs[1], "plan")
    assert "backpressure: target allows" in log
    assert "b (s/record)" in log
    cursor = state_of(api, "tidegate.behind.cursor")
    assert cursor["rate_state"]["settings"] == {"policy": "target", "initial_records": 10, "interval_s": 60.0}
    assert len(cursor["timings"]) == len(runs)
    assert all(0 < run_ms < 60_000 for _, _, run_ms, *_ in cursor["timings"])


def test_a_run_that_was_cleared_or_tried_again_teaches_the_policy_nothing(api: AirflowApi) -> None:
    """Its time is not that of a batch."""
    before = state_of(api, "tidegate.behind.cursor")
    runs = Runs(api, "behind")
    last = runs_of(api, "behind")[-1]["dag_run_id"]
    again = runs.cleared(last, "plan", "load", "commit", "catch_up")
    assert again["state"] == "success"
    assert state_of(api, "tidegate.behind.cursor") == before
    assert runs_of(api, "behind")[-1]["dag_run_id"] == last
