"""Which offsets a run reads, and why: a pure function of the cursor, the brokers' watermarks and the policy.

A bound that is not resolved yet ("earliest") is a word of the policy; a plan holds numbers only. Every partition of a plan
has a `Decision` that names what set its two bounds, so that a saved range explains itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.cursor import Cursor
from tidegate.errors import (
    ConfigError,
    CursorBeyondLog,
    OffsetsExpired,
    PartitionsDeleted,
    RequestError,
    StateCorrupt,
    TidegateError,
    TopicRecreated,
)
from tidegate.ranges import OffsetRange, TopicPartition, ranges_from_json, ranges_to_json, total_count
from tidegate.rates import share_limit

FromReason = Literal["cursor", "earliest", "latest", "new partition"]
UntilReason = Literal["log end", "max_records", "until"]


@dataclass(frozen=True)
class Watermarks:
    """What the brokers hold: earliest retained offset and log end (exclusive) by partition, and topic ids (KIP-516)."""

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.earliest.keys() != self.latest.keys():
            raise RequestError("earliest and latest name different partitions")
        for tp, latest in self.latest.items():
            if not 0 <= self.earliest[tp] <= latest:
                raise RequestError(f"{tp}: the log cannot hold [{self.earliest[tp]}, {latest})")


@dataclass(frozen=True)
class RangePolicy:
    """What a pipeline and a trigger ask of a plan.

    `start`: where a pipeline without a cursor begins. `max_records`: of the whole batch, shared by lag (`share_limit`).
    `until`: exclusive ends that a trigger asked for, each of a partition; partitions it does not name are not read.
    """

    start: Literal["earliest", "latest"] = "earliest"
    max_records: int | None = None
    until: Mapping[TopicPartition, int] | None = None

    def __post_init__(self) -> None:
        if self.start not in ("earliest", "latest"):
            raise ConfigError(f'a start is "earliest" or "latest", not {self.start!r}')
        if self.max_records is not None and (
            isinstance(self.max_records, bool) or not isinstance(self.max_records, int) or self.max_records < 1
        ):
            raise RequestError(f"max_records: expected a positive integer, got {self.max_records!r}")


@dataclass(frozen=True, order=True)
class Decision:
    """Why one partition's range is what it is."""

    topic_partition: TopicPartition
    from_reason: FromReason
    until_reason: UntilReason


@dataclass(frozen=True)
class Skip:
    """Why there is nothing to do."""

    reason: str


@dataclass(frozen=True)
class Plan:
    """The ranges of one batch, sorted, with a decision for each; or a skip, and then no ranges.

    A range may be empty where a partition is met for the first time: committing it fixes the partition's position.
    """

    ranges: tuple[OffsetRange, ...]
    decisions: tuple[Decision, ...]
    skip: Skip | None = None

    @property
    def count(self) -> int:
        """Offsets in all ranges together."""
        return total_count(self.ranges)


def plan_next(cursor: Cursor, watermarks: Watermarks, policy: RangePolicy, *, interval_s: float, now_ms: int) -> Plan:
    """The next batch after `cursor`.

    Args:
        cursor: how far the pipeline has come; `Cursor(pipeline)` for one that never ran.
        watermarks: of every partition of the pipeline's topics.
        policy: limits and requests.
        interval_s: seconds between runs, for limits given as a rate.
        now_ms: the time, epoch ms, for limits that depend on it.

    Raises:
        OffsetsOutOfRange: the cursor and the log do not fit (a subclass says how); never read around.
        RequestError: `policy.until` names an unknown partition, or an offset outside what can be read.
    """
    del interval_s, now_ms  # no limit by rate or by time yet
    _check_log(cursor, watermarks)
    first_run = cursor.seq == 0 and not cursor.offsets
    starts = {tp: _start(tp, cursor, watermarks, policy, first_run=first_run) for tp in sorted(watermarks.latest)}
    ends, until_reasons = _ends({tp: offset for tp, (offset, _) in starts.items()}, watermarks, policy)

    ranges: list[OffsetRange] = []
    decisions: list[Decision] = []
    for tp, (from_offset, from_reason) in starts.items():
        if ends[tp] > from_offset or tp not in cursor.offsets:
            ranges.append(OffsetRange(tp.topic, tp.partition, from_offset, ends[tp]))
            decisions.append(Decision(tp, from_reason, until_reasons[tp]))
    if not ranges:
        return Plan(
            (),
            (),
            Skip(
                "nothing new: the cursor is at the end of the log"
                if not policy.until
                else "the cursor is at the `until` asked for"
            ),
        )
    return Plan(tuple(ranges), tuple(decisions))


