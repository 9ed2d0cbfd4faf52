"""Runs whose saved ranges are gone: their own batch again, or refused. Tables that lost batches: `tests/chaos`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.audit.oracle import judge
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.sinks.iceberg.history import read_origins
from tidegate.spark.session import connect
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

NAME = "lossy"
TABLE = "lake.bad.lossy"
BATCH = 60


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    project.write(NAME, source={"topics": [NAME]}, retries=0, sink={"table": TABLE})
    platform.sync_pools({"tidegate_lake_bad_lossy": 2})
    return settings


@pytest.fixture
def runs(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    return Runs(api, NAME)


@pytest.fixture
def lake(platform: Platform) -> Iterator[Callable[[str], list[Any]]]:
    """Runs SQL as anybody may."""
    with connect(platform.spark_remote, name="somebody") as spark:
        yield lambda query: spark.sql(query).collect()


def batches(kafka: dict[str, str], runs: Runs, count: int = 1) -> None:
    """New records, and a batch of all of them, as often as asked."""
    for _ in range(count):
        produce(kafka, read_flights(BATCH), topic=NAME)
        run = runs.run()
        assert run["state"] == "success", runs.log(run, "plan")


def check_whole(kafka: dict[str, str]) -> None:
    """Every record of the log is in the table once: librdkafka and PyIceberg say so."""
    marks = AdminBrokers(kafka).watermarks([NAME])
    verdict = judge(read_offsets(kafka, marks), read_origins(TABLE))
    assert verdict.holds, verdict.to_json()


pytestmark = pytest.mark.usefixtures("catalog")


def test_a_cleared_run_whose_variable_is_gone_does_its_own_batch_or_fails_by_name(
    api: AirflowApi, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """Nothing is planned under its id; the cursor stays."""
    batches(kafka, runs, 3)
    done = [run["dag_run_id"] for run in api.dag_runs(NAME) if run["state"] == "success"]
    keys = sorted(key for key in api.variables(f"tidegate.{NAME}.range."))
    cursor = api.variable(f"tidegate.{NAME}.cursor")
    ranges = state_of(api, keys[-2])["ranges"]
    for key in keys[:-1]:
        api.delete_variable(key)
    again = runs.cleared(done[-2], "plan", "load", "commit")
    assert again["state"] == "success", runs.log(again, "plan")
    assert "committed before: loading it again" in runs.log(again, "plan")
    assert state_of(api, keys[-2])["ranges"] == ranges
    api.delete_variable(keys[-2])
    lake(f"CALL lake.system.expire_snapshots(table => '{TABLE}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)")
    first = runs.cleared(done[0], "plan", "load", "commit")
    assert first["tasks"]["plan"] == "failed"
    assert "RangeForgotten" in runs.log(first, "plan")
    assert api.variable(f"tidegate.{NAME}.cursor") == cursor
    check_whole(kafka)
