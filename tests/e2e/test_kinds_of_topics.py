"""Topics with gaps and runs with limits, through whole DAG runs: what is planned, loaded, and refused."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tests.topics import make_topic, transact, write
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights
from tidegate.waiting import wait_until

TRANSACTED, COMPACTED = TopicPartition("transacted", 0), TopicPartition("compacted", 0)
FLIGHT = b'{"year": 2013, "flight": 1545}'
COMPACT = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}
UPDATES = 60


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    """The topics, and a pipeline for each law, all parsed in one go; the broker's settings."""
    settings = {"bootstrap.servers": platform.bootstrap_servers, "client.id": "test"}
    create_topic(settings, "sized", 2)
    create_topic(settings, "marked", 1)
    create_topic(settings, TRANSACTED.topic, 1)
    make_topic(settings, COMPACTED.topic, **COMPACT)
    produce(settings, read_flights(600), topic="sized")
    produce(settings, read_flights(20), topic="marked")
    changed: dict[str, dict[str, Any]] = {
        "sized": {"limits": {"max_bytes": 30_000}},
        "marked": {"limits": {}, "source": {"topics": ["marked"], "contiguous": True}},
        "gaps": {"limits": {}, "source": {"topics": [TRANSACTED.topic, COMPACTED.topic]}},
    }
    for name, changes in changed.items():
        pipeline = {"source": {"topics": [name]}, "retries": 0, "sink": {"table": f"lake.bad.{name}"}, **changes}
        project.write(name, **pipeline)
        platform.sync_pools({f"tidegate_lake_bad_{name}": 1})
    return settings


def held(kafka: dict[str, str], tp: TopicPartition) -> list[int]:
    """The offsets of the committed records that the log still holds."""
    return list(read_offsets(kafka, AdminBrokers(kafka).watermarks([tp.topic]))[tp])


def loaded(platform: Platform, table: str, tp: TopicPartition) -> dict[int, str | None]:
    """The offsets in the table, each with what was wrong with its record."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - it reads the environment, which others here set, once

    rows = load_catalog("lake", **platform.catalog_properties).load_table(table).scan().to_arrow().to_pylist()
    return {row["_kafka_offset"]: row["_error"] for row in rows if row["_kafka_topic"] == tp.topic}


def test_a_run_of_limited_bytes_reads_what_the_last_records_size_allows(api: AirflowApi, kafka: dict[str, str]) -> None:
    """By the mean size that the last load saw; the saved range says that this limit cut it."""
    runs = Runs(api, "sized")
    first = runs.run(max_records=100)
    assert first["state"] == "success", runs.log(first, "load")
    size = state_of(api, "tidegate.sized.cursor")["record_bytes"]
    assert 100 < size < 1000
    second = runs.run()
    assert second["state"] == "success", runs.log(second, "load")
    (key,) = api.variables("tidegate.sized.range.0000000002.")
    saved = state_of(api, key)
    assert saved["limits"] == {"max_bytes": 30_000}
    assert set(saved["reasons"]) == {"cursor to max_bytes"}
    records = sum(until - start for start, until in saved["ranges"]["sized"].values())
    assert records in range(int(30_000 / size) - 1, int(30_000 / size) + 2)
    assert "max_bytes" in runs.log(second, "plan")
    assert api.xcom("sized", second["dag_run_id"], "load")["receipt"]["rows"] == records


def test_a_marker_in_a_topic_that_is_said_to_have_no_gaps_stops_the_cursor(api: AirflowApi, kafka: dict[str, str]) -> None:
    """The load fails by name, every time it is tried; the schedule waits for somebody to decide."""
    runs = Runs(api, "marked")
    whole = runs.run()
    assert whole["state"] == "success", runs.log(whole, "load")
    cursor = api.variable("tidegate.marked.cursor")
    transact(kafka, "marked", 0, [FLIGHT] * 5)
    for _ in range(2):
        run = runs.run()
        assert run["tasks"] == {"plan": "success", "load": "failed", "commit": "upstream_failed"}
        log = runs.log(run, "load")
        assert "ReceiptMismatch" in log
        assert "holds 6 offsets, and the pipeline says its topics have no gaps, but 5 records were read" in log
        assert api.variable("tidegate.marked.cursor") == cursor


def test_transactions_compaction_and_tombstones_load_to_the_end_of_the_log(
    api: AirflowApi, platform: Platform, kafka: dict[str, str]
) -> None:
    """What was aborted or compacted away is a gap, what is left is a row, and the cursor is where the log ended."""
    for records, commit in ((5, True), (4, False), (3, True)):
        transact(kafka, TRANSACTED.topic, 0, [FLIGHT] * records, commit=commit)
    producer = ck.Producer(kafka)
    for number in range(UPDATES):
        producer.produce(COMPACTED.topic, key=f"key-{number % 3}".encode(), value=FLIGHT, partition=0)
    producer.produce(COMPACTED.topic, key=b"key-0", value=None, partition=0)
    assert producer.flush(30) == 0

    def cleaned() -> bool:
        # only segments before the active one are cleaned, and each of these records begins another
        write(kafka, COMPACTED.topic, 0, [FLIGHT], key=b"other")
        return sum(offset <= UPDATES for offset in held(kafka, COMPACTED)) <= 10

    assert wait_until(cleaned, 300, poll_s=1)
    before = held(kafka, COMPACTED)
    runs = Runs(api, "gaps")
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "load")
    assert sorted(loaded(platform, "bad.gaps", TRANSACTED)) == [0, 1, 2, 3, 4, 11, 12, 13]
    rows = loaded(platform, "bad.gaps", COMPACTED)
    # the broker may clean on while the run reads
    assert set(held(kafka, COMPACTED)) <= rows.keys() <= set(before)
    assert {offset: error for offset, error in rows.items() if error} == {UPDATES: "no value (a tombstone)"}
    offsets = state_of(api, "tidegate.gaps.cursor")["offsets"]
    assert offsets[TRANSACTED.topic] == {"0": 15}
    assert offsets[COMPACTED.topic] == {"0": before[-1] + 1}
