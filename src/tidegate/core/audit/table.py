"""What a table's own commits prove, and which committed batches the table does not hold.

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

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tidegate.core.errors import TableLost, some
from tidegate.core.load.boxes import Box, boxes_of
from tidegate.core.load.receipt import PREFIX, Receipt, batch_of, replay_of
from tidegate.core.offsets.algebra import common, merged, without
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.offsets.watermarks import Watermarks, other_topics
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import SavedRange

CLOCKS_APART_MS = 60_000
"""How far the clocks of two writers may differ; Iceberg refuses a commit that is older than the last one by more."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit of a table: its id, its time (epoch ms), and its properties, which hold the receipt of a load.

    `rows` are those that its load made, by the sink's own counters; None where the counters cannot be read. The commit added
    `kept` rows more: older ones that it wrote again.
    """

    snapshot: int
    committed_at_ms: int
    properties: dict[str, str] = field(default_factory=dict)
    rows: int | None = 0
    kept: int = 0

    def receipt(self, partitions: Collection[TopicPartition] | None = None) -> Receipt:
        """The receipt of the load that made it, with the ranges of some partitions; None: of all. Raises StateCorrupt."""
        receipt = Receipt.from_properties(
            self.properties,
            snapshot=self.snapshot,
            committed_at_ms=self.committed_at_ms,
            rows=self.rows,
            kept=self.kept,
            partitions=partitions,
        )
        assert receipt is not None  # noqa: S101 - only loads are asked for theirs
        return receipt


@dataclass(frozen=True)
class TableHistory:
    """The commits that a table's current state descends from, newest first, as far as they are kept.

    `exists` is False where the catalog has no such table. `complete` is True where the oldest of them is the first commit of
    the table, and False where older ones have expired. `owners` are the pipelines that the table's properties name. `has_rows`
    is whether the current state holds rows, `data_files` and `data_bytes` how many data files it has and their size together;
    None where the table does not count them. `compacted` are the files, and their bytes, that the newest compaction left which
    merged all it could. `partitions` is the most partitions of the table that one of the commits wrote into. `may_expire` is
    whether the table's properties allow its snapshots to expire.
    """

    commits: tuple[TableCommit, ...] = ()
    exists: bool = True
    complete: bool = True
    owners: frozenset[str] = frozenset()
    has_rows: bool = False
    data_files: int | None = None
    data_bytes: int | None = None
    compacted: tuple[int, int] = (0, 0)
    partitions: int = 0
    may_expire: bool = True

    @cached_property
    def snapshots(self) -> frozenset[int]:
        """The ids of the commits."""
        return frozenset(commit.snapshot for commit in self.commits)

    def reached(self, pipeline: str) -> tuple[int, int] | None:
        """Generation and batch of the pipeline's furthest receipt; None without one. Replays do not count.

        Raises:
            StateCorrupt: a receipt cannot be read.
        """
        batches = (batch_of(commit.properties, snapshot=commit.snapshot) for commit in self.loads(pipeline))
        return max((batch for batch in batches if batch is not None), default=None)

    def receipts(self, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline, oldest commit first, replays too.

        Raises:
            StateCorrupt: a receipt cannot be read.
        """
        return [commit.receipt() for commit in self.loads(pipeline)][::-1]

    def replayed(self, pipeline: str) -> list[Receipt]:
        """The receipts of the pipeline's replays, newest commit first.

        Raises:
            StateCorrupt: a receipt cannot be read.
        """
        return [commit.receipt() for commit in self.loads(pipeline) if replay_of(commit.properties) is not None]

    def was_loaded_by(self, pipeline: str) -> bool:
        """Whether the pipeline has loaded rows: by a receipt, or, where those have expired, as an owner of rows."""
        return self.reached(pipeline) is not None or (pipeline in self.owners and self.has_rows)

    def batch_of_run(self, pipeline: str, run_id: str) -> Receipt | None:
        """The newest receipt of a batch that this DAG run has loaded; replays do not count.

        Raises:
            StateCorrupt: the receipt cannot be read.
        """
        for commit in self.loads(pipeline):
            if commit.properties.get(f"{PREFIX}run-id") == run_id and replay_of(commit.properties) is None:
                return commit.receipt()
        return None

    def loads(self, pipeline: str) -> tuple[TableCommit, ...]:
        """The commits of the pipeline's loads, newest first."""
        return tuple(commit for commit in self.commits if commit.properties.get(f"{PREFIX}pipeline") == pipeline)


