"""How far behind a cursor is, on the real broker."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests import topics
from tidegate.core.audit.views.lag import PartitionLag, TotalLag, measure_lag, total_lag
from tidegate.core.errors import CursorBeyondLog, PartitionsDeleted
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.groups import committed_offsets

HOUR_MS = 3_600_000


@pytest.fixture
def now_ms() -> int:
    """The time, epoch ms."""
    return time.time_ns() // 1_000_000


def write(kafka: dict[str, str], topic: str, partition: int, times: list[int], value: bytes = b"x") -> None:
    """One record for each timestamp, epoch ms, each in a batch of its own."""
    producer = ck.Producer({**kafka, "message.max.bytes": "1000000"})
    for at in times:
        producer.produce(topic, value, partition=partition, timestamp=at)
        assert producer.flush(30) == 0


def test_a_lag_tells_records_seconds_and_the_time_that_is_left(kafka: dict[str, str], now_ms: int) -> None:
    """By the timestamp of the next unread record; a partition that is read to its end has none."""
    topics.make_topic(kafka, "lag", 3, **{"retention.ms": str(HOUR_MS)})
    p0, p1, p2 = (TopicPartition("lag", n) for n in range(3))
    write(kafka, "lag", 0, [now_ms - 60_000, now_ms - 30_000, now_ms - 10_000])
    write(kafka, "lag", 1, [now_ms - 5_000])
    found = measure_lag(AdminBrokers(kafka), {p2: 0, p0: 1, p1: 1}, now_ms=now_ms)
    assert found == [
        PartitionLag(p0, 1, 3, 2, 30.0, 3570.0),
        PartitionLag(p1, 1, 1, 0, None, None),
        PartitionLag(p2, 0, 0, 0, None, None),
    ]
    assert total_lag(found) == TotalLag(3, 2, 30.0, 3570.0)
    assert json.loads(json.dumps(found[0].to_json())) == {
        "topic": "lag",
        "partition": 0,
        "next_offset": 1,
        "latest": 3,
        "records_behind": 2,
        "seconds_behind": 30.0,
        "retention_left_s": 3570.0,
        "held_back": 0,
        "open_s": None,
    }
    assert committed_offsets(kafka, "test-lag", [p0, p1, p2]) == {}


@pytest.mark.parametrize("config", [{"retention.ms": "-1"}, {"cleanup.policy": "compact"}])
def test_a_topic_that_keeps_its_records_has_no_time_left_to_tell(
    kafka: dict[str, str], now_ms: int, config: dict[str, str]
) -> None:
    """For ever, or until a newer record of the key comes."""
    name = f"kept-{next(iter(config))}"
    topics.make_topic(kafka, name, 1, **config)
    topics.write(kafka, name, 0, [b"v"], key=b"k", times=[now_ms - 1000])
    assert measure_lag(AdminBrokers(kafka), {TopicPartition(name, 0): 0}, now_ms=now_ms)[0] == PartitionLag(
        TopicPartition(name, 0), 0, 1, 1, 1.0, None
    )


def test_records_that_are_gone_have_no_time_left_and_the_first_that_is_there_tells_the_age(
    kafka: dict[str, str], now_ms: int
) -> None:
    """Retention passed the cursor: 0 seconds are left, the lag counts what was lost too."""
    topics.make_topic(kafka, "gone", 1)
    write(kafka, "gone", 0, [now_ms - 9000, now_ms - 8000, now_ms - 7000])
    tp, admin = TopicPartition("gone", 0), AdminClient(dict(kafka))
    for future in admin.delete_records([ck.TopicPartition("gone", 0, 2)]).values():
        future.result()
    assert measure_lag(AdminBrokers(kafka), {tp: 0}, now_ms=now_ms) == [PartitionLag(tp, 0, 3, 3, 7.0, 0.0)]


def test_a_partition_that_was_added_is_behind_by_all_that_it_holds(kafka: dict[str, str], now_ms: int) -> None:
    """The cursor of the last batch does not know it; partitions that the pipeline does not read are left out."""
    topics.make_topic(kafka, "grown", 1)
    admin = AdminClient(dict(kafka))  # its requests end with it, so it has a name
    admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(30)
    write(kafka, "grown", 1, [now_ms - 4000, now_ms])
    p0, p1, p2 = (TopicPartition("grown", n) for n in range(3))
    known, added = PartitionLag(p0, 0, 0, 0, None, None), PartitionLag(p1, 0, 2, 2, 4.0, None)
    brokers = AdminBrokers(kafka)
    found = [replace(lag, retention_left_s=None) for lag in measure_lag(brokers, {p0: 0}, now_ms=now_ms)]
    assert found == [known, added, PartitionLag(p2, 0, 0, 0, None, None)]
    assert measure_lag(brokers, {p0: 0}, now_ms=now_ms, assign={"grown": [0]}) == [known]


def test_gaps_are_passed_over_and_gaps_alone_have_no_age(kafka: dict[str, str], now_ms: int) -> None:
    """An aborted transaction and the markers hold no record for a reader of committed records."""
    topics.make_topic(kafka, "lag-gaps", 2)
    producer = ck.Producer({**kafka, "transactional.id": "lag-gaps"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("lag-gaps", b"aborted", partition=0, timestamp=now_ms - 9000)
    producer.produce("lag-gaps", b"aborted", partition=1, timestamp=now_ms - 9000)
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("lag-gaps", b"committed", partition=0, timestamp=now_ms - 2000)
    producer.flush(30)
    producer.commit_transaction(30)
    p0, p1 = TopicPartition("lag-gaps", 0), TopicPartition("lag-gaps", 1)
    deadline = time.monotonic() + 30
    while True:  # the markers are written after the commit was answered
        found = measure_lag(AdminBrokers(kafka), {p0: 0, p1: 0}, now_ms=now_ms, isolation_level="read_committed")
        if [lag.records_behind for lag in found] == [4, 2]:
            break
        assert time.monotonic() < deadline
    assert [lag.seconds_behind for lag in found] == [2.0, None]


def test_large_records_of_many_partitions_are_answered(kafka: dict[str, str], now_ms: int) -> None:
    """Though only little is fetched of each."""
    topics.make_topic(kafka, "large", 4)
    for n in range(4):
        write(kafka, "large", n, [now_ms - 1000] * 2, b"x" * 300_000)
    found = measure_lag(AdminBrokers(kafka), {TopicPartition("large", n): 0 for n in range(4)}, now_ms=now_ms)
    assert [(lag.records_behind, lag.seconds_behind) for lag in found] == [(2, 1.0)] * 4


def test_a_cursor_that_does_not_fit_the_log_is_named(kafka: dict[str, str], now_ms: int) -> None:
    """Behind by less than nothing is no lag."""
    topics.make_topic(kafka, "misfit", 1)
    with pytest.raises(CursorBeyondLog, match="misfit-0 at 5, log end 0"):
        measure_lag(AdminBrokers(kafka), {TopicPartition("misfit", 0): 5}, now_ms=now_ms)
    with pytest.raises(PartitionsDeleted, match="misfit-9"):
        measure_lag(AdminBrokers(kafka), {TopicPartition("misfit", 9): 0}, now_ms=now_ms)


def test_no_partitions_have_no_lag(kafka: dict[str, str], now_ms: int) -> None:
    """Their total is 0, and its age is unknown."""
    assert measure_lag(AdminBrokers(kafka), {}, now_ms=now_ms) == []
    assert total_lag([]) == TotalLag(0, 0, None, None)
    assert total_lag([]).to_json()["records_behind"] == 0
