"""A topic that changes under a schedule: what the planner decides, seen through Airflow and the command line, in this order."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.e2e.project import Project
from tests.e2e.runs import Runs, saved_ranges, state_of
from tests.topics import make_topic_again
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.kafka.groups import committed_offsets
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights
from tidegate.waiting import wait_until

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


def test_a_dry_run_tells_what_the_next_run_reads_and_writes_nothing(project: Project, api: AirflowApi, runs: Runs) -> None:
    """The run then reads exactly that."""
    dry = project.tidegate("plan", TOPIC)
    assert api.variables(f"tidegate.{TOPIC}.") == {}
    assert sum(until - start for start, until in dry["ranges"][TOPIC].values()) in range(199, 202)
    assert dry["reasons"].keys() <= {"earliest to max_records", "earliest to log end"}
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "load")
    assert saved_ranges(api, TOPIC, run["dag_run_id"]) == dry["ranges"]
    assert run["note"].startswith(f"batch 1 of {TOPIC}, ")
    assert "from: earliest" in run["note"]


def test_lag_is_told_by_the_command_and_by_the_consumer_group(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """Every lag tool sees how far the pipeline is."""
    behind = project.tidegate("lag", TOPIC)
    assert behind["total"]["records_behind"] in range(99, 102)
    assert behind["total"]["seconds_behind"] > 0
    assert runs.run()["state"] == "success"
    assert project.tidegate("lag", TOPIC)["total"]["records_behind"] == 0
    cursor = {TopicPartition(TOPIC, int(p)): offset for p, offset in offsets(api).items()}
    assert committed_offsets(kafka, f"tidegate-{TOPIC}", cursor) == cursor


def test_a_new_partition_is_read_from_its_beginning_by_the_run_that_first_sees_it(
    api: AirflowApi, kafka: dict[str, str], admin: AdminClient, runs: Runs
) -> None:
    """Mid-schedule."""
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result()

    def grown() -> bool:
        return len(admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions) == 3

    assert wait_until(grown, 300, poll_s=0.2)
    produce(kafka, read_flights(90), topic=TOPIC)
    run = runs.run()
    assert run["state"] == "success"
    assert f"{TOPIC}-2 [0, " in runs.log(run, "plan")
    assert "new partition" in runs.log(run, "plan")
    assert set(offsets(api)) == {"0", "1", "2"}


def test_what_retention_took_stops_the_schedule_until_somebody_accepts_the_loss(
    project: Project, api: AirflowApi, kafka: dict[str, str], admin: AdminClient, runs: Runs
) -> None:
    """Never silent, and never for more than what is lost."""
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
    assert project.tidegate("lag", TOPIC)["total"]["records_behind"] == 0


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


def test_rows_of_a_former_topic_do_not_trouble_the_verification(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """The new topic is shorter than the old one was; its records replace rows only as far as it goes."""
    make_topic_again(kafka, TOPIC, 2)
    produce(kafka, read_flights(20), topic=TOPIC)
    assert "TopicRecreated" in runs.log(runs.run(), "plan")
    project.tidegate("accept", "recreated", TOPIC, TOPIC)
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "plan")
    assert not [key for key in api.variables(f"tidegate.{TOPIC}.") if ".accepted." in key]
    verified = project.tidegate("ledger", "verify", TOPIC)
    assert (verified["holds"], verified["records"], verified["former"]) == (True, 20, 1480)


def test_a_range_that_retention_passed_while_it_waited_goes_on_after_the_loss_is_accepted(
    project: Project, api: AirflowApi, kafka: dict[str, str], admin: AdminClient, runs: Runs
) -> None:
    """Its run failed for another reason; the plan says what is lost, and the command lets the next run plan anew."""
    settings = {"source": {"pattern": "chang.*"}, "limits": {"max_records": 200}, "retries": 0}
    sink = {"table": "lake.bad.changing"}
    project.write(TOPIC, **settings, sink=sink, transform="transforms.nowhere:flights")
    produce(kafka, read_flights(40), topic=TOPIC)
    failed = runs.run()
    assert (failed["tasks"]["plan"], failed["tasks"]["load"]) == ("success", "failed")
    project.write(TOPIC, **settings, sink=sink)
    at = offsets(api)["0"]
    for future in admin.delete_records([KafkaPartition(TOPIC, 0, at + 3)]).values():
        future.result()
    refused = runs.run()
    assert "OffsetsExpired" in runs.log(refused, "plan")
    assert "tidegate accept loss changing" in runs.log(refused, "plan")
    accepted = project.tidegate("accept", "loss", TOPIC)
    assert accepted["loss"] == {TOPIC: {"0": [at, at + 3]}}
    assert accepted["dropped"] == [failed["dag_run_id"]]
    again = runs.run()
    assert again["state"] == "success", runs.log(again, "plan")
    assert project.tidegate("lag", TOPIC)["total"]["records_behind"] == 0


def test_topics_that_the_file_names_no_more_or_anew_are_told_apart_from_lost_ones(
    project: Project, api: AirflowApi, kafka: dict[str, str], platform: Platform
) -> None:
    """Nothing is dropped until the file says so; a topic that is added begins at the file's start."""
    name, sink = "picked", {"table": "lake.bad.picked"}
    for topic in ("picked_a", "picked_b", "picked_c"):
        create_topic(kafka, topic, 1)
        produce(kafka, read_flights(10), topic=topic)
    platform.sync_pools({"tidegate_lake_bad_picked": 1})
    project.write(name, source={"topics": ["picked_a", "picked_b"]}, retries=0, sink=sink)
    picked = Runs(api, name)
    assert picked.run()["state"] == "success"
    renamed = ["picked_a", "picked_c"]
    project.write(name, source={"topics": renamed, "start": "latest"}, retries=0, sink=sink)
    refused = picked.run()
    assert "PartitionsLeftOut" in picked.log(refused, "plan")
    assert "does not read picked_b-0 any more" in picked.log(refused, "plan")
    project.write(name, source={"topics": renamed, "start": "latest", "on_deleted": "retire"}, retries=0, sink=sink)
    assert picked.run()["state"] == "success"
    produce(kafka, read_flights(4), topic="picked_c")
    assert picked.run()["state"] == "success"
    shown = project.tidegate("ledger", "show", name)["batches"]
    assert [batch["ranges"] for batch in shown][-1] == {"picked_c": {"0": [10, 14]}}