def _check_log(cursor: Cursor, watermarks: Watermarks) -> None:
    for topic, topic_id in cursor.topic_ids.items():
        found = watermarks.topic_ids.get(topic)
        if found is not None and found != topic_id:
            raise TopicRecreated(
                f"topic {topic} was deleted and created again: its id is {found}, the cursor's {topic_id}",
                fix=f"Its offsets mean other records. To start anew, remove the Variables of {cursor.pipeline} and its table",
                topic=topic,
            )
    gone = sorted(tp for tp in cursor.offsets if tp not in watermarks.latest)
    if gone:
        raise PartitionsDeleted(
            f"the topic no longer has {_listed(gone)}, which the cursor of {cursor.pipeline} reads",
            fix="Restore the topic, or remove it from the pipeline's `source.topics`",
            partitions=_listed(gone),
        )
    expired = {
        tp: (offset, watermarks.earliest[tp])
        for tp, offset in sorted(cursor.offsets.items())
        if offset < watermarks.earliest[tp]
    }
    if expired:
        lost = ", ".join(f"{tp} [{a}, {b}) = {b - a} records" for tp, (a, b) in expired.items())
        raise OffsetsExpired(
            f"retention deleted records before {cursor.pipeline} read them: {lost}",
            fix="Nothing was skipped. Raise the topic's retention, then decide how to go on",
            lost=lost,
        )
    beyond = {
        tp: (offset, watermarks.latest[tp]) for tp, offset in sorted(cursor.offsets.items()) if offset > watermarks.latest[tp]
    }
    if beyond:
        where = ", ".join(f"{tp} at {a}, log end {b}" for tp, (a, b) in beyond.items())
        raise CursorBeyondLog(
            f"the cursor of {cursor.pipeline} is beyond the end of the log: {where}",
            fix="The log was truncated, or another cluster answers at the same address: check the connection first",
            partitions=where,
        )


def _start(
    tp: TopicPartition, cursor: Cursor, watermarks: Watermarks, policy: RangePolicy, *, first_run: bool
) -> tuple[int, FromReason]:
    if tp in cursor.offsets:
        return cursor.offsets[tp], "cursor"
    if not first_run:  # a partition that appears later has records nobody has read, wherever the pipeline itself began
        return watermarks.earliest[tp], "new partition"
    return (watermarks.earliest[tp], "earliest") if policy.start == "earliest" else (watermarks.latest[tp], "latest")


def _ends(
    starts: Mapping[TopicPartition, int], watermarks: Watermarks, policy: RangePolicy
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, UntilReason]]:
    ends = {tp: watermarks.latest[tp] for tp in starts}
    reasons: dict[TopicPartition, UntilReason] = dict.fromkeys(starts, "log end")
    if policy.until is not None:
        _check_until(policy.until, starts, watermarks)
        for tp in starts:
            ends[tp], reasons[tp] = policy.until.get(tp, starts[tp]), "until"
    if policy.max_records is not None:
        lags = {tp: ends[tp] - starts[tp] for tp in starts}
        if sum(lags.values()) > policy.max_records:
            for tp, share in share_limit(lags, policy.max_records).items():
                if share < lags[tp]:
                    ends[tp], reasons[tp] = starts[tp] + share, "max_records"
    return ends, reasons


def _check_until(until: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], watermarks: Watermarks) -> None:
    for tp, offset in sorted(until.items()):
        if tp not in starts:
            raise RequestError(f"until: {tp} is not a partition of this pipeline", fix=f"It reads {_listed(sorted(starts))}")
        if not starts[tp] <= offset <= watermarks.latest[tp]:
            raise RequestError(
                f"until: {tp} cannot end at {offset}",
                fix=f"Give an offset from {starts[tp]} (the next to read) to {watermarks.latest[tp]} (the end of the log)",
                partition=str(tp),
            )


def _listed(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(str(tp) for tp in partitions[:10])
    return shown if len(partitions) <= 10 else f"{shown} and {len(partitions) - 10} more"


@dataclass(frozen=True)
class SavedRange:
    """The plan of one DAG run, made durable before any work: written once, never changed.

    `limits` are the limits in force when it was planned; `adopted_from` is the run whose uncommitted range this run took over.
    """

    pipeline: str
    seq: int
    run_id: str
    ranges: tuple[OffsetRange, ...]
    decisions: tuple[Decision, ...]
    topic_ids: Mapping[str, str]
    limits: Mapping[str, Any]
    planned_at_ms: int
    adopted_from: str | None = None

    @property
    def to_load(self) -> tuple[OffsetRange, ...]:
        """The ranges that hold records."""
        return tuple(r for r in self.ranges if r.count)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; decisions are grouped by reason, since thousands of partitions share a few."""
        reasons: dict[str, dict[str, list[int]]] = {}
        for d in sorted(self.decisions):
            tp = d.topic_partition
            reasons.setdefault(f"{d.from_reason} to {d.until_reason}", {}).setdefault(tp.topic, []).append(tp.partition)
        return {
            "pipeline": self.pipeline,
            "seq": self.seq,
            "run_id": self.run_id,
            "ranges": ranges_to_json(self.ranges),
            "reasons": reasons,
            "topic_ids": dict(self.topic_ids),
            "limits": dict(self.limits),
            "planned_at_ms": self.planned_at_ms,
            "adopted_from": self.adopted_from,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> SavedRange:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        try:
            decisions = []
            for reason, topics in value["reasons"].items():
                from_reason, until_reason = reason.split(" to ")
                decisions += [
                    Decision(TopicPartition(t, p), from_reason, until_reason) for t, numbers in topics.items() for p in numbers
                ]
            return SavedRange(
                pipeline=value["pipeline"],
                seq=value["seq"],
                run_id=value["run_id"],
                ranges=ranges_from_json(value["ranges"]),
                decisions=tuple(sorted(decisions)),
                topic_ids=dict(value["topic_ids"]),
                limits=dict(value["limits"]),
                planned_at_ms=value["planned_at_ms"],
                adopted_from=value["adopted_from"],
            )
        except (KeyError, ValueError, TypeError, AttributeError, TidegateError) as error:
            raise StateCorrupt(
                f"a saved range has the wrong shape ({error!r})", fix="It is written once by the plan task and never edited"
            ) from error
