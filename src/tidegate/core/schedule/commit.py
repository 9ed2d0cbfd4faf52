"""Moving the cursor: a requirement and an update, as data, applied by a pure function.

Airflow Variables have no compare-and-set, so the check and the write are two steps and a race between them stays possible;
`max_active_runs=1` makes it rare, and the sink, whose loads replace what they read, makes it harmless. What can be decided
from the values alone is decided here:

    cursor at the requirement                      -> the update is applied
    cursor already at or past what it would reach  -> nothing to do: this commit has happened
    anything else                                  -> CommitConflict, nothing changed

The form is that of Iceberg's catalogs: requirements and updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.core.errors import CommitConflict, ReceiptMismatch, some
from tidegate.core.load.receipt import Receipt, task_properties
from tidegate.core.offsets.algebra import merged, without
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, from_offsets, until_offsets
from tidegate.core.offsets.watermarks import other_topics
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import MOST_TIMINGS, Cursor
from tidegate.core.state.saved_range import SavedRange


@dataclass(frozen=True)
class RequireCursorAt:
    """The cursor has committed batch `seq`, and is at `offsets` in these partitions, of topics with these ids.

    It does not know the `absent` partitions, and was not rebuilt since: its `generation` is the one that the range was planned
    under.
    """

    seq: int
    offsets: Mapping[TopicPartition, int]
    absent: frozenset[TopicPartition] = frozenset()
    generation: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def holds_for(self, cursor: Cursor) -> bool:
        """Whether the cursor meets the requirement."""
        return next(self.faults(cursor), None) is None

    def faults(self, cursor: Cursor) -> Iterator[str]:
        """How the cursor differs from the requirement, one clause for each difference."""
        if cursor.seq != self.seq:
            yield f"the cursor is at batch {cursor.seq}, not {self.seq}"
        if cursor.generation != self.generation:
            yield f"the cursor is of generation {cursor.generation}, not {self.generation}"
        for topic, topic_id in other_topics(self.topic_ids, cursor.topic_ids).items():
            yield f"the cursor has the topic id {topic_id} of {topic}, not {self.topic_ids[topic]}"
        for tp, offset in self.offsets.items():
            at = cursor.offsets.get(tp)
            if at is None:
                yield f"the cursor does not know {tp}, expected at {offset}"
            elif at != offset:
                yield f"the cursor has {tp} at {at}, not {offset} ({at - offset:+,} offsets)"
        for tp in sorted(self.absent & cursor.offsets.keys()):
            yield f"the cursor has {tp} at {cursor.offsets[tp]}, which it should not know"


@dataclass(frozen=True)
class AdvanceCursor:
    """Batch `seq` is committed: the next offsets of its partitions are `offsets`."""

    seq: int
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    receipt: Mapping[str, Any] | None = None
    retired: frozenset[TopicPartition] = frozenset()
    fired_at_ms: int | None = None
    record_bytes: float | None = None
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    absent: tuple[OffsetRange, ...] = ()
    former: Mapping[TopicPartition, int] = field(default_factory=dict)
    present: tuple[OffsetRange, ...] = ()
    timing: BatchTiming | None = None
    remaining: int = 0
    cores: int = 0
    resumed: Mapping[TopicPartition, int] = field(default_factory=dict)

    def happened_in(self, cursor: Cursor) -> bool:
        """Whether the cursor is at or past this update."""
        return cursor.seq >= self.seq and all(cursor.offsets.get(tp, -1) >= offset for tp, offset in self.offsets.items())


@dataclass(frozen=True)
class Commit:
    """A requirement, and the update that is applied where it holds."""

    requirement: RequireCursorAt
    update: AdvanceCursor


def commit_of(
    saved: SavedRange,
    receipt: Receipt | None,
    *,
    record_bytes: float | None = None,
    absent: Iterable[OffsetRange] = (),
    timing: BatchTiming | None = None,
) -> Commit:
    """The commit of a saved range whose load left `receipt`; None where there was nothing to load.

    Args:
        saved: what was planned.
        receipt: what the sink holds of it.
        record_bytes: mean size of the records, where the load observed it.
        absent: what an operator accepted for this batch to be missing in the table, also after the range was saved.
        timing: what the batch took, where that is known.

    Raises:
        ReceiptMismatch: the receipt is another batch's, or does not cover the range.
    """
    if saved.to_load:
        _check_receipt(saved, receipt)
    return Commit(
        requirement_of(saved),
        AdvanceCursor(
            saved.seq,
            until_offsets(saved.ranges),
            saved.topic_ids,
            None if receipt is None else receipt.summary(),
            frozenset(saved.retired),
            saved.planned_at_ms,
            record_bytes,
            saved.begun,
            merged([*saved.absent, *absent, *saved.skipped]),
            _former(saved),
            saved.present,
            timing,
            saved.remaining,
            saved.resources.total_cores if saved.resources else 0,
            saved.resumed,
        ),
    )


def requirement_of(saved: SavedRange) -> RequireCursorAt:
    """Where the cursor was when this range was planned."""
    known = {d.topic_partition for d in saved.decisions if d.from_reason == "cursor"}
    starts = from_offsets(saved.ranges)
    offsets = {tp: offset for tp, offset in starts.items() if tp in known} | dict(saved.jumped)
    anew = {d.topic_partition.topic for d in saved.decisions if d.from_reason == "recreated"}
    topic_ids = {topic: topic_id for topic, topic_id in saved.topic_ids.items() if topic not in anew}
    return RequireCursorAt(saved.seq - 1, offsets, frozenset(starts.keys() - offsets.keys()), saved.generation, topic_ids)


def outcome_of(saved: SavedRange) -> RequireCursorAt:
    """Where the cursor is once this range is committed, and nothing later."""
    return RequireCursorAt(saved.seq, until_offsets(saved.ranges), frozenset(saved.retired), saved.generation, saved.topic_ids)


def _former(saved: SavedRange) -> dict[TopicPartition, int]:
    """How far each recreated topic had been read before this range starts it anew."""
    anew = {d.topic_partition for d in saved.decisions if d.from_reason == "recreated"}
    return {tp: offset for tp, offset in saved.jumped.items() if tp in anew}


def _check_receipt(saved: SavedRange, receipt: Receipt | None) -> None:
    if receipt is None:
        raise ReceiptMismatch(f"batch {saved.seq} of {saved.pipeline} has no receipt", fix="Clear the run's load task")
    if receipt.load.task != task_properties(saved.pipeline, saved.seq) or not receipt.covers(saved.to_load):
        raise ReceiptMismatch(
            f"the receipt of batch {receipt.load.seq} of {receipt.load.pipeline} "
            f"does not cover batch {saved.seq} of {saved.pipeline}",
            fix="Clear the run's load task",
            snapshot=receipt.snapshot,
        )


def _not_passed(former: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The former positions that nothing has reached since."""
    return {tp: until for tp, until in former.items() if offsets.get(tp, 0) < until}


