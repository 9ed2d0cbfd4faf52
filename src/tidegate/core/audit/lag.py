"""How far behind a cursor is: in records, in seconds, and in time left until retention deletes what was not read.

Seconds come from the timestamp of the next unread record of each partition, retention from the topic's settings; both are
asked of the `Brokers` port only for what is behind. Records behind an open transaction are counted apart: no run reads them
before it ends. A partition that was added to a topic of the cursor is unread from its
first record on. A topic that the cursor does not know yet is not counted: the next plan decides where it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.core.model.errors import CursorBeyondLog, PartitionsDeleted, some
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import Assigned, IsolationLevel, Watermarks, age_s, begins, sentence
from tidegate.core.state.ports import Brokers

NAMED = 10
"""Partitions that one message names."""


@dataclass(frozen=True, order=True, kw_only=True)
class PartitionLag:
    """How far behind one partition is.

    Attributes:
        next_offset: the next to read: the cursor's, or the first of the log where the cursor does not know the partition.
        latest: the end of the log (exclusive).
        records_behind: offsets between the two; where the log has gaps, fewer records.
        seconds_behind: age of the next unread record; None when there is none (nothing behind, or gaps only).
        retention_left_s: until retention by time may delete that record, or else the first that is held back, 0 when it may
            already, or already has; None when there is none, when the topic keeps records for ever or is only compacted, or its
            settings may not be read.
        held_back: offsets beyond `latest` that an open transaction keeps from `read_committed`.
        open_s: age of that transaction's first record.
    """

    topic: str
    partition: int
    next_offset: int
    latest: int
    records_behind: int
    seconds_behind: float | None
    retention_left_s: float | None
    held_back: int = 0
    open_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TotalLag:
    """All partitions together: the sums of the records, the most seconds, the least time left (None: of none known).

    `open_transaction` says that records wait behind an open transaction; None where none do.
    """

    partitions: int
    records_behind: int
    seconds_behind: float | None
    retention_left_s: float | None
    held_back: int = 0
    open_s: float | None = None
    open_transaction: str | None = None


def total_lag(lags: Sequence[PartitionLag]) -> TotalLag:
    """The lags of partitions as one."""
    held_back = sum(lag.held_back for lag in lags)
    open_s = max((lag.open_s for lag in lags if lag.open_s is not None), default=None)
    return TotalLag(
        partitions=len(lags),
        records_behind=sum(lag.records_behind for lag in lags),
        seconds_behind=max((lag.seconds_behind for lag in lags if lag.seconds_behind is not None), default=None),
        retention_left_s=min((lag.retention_left_s for lag in lags if lag.retention_left_s is not None), default=None),
        held_back=held_back,
        open_s=open_s,
        open_transaction=sentence(held_back, open_s),
    )


def aged(lag: TotalLag, seconds: float) -> TotalLag:
    """A lag that was measured some time ago: what is unread expires all the same."""
    left = lag.retention_left_s
    return replace(lag, retention_left_s=None if left is None else max(0.0, left - seconds))


@dataclass(frozen=True, kw_only=True)
class LagView:
    """The lag of a pipeline.

    Attributes:
        partitions: sorted.
        total: all partitions together.
        maintenance: why its table needs maintenance; None where it does not.
        lost: that its table is lost; None where it is not.
    """

    pipeline: str
    partitions: tuple[PartitionLag, ...]
    total: TotalLag
    maintenance: str | None = None
    lost: str | None = None


def measure_lag(
    brokers: Brokers,
    cursor_offsets: Mapping[TopicPartition, int],
    *,
    now_ms: int,
    isolation_level: IsolationLevel = "read_uncommitted",
    assign: Assigned = None,
) -> list[PartitionLag]:
    """The lag of each partition of a cursor, and of those that its topics have got since, sorted.

    `isolation_level` and `assign` are the pipeline's own. Raises TopicNotFound: a topic does not exist. PartitionsDeleted: a
    partition does not exist. CursorBeyondLog: the log ends before the cursor. BrokerUnavailable: no broker, or no leader of a
    partition, answered in time. KafkaAuthFailed: the credentials are refused, or do not allow to read a topic.
    """
    watermarks = brokers.watermarks(sorted({tp.topic for tp in cursor_offsets}), isolation_level=isolation_level)
    positions = to_read(cursor_offsets, watermarks, assign)
    behind = unread(positions, watermarks)
    times = brokers.next_timestamps(behind, isolation_level=isolation_level) if behind else {}
    held = {tp: at for tp, at in begins(watermarks).items() if tp in positions}
    began = brokers.next_timestamps(held) if held else {}
    topics = sorted({tp.topic for tp in (*behind, *held)})
    retention = brokers.retention_ms(topics) if topics else {}
    measured = []
    for tp, at in sorted(positions.items()):
        written, kept = times.get(tp), retention.get(tp.topic)
        # retention waits for no transaction
        first = written if tp in behind else began.get(tp)
        left = None if first is None or kept is None else max(0.0, (first + kept - now_ms) / 1000)
        measured.append(
            PartitionLag(
                topic=tp.topic,
                partition=tp.partition,
                next_offset=at,
                latest=watermarks.latest[tp],
                records_behind=watermarks.latest[tp] - at,
                # a producer's clock may be ahead of this one
                seconds_behind=None if written is None else max(0.0, (now_ms - written) / 1000),
                retention_left_s=0.0 if at < watermarks.earliest[tp] else left,
                held_back=watermarks.held_back.get(tp, 0),
                open_s=age_s(began.get(tp), now_ms),
            )
        )
    return measured


def to_read(
    cursor_offsets: Mapping[TopicPartition, int], watermarks: Watermarks, assign: Assigned = None
) -> dict[TopicPartition, int]:
    """The next offset to read of each partition: the cursor's, or the first of the log where the cursor does not know it."""
    return {**watermarks.assigned(assign).earliest, **cursor_offsets}


def unread(cursor_offsets: Mapping[TopicPartition, int], watermarks: Watermarks) -> dict[TopicPartition, int]:
    """The first offset that is retained and not read, of each partition that is behind. Raises as `measure_lag`."""
    latest = watermarks.latest
    deleted = sorted(tp for tp in cursor_offsets if tp not in latest)
    if deleted:
        raise PartitionsDeleted(f"the topic no longer has {some(map(str, deleted), NAMED)}", fix="See `tidegate plan PIPELINE`")
    beyond = [f"{tp} at {at}, log end {latest[tp]}" for tp, at in sorted(cursor_offsets.items()) if at > latest[tp]]
    if beyond:
        raise CursorBeyondLog(
            f"the cursor is beyond the end of the log: {some(beyond, NAMED)}", fix="See `tidegate plan PIPELINE`"
        )
    return {tp: max(at, watermarks.earliest[tp]) for tp, at in cursor_offsets.items() if at < latest[tp]}
