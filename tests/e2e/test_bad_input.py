"""A Spark that is away, and the other way to it: one named error, a range that stays, and the next run that adopts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.project import Project
from tests.e2e.runs import Runs, saved_ranges
from tests.topics import transact
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.planning.run_notes import failed_runs
from tidegate.waiting import wait_until
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

AWAY = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1}
TELL = """
import json


def tell(context):
    with (HERE / "told").open("a") as told:
        told.write(json.dumps([context["run_id"], context["dag_run"].note]) + "\\n")
"""


@pytest.fixture(scope="module")
def told(project: Project) -> Iterator[Path]:
    """The file in which the project's DAG file leaves a line for each run that it is told of as failed."""
    file = project.root / "dags" / "tidegate_dags.py"
    before = file.read_text()
    head, call, rest = before.partition("\n\nglobals()")
    file.write_text(f"{head}{TELL}{call}{rest.replace('spark_jobs=', 'on_failure=tell, spark_jobs=')}")
    yield file.with_name("told")
    file.write_text(before)


@pytest.fixture(scope="module", autouse=True)
def pipelines(project: Project, platform: Platform, told: Path) -> None:
    """One pipeline for each way to go wrong, all parsed in one go."""
    assert not told.exists()
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(kafka, "small", 2)
    produce(kafka, read_flights(200), topic="small")
    small = {"source": {"topics": ["small"]}, "limits": {}, "retries": 0, "wait_s": 0}
    create_topic(kafka, "marked", 1)
    produce(kafka, read_flights(20), topic="marked")
    transact(kafka, "marked", 0, [b"{}"] * 5)
    changed: dict[str, dict[str, Any]] = {
        "marked": {"source": {"topics": ["marked"], "contiguous": True}},
        "spark_gone": {"spark": {"connection": "spark_away"}},
        "submitted": {"spark": {"connection": "spark_default"}},
    }
    for name, changes in changed.items():
        project.write(name, **{**small, "sink": {"table": f"lake.bad.{name}"}, **changes})
    load_catalog("lake", **platform.catalog_properties)  # of two runs that are the first to use it, one would fail
    with platform.api() as api:
        api.sync_connection("spark_away", AWAY, mark="of a test")
    platform.sync_pools({f"tidegate_lake_bad_{file.stem}": 1 for file in (project.root / "dags/pipelines").glob("*.yaml")})


@pytest.fixture(scope="module")
def first(platform: Platform, pipelines: None) -> dict[str, str]:
    """The id of the first run of each pipeline; they run side by side."""
    with platform.api() as api:
        return {name: api.trigger(name) for name in ("spark_gone", "submitted") if Runs(api, name)}


def test_a_range_whose_load_found_no_spark_is_taken_up_by_the_next_run(
    api: AirflowApi, platform: Platform, first: dict[str, str], told: Path
) -> None:
    """The connection is repaired in between; the range is the same. The note tells what failed, and what the next run does.

    Whom `build_dags` tells of failed runs hears of the one that failed, once, with its note.
    """
    runs = Runs(api, "spark_gone")
    failed = runs.ended(first["spark_gone"])
    assert failed["tasks"] == {"plan": "success", "load": "failed", "commit": "upstream_failed"}
    assert api.variables("tidegate.spark_gone.cursor") == {}
    assert api.why_failed("spark_gone", failed["dag_run_id"]).startswith("load: SparkUnavailable: ")
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
    assert wait_until(told.exists, 60)
    assert [json.loads(line) for line in told.read_text().splitlines()] == [[failed["dag_run_id"], failed["note"]]]


def test_a_connection_of_type_spark_runs_the_same_job_through_spark_submit(api: AirflowApi, first: dict[str, str]) -> None:
    """The plan goes by file, the receipt comes back by file."""
    runs = Runs(api, "submitted")
    run = runs.ended(first["submitted"])
    assert run["state"] == "success", runs.log(run, "load")
    assert api.xcom("submitted", run["dag_run_id"], "load")["receipt"]["rows"] == 200


def test_a_marker_in_a_topic_that_is_said_to_have_no_gaps_stops_the_schedule(api: AirflowApi) -> None:
    """The load fails by name; the schedule waits for somebody to decide."""
    runs = Runs(api, "marked")
    run = runs.run()
    assert run["tasks"] == {"plan": "success", "load": "failed", "commit": "upstream_failed"}
    assert "holds 26 offsets, and the pipeline says its topics have no gaps, but 25 records were read" in runs.log(run, "load")
    assert api.variables("tidegate.marked.cursor") == {}
