"""Where a batch leads, which its plan decides; and the cursor that goes there once the table holds the batch's receipt.

Airflow Variables have no compare-and-set, so the check and the write are two steps and a race between them stays possible;
`max_active_runs=1` makes it rare, and the sink, whose loads replace what they read, makes it harmless. What can be decided
from the values alone is decided here:

    cursor where the plan found it             -> it goes where the plan leads
    cursor already at or past where that is    -> nothing to do: this commit has happened
    anything else                              -> CommitConflict, nothing changed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tidegate.core.model.errors import CommitConflict, ReceiptMismatch, some
from tidegate.core.model.ranges import TopicPartition, from_offsets, until_offsets
from tidegate.core.model.watermarks import other_topics
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import Accepted, Cursor, Position
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import SavedRange


def leads_to(cursor: Cursor, saved: SavedRange, accepted: Accepted | None = None) -> Position:
    """Where the cursor is once a range is committed that was planned on it, with what an operator accepted for its batch.

    A partition begins where it is read for the first time, and anew where the range does not start at the cursor:
    retention took records, or the topic was created again.
    """
    if accepted is not None:
        cursor = accepted.applied_to(cursor)
    ends = {**cursor.at.offsets, **until_offsets(saved.load.ranges)}
    offsets = {tp: at for tp, at in ends.items() if tp not in saved.retired}
    anew = other_topics(cursor.at.topic_ids, saved.load.topic_ids)
    begun = {
        tp: at
        for tp, at in from_offsets(saved.load.ranges).items()
        if tp in saved.jumped or tp not in cursor.at.offsets or tp.topic in anew
    }
    starts = {**{tp: at for tp, at in cursor.at.starts.items() if tp.topic not in anew}, **begun}
    left = {tp: at for tp, at in cursor.at.offsets.items() if tp in saved.retired}
    recreated = {tp: at for tp, at in saved.jumped.items() if tp.topic in anew}
    return Position(
        offsets=offsets,
        topic_ids={**cursor.at.topic_ids, **saved.load.topic_ids},
        starts={tp: starts.get(tp, 0) for tp in offsets},
        # until records of the new topic have replaced the rows of the former one
        former={tp: until for tp, until in {**cursor.at.former, **left, **recreated}.items() if offsets.get(tp, 0) < until},
        foreign=cursor.at.foreign,
    )


def faults(cursor: Cursor, saved: SavedRange) -> Iterator[str]:
    """How the cursor differs from the one that the range was planned on, one clause for each difference."""
    if cursor.seq != saved.load.seq - 1:
        yield f"the cursor is at batch {cursor.seq}, not {saved.load.seq - 1}"
    if cursor.generation != saved.load.generation:
        yield f"the cursor is of generation {cursor.generation}, not {saved.load.generation}"
    starts = saved.after.starts
    expected = {
        tp: saved.jumped.get(tp, at)
        for tp, at in from_offsets(saved.load.ranges).items()
        if tp in cursor.at.offsets or tp in saved.jumped or starts.get(tp) != at  # else it begins here
    }
    continued = {tp.topic for tp in expected if tp not in saved.jumped}
    yield from other_ids(cursor, {topic: i for topic, i in saved.load.topic_ids.items() if topic in continued})
    yield from other_offsets(cursor, expected)


def other_ids(cursor: Cursor, topic_ids: Mapping[str, str]) -> Iterator[str]:
    """The topics that the cursor has read under another id, one clause for each."""
    for topic, topic_id in other_topics(topic_ids, cursor.at.topic_ids).items():
        yield f"the cursor has the topic id {topic_id} of {topic}, not {topic_ids[topic]}"


def other_offsets(cursor: Cursor, expected: Mapping[TopicPartition, int | None]) -> Iterator[str]:
    """The partitions where the cursor is elsewhere, one clause for each. None is expected where it should not know one."""
    for tp, offset in sorted(expected.items()):
        at = cursor.at.offsets.get(tp)
        if at is None and offset is not None:
            yield f"the cursor does not know {tp}, expected at {offset}"
        elif at is not None and offset is None:
            yield f"the cursor has {tp} at {at}, which it should not know"
        elif at is not None and offset is not None and at != offset:
            yield f"the cursor has {tp} at {at}, not {offset} ({at - offset:+,} offsets)"


def moved(
    cursor: Cursor,
    saved: SavedRange,
    receipt: Receipt | None,
    *,
    accepted: Accepted | None = None,
    timing: BatchTiming | None = None,
    record_bytes: float | None = None,
    rate_state: Mapping[str, Any] | None = None,
) -> Cursor:
    """The cursor after a batch; the very same object where it is there, or past it, already.

    `receipt` is None where there was nothing to load. `accepted` is what an operator accepted for this batch, also after the
    range was saved. What it took, the mean size of its records, and what the rate policy knows after it may be unknown (None).
    Raises ReceiptMismatch: the receipt is another batch's, or does not cover the range. CommitConflict: the cursor is
    elsewhere.
    """
    if saved.load.nonempty:
        _check_receipt(saved, receipt)
    differs = list(faults(cursor, saved))
    if differs:
        passed = {**cursor.at.offsets, **cursor.at.former}  # of partitions that were retired or made anew since
        if cursor.seq >= saved.load.seq and all(
            passed.get(tp, -1) >= at for tp, at in until_offsets(saved.load.ranges).items()
        ):
            return cursor
        raise CommitConflict(
            f"batch {saved.load.seq} of {cursor.pipeline} starts at another position than the cursor: {some(differs)}",
            fix="Another run has moved the cursor; nothing was changed, and each record is there once. Trigger a new run",
            seq=cursor.seq,
        )
    after = saved.after if accepted is None else leads_to(cursor, saved, accepted)
    pace = cursor.pace.after(timing, saved.resources.total_cores if saved.resources else 0)
    pace = replace(
        pace,
        record_bytes=pace.record_bytes if record_bytes is None else record_bytes,
        rate_state=pace.rate_state if rate_state is None else rate_state,
    )
    return replace(
        cursor,
        seq=saved.load.seq,
        at=after,
        receipt=cursor.receipt if receipt is None else receipt.summary,
        head=cursor.head if receipt is None else saved.head,
        fired_at_ms=saved.planned_at_ms,
        remaining=saved.remaining,
        pace=pace,
    )


def _check_receipt(saved: SavedRange, receipt: Receipt | None) -> None:
    if receipt is None:
        raise ReceiptMismatch(
            f"batch {saved.load.seq} of {saved.load.pipeline} has no receipt",
            fix="Clear the run's load task and the tasks after it",
        )
    if receipt.load.task != saved.load.task or not receipt.covers(saved.load.nonempty):
        raise ReceiptMismatch(
            f"the receipt of batch {receipt.load.seq} of {receipt.load.pipeline} "
            f"does not cover batch {saved.load.seq} of {saved.load.pipeline}",
            fix="Clear the run's load task and the tasks after it",
            snapshot=receipt.snapshot,
        )
