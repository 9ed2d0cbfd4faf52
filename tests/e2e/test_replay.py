"""Replays beside a schedule, killed and continued; in one file, since all of them go on with one pipeline's table.

Through Airflow's REST API and the command line, judged by the oracle.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.e2e.project import Project
from tests.e2e.runs import POLL_S, Runs, asset_events, state_of
from tests.failpoints import arm, disarm, reached
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.audit.oracle import Verdict, judge
from tidegate.core.model.errors import PlatformError
from tidegate.core.model.ranges import offsets_from_json
from tidegate.core.model.watermarks import Watermarks
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.sinks.iceberg.history import IcebergReader, read_origins
from tidegate.waiting import wait_until
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

TOPIC = "replayed"
TABLE = "lake.demo.replayed"
POOL = "tidegate_lake_demo_replayed"


class Replays(Runs):
    """Triggers replays of one pipeline; mapped loads are told by their chunk."""

    def ended(self, run_id: str) -> dict[str, Any]:
        run = self.api.wait_run(self.dag_id, run_id, timeout_s=600, poll_s=POLL_S)
        tasks = self.api.task_instances(self.dag_id, run_id)
        loads = {t["map_index"]: t["state"] for t in tasks if t["task_id"] == "load" and t["map_index"] >= 0}
        return {**run, "tasks": {t["task_id"]: t["state"] for t in tasks}, "loads": loads}

    def told(self, run: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.api.xcom(self.dag_id, run["dag_run_id"], "plan", "replay")
        return found


@pytest.fixture(scope="module", autouse=True)
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    """A topic with 1,500 flights in two partitions, and a pipeline that has read them in three batches."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, TOPIC, 2)
    produce(settings, read_flights(1500), topic=TOPIC)
    project.write(TOPIC, source={"topics": [TOPIC]}, limits={"max_records": 500}, sink={"table": TABLE, "slots": 4}, retries=1)
    project.write(
        "dated",
        source={"topics": ["dated"]},
        limits={},
        sink={"table": "lake.demo.dated"},
        schedule="@daily",
        retries=1,
    )
    platform.sync_pools({POOL: 4, "tidegate_lake_demo_dated": 4})
    with platform.api() as api:
        runs = Runs(api, TOPIC)
        assert [runs.run()["state"] for _ in range(3)] == ["success"] * 3
    return settings


@pytest.fixture
def replays(api: AirflowApi) -> Replays:
    return Replays(api, f"{TOPIC}__replay")


@pytest.fixture(autouse=True)
def clean(catalog: None, fail_points: Path) -> None:
    """The tests read the table; no fail point outlives one."""


def body(api: AirflowApi, pipeline: str = TOPIC) -> dict[str, Any]:
    """The cursor."""
    return state_of(api, f"tidegate.{pipeline}.cursor")


def verdict(api: AirflowApi, kafka: dict[str, str], table: str = TABLE, pipeline: str = TOPIC) -> Verdict:
    """Every record before the cursor against every row of the table."""
    ends = offsets_from_json(body(api, pipeline)["offsets"])
    watermarks = AdminBrokers(kafka).watermarks([pipeline])
    return judge(read_offsets(kafka, Watermarks(watermarks.earliest, ends, watermarks.topic_ids)), read_origins(table))


def test_a_dry_run_changes_nothing(api: AirflowApi, replays: Replays, project: Project) -> None:
    """It tells what would be read and replaced; nothing is saved, and no load runs. By the command there is no run at all."""
    before = api.variables(f"tidegate.{TOPIC}.")
    run = replays.run(batches="1..2", dry_run=True)
    assert (run["state"], run["tasks"]["plan"], run["tasks"]["verify"]) == ("success", "skipped", "skipped")
    told = api.xcom(replays.dag_id, run["dag_run_id"], "plan", "dry_run")
    assert told["total"] in range(998, 1003)
    assert [r["load"] for r in told["replaces"]] == ["batch 1", "batch 2"]
    assert sum(r["rows"] for r in told["replaces"]) == told["total"]
    assert told["bytes"] > 0
    assert told["seconds"] > 0
    assert run["note"].startswith("Dry run: nothing was changed.")
    assert project.tidegate("replay", TOPIC, "--batch", "1..2", "--dry-run")["total"] == told["total"]
    assert [r["dag_run_id"] for r in api.dag_runs(replays.dag_id)] == [run["dag_run_id"]]
    assert api.variables(f"tidegate.{TOPIC}.") == before


