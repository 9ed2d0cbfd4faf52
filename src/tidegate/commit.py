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
from tidegate.receipts import Receipt


@dataclass(frozen=True)
class RequireCursorAt:
    """The cursor has committed batch `seq`, and stands at `offsets` for these partitions (absent: not met yet)."""

    seq: int
    offsets: Mapping[TopicPartition, int]
    new_partitions: frozenset[TopicPartition] = frozenset()

    def holds_for(self, cursor: Cursor) -> bool:
        """Whether the cursor is there."""
        return (
            cursor.seq == self.seq
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

    def happened_in(self, cursor: Cursor) -> bool:
        """Whether the cursor has this update behind it."""
        return cursor.seq >= self.seq and all(cursor.offsets.get(tp, -1) >= offset for tp, offset in self.offsets.items())


@dataclass(frozen=True)
class Commit:
    """What has to hold, and what changes then."""

    requirement: RequireCursorAt
    update: AdvanceCursor


def commit_of(saved: SavedRange, receipt: Receipt | None) -> Commit:
    """The commit of a saved range whose load left `receipt`; None where there was nothing to load.

    Raises:
        ReceiptMismatch: the receipt is another batch's, or does not cover the range.
    """
    if saved.to_load:
        _check_receipt(saved, receipt)
    known = {d.topic_partition for d in saved.decisions if d.from_reason == "cursor"}
    starts = from_offsets(saved.ranges)
    return Commit(
        RequireCursorAt(
            saved.seq - 1,
            {tp: offset for tp, offset in starts.items() if tp in known},
            frozenset(tp for tp in starts if tp not in known),
        ),
        AdvanceCursor(saved.seq, until_offsets(saved.ranges), saved.topic_ids, None if receipt is None else receipt.to_json()),
    )


def _check_receipt(saved: SavedRange, receipt: Receipt | None) -> None:
    if receipt is None:
        raise ReceiptMismatch(f"batch {saved.seq} of {saved.pipeline} has no receipt", fix="Clear the run's load task")
    if (receipt.load.pipeline, receipt.load.seq) != (saved.pipeline, saved.seq) or not receipt.covers(saved.to_load):
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
        return replace(
            cursor,
            seq=update.seq,
            offsets={**cursor.offsets, **update.offsets},
            topic_ids={**cursor.topic_ids, **update.topic_ids},
            receipt=update.receipt if update.receipt is not None else cursor.receipt,
        )
    if commit.update.happened_in(cursor):
        return cursor
    raise CommitConflict(
        f"the cursor of {cursor.pipeline} is at batch {cursor.seq} {offsets_to_json(cursor.offsets)}, this commit needs batch "
        f"{commit.requirement.seq} {offsets_to_json(commit.requirement.offsets)}",
        fix="Another run has moved the cursor; nothing was changed, and each record is in the table once. Trigger a new run",
        seq=cursor.seq,
    )
