"""What a table's own commits say, and which committed batches the table does not hold.

A committed batch can leave its table: somebody drops or renames the table, rolls it back, or points the pipeline at another
one. The schedule must not go on as if nothing had happened. But a table is healthy whose snapshots were expired, or whose files
were compacted by somebody else, although the receipts are gone then. So three kinds of evidence count, in this order:

    lineage    the commits of the last two batches, as the cursor remembers them, are ancestors of the table's current state
    receipts   commits in that lineage, of batches and of replays, cover the ranges
    files      data files, by their bounds of the identity columns, hold rows of the ranges

Two, since a table can be lost between the plan of a batch and its commit: the newer commit proves that its batch came to this
table, the older one that the table was still the same. docs/adr/0007-lost-tables.md has the reasons. Pure: values in, values
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tidegate.chunks import merged, without
from tidegate.cursor import Cursor
from tidegate.cutting import Box, boxes_of
from tidegate.errors import TableLost, some
from tidegate.planning import SavedRange, other_topics
from tidegate.ranges import OffsetRange, TopicPartition, total_count
from tidegate.receipts import PREFIX, Receipt, batch_told_by

CLOCKS_APART_MS = 60_000
"""How far the clocks of two writers may differ; Iceberg refuses a commit that is older than the last one by more."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit of a table: its id, its time (epoch ms), and its properties (Iceberg: the snapshot's summary)."""

    snapshot: int
    committed_at_ms: int
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableHistory:
    """The commits that a table's current state descends from, newest first, as far as they are kept.

    `exists` is False where the catalog has no such table. `complete` is True where the oldest of them is the first commit of
    the table, and False where older ones have expired.
    """

    commits: tuple[TableCommit, ...] = ()
    exists: bool = True
    complete: bool = True

    @cached_property
    def snapshots(self) -> frozenset[int]:
        """The ids of the commits."""
        return frozenset(commit.snapshot for commit in self.commits)

    def reached(self, pipeline: str) -> tuple[int, int] | None:
        """Generation and batch of the pipeline's furthest receipt; None without one. Replays do not count.

        Raises:
            StateCorrupt: a receipt cannot be read.
        """
        batches = (batch_told_by(commit.properties, snapshot=commit.snapshot) for commit in self._loads(pipeline))
        return max((batch for batch in batches if batch is not None), default=None)

    def receipts(self, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline, oldest commit first, replays too.

        Raises:
            StateCorrupt: a receipt cannot be read.
        """
        return [_receipt(commit) for commit in self._loads(pipeline)][::-1]

    def batch_of_run(self, pipeline: str, run_id: str) -> Receipt | None:
        """The newest receipt of a batch that this DAG run has loaded; replays do not count.

        Raises:
            StateCorrupt: the receipt cannot be read.
        """
        for commit in self._loads(pipeline):
            if commit.properties.get(f"{PREFIX}run-id") == run_id and f"{PREFIX}replay" not in commit.properties:
                return _receipt(commit)
        return None

    def _loads(self, pipeline: str) -> Iterable[TableCommit]:
        return (commit for commit in self.commits if commit.properties.get(f"{PREFIX}pipeline") == pipeline)


def _receipt(commit: TableCommit) -> Receipt:
    found = Receipt.from_properties(commit.properties, snapshot=commit.snapshot, committed_at_ms=commit.committed_at_ms)
    assert found is not None  # noqa: S101 - `_loads` passes over the commits of others
    return found


@dataclass(frozen=True)
class Missing:
    """What the cursor has committed and the table does not hold: ranges, the batches they belong to, and why it is believed."""

    ranges: tuple[OffsetRange, ...]
    batches: tuple[int, ...]
    why: str

    def lost_by(self, pipeline: str, table: str) -> TableLost:
        """The error of a pipeline whose table this is."""
        named_batches = f"batch{'es' if len(self.batches) > 1 else ''} {some(map(str, self.batches))}"
        batches = named_batches if self.batches else "earlier batches"
        named = some(map(str, self.ranges))
        return TableLost(
            f"table {table} does not hold {batches} of {pipeline}, which its cursor has committed: {self.why}; "
            f"{total_count(self.ranges):,} offsets are missing ({named})",
            fix=f"Nothing was planned. To load them again, run `tidegate ledger reload {pipeline}`; "
            f"to go on without them, run `tidegate accept table {pipeline}`; "
            "if the table was renamed, correct `sink.table`",
            table=table,
            pipeline=pipeline,
            missing=named,
            offsets=total_count(self.ranges),
        )


def find_missing(
    cursor: Cursor,
    history: TableHistory,
    saved: Callable[[], Sequence[SavedRange]],
    files: Callable[[], Sequence[Box]],
    *,
    lineage: bool = True,
) -> Missing | None:
    """What of the committed batches the table does not hold; None where it holds them.

    Args:
        cursor: what is committed; what an operator accepted as absent is not missing.
        history: the table's commits.
        saved: reads the saved ranges of committed batches, as far as they are kept; asked only where the lineage is broken.
        files: reads the bounds of the table's data files, over the origin columns, or over the batch alone where rows are
            known by their batch; asked likewise.
        lineage: whether the commits of the last batches vouch for all before them; not so where the cursor was made of them.

    Raises:
        StateCorrupt: a receipt cannot be read.
    """
    last = [told for told in (cursor.receipt, cursor.previous) if told is not None]
    doubted = [told for told in last if not lineage or told["snapshot"] not in history.snapshots]
    if not doubted:
        return None
    batches = {plan.seq: plan for plan in saved() if plan.to_load and not other_topics(plan.topic_ids, cursor.topic_ids)}
    boxes = list(files()) if history.commits else []
    by_batch = doubted[0].get("batch") is not None
    if all(not _is_rolled_back(told, history) and _holds(told, batches, boxes, by_batch=by_batch) for told in doubted):
        return None
    receipts = [r for r in history.receipts(cursor.pipeline) if not other_topics(r.load.topic_ids, cursor.topic_ids)]
    if by_batch:
        known = [box for box in boxes if None not in box.span]
        held = {r.load.batch for r in receipts if r.load.batch in batches and r.covers(batches[r.load.batch].to_load)}
        lost = {n: b.to_load for n, b in batches.items() if n not in held and not _touched(_batch_boxes(n), known)}
        left = without([r for ranges in lost.values() for r in ranges], cursor.absent)
    else:
        there = [r for receipt in receipts for r in receipt.load.ranges] + _offsets_in(boxes)
        left = without(_committed(cursor, batches), [*there, *cursor.absent])
    if not left:
        return None
    return Missing(left, tuple(n for n, b in sorted(batches.items()) if _overlap(b.to_load, left)), _why(history))


def _why(history: TableHistory) -> str:
    if not history.exists:
        return "there is no such table"
    if not history.commits:
        return "the table is empty"
    return "its current state does not descend from their commits (the table was rolled back, restored, or made anew)"


def _is_rolled_back(told: Mapping[str, Any], history: TableHistory) -> bool:
    """Whether a commit that is no ancestor cannot have expired: the lineage is known from before it on."""
    before = told["committed_at_ms"] - CLOCKS_APART_MS
    return history.complete or any(commit.committed_at_ms < before for commit in history.commits)


def _holds(told: Mapping[str, Any], batches: dict[int, SavedRange], boxes: Sequence[Box], *, by_batch: bool) -> bool:
    """Whether rows of a batch are there, where its commit may have expired; so also where that cannot be told."""
    plan = batches.get(told["seq"])
    if not told["rows"] or plan is None:
        return True
    return _touched(_batch_boxes(told["seq"]) if by_batch else boxes_of(plan.to_load), boxes)


def _batch_boxes(batch: int) -> tuple[Box, ...]:
    return (Box(((batch, batch),)),)


def _touched(wanted: Iterable[Box], boxes: Sequence[Box]) -> bool:
    return any(box.touches(file) for box in wanted for file in boxes)


def _committed(cursor: Cursor, batches: dict[int, SavedRange]) -> tuple[OffsetRange, ...]:
    """What is committed: the saved ranges, and before them all from where each partition was begun."""
    ranges = [r for plan in batches.values() for r in plan.to_load]
    first: dict[TopicPartition, int] = {}
    for r in ranges:
        first[r.topic_partition] = min(r.from_offset, first.get(r.topic_partition, r.from_offset))
    for tp, start in cursor.starts.items():
        until = first.get(tp, cursor.offsets.get(tp, start))
        ranges += [OffsetRange(tp.topic, tp.partition, start, until)] if start < until else []
    before_start = [OffsetRange(tp.topic, tp.partition, 0, start) for tp, start in cursor.starts.items()]
    return without(ranges, before_start)


def _offsets_in(boxes: Iterable[Box]) -> list[OffsetRange]:
    """The offsets between the bounds of each data file that says which partition it is of."""
    found = []
    for box in boxes:
        ((topic, _), (partition, _), (first, last)) = box.columns
        if box.in_one_place and first is not None and last is not None:
            found.append(OffsetRange(topic, partition, first, last + 1))
    return found


def _overlap(ranges: Iterable[OffsetRange], others: Sequence[OffsetRange]) -> bool:
    wanted = merged(ranges)
    return without(wanted, others) != wanted
