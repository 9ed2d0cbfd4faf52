"""One batch in full: what was planned and why, what loaded it, and what that took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate.core.config.names import BACKFILL_RUN, REPLAY_DAG
from tidegate.core.model.counts import is_whole
from tidegate.core.model.ranges import OffsetRange, common, total_count
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.checks import is_number
from tidegate.core.rates.control import RateBound
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.jobs import COLD_S
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import SavedRange
from tidegate.views.entries import BatchRow, Entry, LoadRow, entries
from tidegate.views.range_map import Mark


@dataclass(frozen=True, kw_only=True)
class LoadFigures:
    """What one load took and saw; None is what is not known.

    Attributes:
        seconds: by phase.
        records: read from Kafka.
        rows: written.
        repeats: of the records, left out as repeats.
        errors: of the rows, broken records.
        spark_age_s: how long the Spark application had been running when the load began.
        landed_before: whether nothing was written, since an earlier try had landed.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    records: int | None = None
    rows: int | None = None
    repeats: int | None = None
    errors: int | None = None
    spark_age_s: float | None = None
    landed_before: bool = False

    @staticmethod
    def of(answer: object) -> LoadFigures | None:
        """The answer that a load task handed on; None where it is none. No batch depends on what is read here."""
        if not isinstance(answer, Mapping) or not isinstance(answer.get("observed"), Mapping):
            return None
        seen, seconds = answer["observed"], answer.get("seconds")
        counts = {name: seen.get(name) for name in ("records", "rows", "repeats", "errors")}
        age = answer.get("spark_age_s")
        return LoadFigures(
            seconds={str(k): float(v) for k, v in seconds.items() if is_number(v)} if isinstance(seconds, Mapping) else {},
            **{name: value if is_whole(value) else None for name, value in counts.items()},
            spark_age_s=age if is_number(age) else None,
            landed_before=answer.get("landed_before") is True,
        )

    @property
    def marks(self) -> frozenset[Mark]:
        """What of it is worth seeing in a range map."""
        marks: set[Mark] = set()
        if self.errors:
            marks.add("errors")
        if self.spark_age_s is not None and self.spark_age_s < COLD_S:
            marks.add("cold")
        return frozenset(marks)


@dataclass(frozen=True, kw_only=True)
class PlannedRange:
    """Offsets `[from_offset, until_offset)` of a partition, and why they begin and end there; None where that is not known."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    from_reason: str | None = None
    until_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReplayRow(LoadRow):
    """A later load of offsets of a batch that no schedule made.

    Attributes:
        dag_id: whose run replayed: a date backfill is a run of the pipeline's own DAG.
        partitions: the offsets of the batch that it loaded.
    """

    dag_id: str
    partitions: tuple[OffsetRange, ...]


@dataclass(frozen=True, kw_only=True)
class Batch(BatchRow):
    """A batch in full.

    Attributes:
        limits: what bounded it when it was planned, by the setting.
        rate: what the rate policy allowed; None where there is none.
        timing: what it took; None where that is not known any more.
        load: what its newest load handed on; None where that is not known any more.
        replays: the oldest first.
        explained: what was adopted, replaced or loaded again, and why, in sentences.
    """

    planned_at_ms: int
    limits: Mapping[str, Any]
    rate: RateBound | None
    partitions: tuple[PlannedRange, ...]
    timing: BatchTiming | None
    load: LoadFigures | None
    replays: tuple[ReplayRow, ...]
    explained: tuple[str, ...]


def batch_of(
    saved: SavedRange,
    cursor: Cursor,
    receipts: Sequence[Receipt],
    who: Mapping[str, str] | None = None,
    load: LoadFigures | None = None,
) -> Batch:
    """A batch by its saved range.

    Args:
        saved: the range.
        cursor: how far the pipeline has come.
        receipts: those of the pipeline, the oldest commit first.
        who: who or what triggered its run, by run id.
        load: what its newest load handed on.
    """
    seq, why, ranges = saved.load.seq, saved.why, saved.load.ranges
    (entry,) = entries([saved], (r for r in receipts if r.load.replay is None and r.load.seq == seq), cursor, who)
    again = [r for r in receipts if r.load.replay is not None and _same_topics(r, saved)]
    replays = tuple(_replay(r, offsets) for r in again if (offsets := common(r.load.ranges, ranges)))
    reasons = {d.topic_partition: {"from_reason": d.from_reason, "until_reason": d.until_reason} for d in why.decisions}
    return Batch(
        **vars(BatchRow.of(entry)),
        limits=dict(why.limits),
        rate=why.rate,
        partitions=tuple(PlannedRange(**{**asdict(r), **reasons.get(r.topic_partition, {})}) for r in ranges),
        timing=cursor.pace.timing if seq == cursor.seq else None,
        load=load,
        replays=replays,
        explained=tuple(_explained(saved, entry, load, replays)),
    )


def _replay(receipt: Receipt, offsets: tuple[OffsetRange, ...]) -> ReplayRow:
    load = receipt.load
    dag_id = load.pipeline if load.run_id.startswith(BACKFILL_RUN) else f"{load.pipeline}{REPLAY_DAG}"
    return ReplayRow(**vars(LoadRow.of(receipt)), dag_id=dag_id, partitions=offsets)


def _explained(saved: SavedRange, entry: Entry, load: LoadFigures | None, replays: Sequence[ReplayRow]) -> Iterator[str]:
    receipts = entry.receipts
    if saved.why.adopted_from is not None:
        yield f"Run {saved.why.adopted_from} saved the range and did not commit it. Run {saved.load.run_id} adopted it."
    if len(receipts) > 1:
        yield f"It was loaded {len(receipts)} times. Each load replaced the rows of the one before."
    if receipts and receipts[-1].kept:
        kept = f"{receipts[-1].kept:,}"
        yield f"{kept} older rows of the same data files were written again, unchanged, by the newest load."
    if load is not None and load.landed_before:
        yield "An earlier try of the load had written the rows. The last try found its receipt, and wrote nothing."
    if lost := total_count(saved.skipped):
        yield f"{lost:,} offsets before it were deleted by retention, and skipped, as somebody accepted."
    for topic in sorted(entry.recreated):
        yield f"Topic {topic} had been deleted and created again. It is read from its beginning."
    for replay in replays:
        offsets = f"{total_count(replay.partitions):,} of its offsets"
        yield f"{offsets} were loaded again by run {replay.run_id}, by {replay.transform}."


def _same_topics(receipt: Receipt, saved: SavedRange) -> bool:
    """Whether no topic was deleted and created again between the two."""
    ids = receipt.load.topic_ids
    return all(ids.get(topic, known) == known for topic, known in saved.load.topic_ids.items())
