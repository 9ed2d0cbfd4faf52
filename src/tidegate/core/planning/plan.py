"""Which offsets a run reads, and why: a pure function of the cursor, the brokers' watermarks and the policy.

The policy may hold unresolved bounds, such as "earliest"; a plan holds numbers only. Every partition of a plan has a `Decision`
that names what set its two bounds, so that a saved range explains itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tidegate.core.config.pipeline import Limits
from tidegate.core.model.counts import check_limits
from tidegate.core.model.errors import (
    ConfigError,
    CursorBeyondLog,
    OffsetsExpired,
    PartitionsDeleted,
    PartitionsLeftOut,
    RequestError,
    TopicRecreated,
    some,
)
from tidegate.core.model.ranges import OffsetRange, TopicPartition, covers, total_count
from tidegate.core.model.times import past
from tidegate.core.model.watermarks import Watermarks, other_topics
from tidegate.core.rates import max_messages_per_partition, share_limit
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.saved_range import Decision, FromReason, UntilReason

PROBE_RECORDS = 10_000
"""Records of a batch whose size in bytes is limited before any record's size was observed."""
NAMED = 10
"""Partitions that one message names."""


@dataclass(frozen=True)
class Beginning:
    """Where partitions are read for the first time.

    `at` is a word, or the resolved offset of each partition (others: earliest), and `reason` where resolved offsets came from.
    `of` are the partitions that this run is the first to read, and that begin there; all of them in a first run.
    """

    at: Literal["earliest", "latest"] | Mapping[TopicPartition, int] = "earliest"
    reason: Literal["timestamp", "offsets", "group"] = "offsets"
    of: frozenset[TopicPartition] = frozenset()

    def __post_init__(self) -> None:
        if isinstance(self.at, str) and self.at not in ("earliest", "latest"):
            raise ConfigError(f'a start is "earliest", "latest" or offsets, not {self.at!r}')


@dataclass(frozen=True, kw_only=True)
class RangePolicy:
    """What a pipeline, a trigger and an operator ask of a plan. Absent limits do not limit.

    `limits` are those of the pipeline's file, or what a trigger asks in their place: `max_bytes` counts by `record_bytes`, the
    mean size of a record that was observed (before one is known, a batch probes), and `max_records` is shared by lag
    (`share_limit`). So is `bound`, a rate policy's, of a partition never below `limits.min_rate_per_partition`. `until` are
    exclusive ends that a trigger asked for: partitions that it does not name are not read. `accepted` is what an operator
    accepted for this batch. `left_out` are partitions of the cursor that the pipeline's file does not name any more, and
    `unread` is what the brokers hold of them behind the cursor.
    """

    limits: Limits = field(default_factory=Limits)
    start: Beginning = Beginning()
    on_deleted: Literal["stop", "retire"] = "stop"
    until: Mapping[TopicPartition, int] | None = None
    bound: int | None = None
    record_bytes: float | None = None
    accepted: Accepted | None = None
    left_out: frozenset[TopicPartition] = frozenset()
    unread: tuple[OffsetRange, ...] = ()

    def __post_init__(self) -> None:
        if self.on_deleted not in ("stop", "retire"):
            raise ConfigError(f'on_deleted is "stop" or "retire", not {self.on_deleted!r}')
        whole = ("max_rate_per_partition", "max_bytes", "max_records", "min_records")
        check_limits({"bound": self.bound, **{name: getattr(self.limits, name) for name in whole}})