def test_batches_are_replaced_by_chunks_and_the_cursor_stays(api: AirflowApi, replays: Replays, kafka: dict[str, str]) -> None:
    """Two batches, two chunks, each with a receipt that is no batch's; cleared, a chunk is loaded again, and no other.

    Whoever is scheduled on the table's asset runs after a replay as after a batch.
    """
    before = body(api)
    run = replays.run(batches="1..2", parallel=1)
    assert run["state"] == "success", replays.log(run, "plan")
    assert run["loads"] == {0: "success", 1: "success"}
    replay = replays.told(run)

    def chunks() -> list[int]:
        return sorted(r.load.seq for r in IcebergReader().receipts(TABLE, TOPIC) if r.load.replay == replay["replay"])

    assert chunks() == [0, 1]
    (event,) = [e for e in asset_events(api, TABLE) if e.get("replay") == replay["replay"]]
    assert (event["pipeline"], event["run_id"]) == (TOPIC, run["dag_run_id"])
    assert (event["chunks"], event["offsets"], event["rows"]) == (2, replay["records"], replay["records"])
    assert event["transform"].startswith("transforms.flights:flights@")
    assert [e["seq"] for e in asset_events(api, TABLE) if "seq" in e] == [3, 2, 1]
    assert replays.cleared(run["dag_run_id"], ["load", 1])["state"] == "success"
    assert chunks() == [0, 1, 1]
    assert body(api) == before
    assert verdict(api, kafka).holds


def test_a_replay_into_another_table_leaves_the_pipelines_own_alone(
    api: AirflowApi, replays: Replays, kafka: dict[str, str]
) -> None:
    """A trial: by time, by a transform that is named."""
    snapshots, told = len(IcebergReader().receipts(TABLE, TOPIC)), asset_events(api, TABLE)
    trial = f"{TABLE}_trial_{uuid.uuid4().hex[:8]}"
    run = replays.run(
        from_time="2013-01-01T00:00:00Z", table=trial, transform="transforms.flights:flights", until_time="2014-01-01T00:00:00Z"
    )
    assert run["state"] == "success"
    assert verdict(api, kafka, trial).holds
    assert len(IcebergReader().receipts(TABLE, TOPIC)) == snapshots
    assert asset_events(api, TABLE) == told  # a trial's table is nobody's asset
    assert api.get("/assets", name_pattern=trial)["assets"] == []


def test_a_killed_replay_goes_on_with_what_is_missing_beside_a_live_schedule(
    project: Project, fail_points: Path, api: AirflowApi, replays: Replays, kafka: dict[str, str]
) -> None:
    """One load's process is killed before its write, and fails for good."""
    live = Runs(api, TOPIC)
    produce(kafka, read_flights(1000), topic=TOPIC)
    arm(fail_points, "before-write", "kill")
    first = api.trigger(replays.dag_id, {"batches": "1..2", "parallel": 2})
    assert wait_until(lambda: reached(fail_points, "before-write") is not None, 300, poll_s=0.1)
    beside = api.trigger(TOPIC)  # the schedule goes on
    arm(fail_points, "before-write", "kill")  # the retry of the first, or another load: whoever comes first
    assert live.ended(beside)["state"] in ("success", "failed")
    ended = replays.ended(first)
    disarm(fail_points)
    if ended["state"] == "failed":
        assert ended["tasks"]["verify"] == "upstream_failed"
        # Airflow gives a task its label when it ends, so one whose every try was killed has its index alone
        assert api.why_failed(replays.dag_id, first).startswith("load (")
        api.post(f"/dags/{replays.dag_id}/dagRuns/{quote(first, safe='')}/clear", {"dry_run": False, "only_failed": True})
        ended = replays.ended(first)
    assert ended["state"] == "success"
    assert live.run()["state"] == "success"
    assert verdict(api, kafka).holds
    # which Airflow asks for the callbacks of the killed task: where they hang, no DAG is parsed
    assert "Unable to decode message" not in (project.root / ".tidegate" / "logs" / "airflow-dag-processor.log").read_text()


