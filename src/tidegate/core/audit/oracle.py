"""The verdict on exactly-once: the records of the log are compared with the rows of the table, one by one.

Aggregated rows have no single record; the rows of each batch are compared with its commit (`verify_batches`).

Pure: positions in, verdict out. It does not depend on what wrote the table: the callers read the log through librdkafka
(`tidegate.kafka.log`) and the table through PyIceberg (`tidegate.sinks.iceberg.history`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.core.config.pipeline import Dedupe
from tidegate.core.load.repeats import LoggedRepeats
from tidegate.core.model.ranges import OffsetRange, TopicPartition, by_partition, merged, without
from tidegate.core.model.watermarks import Watermarks, check_same_topics, other_topics
from tidegate.core.state.cursor import Cursor, Position
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import live

COUNTED, FAULTS = ("records", "rows"), ("lost", "duplicated", "unknown")


@dataclass(frozen=True, kw_only=True)
class PartitionVerdict:
    """One partition: records in the log, rows in the table, and the offsets that do not fit (sorted)."""

    topic_partition: TopicPartition
    records: int
    rows: int
    lost: tuple[int, ...]
    duplicated: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def holds(self) -> bool:
        """Whether every record is in the table exactly once, and nothing else is."""
        return not (self.lost or self.duplicated or self.unknown)


@dataclass(frozen=True)
class Verdict:
    """All partitions, sorted."""

    partitions: tuple[PartitionVerdict, ...]

    @property
    def holds(self) -> bool:
        """Whether it holds for every partition."""
        return all(p.holds for p in self.partitions)

    def total(self, what: str) -> int:
        """The sum over partitions of `records`, `rows`, or the number of `lost`, `duplicated` or `unknown` offsets."""
        values = [getattr(p, what) for p in self.partitions]
        return sum(v if isinstance(v, int) else len(v) for v in values)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the verdict, the totals, and the first ten offsets of each kind that do not fit."""
        return {
            "holds": self.holds,
            **{what: self.total(what) for what in (*COUNTED, *FAULTS)},
            "partitions": [
                {"partition": str(p.topic_partition)}
                | {count: getattr(p, count) for count in COUNTED}
                | {fault: list(getattr(p, fault)[:10]) for fault in FAULTS}
                for p in self.partitions
            ],
        }


def judge(log: Mapping[TopicPartition, Iterable[int]], table: Mapping[TopicPartition, Iterable[int]]) -> Verdict:
    """Compare the offsets of the records in the log with the offsets of the rows in the table.

    `unknown` are rows of no record: offsets outside the log, or partitions that it does not have.
    """
    verdicts = []
    for tp in sorted({*log, *table}):
        records = set(log.get(tp, ()))
        rows = Counter(table.get(tp, ()))
        lost, unknown = tuple(sorted(records - rows.keys())), tuple(sorted(rows.keys() - records))
        twice = tuple(sorted(offset for offset, count in rows.items() if count > 1))
        counts = {"records": len(records), "rows": rows.total()}
        verdicts.append(PartitionVerdict(topic_partition=tp, lost=lost, duplicated=twice, unknown=unknown, **counts))
    return Verdict(tuple(verdicts))


@dataclass(frozen=True)
class Miscount:
    """A commit whose ranges nothing has replaced since, and which hold another number of rows now than it wrote."""

    receipt: Receipt
    rows_now: int

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: whose commit, and both numbers."""
        return {
            "seq": self.receipt.load.seq,
            "replay": self.receipt.load.replay,
            "run_id": self.receipt.load.run_id,
            "snapshot": self.receipt.snapshot,
            "rows_written": self.receipt.rows,
            "rows_now": self.rows_now,
        }


UNJUDGED = {
    "in_flight": "a pending batch",
    "before_retention": "records that are gone from the log",
    # a replay may have loaded them, or an operator accepted that others are missing
    "before_start": "retained records before the pipeline began, or began anew,",
    "former": "a topic that was deleted and created again",
    "foreign": "another writer, without an origin, as accepted,",
    "forgotten": "batches older than the oldest receipt",
}
"""Whose rows cannot be judged."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What is true of a pipeline's table.

    `verdict` is about the records that are both committed and still retained. `miscounts` are about all commits, also of
    records that the log no longer has. `ahead` are rows beyond the cursor that no pending batch covers. `without_origin` are
    rows without an origin. `repeats` are records that were left out as such, and are no part of the verdict. `unclear` records
    are not in the table, and may be repeats of records that are gone: they cannot be judged. `unjudged` are rows that cannot be
    judged either (`UNJUDGED`). `quarantined` are those of the rows that are records in quarantine. `to_replay` goes, in each
    partition, from the first to the last retained offset of which the table has not what a live commit says: no reload sees it.
    """

    verdict: Verdict
    miscounts: tuple[Miscount, ...]
    ahead: Mapping[TopicPartition, int]
    without_origin: int
    repeats: int
    unclear: int
    unjudged: Mapping[str, int]
    quarantined: int = 0
    to_replay: tuple[OffsetRange, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the table holds what is committed, and nothing else."""
        return self.verdict.holds and not (self.miscounts or self.ahead or self.without_origin)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            **self.verdict.to_json(),
            "holds": self.holds,
            "ahead": {str(tp): rows for tp, rows in self.ahead.items()},
            "without_origin": self.without_origin,
            **self.unjudged,
            "repeats": self.repeats,
            "unclear": self.unclear,
            "quarantined": self.quarantined,
            "miscounts": [m.to_json() for m in self.miscounts],
        }


