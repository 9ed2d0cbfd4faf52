"""Whether a replay is whole: every chunk has its receipt in the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.model.errors import ReceiptMismatch, some
from tidegate.core.model.ranges import OffsetRange, common, merged, total_count, without
from tidegate.core.model.watermarks import check_same_topics
from tidegate.core.planning.trust import KEEP_ROWS
from tidegate.core.state.ports import Brokers, SinkReader
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import SavedReplay, live

PLANNED = "this replay was planned"
"""For the error: since when a topic has another id."""


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

    Raises:
        ReceiptMismatch: chunks are missing, or were made by different versions of the transform; the message names them.
        TopicRecreated: a topic is not the one that the replay was planned for.
        SinkError, KafkaError: the table or the brokers cannot be read.
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