def test_two_replays_at_once_leave_a_slot_for_the_schedule(api: AirflowApi, replays: Replays, kafka: dict[str, str]) -> None:
    """Of the pool's four slots the replays of a pipeline have three, however many there are."""
    live = Runs(api, TOPIC)
    produce(kafka, read_flights(100), topic=TOPIC)
    both = [api.trigger(replays.dag_id, {"batches": batches}) for batches in ("1..2", "2..3")]

    def at_work() -> int:
        tasks = [t for run_id in both for t in api.task_instances(replays.dag_id, run_id)]
        return sum(t["task_id"] == "load" and t["state"] in ("queued", "running") for t in tasks)

    most = []

    def full() -> bool:
        most.append(at_work())
        return most[-1] == 3

    assert wait_until(full, 300, poll_s=POLL_S)
    beside = api.trigger(TOPIC)

    def done() -> bool:
        most.append(at_work())
        return api.dag_run(TOPIC, beside)["state"] in ("success", "failed")

    assert wait_until(done, 300, poll_s=POLL_S)
    assert live.ended(beside)["state"] == "success"
    assert [replays.ended(run_id)["state"] for run_id in both] == ["success", "success"]
    assert max(most) == 3
    assert verdict(api, kafka).holds


@pytest.fixture
def days(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    """A daily pipeline that has read the first of January in one batch and the second in another.

    The schedule makes a run of its own at once, of the last midnight, and another one if midnight passes meanwhile: whichever
    comes first reads what is there.
    """
    create_topic(kafka, "dated", 2)
    flights = read_flights(2500)
    second = flights["time_hour"] >= "2013-01-02T00:00:00Z"
    produce(kafka, flights[~second], topic="dated")
    runs = Runs(api, "dated")
    assert wait_until(lambda: bool(scheduled_runs(api)), 300, poll_s=0.2)
    assert runs.ended(scheduled_runs(api)[0]["dag_run_id"])["tasks"]["commit"] == "success"
    produce(kafka, flights[second & (flights["time_hour"] < "2013-01-03T00:00:00Z")], topic="dated")
    assert runs.run()["state"] == "success"
    return runs


def scheduled_runs(api: AirflowApi) -> list[dict[str, Any]]:
    """What the schedule has started, the oldest first: one run or, where midnight has passed, more."""
    return sorted((r for r in api.dag_runs("dated") if r["run_type"] == "scheduled"), key=lambda r: r["logical_date"])


def backfill(runs: Runs, since: str, until: str, reprocess: str = "none") -> list[dict[str, Any]]:
    """The runs of one backfill, once they ended: Airflow itself says so of the backfill half a minute later."""
    wanted = {
        "dag_id": "dated",
        "from_date": since,
        "to_date": until,
        "max_active_runs": 4,
        "reprocess_behavior": reprocess,
        "run_backwards": False,
        "dag_run_conf": {},
    }

    def begun() -> bool:
        try:
            runs.api.post("/backfills", wanted)
        except PlatformError as error:
            if error.fields["status"] != httpx.codes.CONFLICT:
                raise
            # the one before, or what Airflow left of one that its locked database refused, and could not delete either
            for left in runs.api.get("/backfills", dag_id="dated")["backfills"]:
                if left["completed_at"] is None:
                    runs.api._call("PUT", f"/backfills/{left['id']}/cancel")
            return False
        return True

    assert wait_until(begun, 60, poll_s=0.5)
    found = [r for r in runs.api.dag_runs("dated") if r["run_type"] == "backfill" and since <= r["logical_date"] <= until]
    return [runs.ended(r["dag_run_id"]) for r in found]


def test_a_backfill_reads_the_days_it_names_and_leaves_the_cursor_alone(
    api: AirflowApi, kafka: dict[str, str], days: Runs
) -> None:
    """Side by side; the schedule's own date gives its own range."""
    before = body(api, "dated")
    found = backfill(days, "2013-01-01T00:00:00Z", "2013-01-02T00:00:00Z")
    assert [r["state"] for r in found] == ["success", "success"], days.log(found[0], "load")
    plans = [api.xcom("dated", r["dag_run_id"], "plan") for r in found]
    assert [plan["records"] for plan in plans] == [r.rows for r in IcebergReader().receipts("lake.demo.dated", "dated")[:2]]
    verdicts = [api.xcom("dated", r["dag_run_id"], "commit") for r in found]
    told = {e["replay"]: e["rows"] for e in asset_events(api, "lake.demo.dated") if "replay" in e}
    assert told == {v["replay"]: v["rows"] for v in verdicts}

    scheduled = scheduled_runs(api)[0]
    (again,) = backfill(days, scheduled["logical_date"], scheduled["logical_date"], "completed")
    assert (again["dag_run_id"], again["state"]) == (scheduled["dag_run_id"], "success")
    assert api.xcom("dated", again["dag_run_id"], "plan")["records"] == plans[0]["records"]
    assert body(api, "dated") == before
    assert verdict(api, kafka, "lake.demo.dated", "dated").holds