def committed_log(cursor: Cursor, watermarks: Watermarks) -> Watermarks:
    """The part of the log that is committed and still retained: from where each partition was begun to the cursor.

    Raises TopicRecreated: the log is another topic's now.
    """
    check_same_topics(
        cursor.at.topic_ids,
        watermarks.topic_ids,
        since=f"{cursor.pipeline} read it",
        fix="What was read of the old topic cannot be verified any more",
    )
    bounds = {}
    for tp, until in cursor.at.offsets.items():
        if tp in watermarks.latest:
            start = max(watermarks.earliest[tp], cursor.at.starts.get(tp, 0))
            bounds[tp] = (min(start, until), until)
    return Watermarks({tp: b[0] for tp, b in bounds.items()}, {tp: b[1] for tp, b in bounds.items()}, watermarks.topic_ids)


def with_look_back(committed: Watermarks, retained: Mapping[TopicPartition, int], dedupes: Iterable[Dedupe]) -> Watermarks:
    """What of the log has to be read to find the repeats in `committed`: the longest window before it too, if retained."""
    window = max((dedupe.window for dedupe in dedupes), default=0)
    earliest = {tp: max(first - window, min(first, retained[tp])) for tp, first in committed.earliest.items()}
    return replace(committed, earliest=earliest)


def verify(  # noqa: PLR0913 - each is one thing that the table is held against
    committed: Watermarks,
    log: Mapping[TopicPartition, Iterable[int]],
    table: Mapping[TopicPartition, Iterable[int]],
    receipts: Sequence[Receipt],
    *,
    retained: Mapping[TopicPartition, int] | None = None,
    in_flight: Iterable[OffsetRange] = (),
    compacted: frozenset[str] = frozenset(),
    one_to_one: bool = True,
    without_origin: int = 0,
    foreign_accepted: bool = False,
    former: Iterable[OffsetRange] = (),
    logged: Mapping[Dedupe, LoggedRepeats] | None = None,
    dedupe: Dedupe | None = None,
) -> Verification:
    """Compare the table with what is committed.

    Args:
        committed: what is committed and retained (`committed_log`); partitions that are not in it are not looked at.
        log: the offsets of its records; those before it are not looked at.
        table: the offset of every row.
        receipts: all of the pipeline, oldest commit first.
        retained: the earliest offsets that the log holds; None: those of what is committed.
        in_flight: ranges that are saved and not committed.
        compacted: topics whose log may lose records that the table keeps.
        one_to_one: whether the transform makes exactly one row of each record; otherwise rows are judged by the
            commits' counts.
        without_origin: how many rows have no origin.
        foreign_accepted: whether an operator has accepted them.
        former: offsets beyond the cursor at which the table may hold rows of a topic that was deleted and created again since.
        logged: the repeats in the log, by each setting of `dedupings`.
        dedupe: the pipeline's setting, by which commits are judged whose receipts have expired.
    """
    pending, old = by_partition(in_flight), by_partition(merged(former))
    rows = {tp: sorted(table.get(tp, ())) for tp in committed.latest}
    inside: dict[TopicPartition, list[int]] = {}
    ahead: dict[TopicPartition, int] = {}
    loading = gone = before = replaced = 0
    for tp, offsets in rows.items():
        start, end = bisect_left(offsets, committed.earliest[tp]), bisect_left(offsets, committed.latest[tp])
        expired = start if retained is None else bisect_left(offsets, retained[tp], 0, start)
        gone, before = gone + expired, before + start - expired
        inside[tp] = offsets[start:end]
        beyond = offsets[end:]
        expected = sum(_rows_in(beyond, r) for r in pending.get(tp, ()))
        loading += expected
        theirs = sum(_rows_in(beyond, r) for r in without(old.get(tp, ()), pending.get(tp, ())))
        replaced += theirs
        if len(beyond) > expected + theirs:
            ahead[tp] = len(beyond) - expected - theirs
    records = {tp: {offset for offset in log.get(tp, ()) if offset >= committed.earliest[tp]} for tp in rows}
    repeats, unclear = _repeats(committed, receipts, logged or {}, dedupe)
    left_out = undecided = 0
    for tp, dropped in repeats.items():
        left_out += len(records[tp] & dropped)
        records[tp] -= dropped
    for tp, perhaps in unclear.items():
        absent_ones = (records[tp] & perhaps).difference(inside[tp])
        undecided += len(absent_ones)
        records[tp] -= absent_ones
    for tp, offsets in inside.items():
        if not one_to_one:
            records[tp] = {offset for offset in offsets if offset in records[tp]}
            inside[tp] = sorted(set(offsets))
        if tp.topic in compacted:
            inside[tp] = [offset for offset in inside[tp] if offset in records[tp]]
    verdict, miscounts = judge(records, inside), tuple(_miscounts(receipts, rows))
    return Verification(
        verdict=verdict,
        miscounts=miscounts,
        ahead=ahead,
        without_origin=0 if foreign_accepted else without_origin,
        repeats=left_out,
        unclear=undecided,
        unjudged={
            "in_flight": loading,
            "before_retention": gone,
            "before_start": before,
            "former": replaced,
            "foreign": without_origin if foreign_accepted else 0,
        },
        to_replay=tuple(_to_replay(verdict, miscounts, receipts, committed)),
    )


