"""How far behind a cursor is, on the real broker."""

from __future__ import annotations

import time

import confluent_kafka as ck
import pytest

from tests import topics
from tidegate.core.audit.lag import PartitionLag, measure_lag
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka.brokers import AdminBrokers

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


def test_retention_is_that_of_the_topic(kafka: dict[str, str], now_ms: int) -> None:
    """One that keeps its records for ever, or until a newer record of the key comes, has no time left to tell."""
    kept: dict[str, tuple[dict[str, str], float | None]] = {
        "lag-hour": ({"retention.ms": str(HOUR_MS)}, 3599.0),
        "lag-ever": ({"retention.ms": "-1"}, None),
        "lag-compact": ({"cleanup.policy": "compact"}, None),
    }
    for name, (config, left) in kept.items():
        topics.make_topic(kafka, name, 1, **config)
        topics.write(kafka, name, 0, [b"v"], key=b"k", times=[now_ms - 1000])
        tp = TopicPartition(name, 0)
        assert measure_lag(AdminBrokers(kafka), {tp: 0}, now_ms=now_ms) == [
            PartitionLag(
                topic=name, partition=0, next_offset=0, latest=1, records_behind=1, seconds_behind=1.0, retention_left_s=left
            )
        ]
    assert topics.committed_offsets(kafka, "test-lag", [TopicPartition("lag-hour", 0)]) == {}


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
