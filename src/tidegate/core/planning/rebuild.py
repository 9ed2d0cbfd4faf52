"""The schedule, rebuilt from receipts alone: a cursor and saved ranges, for a schedule whose Variables are lost or wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tidegate.core.model.errors import StateError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import other_topics
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import Decision, SavedRange, Why


@dataclass(frozen=True)
class Rebuilt:
    """A schedule made of receipts: the cursor, the saved ranges of its batches, and what the receipts leave open."""

    cursor: Cursor
    ranges: tuple[SavedRange, ...]
    notes: tuple[str, ...] = field(default=())


def rebuild(pipeline: str, receipts: Sequence[Receipt], *, generation: int = 0, before: Cursor | None = None) -> Rebuilt:
    """The schedule that the table's own commits lead to. Each batch counts as committed, since its rows are there.

    The receipt of the newest batch holds the whole cursor after it; the others are only compared with those before them. The
    receipts come oldest commit first; replays are passed over. The rebuilt cursor's generation is later than every known one.
    `before` is the current cursor, if it can be read: it has what no receipt holds, what earlier batches took. Raises
    StateError: the table holds no receipt of a batch, or the newest one does not hold the cursor after it.
    """
    newest = {receipt.load.seq: receipt for receipt in receipts if receipt.load.replay is None}
    if not newest:
        raise StateError(
            f"the table holds no receipt of {pipeline}, and its cursor cannot be rebuilt",
            fix=f"To let it begin anew, give it a new table, and delete its Variables (tidegate.{pipeline}.*). If no load of "
            "it has succeeded, and the first one only made it an owner of this table, run instead `ALTER TABLE "
            f"CATALOG.NAMESPACE.TABLE UNSET TBLPROPERTIES ('tidegate.owner.{pipeline}')`",
        )
    batches = [newest[seq] for seq in sorted(newest)]
    last = batches[-1]
    after = last.load.after
    if after is None:
        raise StateError(
            f"the receipt of batch {last.load.seq} of {pipeline} holds no positions of the partitions that it did not read, "
            "and the cursor cannot be rebuilt",
            fix="Receipts are not edited: roll the table back to the commit of an earlier batch",
        )
    before = before or Cursor(pipeline=pipeline, seq=0)
    generation = max([generation, *(receipt.load.generation for receipt in batches)]) + 1
    cursor = Cursor(
        pipeline=pipeline,
        seq=last.load.seq,
        at=after,
        receipt=last.summary,
        fired_at_ms=last.committed_at_ms,
        generation=generation,
        pace=replace(before.pace, timing=None),
    )
    return Rebuilt(cursor, tuple(saved_of(receipt, generation) for receipt in batches), tuple(_notes(batches)))


def _notes(batches: Sequence[Receipt]) -> Iterator[str]:
    """Where a batch does not go on where those before it ended."""
    seen, at, topic_ids = 0, dict[TopicPartition, int](), dict[str, str]()
    for load in (receipt.load for receipt in batches):
        if load.seq > seen + 1:
            yield f"batches {seen + 1} to {load.seq - 1} have no receipt: they held no records, or it has expired"
        seen = load.seq
        for topic, topic_id in other_topics(topic_ids, load.topic_ids).items():
            yield f"batch {seen}: topic {topic} starts anew with id {topic_id}"
            at = {tp: offset for tp, offset in at.items() if tp.topic != topic}
        topic_ids |= load.topic_ids
        for r in load.ranges:
            before = at.get(r.topic_partition, r.from_offset)
            if before != r.from_offset:
                gap = "lost, or without records" if before < r.from_offset else "loaded twice, the later load counts"
                yield f"batch {seen}: {r.topic_partition} goes on at {r.from_offset}, not at {before} ({gap})"
            at[r.topic_partition] = max(before, r.until_offset)


def saved_of(receipt: Receipt, generation: int) -> SavedRange:
    """The saved range of a batch, made of its receipt."""
    load = replace(receipt.load, generation=generation)
    why = Why(decisions=tuple(Decision(r.topic_partition, "rebuilt", "rebuilt") for r in load.ranges))
    return SavedRange(load=load, planned_at_ms=receipt.committed_at_ms, why=why)
