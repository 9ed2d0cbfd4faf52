"""Whether a replay is whole: every chunk has its receipt in the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import ReceiptMismatch, some
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.algebra import without
from tidegate.core.offsets.ranges import OffsetRange, total_count
from tidegate.core.offsets.watermarks import check_same_topics
from tidegate.core.ports import Brokers, SinkReader
from tidegate.core.replay.chunks import SavedReplay
from tidegate.core.schedule.trust import KEEP_ROWS

PLANNED = "this replay was planned"
"""For the error: since when a topic has another id."""


def landed_chunks(saved: SavedReplay, receipts: Iterable[Receipt]) -> dict[int, Receipt]:
    """The newest receipt of each chunk that the table holds, by the chunk's number."""
    landed = {}
    for receipt in receipts:
        load = receipt.load
        ours = load.replay == saved.replay and 0 <= load.seq < len(saved.chunks)
        if ours and receipt.covers(saved.chunks[load.seq]):
            landed[load.seq] = receipt
    return landed


@dataclass(frozen=True)
class ReplayVerdict:
    """A replay that is whole: chunks, offsets, rows in its commits, the transform's version, and what a log no longer holds."""

    chunks: int
    offsets: int
    rows: int
    transform: str
    expired: tuple[OffsetRange, ...] = ()


def verify_replay(saved: SavedReplay, *, sink: SinkReader, brokers: Brokers, level: Any = "read_committed") -> ReplayVerdict:
    """Compare the receipts in the table with what was planned, and with the log.

    Raises:
        ReceiptMismatch: chunks are missing, or were made by different versions of the transform; the message names them.
        TopicRecreated: a topic is not the one that the replay was planned for.
        SinkError, KafkaError: the table or the brokers cannot be read.
    """
    receipts = sink.receipts(saved.table, saved.pipeline)
    landed = landed_chunks(saved, receipts)
    missing = [f"chunk {n} ({some(map(str, saved.chunks[n]), 2)})" for n in range(len(saved.chunks)) if n not in landed]
    if missing:
        raise ReceiptMismatch(
            f"{len(missing)} of {len(saved.chunks)} chunks of replay {saved.replay} are not in {saved.table}: {some(missing)}",
            fix="Clear the failed load tasks, or trigger the same replay again: only what is missing is loaded",
            missing=len(missing),
        )
    before = {(r.load.replay, r.load.seq): r for r in receipts if r.load.replay in saved.resumes}
    made_by = {r.load.version for r in (*landed.values(), *before.values())}
    if len(made_by) > 1:
        raise ReceiptMismatch(
            f"the chunks of replay {saved.replay} were made by different versions: {some(sorted(made_by))}",
            fix="The transform, or `dedupe`, changed meanwhile: replay once more",
        )
    watermarks = brokers.watermarks(sorted(saved.topic_ids), isolation_level=level)
    check_same_topics(saved.topic_ids, watermarks.topic_ids, since=PLANNED, fix=KEEP_ROWS)
    retained = [OffsetRange(tp.topic, tp.partition, low, watermarks.latest[tp]) for tp, low in watermarks.earliest.items()]
    return ReplayVerdict(
        chunks=len(saved.chunks),
        offsets=total_count(saved.selection),
        rows=sum(r.rows for r in landed.values()),
        transform=min(r.load.transform for r in landed.values()),
        expired=without(saved.selection, retained),
    )