@dataclass(frozen=True)
class Missing:
    """What the cursor has committed and the table does not hold: ranges, the batches they belong to, and why it is believed.

    `by_batch` is set where rows are known by their batch.
    """

    ranges: tuple[OffsetRange, ...]
    batches: tuple[int, ...]
    why: str
    by_batch: bool = False

    @property
    def named_batches(self) -> str:
        """The batches in words; their saved ranges may have been pruned."""
        if not self.batches:
            return "earlier batches"
        return f"batch{'es' if len(self.batches) > 1 else ''} {some(map(str, self.batches))}"

    def lost_by(self, pipeline: str, table: str) -> TableLost:
        """The error of a pipeline whose table this is."""
        named = some(map(str, self.ranges))
        offsets = f"{total_count(self.ranges):,} offsets are missing ({named})"
        return TableLost(
            f"table {table} does not hold {self.named_batches} of {pipeline}, which its cursor has committed: {self.why}; "
            f"{offsets if self.ranges else 'the cursor names none of their offsets any more'}",
            fix=f"Nothing was planned. To load them again, run `tidegate ledger reload {pipeline}`; "
            f"to go on without them, run `tidegate accept table {pipeline}`; "
            "if the table was renamed, correct `sink.table`",
            table=table,
            pipeline=pipeline,
            missing=named,
            offsets=total_count(self.ranges),
        )


def is_doubted(cursor: Cursor, history: TableHistory) -> bool:
    """Whether the table does not descend from the commits of the cursor's last two batches.

    Only then `find_missing` needs more than the cursor and the table's commits.
    """
    return bool(_doubted(cursor, history))


def _doubted(cursor: Cursor, history: TableHistory) -> list[Mapping[str, Any]]:
    last = [commit for commit in (cursor.receipt, cursor.previous) if commit is not None]
    return [commit for commit in last if commit["snapshot"] not in history.snapshots]


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
    if lineage:
        doubted = _doubted(cursor, history)
    else:
        doubted = [commit for commit in (cursor.receipt, cursor.previous) if commit is not None]
    if not doubted:
        return None
    plans = list(saved())
    batches = {plan.seq: plan for plan in plans if plan.to_load and not other_topics(plan.topic_ids, cursor.topic_ids)}
    boxes = list(files()) if history.commits else []
    by_batch = doubted[0].get("batch") is not None
    receipts = [r for r in history.receipts(cursor.pipeline) if not other_topics(r.load.topic_ids, cursor.topic_ids)]
    verdicts = [_verdict(commit, history, batches, boxes, receipts) for commit in doubted]
    if all(verdict == "held" for verdict in verdicts):
        return None
    if by_batch:
        missing = _missing_batches(cursor, plans, receipts, boxes)
    else:
        missing = _missing_offsets(cursor, plans, receipts, boxes, lost="lost" in verdicts)
    left = without(missing, cursor.absent)
    if not left:
        return None
    named = tuple(n for n, plan in sorted(batches.items()) if _overlap(plan.to_load, left))
    return Missing(left, named, _why(history), by_batch)


def _verdict(
    commit: Mapping[str, Any],
    history: TableHistory,
    batches: Mapping[int, SavedRange],
    boxes: Sequence[Box],
    receipts: Sequence[Receipt],
) -> Literal["held", "lost", "unclear"]:
    """Whether the table holds a batch whose commit is no ancestor of its state.

    Rows that a replay has loaded since prove nothing of what else there was.
    """
    before = commit["committed_at_ms"] - CLOCKS_APART_MS
    if history.complete or any(other.committed_at_ms < before for other in history.commits):
        return "lost"  # the lineage is known from before it on, so the commit has not expired
    plan = batches.get(commit["seq"])
    if not commit["rows"] or plan is None:
        return "held"
    replayed = [r for receipt in receipts if receipt.load.replay is not None for r in receipt.load.ranges]
    expected = without(plan.to_load, replayed)
    if not expected or (commit.get("batch") is not None and expected != merged(plan.to_load)):
        return "unclear"
    bounds = boxes_of(expected) if commit.get("batch") is None else _batch_boxes(commit["seq"])
    return "held" if _touched(bounds, boxes) else "lost"


