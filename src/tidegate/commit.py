"""Moving the cursor: a requirement and an update, as data, applied by a pure function.

Airflow Variables have no compare-and-set, so the check and the write are two steps and a race between them stays possible;
`max_active_runs=1` makes it rare, and the sink, whose loads replace what they read, makes it harmless. What can be decided
from the values alone is decided here:

    cursor at the requirement                      -> the update is applied
    cursor already at or past what it would reach  -> nothing to do: this commit has happened
    anything else                                  -> CommitConflict, nothing changed

The manner is PyIceberg's `(updates, requirements)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.cursor import Cursor
from tidegate.errors import CommitConflict, ReceiptMismatch
from tidegate.planning import SavedRange
from tidegate.ranges import TopicPartition, from_offsets, offsets_to_json, until_offsets
from tidegate.receipts import Receipt, task_properties


@dataclass(frozen=True)
class RequireCursorAt:
    """The cursor has committed batch `seq`, and stands at `offsets` for these partitions (absent: not met yet).

    It was not rebuilt since: its `generation` is the one that the range was planned under.
    """

    seq: int
    offsets: Mapping[TopicPartition, int]
    new_partitions: frozenset[TopicPartition] = frozenset()
    generation: int = 0

    def holds_for(self, cursor: Cursor) -> bool:
        """Whether the cursor is there."""
        return (
            cursor.seq == self.seq
            and cursor.generation == self.generation
            and all(cursor.offsets.get(tp) == offset for tp, offset in self.offsets.items())
            and not any(tp in cursor.offsets for tp in self.new_partitions)
        )


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

    def happened_in(self, cursor: Cursor) -> bool:
        """Whether the cursor has this update behind it."""
        return cursor.seq >= self.seq and all(cursor.offsets.get(tp, -1) >= offset for tp, offset in self.offsets.items())


@dataclass(frozen=True)
class Commit:
    """What has to hold, and what changes then."""

    requirement: RequireCursorAt
    update: AdvanceCursor


def commit_of(saved: SavedRange, receipt: Receipt | None, *, record_bytes: float | None = None) -> Commit:
    """The commit of a saved range whose load left `receipt`; None where there was nothing to load.

    Args:
        saved: what was planned.
        receipt: what the sink holds of it.
        record_bytes: mean size of the records, where the load observed it.

    Raises:
        ReceiptMismatch: the receipt is another batch's, or does not cover the range.
    """
    if saved.to_load:
        _check_receipt(saved, receipt)
    summary = None
    if receipt is not None:  # without its ranges, which would double the cursor's size
        summary = {name: value for name, value in receipt.to_json().items() if name != "ranges"}
    return Commit(
        requirement_of(saved),
        AdvanceCursor(
            saved.seq,
            until_offsets(saved.ranges),
            saved.topic_ids,
            summary,
            frozenset(saved.retired),
            saved.planned_at_ms,
            record_bytes,
            _begun(saved),
        ),
    )


def requirement_of(saved: SavedRange) -> RequireCursorAt:
    """Where the cursor was when this range was planned."""
    known = {d.topic_partition for d in saved.decisions if d.from_reason == "cursor"}
    starts = from_offsets(saved.ranges)
    offsets = {tp: offset for tp, offset in starts.items() if tp in known} | dict(saved.jumped)
    return RequireCursorAt(saved.seq - 1, offsets, frozenset(starts.keys() - offsets.keys()), saved.generation)


def _begun(saved: SavedRange) -> dict[TopicPartition, int]:
    """Where the partitions begin that this range is the first of."""
    continued = {d.topic_partition for d in saved.decisions if d.from_reason in ("cursor", "accepted loss")}
    return {tp: offset for tp, offset in from_offsets(saved.ranges).items() if tp not in continued}


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


def apply(cursor: Cursor, commit: Commit) -> Cursor:
    """The cursor after the commit; the very same object when the commit has happened already.

    Raises:
        CommitConflict: the requirement does not hold and the update has not happened.
    """
    if commit.requirement.holds_for(cursor):
        update = commit.update
        offsets = {tp: offset for tp, offset in {**cursor.offsets, **update.offsets}.items() if tp not in update.retired}
        topics = {tp.topic for tp in offsets}
        return replace(
            cursor,
            seq=update.seq,
            offsets=offsets,
            topic_ids={t: topic_id for t, topic_id in {**cursor.topic_ids, **update.topic_ids}.items() if t in topics},
            receipt=update.receipt if update.receipt is not None else cursor.receipt,
            fired_at_ms=update.fired_at_ms if update.fired_at_ms is not None else cursor.fired_at_ms,
            record_bytes=update.record_bytes if update.record_bytes is not None else cursor.record_bytes,
            starts={tp: offset for tp, offset in {**cursor.starts, **update.starts}.items() if tp in offsets},
        )
    if commit.update.happened_in(cursor):
        return cursor
    raise CommitConflict(
        f"the cursor of {cursor.pipeline} is at batch {cursor.seq} {offsets_to_json(cursor.offsets)}, this commit needs batch "
        f"{commit.requirement.seq} {offsets_to_json(commit.requirement.offsets)}",
        fix="Another run has moved the cursor; nothing was changed, and each record is in the table once. Trigger a new run",
        seq=cursor.seq,
    )