def _last_timings(cursor: Cursor, update: AdvanceCursor) -> tuple[tuple[BatchTiming, ...], tuple[int, ...]]:
    """The timings of the last batches, and the cores that each of them had."""
    if update.timing is None:
        return cursor.timings, cursor.cores
    # a cursor of an older version has timings, but no cores of them
    cores = cursor.cores if len(cursor.cores) == len(cursor.timings) else (0,) * len(cursor.timings)
    return (*cursor.timings, update.timing)[-MOST_TIMINGS:], (*cores, update.cores)[-MOST_TIMINGS:]


def apply(cursor: Cursor, commit: Commit, *, rate_state: Mapping[str, Any] | None = None) -> Cursor:
    """The cursor after the commit; the very same object when the commit has happened already.

    Args:
        cursor: before the commit.
        commit: what is required, and what changes.
        rate_state: what the rate policy knows after the batch; None leaves it as it is.

    Raises:
        CommitConflict: the requirement does not hold and the update has not happened.
    """
    if commit.requirement.holds_for(cursor):
        update = commit.update
        offsets = {tp: offset for tp, offset in {**cursor.offsets, **update.offsets}.items() if tp not in update.retired}
        retired = {tp: offset for tp, offset in cursor.offsets.items() if tp in update.retired}
        anew = other_topics(cursor.topic_ids, update.topic_ids)
        resumed = {**{tp: offset for tp, offset in cursor.resumed.items() if tp.topic not in anew}, **update.resumed}
        timings, cores = _last_timings(cursor, update)
        return replace(
            cursor,
            seq=update.seq,
            offsets=offsets,
            topic_ids={**cursor.topic_ids, **update.topic_ids},
            receipt=update.receipt if update.receipt is not None else cursor.receipt,
            previous=cursor.receipt if update.receipt is not None else cursor.previous,
            fired_at_ms=update.fired_at_ms if update.fired_at_ms is not None else cursor.fired_at_ms,
            record_bytes=update.record_bytes if update.record_bytes is not None else cursor.record_bytes,
            starts={tp: offset for tp, offset in {**cursor.starts, **update.starts}.items() if tp in offsets},
            absent=without([*(r for r in cursor.absent if r.topic not in anew), *update.absent], update.present),
            former=_not_passed({**cursor.former, **retired, **update.former}, offsets),
            timing=update.timing,
            timings=timings,
            cores=cores,
            remaining=update.remaining,
            resumed={tp: offset for tp, offset in resumed.items() if tp in offsets},
            rate_state=cursor.rate_state if rate_state is None else rate_state,
        )
    if commit.update.happened_in(cursor):
        return cursor
    raise CommitConflict(
        f"the commit of batch {commit.update.seq} of {cursor.pipeline} does not go on from the cursor: "
        f"{some(commit.requirement.faults(cursor))}",
        fix="Another run has moved the cursor; nothing was changed, and each record is in the table once. Trigger a new run",
        seq=cursor.seq,
    )
