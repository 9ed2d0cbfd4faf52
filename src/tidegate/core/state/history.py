"""What a table's own commits prove, and which committed batches the table does not hold.

Two kinds of evidence count, in this order:

    lineage    the commit of the last batch, and the state of the table that its plan saw, are ancestors of the current state
    receipts   commits in that lineage, of batches and of replays, cover the ranges

A table may be whole where neither proves it: somebody expired all its snapshots but the newest. A person has to say so.
docs/adr/0007-lost-tables.md has the reasons. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Literal

from tidegate.core.model.errors import TableLost, some
from tidegate.core.model.ranges import OffsetRange, TopicPartition, common, merged, total_count, without
from tidegate.core.model.times import CLOCKS_APART_MS
from tidegate.core.model.watermarks import Watermarks, other_topics
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.receipt import PIPELINE, PREFIX, Receipt, batch_of, replay_of
from tidegate.core.state.saved_range import SavedRange

NoOrigin = Literal["lost", "foreign"]
"""Why rows have no origin: the table has lost the column that held it, or another writer made the rows."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit of a table: its id, its time (epoch ms), and its properties, which hold the receipt of a load.

    `rows` are those that its load made, by the sink's own counters; None where the counters cannot be read. The commit added
    `kept` rows more: older ones that it wrote again. `parent` is the id of the commit that it was made on, if it says so.
    """

    snapshot: int
    committed_at_ms: int
    properties: dict[str, str] = field(default_factory=dict)
    _: KW_ONLY
    rows: int | None = 0
    kept: int = 0
    parent: int | None = None

    def receipt(self, partitions: Collection[TopicPartition] | None = None) -> Receipt:
        """The receipt of the load that made it, with the ranges of some partitions; None: of all. Raises StateCorrupt."""
        receipt = Receipt.from_properties(
            self.properties,
            snapshot=self.snapshot,
            committed_at_ms=self.committed_at_ms,
            rows=self.rows,
            kept=self.kept,
            parent=self.parent,
            partitions=partitions,
        )
        assert receipt is not None  # noqa: S101 - only loads are asked for theirs
        return receipt


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """The data files of a table's current state, for those who maintain it.

    `count` and `size` (bytes) are None where the table does not count them. `compacted` are the files, and their bytes, that
    the newest compaction left which merged all it could. `partitions` is the most partitions that one of the commits wrote
    into. `may_expire` is whether the table's properties allow its snapshots to expire.
    """

    count: int | None = None
    size: int | None = None
    compacted: tuple[int, int] = (0, 0)
    partitions: int = 0
    may_expire: bool = True


@dataclass(frozen=True)
class Origins:
    """What a table leaves open about the origin of its rows.

    `lacks` are the origin columns that it does not have, `moved` those that it once had as another column than now, with that
    column's present name ("" where it was dropped). `unproved` is whether the commits leave open that rows have no origin:
    others have added some, or the first have expired.
    """

    lacks: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)
    unproved: bool = False


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """The commits that a table's current state descends from, newest first, as far as they are kept.

    `exists` is False where the catalog has no such table. `complete` is True where the oldest of them is the first commit of
    the table, and False where older ones have expired. `owners` are the pipelines that the table's properties name. `renamed`
    are the names that pipelines had, each with the one that it has now. `has_rows` is whether the current state holds rows.
    """

    commits: tuple[TableCommit, ...] = ()
    exists: bool = True
    complete: bool = True
    owners: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    has_rows: bool = False
    files: DataFiles = field(default_factory=DataFiles)
    origins: Origins = field(default_factory=Origins)

    @cached_property
    def snapshots(self) -> frozenset[int]:
        """The ids of the commits, and of the one before them: its commit has expired, and its id is known all the same."""
        before = self.commits[-1].parent if self.commits else None
        return frozenset(commit.snapshot for commit in self.commits) | ({before} if before is not None else set())

    @property
    def head(self) -> int | None:
        """The commit of the current state; None where there is none."""
        return self.commits[0].snapshot if self.commits else None

    def reached(self, pipeline: str) -> tuple[int, int] | None:
        """Generation and batch of the pipeline's furthest receipt, replays aside; None without one. Raises StateCorrupt."""
        batches = (batch_of(commit.properties, snapshot=commit.snapshot) for commit in self.loads(pipeline))
        return max((batch for batch in batches if batch is not None), default=None)

    def receipts(self, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline, oldest commit first, replays too. Raises StateCorrupt: a receipt cannot be read."""
        return [commit.receipt() for commit in self.loads(pipeline)][::-1]

    def batch_of_run(self, pipeline: str, run_id: str) -> Receipt | None:
        """The newest receipt of a batch that this DAG run has loaded; replays do not count. Raises StateCorrupt."""
        for commit in self.loads(pipeline):
            if commit.properties.get(f"{PREFIX}run-id") == run_id and replay_of(commit.properties) is None:
                return commit.receipt()
        return None

    def formerly(self, pipeline: str) -> tuple[str, ...]:
        """The names that a pipeline had when it loaded into the table."""
        return tuple(sorted(old for old, new in self.renamed.items() if new == pipeline))

    @property
    def loaders(self) -> frozenset[str]:
        """The pipelines that have loaded into the table, as far as its commits are kept."""
        return frozenset(commit.properties[PIPELINE] for commit in self.commits if PIPELINE in commit.properties)

    def loads(self, pipeline: str) -> tuple[TableCommit, ...]:
        """The commits of the pipeline's loads, newest first."""
        return tuple(commit for commit in self.commits if commit.properties.get(PIPELINE) == pipeline)


@dataclass(frozen=True, kw_only=True)
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


GONE = Missing(ranges=(), batches=(), why="there is no such table")
"""All of a table, where nothing that the cursor names was in it: it may hold rows of topics that were retired since."""


def is_doubted(cursor: Cursor, history: TableHistory) -> bool:
    """Whether the table does not descend from the commit of the cursor's last batch, and from the state that its plan saw.

    Only then `find_missing` needs more than the cursor and the table's commits.
    """
    if cursor.receipt is None:
        return False
    last = cursor.receipt.snapshot
    made_on = {cursor.receipt.parent} if last in history.snapshots else set()
    return not {last, cursor.head} <= history.snapshots | made_on | {None}


def find_missing(
    cursor: Cursor,
    history: TableHistory,
    saved: Callable[[], Sequence[SavedRange]],
    *,
    accepted: Sequence[OffsetRange] = (),
    lineage: bool = True,
) -> Missing | None:
    """What of the committed batches the table is not proved to hold; None where it holds them.

    `saved` reads the saved ranges of committed batches, as far as they are kept; it is asked only where the lineage is broken.
    With `lineage` the commit of the last batch vouches for all before it; not so where the cursor was made of it. Raises
    StateCorrupt: a receipt cannot be read.
    """
    if cursor.receipt is None or (lineage and not is_doubted(cursor, history)):
        return None
    plans, by_batch = list(saved()), cursor.receipt.batch is not None
    batches = {
        plan.load.seq: plan
        for plan in plans
        if plan.load.nonempty and not other_topics(plan.load.topic_ids, cursor.at.topic_ids)
    }
    receipts = [of for r in history.receipts(cursor.pipeline) if (of := _of_same_topics(r, cursor, whole=by_batch))]
    loaded = [r for receipt in receipts for r in receipt.load.ranges]
    missing = _missing_batches(cursor, plans, receipts) if by_batch else without(_committed(cursor), loaded)
    left = without(missing, accepted)
    if not left:
        return None
    named = tuple(n for n, plan in sorted(batches.items()) if common(plan.load.nonempty, left))
    return Missing(ranges=left, batches=named, why=_why(history, cursor.receipt.committed_at_ms), by_batch=by_batch)


def _missing_batches(cursor: Cursor, plans: Sequence[SavedRange], receipts: Sequence[Receipt]) -> tuple[OffsetRange, ...]:
    """What the batches have read that have no receipt of exactly their ranges.

    Batches whose saved ranges were pruned are known by the offsets before the oldest saved range.
    """
    committed, by_number = _committed(cursor), {plan.load.seq: plan for plan in plans}
    held = {r.load.batch for r in receipts if r.load.batch not in by_number or r.covers(by_number[r.load.batch].load.nonempty)}
    gone = [n for n in range(1, cursor.seq + 1) if n not in held]
    ranges = [
        r for n in gone if n in by_number and common(by_number[n].load.nonempty, committed) for r in by_number[n].load.nonempty
    ]
    if any(n not in by_number for n in gone):
        ranges += without(committed, [r for plan in plans for r in plan.load.nonempty])
    return merged(r for r in ranges if r.topic_partition in cursor.at.offsets)


def _of_same_topics(receipt: Receipt, cursor: Cursor, *, whole: bool) -> Receipt | None:
    """What a receipt says of topics that are still the same ones; None where that is nothing, or, of a batch, not all."""
    other = other_topics(receipt.load.topic_ids, cursor.at.topic_ids)
    if not other:
        return receipt
    ranges = tuple(r for r in receipt.load.ranges if r.topic not in other and not whole)
    return receipt.of(ranges=ranges) if ranges else None


def _why(history: TableHistory, committed_at_ms: int) -> str:
    if not history.exists:
        return GONE.why
    if not history.commits:
        return "the table is empty"
    if not history.complete and committed_at_ms <= history.commits[-1].committed_at_ms + CLOCKS_APART_MS:
        return "its snapshots from then have expired, and nothing that is left proves that it holds their rows"
    return "its current state does not descend from their commits (the table was rolled back, restored, or made anew)"


def _committed(cursor: Cursor) -> tuple[OffsetRange, ...]:
    """All that was read: from where each partition begins to the cursor."""
    return merged(
        OffsetRange(tp.topic, tp.partition, min(cursor.at.starts.get(tp, offset), offset), offset)
        for tp, offset in cursor.at.offsets.items()
    )


def loadable(
    missing: Missing, cursor: Cursor, watermarks: Watermarks, whole: Iterable[SavedRange] = ()
) -> tuple[OffsetRange, ...]:
    """What of it the log still holds.

    `whole` are the batches, where rows are known by their batch: only whole ones can be loaded again.
    """
    other = other_topics(cursor.at.topic_ids, watermarks.topic_ids)
    retained = [
        OffsetRange(tp.topic, tp.partition, first, watermarks.latest[tp])
        for tp, first in watermarks.earliest.items()
        if tp.topic not in other
    ]
    loadable_ranges = common(missing.ranges, retained)
    plans = [plan for plan in whole if plan.load.nonempty]
    if missing.by_batch:
        return merged(r for plan in plans for r in plan.load.nonempty if not without(plan.load.nonempty, loadable_ranges))
    return loadable_ranges
