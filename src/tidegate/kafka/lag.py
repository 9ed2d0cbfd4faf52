"""How far behind a cursor is: in records, in seconds, and in time left until retention deletes what was not read.

Seconds come from the timestamp of the next unread record, so that record is read: one of each partition that is behind, by
a consumer that is given its positions, joins no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck

from tidegate.core.errors import BrokerUnavailable, CursorBeyondLog, KafkaAuthFailed, PartitionsDeleted
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.ports import IsolationLevel
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.client import LOST, settings_refused, topic_configs

POLL_S = 1.0
MANY = 1_000


@dataclass(frozen=True, order=True)
class PartitionLag:
    """How far behind one partition is.

    Attributes:
        topic_partition: which.
        next_offset: the cursor's, the next to read.
        latest: the end of the log (exclusive).
        records_behind: offsets between the two; where the log has gaps, fewer records.
        seconds_behind: age of the next unread record; None when there is none (nothing behind, or gaps only).
        retention_left_s: until retention by time may delete that record, 0 when it may already, or already has; None when
            there is none, when the topic keeps records for ever or is only compacted, or its settings may not be read.
    """

    topic_partition: TopicPartition
    next_offset: int
    latest: int
    records_behind: int
    seconds_behind: float | None
    retention_left_s: float | None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "next_offset": self.next_offset,
            "latest": self.latest,
            "records_behind": self.records_behind,
            "seconds_behind": self.seconds_behind,
            "retention_left_s": self.retention_left_s,
        }


@dataclass(frozen=True)
class TotalLag:
    """All partitions together: the sum of the records, the most seconds, the least time left (None: of none known)."""

    partitions: int
    records_behind: int
    seconds_behind: float | None
    retention_left_s: float | None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return dict(vars(self))


def total_lag(lags: Sequence[PartitionLag]) -> TotalLag:
    """The lags of partitions as one."""
    return TotalLag(
        partitions=len(lags),
        records_behind=sum(lag.records_behind for lag in lags),
        seconds_behind=max((lag.seconds_behind for lag in lags if lag.seconds_behind is not None), default=None),
        retention_left_s=min((lag.retention_left_s for lag in lags if lag.retention_left_s is not None), default=None),
    )


def measure_lag(
    settings: Mapping[str, str],
    cursor_offsets: Mapping[TopicPartition, int],
    *,
    now_ms: int,
    isolation_level: IsolationLevel = "read_uncommitted",
    timeout_s: float = 15.0,
    brokers: AdminBrokers | None = None,
) -> list[PartitionLag]:
    """The lag of each partition of a cursor, sorted.

    Args:
        settings: librdkafka's configuration (`tidegate.kafka.settings.planning_client`).
        cursor_offsets: the next offset to read of each partition.
        now_ms: the time, epoch ms.
        isolation_level: where the log ends, and what counts as a record: the pipeline's own.
        timeout_s: seconds of silence after which the broker counts as unavailable.
        brokers: who is asked for the watermarks; a client of these settings by default.

    Raises:
        TopicNotFound: a topic does not exist.
        PartitionsDeleted: a partition does not exist.
        CursorBeyondLog: the log ends before the cursor.
        BrokerUnavailable: no broker, or no leader of a partition, answered in time.
        KafkaAuthFailed: the credentials are refused, or do not allow to read a topic.
    """
    topics = sorted({tp.topic for tp in cursor_offsets})
    brokers = brokers or AdminBrokers(settings, timeout_s=timeout_s)
    marks = brokers.watermarks(topics, isolation_level=isolation_level)
    _check(cursor_offsets, marks.latest)
    behind = {tp: max(at, marks.earliest[tp]) for tp, at in cursor_offsets.items() if at < marks.latest[tp]}
    retention = _retention_ms(settings, sorted({tp.topic for tp in behind}), timeout_s)
    times = _next_timestamps(settings, behind, isolation_level, timeout_s)
    lags = []
    for tp, at in sorted(cursor_offsets.items()):
        written, kept = times.get(tp), retention.get(tp.topic)
        left = None if written is None or kept is None else max(0.0, (written + kept - now_ms) / 1000)
        lags.append(
            PartitionLag(
                topic_partition=tp,
                next_offset=at,
                latest=marks.latest[tp],
                records_behind=marks.latest[tp] - at,
                # a producer's clock may be ahead of this one
                seconds_behind=None if written is None else max(0.0, (now_ms - written) / 1000),
                retention_left_s=0.0 if at < marks.earliest[tp] else left,
            )
        )
    return lags


def _check(offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> None:
    gone = sorted(tp for tp in offsets if tp not in latest)
    if gone:
        raise PartitionsDeleted(f"the topic no longer has {', '.join(map(str, gone[:10]))}", fix="See `tidegate plan`")
    beyond = [f"{tp} at {at}, log end {latest[tp]}" for tp, at in sorted(offsets.items()) if at > latest[tp]]
    if beyond:
        raise CursorBeyondLog(f"the cursor is beyond the end of the log: {', '.join(beyond[:10])}", fix="See `tidegate plan`")


def _retention_ms(settings: Mapping[str, str], topics: Sequence[str], timeout_s: float) -> dict[str, int]:
    """How long each topic keeps a record, ms; topics that keep it for ever are left out, and those that may not be asked."""
    found = {}
    for topic, config in topic_configs(settings, topics, timeout_s=timeout_s).items():
        kept = int(config["retention.ms"])
        if kept >= 0 and "delete" in config["cleanup.policy"].split(","):
            found[topic] = kept
    return found


def _next_timestamps(
    settings: Mapping[str, str], positions: Mapping[TopicPartition, int], isolation_level: str, timeout_s: float
) -> dict[TopicPartition, int]:
    """The timestamp (epoch ms) of the first record at or after each position; partitions without one are left out."""
    if not positions:
        return {}
    conf: dict[str, Any] = {
        "log_level": 2,
        **settings,
        "group.id": f"{settings.get('client.id', 'tidegate')}-lag",  # a consumer must have one; nothing is ever committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation_level,
        # one record a partition is wanted: do not fetch a megabyte of each
        "queued.min.messages": 1,
        "fetch.message.max.bytes": 16_384,
    }
    try:
        consumer = ck.Consumer(conf)
    except ck.KafkaException as error:
        raise settings_refused(error, settings) from None  # the cause would tell the value
    waiting, found = set(positions), dict[TopicPartition, int]()
    try:
        consumer.assign([ck.TopicPartition(tp.topic, tp.partition, at) for tp, at in sorted(positions.items())])
        deadline = time.monotonic() + timeout_s
        while waiting:
            done: list[ck.TopicPartition] = []
            for message in consumer.consume(MANY, timeout=POLL_S):
                tp = _answered(message)
                if tp not in waiting:
                    continue
                waiting.discard(tp)
                done.append(ck.TopicPartition(tp.topic, tp.partition))
                kind, written = message.timestamp()
                if message.error() is None and kind != ck.TIMESTAMP_NOT_AVAILABLE:
                    found[tp] = written
            if done:
                consumer.incremental_unassign(done)
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                raise BrokerUnavailable(
                    f"the next records of {len(waiting)} partitions, {min(waiting)} among them, were not answered "
                    f"for {timeout_s:g} s",
                    fix="See the broker's log, or try again",
                )
    finally:
        consumer.close()
    return found


def _answered(message: ck.Message) -> TopicPartition | None:
    """Which partition a message says something final about: a record, the log's end, or that the record is gone by now."""
    error, topic, partition = message.error(), message.topic(), message.partition()
    if error is not None and error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise KafkaAuthFailed(
            f"the credentials do not allow to read topic {topic}", fix="Allow READ on it, or see its watermarks only"
        )
    if topic is None or partition is None or (error is not None and error.code() not in FINAL):
        return None  # a connection that broke: librdkafka connects again
    return TopicPartition(topic, partition)


FINAL = {ck.KafkaError._PARTITION_EOF, *LOST}  # noqa: SLF001 - librdkafka's local error codes are named with an underscore