def _to_replay(
    verdict: Verdict, miscounts: Iterable[Miscount], receipts: Sequence[Receipt], committed: Watermarks
) -> Iterable[OffsetRange]:
    found: Offsets = {}
    wrong = {p.topic_partition: sorted((*p.lost, *p.duplicated)) for p in verdict.partitions}
    for _, ranges in live(receipts):
        _add_within(ranges, wrong, found)
    for r in (r for m in miscounts for r in m.receipt.load.nonempty):
        found.setdefault(r.topic_partition, set()).update((r.from_offset, r.until_offset - 1))
    for tp, offsets in sorted(found.items()):
        first, end = max(min(offsets), committed.earliest.get(tp, 0)), max(offsets) + 1
        if first < end:
            yield OffsetRange(tp.topic, tp.partition, first, end)


def dedupings(receipts: Sequence[Receipt], dedupe: Dedupe | None) -> set[Dedupe]:
    """By which settings the rows of a table were loaded: those of its live commits, and the pipeline's own."""
    return {d for d in (dedupe, *(receipt.load.dedupe for receipt, _ in live(receipts))) if d is not None}


Offsets = dict[TopicPartition, set[int]]


def _repeats(
    committed: Watermarks, receipts: Sequence[Receipt], logged: Mapping[Dedupe, LoggedRepeats], dedupe: Dedupe | None
) -> tuple[Offsets, Offsets]:
    """The records that the live commits have left out, and those that they may have left out.

    Where the receipt of a commit has expired, nobody knows whether it left out repeats.
    """
    repeats, unclear = Offsets(), Offsets()
    everything = [OffsetRange(tp.topic, tp.partition, low, committed.latest[tp]) for tp, low in committed.earliest.items()]
    known: list[OffsetRange] = []
    for receipt, ranges in live(receipts):
        known += ranges
        if receipt.load.dedupe is not None and receipt.load.dedupe in logged:
            _add_within(ranges, logged[receipt.load.dedupe].repeats, repeats)
            _add_within(ranges, logged[receipt.load.dedupe].unclear, unclear)
    if dedupe is not None and dedupe in logged:
        rest = without(everything, merged(known))
        _add_within(rest, logged[dedupe].repeats, unclear)
        _add_within(rest, logged[dedupe].unclear, unclear)
    return repeats, unclear


def _add_within(ranges: Iterable[OffsetRange], offsets: Mapping[TopicPartition, Sequence[int]], into: Offsets) -> None:
    """Those of the offsets, which are in order, that lie in the ranges."""
    for r in ranges:
        found = offsets.get(r.topic_partition, ())
        within = found[bisect_left(found, r.from_offset) : bisect_left(found, r.until_offset)]
        if within:
            into.setdefault(r.topic_partition, set()).update(within)


