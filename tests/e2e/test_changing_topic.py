"""A topic that changes under a schedule: what the planner decides, seen through Airflow and the command line, in this order."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tests.topics import committed_offsets, make_topic_again
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.model.ranges import TopicPartition
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

TOPIC = "changing"


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    """A topic of two partitions, and a pipeline of it; the broker's settings."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, TOPIC, 2)
    produce(settings, read_flights(300), topic=TOPIC)
    project.write(
        TOPIC, source={"pattern": "chang.*"}, limits={"max_records": 200}, retries=0, sink={"table": "lake.bad.changing"}
    )
    platform.sync_pools({"tidegate_lake_bad_changing": 1})
    return settings


@pytest.fixture
def admin(kafka: dict[str, str]) -> AdminClient:
    """A client that lives as long as the test: its requests end with it."""
    return AdminClient(dict(kafka))


@pytest.fixture
def runs(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    return Runs(api, TOPIC)


def offsets(api: AirflowApi) -> dict[str, int]:
    found: dict[str, int] = state_of(api, f"tidegate.{TOPIC}.cursor")["offsets"][TOPIC]
    return found


def test_what_retention_took_stops_the_schedule_until_somebody_accepts_the_loss(
    project: Project, api: AirflowApi, kafka: dict[str, str], admin: AdminClient, runs: Runs
) -> None:
    """Never silent, and never for more than what is lost."""
    first = runs.run(max_records=500)
    assert first["state"] == "success", runs.log(first, "load")
    cursor = {TopicPartition(TOPIC, int(p)): offset for p, offset in offsets(api).items()}
    assert committed_offsets(kafka, f"tidegate-{TOPIC}", cursor) == cursor
    produce(kafka, read_flights(200), topic=TOPIC)
    lost = offsets(api)["1"] + 5
    for future in admin.delete_records([KafkaPartition(TOPIC, 1, lost)]).values():
        future.result()
    run = runs.run()
    log = runs.log(run, "plan")
    assert run["tasks"]["plan"] == "failed"
    assert "OffsetsExpired" in log
    assert f"{TOPIC}-1 [{lost - 5}, {lost}) = 5 offsets" in log
    assert "tidegate accept loss changing" in log
    accepted = project.tidegate("accept", "loss", TOPIC)
    assert accepted["loss"] == {TOPIC: {"1": [lost - 5, lost]}}
    again = runs.run()
    assert again["state"] == "success", runs.log(again, "plan")
    assert "accepted loss" in runs.log(again, "plan")
    behind = project.tidegate("lag", TOPIC)
    assert (behind["total"]["records_behind"], behind["lost"]) == (0, None)
    verified = project.tidegate("ledger", "verify", TOPIC)
    assert (verified["holds"], verified["began_anew"]) == (True, {TOPIC: {"1": [0, lost]}})


def test_a_topic_created_again_stops_the_schedule_until_somebody_accepts_it(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """Also where the old offsets are valid in the new log."""
    make_topic_again(kafka, TOPIC, 2)
    produce(kafka, read_flights(1500), topic=TOPIC)
    run = runs.run()
    assert run["tasks"]["plan"] == "failed"
    assert "TopicRecreated" in runs.log(run, "plan")
    assert set(project.tidegate("accept", "recreated", TOPIC, TOPIC)["recreated"]) == {TOPIC}
    again = runs.run(max_records=5000)
    assert again["state"] == "success", runs.log(again, "plan")
    assert sum(offsets(api).values()) == 1500
    assert set(offsets(api)) == {"0", "1"}
    first = api.dag_runs(TOPIC)[0]["dag_run_id"]
    for task, what in (("load", "this"), ("plan", "batch 1")):
        refused = runs.cleared(first, task)
        assert refused["tasks"][task] == "failed"
        assert f"since {what} was planned" in runs.log(refused, task)
