"""What a replay would do (how much it reads, what it replaces, how long it takes), and whether one is whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from tidegate.core.model.errors import ReceiptMismatch, some
from tidegate.core.model.ranges import (
    OffsetRange,
    TopicPartition,
    common,
    merged,
    offsets_to_json,
    total_count,
    without,
)
from tidegate.core.model.watermarks import check_same_topics
from tidegate.core.planning.trust import KEEP_ROWS
from tidegate.core.replay.selection import Past
from tidegate.core.state.ports import Brokers, SinkReader
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import SavedReplay, live

LOOK_BACK = 5
"""Batches that the observed rate is taken from."""
PLANNED = "this replay was planned"
"""For the error: since when a topic has another id."""


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """What a replay replaces of one earlier load: offsets, and about so many rows."""

    load: str
    offsets: int
    rows: int
    transform: str


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """What a replay would do. `bytes` and the times are estimates from what was observed; None where nothing was.

    `seconds` are those of the loads, `run_seconds` those of the rest of a run: its start, its plan, and its last task.
    """

    records: Mapping[TopicPartition, int]
    chunks: int
    bytes: int | None
    seconds: float | None
    run_seconds: float | None = None
    lost: tuple[OffsetRange, ...] = ()
    replaces: tuple[Replaced, ...] = ()
    landed: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self) | {
            "records": offsets_to_json(self.records),
            "total": sum(self.records.values()),
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "run_seconds": None if self.run_seconds is None else round(self.run_seconds, 1),
            "lost": [str(r) for r in self.lost],
            "replaces": [asdict(r) for r in self.replaces],
        }

    def lines(self) -> list[str]:
        """The same for people."""
        lines = [f"{tp}: {count:,} offsets" for tp, count in sorted(self.records.items())]
        size = "bytes unknown" if self.bytes is None else f"about {self.bytes:,} bytes"
        rest = "plus the rest of the run" if self.run_seconds is None else f"{self.run_seconds:,.0f} s for the rest of the run"
        time = "time unknown: no rate was observed"
        if self.seconds is not None:
            time = f"about {self.seconds:,.0f} s for the loads, {rest}"
        chunks = f"{self.chunks} chunk{'s' if self.chunks != 1 else ''}"
        lines.append(f"{sum(self.records.values()):,} offsets ({size}), {chunks}, {time}")
        lines += [f"no longer retained, left out: {r} = {r.count:,} offsets" for r in self.lost]
        if self.landed:
            lines.append(f"landed by an earlier run of the same replay, not repeated: {self.landed:,} offsets")
        lines += [f"replaces {r.rows:,} rows of {r.load} ({r.offsets:,} offsets, by {r.transform})" for r in self.replaces]
        return lines


def report_on(past: Past, saved: SavedReplay, receipts: list[Receipt], landed: int) -> ReplayReport:
    """What a replay would do.

    The receipts are those of the table that it loads into, the oldest commit first; an earlier run of the same replay has
    loaded `landed` offsets.
    """
    records: dict[TopicPartition, int] = {}
    for r in saved.selection:
        records[r.topic_partition] = records.get(r.topic_partition, 0) + r.count
    total = sum(records.values())
    size = past.cursor.pace.record_bytes
    rate, run_s = _observed(past)
    replaces = []
    for receipt, ranges in reversed(live(receipts)):
        offsets = total_count(common(ranges, saved.selection))
        if offsets:
            rows = round(receipt.rows * offsets / total_count(receipt.load.ranges))
            replaces.append(Replaced(load=receipt.load.named, offsets=offsets, rows=rows, transform=receipt.write.transform))
    return ReplayReport(
        records=records,
        chunks=len(saved.chunks),
        bytes=None if size is None else round(size * total),
        seconds=None if rate is None else total / rate,
        run_seconds=run_s,
        lost=saved.lost,
        replaces=tuple(replaces),
        landed=landed,
    )


def _observed(past: Past) -> tuple[float | None, float | None]:
    """Of the newest batches: offsets per second from planned to committed in the sink, and the other seconds of a run.

    None where nothing is known of it.
    """
    offsets = seconds = 0.0
    loads = 0
    keys = {key.seq: key.key for key in past.listing.ranges}
    for seq, receipt in list(past.batches().items())[-LOOK_BACK:]:
        if seq in keys:
            passed_s = (receipt.committed_at_ms - past.ledger.saved_range(keys[seq]).planned_at_ms) / 1000
            offsets += total_count(receipt.load.ranges) if passed_s > 0 else 0
            seconds += max(passed_s, 0)
            loads += passed_s > 0
    if not offsets:
        return None, None
    runs = [timing.run_ms / 1000 for timing in past.cursor.pace.timings[-LOOK_BACK:]]
    return offsets / seconds, max(0.0, fmean(runs) - seconds / loads) if runs else None


def landed_chunks(saved: SavedReplay, receipts: Sequence[Receipt]) -> dict[int, Receipt]:
    """The newest receipt of each chunk that the table holds, by the chunk's number.

    A chunk of which a later load has replaced rows by another version of the transform is not landed any more.
    """
    landed = {}
    for receipt in receipts:
        load = receipt.load
        ours = load.replay == saved.name and 0 <= load.seq < len(saved.chunks)
        if ours and receipt.covers(saved.chunks[load.seq]):
            landed[load.seq] = receipt
    made = made_by(receipts, saved.load.topic_ids)
    others = {version: without(saved.selection, made[version]) for version in {r.write.version for r in landed.values()}}
    return {n: receipt for n, receipt in landed.items() if not common(saved.chunks[n], others[receipt.write.version])}


def made_by(receipts: Sequence[Receipt], topic_ids: Mapping[str, str]) -> dict[str, list[OffsetRange]]:
    """The offsets whose rows each version of the transform has made, as they are now; the oldest commit comes first."""
    made: dict[str, list[OffsetRange]] = defaultdict(list)
    for receipt, ranges in live(receipts, topic_ids):
        made[receipt.write.version] += ranges
    return made


@dataclass(frozen=True, kw_only=True)
class ReplayVerdict:
    """A replay that is whole: chunks, offsets, rows in its commits, the transform's version, and what a log no longer holds.

    `resumed` is what the replays that it goes on with have landed.
    """

    chunks: int
    offsets: int
    rows: int
    transform: str
    expired: tuple[OffsetRange, ...] = ()
    resumed: tuple[OffsetRange, ...] = ()


def verify_replay(saved: SavedReplay, *, sink: SinkReader, brokers: Brokers, level: Any = "read_committed") -> ReplayVerdict:
    """Compare the receipts in the table with what was planned, and with the log.

    Raises ReceiptMismatch: chunks are missing, or were made by different versions of the transform; the message names them.
    TopicRecreated: a topic is not the one that the replay was planned for. SinkError, KafkaError: the table or the brokers
    cannot be read.
    """
    receipts = sink.receipts(saved.table, saved.load.pipeline)
    landed = landed_chunks(saved, receipts)
    missing = [f"chunk {n} ({some(map(str, saved.chunks[n]), 2)})" for n in range(len(saved.chunks)) if n not in landed]
    if missing:
        raise ReceiptMismatch(
            f"{len(missing)} of {len(saved.chunks)} chunks of replay {saved.name} are not in {saved.table}, "
            f"or were replaced by another version since: {some(missing)}",
            fix="Clear the plan task with those after it, or trigger the same replay again: only what is missing is loaded",
            missing=len(missing),
        )
    resumed = merged(r for receipt in receipts if receipt.load.replay in saved.resumes for r in receipt.load.ranges)
    both = merged((*saved.selection, *resumed))
    versions = sorted(version for version, made in made_by(receipts, saved.load.topic_ids).items() if common(made, both))
    if len(versions) > 1:
        raise ReceiptMismatch(
            f"the chunks of replay {saved.name} were made by different versions: {some(versions)}",
            fix="The transform, or `dedupe`, changed meanwhile: replay once more",
        )
    watermarks = brokers.watermarks(sorted(saved.load.topic_ids), isolation_level=level)
    check_same_topics(saved.load.topic_ids, watermarks.topic_ids, since=PLANNED, fix=KEEP_ROWS)
    retained = [OffsetRange(tp.topic, tp.partition, low, watermarks.latest[tp]) for tp, low in watermarks.earliest.items()]
    return ReplayVerdict(
        chunks=len(saved.chunks),
        offsets=total_count(saved.selection),
        rows=sum(r.rows for r in landed.values()),
        transform=min(r.write.transform for r in landed.values()),
        expired=without(saved.selection, retained),
        resumed=resumed,
    )