def former_ranges(cursor: Cursor, receipts: Iterable[Receipt]) -> list[OffsetRange]:
    """Where the table may hold rows of topics that were deleted and created again: what was read of the former topics."""
    read = [r for receipt in receipts if other_topics(receipt.load.topic_ids, cursor.at.topic_ids) for r in receipt.load.ranges]
    return read + [OffsetRange(tp.topic, tp.partition, 0, until) for tp, until in cursor.at.former.items()]


def began_anew(cursor: Cursor, earlier: Iterable[Position | None]) -> tuple[OffsetRange, ...]:
    """What lies before the partitions that began anew, as an operator accepted, from where they had begun: it may be missing.

    `earlier` is where the batches led that are still known, by their saved ranges or receipts.
    """
    begun: dict[TopicPartition, int] = {}
    for position in filter(None, earlier):
        for tp, at in position.starts.items():
            if position.topic_ids.get(tp.topic) == cursor.at.topic_ids.get(tp.topic):
                begun[tp] = min(at, begun.get(tp, at))
    return tuple(
        OffsetRange(tp.topic, tp.partition, begun[tp], anew)
        for tp, anew in sorted(cursor.at.starts.items())
        if begun.get(tp, anew) < anew
    )


def _miscounts(receipts: Sequence[Receipt], rows: Mapping[TopicPartition, Sequence[int]]) -> Iterable[Miscount]:
    """Commits whose ranges nothing has replaced since, not even in part, and that have another number of rows now.

    Records in quarantine are among the rows.
    """
    for receipt, ranges in live(receipts):
        known = all(r.topic_partition in rows for r in ranges)
        if known and ranges == merged(receipt.load.ranges):
            now = sum(_rows_in(rows[r.topic_partition], r) for r in ranges)
            if now != receipt.rows + (receipt.write.quarantined or 0):
                yield Miscount(receipt, now)


def _rows_in(offsets: Sequence[int], r: OffsetRange) -> int:
    return bisect_left(offsets, r.until_offset) - bisect_left(offsets, r.from_offset)


@dataclass(frozen=True, kw_only=True)
class BatchVerification:
    """What is true of a table whose rows are known by their batch.

    `rows` were counted in `batches` that are committed and whose receipt is there. `miscounts` are batches with another number
    of rows than their newest commit wrote. `missing` are committed batches that read something and left no commit. `ahead` are
    rows of batches beyond the cursor that are not pending. `unknown` are rows of no batch, or of one that
    left no commit. `unjudged` are rows that cannot be judged (`UNJUDGED`).
    """

    batches: int
    rows: int
    miscounts: tuple[Miscount, ...]
    missing: tuple[int, ...]
    ahead: Mapping[int, int]
    unknown: int
    unjudged: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """Whether the table holds what is committed, and nothing else."""
        return not (self.miscounts or self.missing or self.ahead or self.unknown)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "holds": self.holds,
            "batches": self.batches,
            "rows": self.rows,
            "miscounts": [m.to_json() for m in self.miscounts],
            "missing": list(self.missing),
            "ahead": {str(batch): rows for batch, rows in self.ahead.items()},
            "unknown": self.unknown,
            **self.unjudged,
        }


def verify_batches(
    committed: int,
    table: Mapping[int | None, int],
    receipts: Sequence[Receipt],
    loaded: Iterable[int],
    *,
    pending: bool = False,
) -> BatchVerification:
    """Compare the rows of each batch with its newest commit.

    `table` has the rows of each batch (None is no batch), `loaded` the batches that read something, as far as their saved
    ranges are kept. The receipts are all of the pipeline, the oldest commit first. `pending`: the batch after the last
    committed one is saved.
    """
    newest = {r.load.batch: r for r in receipts if r.load.batch is not None}
    oldest = min(newest, default=0)
    unknown = in_flight = forgotten = 0
    ahead = {}
    for batch, rows in sorted(table.items(), key=lambda item: item[0] or 0):
        if batch is not None and batch > committed:
            if pending and batch == committed + 1:
                in_flight += rows
            else:
                ahead[batch] = rows
        elif batch is not None and batch < oldest:
            forgotten += rows
        elif batch not in newest:
            unknown += rows
    judged = {batch: receipt for batch, receipt in sorted(newest.items()) if batch <= committed}
    return BatchVerification(
        batches=len(judged),
        rows=sum(table.get(batch, 0) for batch in judged),
        miscounts=tuple(Miscount(r, table.get(b, 0)) for b, r in judged.items() if table.get(b, 0) != r.rows),
        missing=tuple(sorted(batch for batch in loaded if oldest <= batch <= committed and batch not in newest)),
        ahead=ahead,
        unknown=unknown,
        unjudged={"in_flight": in_flight, "forgotten": forgotten},
    )
