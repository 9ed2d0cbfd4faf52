"""Failures of servers and of input: each ends in one named error, the saved range stays, and the next run adopts it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs, saved_ranges
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.schedule.run_notes import failed_runs
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights

CONNECTIONS: dict[str, dict[str, Any]] = {
    "kafka_away": {"conn_type": "kafka", "extra": json.dumps({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 3000})},
    "spark_away": {"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1},
    "spark_never": {"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1},
    "not_spark": {"conn_type": "http", "host": "127.0.0.1"},
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
        "no_connection": {"source": {"topics": ["small"], "connection": "kafka_unknown"}},
        "no_topic": {"source": {"topics": ["nowhere"]}},
        "other_connection": {"spark": {"connection": "not_spark"}},
        "no_transform": {"transform": "transforms.flights:none"},
        "spark_gone": {"spark": {"connection": "spark_away"}},
        "spark_nowhere": {"spark": {"connection": "spark_never"}},
        "submitted": {"spark": {"connection": "spark_default"}},
        "lost": {},
    }
    for name, changes in changed.items():
        project.write(name, **{**small, "sink": {"table": f"lake.bad.{name}"}, **changes})
    with platform.api() as api:
        for connection_id, connection in CONNECTIONS.items():
            api.sync_connection(connection_id, connection, mark="of a test")
    platform.sync_pools({f"tidegate_lake_bad_{file.stem}": 1 for file in (project.root / "dags/pipelines").glob("*.yaml")})


@pytest.fixture(scope="module")
def first(platform: Platform, pipelines: None) -> dict[str, str]:
    """The id of the first run of each pipeline; they run side by side."""
    names = ("broker_away", "no_connection", "no_topic", "other_connection", "no_transform", "spark_gone", "submitted", "lost")
    with platform.api() as api:
        return {name: api.trigger(name) for name in names if Runs(api, name)}


def ranges_of(api: AirflowApi, pipeline: str) -> list[str]:
    return [key for key in api.variables(f"tidegate.{pipeline}.") if ".range." in key]


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ("broker_away", "BrokerUnavailable: no Kafka broker answers at 127.0.0.1:1"),
        ("no_connection", "ConfigError: Airflow has no connection kafka_unknown"),
        ("no_topic", "TopicNotFound: topic nowhere does not exist"),
    ],
)
def test_a_plan_that_cannot_be_made_saves_nothing(api: AirflowApi, first: dict[str, str], pipeline: str, words: str) -> None:
    """The error says what to do."""
    runs = Runs(api, pipeline)
    run = runs.ended(first[pipeline])
    assert run["tasks"]["plan"] == "failed"
    name, message = words.split(": ")
    log = runs.log(run, "plan")
    assert name in log
    assert message in log
    assert ranges_of(api, pipeline) == []


def test_a_command_says_soon_that_no_broker_answers_and_why(project: Project) -> None:
    """It does not wait as long as a task, to which the broker may come back."""
    refused = project.tidegate("plan", "broker_away", code=1)
    assert refused["error"] == "BrokerUnavailable"
    assert refused["message"] == "no Kafka broker answers at 127.0.0.1:1 (connection refused)"


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ("other_connection", "ConfigError: connection not_spark is of type http"),
        ("no_transform", "TransformError: "),
    ],
)
def test_a_load_that_cannot_start_leaves_its_range_saved(
    api: AirflowApi, first: dict[str, str], pipeline: str, words: str
) -> None:
    """Nothing moved: the range waits for the next run."""
    runs = Runs(api, pipeline)
    run = runs.ended(first[pipeline])
    assert run["tasks"] == {"plan": "success", "load": "failed", "commit": "upstream_failed"}
    for part in words.split(": "):
        assert part in runs.log(run, "load")
    assert len(ranges_of(api, pipeline)) == 1
    assert api.variables(f"tidegate.{pipeline}.cursor") == {}


def test_a_range_whose_load_found_no_spark_is_taken_up_by_the_next_run(
    api: AirflowApi, platform: Platform, first: dict[str, str]
) -> None:
    """The connection is repaired in between; the range is the same."""
    runs = Runs(api, "spark_gone")
    failed = runs.ended(first["spark_gone"])
    assert failed["tasks"]["load"] == "failed"
    assert "SparkUnavailable" in runs.log(failed, "load")
    api.sync_connection("spark_away", platform.spark_connection, mark="of a test")
    repaired = runs.run()
    assert repaired["state"] == "success"
    assert f"adopted from run {failed['dag_run_id']}" in runs.log(repaired, "plan")
    planned = [saved_ranges(api, "spark_gone", r["dag_run_id"]) for r in (failed, repaired)]
    assert planned[0] == planned[1]
    assert api.xcom("spark_gone", repaired["dag_run_id"], "load")["receipt"]["rows"] == 200


@pytest.mark.parametrize(
    ("pipeline", "what", "fix"),
    [
        ("no_transform", "TransformError: module transforms.flights has no function none.", "Define it in "),
        ("spark_nowhere", "SparkUnavailable: ", ". "),
    ],
)
def test_the_note_of_a_failed_run_tells_what_failed_the_fix_and_what_the_next_run_does(
    api: AirflowApi, pipeline: str, what: str, fix: str
) -> None:
    """After the plan's own lines; the next failure of the same batch replaces nothing of this run's note."""
    run = Runs(api, pipeline).run()
    plan, _, failure = run["note"].rpartition("\n")
    assert plan.startswith(f"batch 1 of {pipeline}, 200 offsets: ")
    assert failure.startswith(f"Failed in load: {what}")
    assert fix in failure
    assert failure.endswith("The cursor did not move. The next run retries batch 1 (same offsets).")
    assert failed_runs(api.dag_runs(pipeline))[run["dag_run_id"]] == failure


def test_a_run_that_was_repaired_and_cleared_loses_the_note_of_its_failure(api: AirflowApi) -> None:
    """The listener replaces its own note, and leaves one that a person wrote."""
    runs = Runs(api, "no_topic")
    failed = runs.run()
    assert failed["note"].startswith("Failed in plan: TopicNotFound: topic nowhere does not exist")
    path = f"/dags/no_topic/dagRuns/{failed['dag_run_id']}"
    api.patch(path, {"note": "Called the producers' team"})
    assert runs.cleared(failed["dag_run_id"], "plan")["note"] == "Called the producers' team"


def test_a_connection_of_type_spark_runs_the_same_job_through_spark_submit(api: AirflowApi, first: dict[str, str]) -> None:
    """The plan goes by file, the receipt comes back by file."""
    runs = Runs(api, "submitted")
    run = runs.ended(first["submitted"])
    assert run["state"] == "success", runs.log(run, "load")
    assert api.xcom("submitted", run["dag_run_id"], "load")["receipt"]["rows"] == 200


def test_a_lost_cursor_stops_the_pipeline_and_names_the_repair(api: AirflowApi, first: dict[str, str]) -> None:
    """The table has receipts: beginning again would hide what happened."""
    runs = Runs(api, "lost")
    assert runs.ended(first["lost"])["state"] == "success"
    for key in api.variables("tidegate.lost."):
        api.delete_variable(key)
    run = runs.run()
    log = runs.log(run, "plan")
    assert run["tasks"]["plan"] == "failed"
    assert "CursorLost" in log
    assert "tidegate ledger rebuild lost" in log
    assert api.variables("tidegate.lost.") == {}


def test_a_cursor_edited_by_hand_is_refused_with_its_key(api: AirflowApi) -> None:
    """Not believed, not overwritten."""
    runs = Runs(api, "spark_gone")
    key = "tidegate.spark_gone.cursor"
    edited = api.variable(key).replace('"seq":', '"seq":9')
    api.set_variable(key, edited)
    run = runs.run()
    log = runs.log(run, "plan")
    assert run["tasks"]["plan"] == "failed"
    assert "StateCorrupt" in log
    assert "was changed after it was written" in log
    assert api.variable(key) == edited


def test_a_trigger_that_asks_for_what_cannot_be_names_the_valid_bounds(api: AirflowApi) -> None:
    """`until` beyond the log."""
    runs = Runs(api, "submitted")
    run = runs.run(until={"small": {"0": 10**9}})
    assert run["tasks"]["plan"] == "failed"
    assert "until: small-0 cannot be at 1000000000" in runs.log(run, "plan")
