"""The maintenance of a table as a user has it: from the DAG, beside the schedule and replays, through both ways to Spark."""

from __future__ import annotations

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.audit.oracle import judge
from tidegate.core.config.pipeline import Maintenance
from tidegate.core.config.schedules import DAY_S
from tidegate.core.state.jobs import MaintenanceJob
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.sinks import maintain
from tidegate.sinks.iceberg.history import IcebergReader, read_origins
from tidegate.spark.session import connect
from tidegate.waiting import now_ms
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

NAME = "kept"
TABLE = "lake.kept.kept"
BATCHES = 6
"""Iceberg merges files where there are at least five small ones."""
STEPS = ("compact", "expire", "remove_orphans")

pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    platform.sync_pools({"tidegate_lake_kept_kept": 2})
    return settings


def write(project: Project, **more: object) -> None:
    project.write(NAME, source={"topics": [NAME]}, retries=0, sink={"table": TABLE}, maintenance={"keep_orphans": "3d"}, **more)


def check_whole(kafka: dict[str, str]) -> None:
    """Every record of the log is in the table once: librdkafka and PyIceberg say so."""
    marks = AdminBrokers(kafka).watermarks([NAME])
    verdict = judge(read_offsets(kafka, marks), read_origins(TABLE))
    assert verdict.holds, verdict.to_json()


def expire(platform: Platform) -> None:
    """All snapshots but the newest, as maintenance does it ten days later."""
    later_ms = now_ms() + 10 * DAY_S * 1000
    with connect(platform.spark_remote, name="later") as spark:
        job = MaintenanceJob(NAME, TABLE, "expire", now_ms=later_ms, maintenance=Maintenance(keep_snapshots=1))
        assert maintain(spark, job).counts["snapshots_expired"] > BATCHES


def test_a_table_is_maintained_between_runs_and_a_replay(
    project: Project, api: AirflowApi, kafka: dict[str, str], platform: Platform
) -> None:
    """A dry run changes nothing; then files are merged, receipts stay, and schedule and replay go on; also later."""
    write(project)
    runs, maintenance, replays = (Runs(api, dag) for dag in (NAME, f"{NAME}__maintain", f"{NAME}__replay"))
    early = maintenance.run()
    assert early["tasks"] == {"plan": "skipped", **dict.fromkeys(STEPS, "skipped")}
    assert f"table {TABLE} does not exist yet" in early["note"]
    for _ in range(BATCHES):
        produce(kafka, read_flights(20), topic=NAME)
        assert runs.run()["state"] == "success"
    before = IcebergReader().history(TABLE)
    dry = maintenance.run(dry_run=True)
    assert dry["tasks"] == {"plan": "skipped", **dict.fromkeys(STEPS, "skipped")}
    assert dry["note"].startswith(f"Dry run: nothing was changed. {TABLE}: {before.files.count} data files of ")
    assert IcebergReader().history(TABLE) == before
    done = maintenance.run()
    assert done["tasks"] == dict.fromkeys(("plan", *STEPS), "success")
    compacted = api.xcom(f"{NAME}__maintain", done["dag_run_id"], "compact")["counts"]
    assert compacted["files_before"] == before.files.count > compacted["files_after"]
    assert f"compact: {before.files.count} files before, {compacted['files_after']} files after" in done["note"]
    assert "expire: 0 commits kept, 0 snapshots expired" in done["note"]
    assert len(IcebergReader().receipts(TABLE, NAME)) == BATCHES
    assert replays.run(offsets={NAME: {"0": [5, 33]}})["state"] == "success"
    produce(kafka, read_flights(20), topic=NAME)
    assert runs.run()["state"] == "success"
    check_whole(kafka)
    expire(platform)
    assert len(IcebergReader().history(TABLE).commits) == 1
    shown = project.tidegate("ledger", "show", NAME)["batches"]
    assert [batch["seq"] for batch in shown if not batch["replay"]] == list(range(1, BATCHES + 2))
    assert project.tidegate("ledger", "rebuild", NAME, "--dry-run")["gaps"] == {}
    produce(kafka, read_flights(20), topic=NAME)
    assert runs.run()["state"] == "success"
    check_whole(kafka)
    assert project.tidegate("lag", NAME)["maintenance"] is None
    assert project.tidegate("ledger", "verify", NAME)["holds"]
