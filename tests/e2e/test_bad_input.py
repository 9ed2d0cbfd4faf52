"""Servers that are away, and the other way to Spark: one named error, a range that stays, and the next run that adopts it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.project import Project
from tests.e2e.runs import Runs, saved_ranges
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.schedule.run_notes import failed_runs
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights

CONNECTIONS: dict[str, dict[str, Any]] = {
    "kafka_away": {"conn_type": "kafka", "extra": json.dumps({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 3000})},
    "spark_away": {"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1},
}


@pytest.fixture(scope="module", autouse=True)
def pipelines(project: Project, platform: Platform) -> None:
    """One pipeline for each way to go wrong, all parsed in one go."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(kafka, "small", 2)
    produce(kafka, read_flights(200), topic="small")
    small = {"source": {"topics": ["small"]}, "limits": {}, "retries": 0, "wait_s": 0}
    changed: dict[str, dict[str, Any]] = {
        "broker_away": {"source": {"topics": ["small"], "connection": "kafka_away"}},
        "spark_gone": {"spark": {"connection": "spark_away"}},
        "submitted": {"spark": {"connection": "spark_default"}},
    }
    for name, changes in changed.items():
        project.write(name, **{**small, "sink": {"table": f"lake.bad.{name}"}, **changes})
    load_catalog("lake", **platform.catalog_properties)  # of two runs that are the first to use it, one would fail
    with platform.api() as api:
        for connection_id, connection in CONNECTIONS.items():
            api.sync_connection(connection_id, connection, mark="of a test")
    platform.sync_pools({f"tidegate_lake_bad_{file.stem}": 1 for file in (project.root / "dags/pipelines").glob("*.yaml")})


@pytest.fixture(scope="module")
def first(platform: Platform, pipelines: None) -> dict[str, str]:
    """The id of the first run of each pipeline; they run side by side."""
    with platform.api() as api:
        return {name: api.trigger(name) for name in ("broker_away", "spark_gone", "submitted") if Runs(api, name)}


def test_a_run_and_a_command_say_that_no_broker_answers(project: Project, api: AirflowApi, first: dict[str, str]) -> None:
    """Nothing is saved. The command does not wait as long as a task, to which the broker may come back, and says why."""
    run = Runs(api, "broker_away").ended(first["broker_away"])
    assert run["tasks"] == {"plan": "failed", "load": "upstream_failed", "commit": "upstream_failed"}
    assert run["note"].startswith("Failed in plan: BrokerUnavailable: no Kafka broker answers at 127.0.0.1:1")
    assert api.variables("tidegate.broker_away.") == {}
    refused = project.tidegate("plan", "broker_away", code=1)
    assert refused["error"] == "BrokerUnavailable"
    assert refused["message"] == "no Kafka broker answers at 127.0.0.1:1 (connection refused)"


def test_a_range_whose_load_found_no_spark_is_taken_up_by_the_next_run(
    api: AirflowApi, platform: Platform, first: dict[str, str]
) -> None:
    """The connection is repaired in between; the range is the same. The note tells what failed, and what the next run does."""
    runs = Runs(api, "spark_gone")
    failed = runs.ended(first["spark_gone"])
    assert failed["tasks"] == {"plan": "success", "load": "failed", "commit": "upstream_failed"}
    assert api.variables("tidegate.spark_gone.cursor") == {}
    plan, _, failure = failed["note"].rpartition("\n")
    assert plan.startswith("batch 1 of spark_gone, 200 offsets: ")
    assert failure.startswith("Failed in load: SparkUnavailable: ")
    assert failure.endswith("The cursor did not move. The next run retries batch 1 (same offsets).")
    assert failed_runs([failed]) == {failed["dag_run_id"]: failure}
    api.sync_connection("spark_away", platform.spark_connection, mark="of a test")
    repaired = runs.run()
    assert repaired["state"] == "success"
    assert f"adopted from run {failed['dag_run_id']}" in runs.log(repaired, "plan")
    planned = [saved_ranges(api, "spark_gone", r["dag_run_id"]) for r in (failed, repaired)]
    assert planned[0] == planned[1]
    assert api.xcom("spark_gone", repaired["dag_run_id"], "load")["receipt"]["rows"] == 200


def test_a_connection_of_type_spark_runs_the_same_job_through_spark_submit(api: AirflowApi, first: dict[str, str]) -> None:
    """The plan goes by file, the receipt comes back by file."""
    runs = Runs(api, "submitted")
    run = runs.ended(first["submitted"])
    assert run["state"] == "success", runs.log(run, "load")
    assert api.xcom("submitted", run["dag_run_id"], "load")["receipt"]["rows"] == 200