def _missing_offsets(
    cursor: Cursor, plans: Sequence[SavedRange], receipts: Sequence[Receipt], boxes: Sequence[Box], *, lost: bool
) -> tuple[OffsetRange, ...]:
    """What is committed, and neither in a receipt nor in a data file.

    Where the rows are lost for certain, a file vouches for what lies between its bounds; otherwise for all of a batch that it
    touches, since transactions and compaction leave gaps at the ends of batches.
    """
    left = without(_committed(cursor, plans), [r for receipt in receipts for r in receipt.load.ranges])
    if lost:
        return without(left, _offsets_in(boxes))
    touched = [r for plan in plans for r in plan.to_load if _touched(boxes_of([r]), boxes)]
    return without(left, [*touched, *_offsets_in(boxes)])


def _missing_batches(
    cursor: Cursor, plans: Sequence[SavedRange], receipts: Sequence[Receipt], boxes: Sequence[Box]
) -> tuple[OffsetRange, ...]:
    """What the batches have read that are neither in a receipt of exactly their ranges nor, by their number, in a data file.

    Batches whose saved ranges were pruned are known by the offsets before the oldest saved range.
    """
    known = [box for box in boxes if None not in box.span]
    by_number = {plan.seq: plan for plan in plans}
    held = {r.load.batch for r in receipts if r.load.batch not in by_number or r.covers(by_number[r.load.batch].to_load)}
    gone = [n for n in range(1, cursor.seq + 1) if n not in held and not _touched(_batch_boxes(n), known)]
    ranges = [r for n in gone if n in by_number for r in by_number[n].to_load]
    if any(n not in by_number for n in gone):
        ranges += without(_committed(cursor, plans), [r for plan in plans for r in plan.to_load])
    return merged(r for r in ranges if r.topic_partition in cursor.offsets)


def _why(history: TableHistory) -> str:
    if not history.exists:
        return "there is no such table"
    if not history.commits:
        return "the table is empty"
    return "its current state does not descend from their commits (the table was rolled back, restored, or made anew)"


def _batch_boxes(batch: int) -> tuple[Box, ...]:
    return (Box(((batch, batch),)),)


def _touched(bounds: Iterable[Box], boxes: Sequence[Box]) -> bool:
    return any(box.touches(file) for box in bounds for file in boxes)


def _committed(cursor: Cursor, plans: Iterable[SavedRange]) -> tuple[OffsetRange, ...]:
    """All that was read: from where each partition was begun to the cursor, without what retention took as accepted."""
    read = [
        OffsetRange(tp.topic, tp.partition, min(cursor.starts.get(tp, offset), offset), offset)
        for tp, offset in cursor.offsets.items()
    ]
    return without(read, [r for plan in plans for r in plan.skipped])


def _offsets_in(boxes: Iterable[Box]) -> list[OffsetRange]:
    """The offsets between the bounds of each data file of one known partition."""
    ranges = []
    for box in boxes:
        ((topic, _), (partition, _), (first, last)) = box.columns
        if box.in_one_place and first is not None and last is not None:
            ranges.append(OffsetRange(topic, partition, first, last + 1))
    return ranges


def _overlap(ranges: Iterable[OffsetRange], others: Sequence[OffsetRange]) -> bool:
    own = merged(ranges)
    return without(own, others) != own


def loadable(
    missing: Missing, cursor: Cursor, watermarks: Watermarks, whole: Iterable[SavedRange] = ()
) -> tuple[OffsetRange, ...]:
    """What of it the log still holds.

    Args:
        missing: what the table does not hold.
        cursor: which topics it was read from.
        watermarks: what the log holds now.
        whole: the batches, where rows are known by their batch: only whole ones can be loaded again.
    """
    other = other_topics(cursor.topic_ids, watermarks.topic_ids)
    retained = [
        OffsetRange(tp.topic, tp.partition, first, watermarks.latest[tp])
        for tp, first in watermarks.earliest.items()
        if tp.topic not in other
    ]
    loadable_ranges = common(missing.ranges, retained)
    plans = [plan for plan in whole if plan.to_load]
    if missing.by_batch:
        return merged(r for plan in plans for r in plan.to_load if not without(plan.to_load, loadable_ranges))
    return loadable_ranges
