"""Runs of a pipeline's DAGs: one in full, which is a batch, a replay, or neither; and the last ones side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from typing import Any, Literal

from tidegate.core.config.names import BACKFILL, BACKFILL_RUN, REPLAY_DAG
from tidegate.core.model.counts import is_whole
from tidegate.core.model.ranges import OffsetRange, common, total_count
from tidegate.core.model.watermarks import other_topics
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.control import RateBound
from tidegate.core.rates.policy import is_number
from tidegate.core.replay.verdict import Replaced
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.jobs import COLD_S
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import SavedRange
from tidegate.core.state.saved_replay import SavedReplay
from tidegate.views.entries import BatchRow, Entry, LoadRow, entries
from tidegate.views.range_map import Mark

RunKind = Literal["batch", "nothing", "failed", "planning", "replay", "other"]
"""A batch is saved; there was nothing to read; it failed without having saved one; it has not planned yet; it replays, or would
have; it does something else, or Airflow does not know it."""
MarkKind = Literal["loaded", "nothing", "failed", "running", "queued", "replay"]
REPLACED = {field.name for field in fields(Replaced)}
WITHOUT_SUCCESS: dict[str, MarkKind] = {"failed": "failed", "running": "running", "queued": "queued"}


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

    The receipts are those of the pipeline, the oldest commit first. `who` says who or what triggered its run, and `load` is
    what its newest load handed on.
    """
    seq, why, ranges = saved.load.seq, saved.why, saved.load.ranges
    (entry,) = entries([saved], (r for r in receipts if r.load.replay is None and r.load.seq == seq), cursor, who)
    # no topic was deleted and created again between the two
    again = [r for r in receipts if r.load.replay is not None and not other_topics(saved.load.topic_ids, r.load.topic_ids)]
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


@dataclass(frozen=True, kw_only=True)
class ChunkRow:
    """A chunk of a replay, and the newest load of it: when it was committed (epoch ms), its rows; None where there is none."""

    chunk: int
    offsets: int
    rows: int | None
    committed_at_ms: int | None


@dataclass(frozen=True, kw_only=True)
class ReplayRun:
    """A run that replays, or a dry run; None is what is not known.

    Attributes:
        pipeline: whose.
        note: what Airflow has noted of the run.
        offsets: that it replays in all.
        request: what was asked for, by name.
        chunks: none where nothing is saved, as of a dry run.
        replaces: what it replaces, or would.
        lost: ranges that the log no longer holds.
        seconds: an estimate of what the loads take.
        verdict: what it found in the end.
    """

    run_id: str
    pipeline: str
    state: str
    note: str | None
    dry_run: bool
    table: str | None
    transform: str | None
    offsets: int | None
    request: Mapping[str, Any]
    chunks: tuple[ChunkRow, ...]
    replaces: tuple[Replaced, ...]
    lost: tuple[str, ...]
    seconds: float | None
    verdict: Mapping[str, Any] | None


def replay_run(
    run: Mapping[str, Any],
    pipeline: str,
    saved: SavedReplay | None = None,
    *,
    landed: Iterable[Receipt] = (),
    report: Mapping[str, Any] | None = None,
    verdict: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> ReplayRun:
    """A run, as Airflow has it (`dag_run_id`, `state`, `note`), that replays what is saved of it.

    `landed` are the receipts of its chunks, the oldest first. `report` is what it does, or would do, as its plan handed on
    (`tidegate.core.replay.verdict`), and `verdict` what it found in the end; None where it did not come to that.
    """
    report = report or {}
    total, seconds, replaces = report.get("total"), report.get("seconds"), _listed(report, "replaces")
    newest = {receipt.load.seq: receipt for receipt in landed}
    return ReplayRun(
        run_id=run["dag_run_id"],
        pipeline=pipeline,
        state=run["state"],
        note=run["note"],
        dry_run=dry_run,
        table=report.get("table") if saved is None else saved.table,
        transform=report.get("transform") if saved is None else saved.transform,
        offsets=total_count(saved.selection) if saved is not None else total if is_whole(total) else None,
        request={} if saved is None else dict(saved.request),
        chunks=() if saved is None else tuple(_chunk(n, of, newest.get(n)) for n, of in enumerate(saved.chunks)),
        replaces=tuple(Replaced(**each) for each in replaces if isinstance(each, Mapping) and {*each} == REPLACED),
        lost=tuple(map(str, _listed(report, "lost"))),
        seconds=seconds if is_number(seconds) else None,
        verdict=verdict,
    )


def _chunk(number: int, ranges: Iterable[OffsetRange], receipt: Receipt | None) -> ChunkRow:
    return ChunkRow(
        chunk=number,
        offsets=total_count(ranges),
        rows=None if receipt is None else receipt.rows,
        committed_at_ms=None if receipt is None else receipt.committed_at_ms,
    )


def _listed(report: Mapping[str, Any], name: str) -> list[Any]:
    value = report.get(name)
    return list(value) if isinstance(value, list) else []


def without_a_batch(run: Mapping[str, Any] | None, plan_state: str | None) -> tuple[RunKind, str]:
    """What a run of the schedule is that has saved nothing, and why.

    `run` is as Airflow has it; None where it does not know it.
    """
    if run is None:
        return "other", "Airflow does not know this run."
    if plan_state == "skipped":
        return "nothing", run["note"] or "There was nothing to read."
    if run["state"] == "failed":
        return "failed", run["note"] or "It failed before it had saved a range; see the log of its plan task."
    if run["state"] in ("queued", "running"):
        return "planning", "It has not saved a range yet."
    return "other", "It has saved no range, or the range has been removed since."


@dataclass(frozen=True, slots=True)
class RunMark:
    """One run. `seq` and `records` are those of the batch that it saved, None where it saved none; `at_ms` is epoch ms."""

    run_id: str
    _: KW_ONLY
    dag_id: str
    kind: MarkKind
    at_ms: int
    seq: int | None = None
    records: int | None = None


def run_marks(
    runs: Mapping[str, Iterable[Mapping[str, Any]]], batches: Mapping[str, tuple[int, int | None]], *, pipeline: str, most: int
) -> tuple[RunMark, ...]:
    """The newest runs of some DAGs, the oldest first.

    `runs` are by DAG id, as Airflow's REST API lists them, with `since_ms`; DAGs other than the schedule's replay. `batches`
    has number and records, where they are known, of what each run of the schedule saved, by run id.
    """
    marks = [
        _mark(run, dag_id, batches.get(str(run["dag_run_id"])) if dag_id == pipeline else None, replays=dag_id != pipeline)
        for dag_id, of_dag in runs.items()
        for run in of_dag
    ]
    return tuple(sorted(marks, key=lambda mark: mark.at_ms)[-most:])


def _mark(run: Mapping[str, Any], dag_id: str, batch: tuple[int, int | None] | None, *, replays: bool) -> RunMark:
    state = str(run["state"])
    kind: MarkKind = "nothing" if batch is None else "loaded"
    if state in WITHOUT_SUCCESS:
        kind = WITHOUT_SUCCESS[state]
    elif replays or run["run_type"] == BACKFILL:
        kind = "replay"
    seq, records = (None, None) if batch is None else batch
    return RunMark(str(run["dag_run_id"]), dag_id=dag_id, kind=kind, at_ms=int(run["since_ms"]), seq=seq, records=records)