@dataclass(frozen=True)
class Skip:
    """Why there is nothing to do, how many records wait all the same, and after which cursor."""

    reason: str
    waiting: int = 0
    cursor: Cursor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The ranges of one batch, sorted, with a decision for each; or a skip, and then nothing else.

    A range may be empty where it moves or fixes a partition's position. `jumped` are the positions of the cursor that a range
    does not start at (accepted loss, recreated topics); `retired` are partitions that leave the cursor. `remaining` counts the
    records that wait beyond the ranges.
    """

    ranges: tuple[OffsetRange, ...] = ()
    decisions: tuple[Decision, ...] = ()
    skip: Skip | None = None
    jumped: Mapping[TopicPartition, int] = field(default_factory=dict)
    retired: tuple[TopicPartition, ...] = ()
    remaining: int = 0

    @property
    def count(self) -> int:
        """Offsets in all ranges together."""
        return total_count(self.ranges)


def plan_next(cursor: Cursor, watermarks: Watermarks, policy: RangePolicy, *, interval_s: float, now_ms: int) -> Plan:
    """The next batch after `cursor`.

    The watermarks are of every partition that the pipeline reads. Limits that are given as a rate count for `interval_s`.
    Raises OffsetsOutOfRange: the cursor and the log do not fit (each case has its subclass); nothing is skipped. RequestError:
    `policy.until` or the start names an unknown partition, or an offset outside what can be read.
    """
    recreated = _recreated(cursor, watermarks, policy)
    retired = _retired(cursor, watermarks, policy, recreated)
    expired = _expired(cursor, watermarks, policy, recreated)
    _check_not_beyond(cursor, watermarks, recreated)
    starts = _starts(cursor, watermarks, policy, recreated=recreated, expired=expired)
    from_offsets = {tp: offset for tp, (offset, _) in starts.items()}
    jumped = {tp: cursor.at.offsets[tp] for tp, (_, reason) in starts.items() if reason != "cursor" and tp in cursor.at.offsets}
    waiting = sum(watermarks.latest[tp] - offset for tp, offset in from_offsets.items())
    if not (jumped or retired) and (skip := _too_early(waiting, cursor, policy, now_ms)) is not None:
        return Plan(skip=skip)

    ends, until_reasons = _ends(from_offsets, watermarks, policy, interval_s)
    ranges: list[OffsetRange] = []
    decisions: list[Decision] = []
    for tp, (from_offset, from_reason) in starts.items():
        if ends[tp] > from_offset or from_reason != "cursor":
            ranges.append(OffsetRange(tp.topic, tp.partition, from_offset, ends[tp]))
            decisions.append(Decision(tp, from_reason, until_reasons[tp]))
    if not starts and not retired:
        return Plan(skip=Skip("nothing to read: no topic of the pipeline's `source` exists any more"))
    if not ranges and not retired:
        end = "the end of the log" if policy.until is None else "the `until` asked for"
        return Plan(skip=Skip(f"caught up: the cursor is at {end}", waiting))
    remaining = waiting - total_count(ranges)
    return Plan(ranges=tuple(ranges), decisions=tuple(decisions), jumped=jumped, retired=retired, remaining=remaining)


def _recreated(cursor: Cursor, watermarks: Watermarks, policy: RangePolicy) -> frozenset[str]:
    accepted = policy.accepted.recreated if policy.accepted else {}
    recreated = other_topics(cursor.at.topic_ids, watermarks.topic_ids)
    for topic, topic_id in recreated.items():
        if topic_id != accepted.get(topic):
            raise TopicRecreated(
                f"topic {topic} was deleted and created again: its id is {topic_id}, the cursor's {cursor.at.topic_ids[topic]}",
                fix=f"Its offsets mean other records. To start anew, run `tidegate accept recreated {cursor.pipeline} {topic}`",
                topic=topic,
                topic_id=topic_id,
            )
    return frozenset(recreated)


def _retired(
    cursor: Cursor, watermarks: Watermarks, policy: RangePolicy, recreated: frozenset[str]
) -> tuple[TopicPartition, ...]:
    gone = sorted(tp for tp in cursor.at.offsets if tp not in watermarks.latest)
    stopping = [tp for tp in gone if tp.topic not in recreated]
    left_out = [tp for tp in stopping if tp in policy.left_out]
    accepted = policy.accepted.loss if policy.accepted else ()
    # more records may have come since somebody accepted that they stay unread
    unread = [r for r in policy.unread if not covers(accepted, [replace(r, until_offset=r.from_offset + 1)])]
    if left_out and (policy.on_deleted == "stop" or unread):
        names, records = some(map(str, left_out), NAMED), total_count(unread)
        waiting = f", and {records:,} of its records are unread" if unread else ""
        drop = "set `source.on_deleted: retire`, which drops it from the cursor and leaves its rows in the table"
        skip = f"run `tidegate accept loss {cursor.pipeline}`, which leaves these records unread"
        ways = [*([drop] if policy.on_deleted == "stop" else []), *([skip] if unread else [])]
        raise PartitionsLeftOut(
            f"the pipeline's file no longer reads {names}, which the cursor of {cursor.pipeline} has read{waiting}",
            fix=f"Name the topic in `source` again, or {', and '.join(ways)}; "
            "a topic with another name is a new topic, and begins at `source.start`",
            partitions=names,
            unread=records,
        )
    if stopping and policy.on_deleted == "stop":
        names = some(map(str, stopping), NAMED)
        raise PartitionsDeleted(
            f"the cursor of {cursor.pipeline} reads {names}, which no longer exists",
            fix="Restore the topic, or let `source.on_deleted: retire` drop what is gone from the cursor",
            partitions=names,
        )
    return tuple(gone)


def _expired(
    cursor: Cursor, watermarks: Watermarks, policy: RangePolicy, recreated: frozenset[str]
) -> frozenset[TopicPartition]:
    lost = expired_ranges(cursor, watermarks, recreated)
    accepted = policy.accepted.loss if policy.accepted else ()
    open_loss = [r for r in lost if not covers(accepted, [r])]
    if open_loss:
        lost_ranges = ", ".join(f"{r} = {r.count} offsets" for r in open_loss)
        raise OffsetsExpired(
            f"retention deleted records before {cursor.pipeline} read them: {lost_ranges}",
            fix=f"Nothing was skipped. To record the loss and go on, run `tidegate accept loss {cursor.pipeline}`",
            lost=lost_ranges,
        )
    return frozenset(r.topic_partition for r in lost)


def expired_ranges(cursor: Cursor, watermarks: Watermarks, recreated: frozenset[str] = frozenset()) -> tuple[OffsetRange, ...]:
    """What the cursor has not read and the log no longer holds, by partition."""
    return tuple(
        OffsetRange(tp.topic, tp.partition, offset, watermarks.earliest[tp])
        for tp, offset in sorted(cursor.at.offsets.items())
        if tp.topic not in recreated and tp in watermarks.earliest and offset < watermarks.earliest[tp]
    )


def _check_not_beyond(cursor: Cursor, watermarks: Watermarks, recreated: frozenset[str]) -> None:
    where = ", ".join(
        f"{tp} at {offset}, log end {watermarks.latest[tp]}"
        for tp, offset in sorted(cursor.at.offsets.items())
        if tp.topic not in recreated and tp in watermarks.latest and offset > watermarks.latest[tp]
    )
    if where:
        raise CursorBeyondLog(
            f"the cursor of {cursor.pipeline} is beyond the end of the log: {where}",
            fix="The log was truncated, or another cluster answers at the same address: check the connection first",
            partitions=where,
        )


def _starts(
    cursor: Cursor,
    watermarks: Watermarks,
    policy: RangePolicy,
    *,
    recreated: frozenset[str],
    expired: frozenset[TopicPartition],
) -> dict[TopicPartition, tuple[int, FromReason]]:
    first_run = cursor.seq == 0 and not cursor.at.offsets
    if not isinstance(policy.start.at, str):
        asked = {tp: offset for tp, offset in policy.start.at.items() if first_run or tp in policy.start.of}
        _check_offsets("start", asked, watermarks.earliest, watermarks)

    def start_of(tp: TopicPartition) -> tuple[int, FromReason]:
        if tp.topic in recreated:
            return watermarks.earliest[tp], "recreated"
        if tp in expired:
            return watermarks.earliest[tp], "accepted loss"
        if tp in cursor.at.offsets:
            return cursor.at.offsets[tp], "cursor"
        if first_run or tp in policy.start.of:
            return _first(tp, watermarks, policy)
        return watermarks.earliest[tp], "new partition"  # no batch has read it yet

    return {tp: start_of(tp) for tp in sorted(watermarks.latest)}


def _first(tp: TopicPartition, watermarks: Watermarks, policy: RangePolicy) -> tuple[int, FromReason]:
    if policy.start.at == "latest":
        return watermarks.latest[tp], "latest"
    if isinstance(policy.start.at, Mapping) and tp in policy.start.at:
        return policy.start.at[tp], policy.start.reason
    return watermarks.earliest[tp], "earliest"


def _too_early(waiting: int, cursor: Cursor, policy: RangePolicy, now_ms: int) -> Skip | None:
    fired_ms, limits = past(cursor.fired_at_ms, now_ms), policy.limits
    if limits.min_records is None or policy.until is not None or waiting >= limits.min_records or fired_ms is None:
        return None
    passed_s = (now_ms - fired_ms) / 1000
    if limits.max_delay_s is not None and passed_s >= limits.max_delay_s:
        return None
    wait = "" if limits.max_delay_s is None else f", and {passed_s:.0f} s of max_delay_s {limits.max_delay_s:g} have passed"
    return Skip(f"{waiting} records wait, min_records is {limits.min_records}{wait}", waiting)


def _ends(
    starts: Mapping[TopicPartition, int], watermarks: Watermarks, policy: RangePolicy, interval_s: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, UntilReason]]:
    ends = {tp: watermarks.latest[tp] for tp in starts}
    reasons: dict[TopicPartition, UntilReason] = dict.fromkeys(starts, "log end")
    if policy.until is not None:
        _check_offsets("until", policy.until, starts, watermarks)
        for tp in starts:
            ends[tp], reasons[tp] = policy.until.get(tp, starts[tp]), "until"

    for reason, most_of in _limits(policy, interval_s):
        for tp, count in most_of({tp: ends[tp] - starts[tp] for tp in starts}).items():
            if starts[tp] + count < ends[tp]:
                ends[tp], reasons[tp] = starts[tp] + count, reason
    return ends, reasons


Counts = Mapping[TopicPartition, int]


def _limits(policy: RangePolicy, interval_s: float) -> Iterator[tuple[UntilReason, Callable[[Counts], Counts]]]:
    """The limits in force, in their order: each makes of the records that are still to be read the most of each partition."""
    bound, limits = policy.bound, policy.limits
    most_bytes, most_records, least = limits.max_bytes, limits.max_records, limits.min_rate_per_partition
    if limits.max_rate_per_partition is not None:
        rates = {"max_rate_per_partition": limits.max_rate_per_partition, "min_rate_per_partition": least}
        yield (
            "max_rate_per_partition",
            lambda lags: max_messages_per_partition(lags, rate=None, interval_s=interval_s, **rates) or {},
        )
    if bound is not None:
        yield "backpressure", lambda lags: {tp: max(share, least) for tp, share in share_limit(lags, bound).items()}
    if most_bytes is not None:
        records = PROBE_RECORDS if not policy.record_bytes else max(1, int(most_bytes / policy.record_bytes))
        yield "max_bytes", lambda lags: share_limit(lags, records)
    if most_records is not None:
        yield "max_records", lambda lags: share_limit(lags, most_records)


def _check_offsets(
    name: str, asked: Mapping[TopicPartition, int], lowest: Mapping[TopicPartition, int], watermarks: Watermarks
) -> None:
    for tp, offset in sorted(asked.items()):
        if tp not in lowest:
            raise RequestError(
                f"{name}: {tp} is not a partition of this pipeline", fix=f"It reads {some(map(str, sorted(lowest)), NAMED)}"
            )
        if not lowest[tp] <= offset <= watermarks.latest[tp]:
            raise RequestError(
                f"{name}: {tp} cannot be at {offset}",
                fix=f"Give an offset from {lowest[tp]} to {watermarks.latest[tp]} (the end of the log)",
                partition=str(tp),
            )
