"""What of a quarantine counts, and which replay would empty it: the rejected records, judged by the receipts of their table.

A record counts as rejected where the load that set it aside is the one that the table holds of its offset, in whichever of its
attempts: the commit of one that was killed may land after the next one has swept what it had set aside. Where no receipt is
kept of that offset, since somebody has expired snapshots, and the cursor is past it, one record of it counts. Any other is left
of a load that was killed, has yet to commit, or was replaced.
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.core.model.ranges import OffsetRange, TopicPartition, merged
from tidegate.core.model.watermarks import IsolationLevel, Watermarks, other_topics
from tidegate.core.state.ports import Brokers, SinkReader
from tidegate.core.state.receipt import Receipt, Write
from tidegate.core.state.rejection import Rejection
from tidegate.core.state.saved_replay import live

LONGEST = 200
"""Characters of a sample."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Rejected records that have one reason: how many, and the first and the last in the order of the log."""

    reason: str
    rejected_by: str
    records: int
    first: Rejection
    last: Rejection


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """What is in quarantine.

    `rejected` are the records that count, sorted, for these `reasons`, the commonest first. `left` is how many do not: their
    loads were killed, have not committed yet, or were replaced. `gone` is how many of those that count the log does not hold
    any more, and `ranges` hold all others, one of a partition.
    """

    rejected: tuple[Rejection, ...]
    left: int
    gone: int
    reasons: tuple[Reason, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def records(self) -> int:
        """How many count."""
        return len(self.rejected)


def judge_quarantine(
    rejections: Iterable[Rejection],
    receipts: Sequence[Receipt],
    committed: Mapping[TopicPartition, int] | None = None,
    log: Watermarks | None = None,
) -> Quarantined:
    """What of the records in a quarantine counts, by the receipts of a pipeline, oldest commit first, replays too.

    `committed` are the offsets of its cursor; None: all receipts are kept. Records of partitions that it has not loaded are
    another pipeline's, which shares the table. `log` is what the brokers hold of its topics; None: every record.
    """
    committed = committed or {}
    loaded: dict[TopicPartition, list[tuple[int, int, Write, bool]]] = {}
    for receipt, ranges in live(receipts):
        former = {} if log is None else other_topics(receipt.load.topic_ids, log.topic_ids)
        for r in ranges:
            known = r.from_offset, r.until_offset, receipt.write, r.topic in former
            loaded.setdefault(r.topic_partition, []).append(known)
    for loads in loaded.values():
        loads.sort(key=lambda load: load[0])
    counted: list[Rejection] = []
    left, gone = 0, 0
    by_reason: dict[tuple[str, str], list[Rejection]] = {}
    by_partition: dict[TopicPartition, list[int]] = {}
    for one in sorted(rejections):
        tp = one.topic_partition
        if tp not in loaded and tp not in committed:
            continue
        of_partition = loaded.get(tp, [])
        at = bisect_right(of_partition, one.offset, key=lambda load: load[0]) - 1
        _, until, write, is_former = of_partition[at] if at >= 0 else (0, 0, None, False)
        if write is None or one.offset >= until:  # no receipt is kept of it
            is_former, counts = False, one.offset < committed.get(tp, 0)
        else:
            counts = one.is_of(write)
        is_again = bool(counted) and counted[-1][:3] == one[:3] and counted[-1].attempt != one.attempt
        if is_again or not counts:
            left += 1
            continue
        counted.append(one)
        by_reason.setdefault((one.rejected_by, one.reason), []).append(one)
        if is_former or (log is not None and one.offset < log.earliest.get(tp, one.offset + 1)):
            gone += 1
        else:
            by_partition.setdefault(tp, []).append(one.offset)
    reasons = [
        Reason(reason=reason, rejected_by=by, records=len(of), first=of[0], last=of[-1])
        for (by, reason), of in by_reason.items()
    ]
    return Quarantined(
        rejected=tuple(counted),
        left=left,
        gone=gone,
        reasons=tuple(sorted(reasons, key=lambda each: (-each.records, each.first))),
        ranges=tuple(OffsetRange(*tp, offsets[0], offsets[-1] + 1) for tp, offsets in by_partition.items()),
    )


def not_found(receipts: Sequence[Receipt], found: int) -> tuple[OffsetRange, ...]:
    """What is live of the loads that have rejected records, where a quarantine holds none of them; else nothing."""
    rejected = (r for receipt, ranges in live(receipts) if receipt.write.quarantined for r in ranges)
    return () if found else merged(rejected)


@dataclass(frozen=True, kw_only=True)
class ReasonView:
    """Records in quarantine that have one reason; its fields are its JSON.

    Attributes:
        reason: why they were rejected, without what cannot be printed.
        rejected_by: `decode`, `contract` or `transform`.
        records: how many they are.
        first: the first of them: topic, partition and offset.
        last: the last of them.
        sample: the first one's value, shortened, without what cannot be printed.
    """

    reason: str
    rejected_by: str
    records: int
    first: str
    last: str
    sample: str


@dataclass(frozen=True, kw_only=True)
class QuarantineView:
    """What is in the quarantine of a pipeline; its fields are its JSON.

    Attributes:
        table: the quarantine.
        records: how many records count as rejected.
        left: how many more do not count: their loads were killed, have yet to commit, or were replaced.
        gone: how many of `records` are not in the log any more, so that no replay reads them.
        reasons: the commonest first.
        more: how many reasons there are beside these.
        replay: the command that loads them again; None where the log holds none of them.
    """

    pipeline: str
    table: str
    records: int
    left: int
    gone: int
    reasons: tuple[ReasonView, ...]
    more: int
    replay: str | None


def view_quarantine(
    pipeline: str,
    table: str,
    quarantine: str,
    sink: SinkReader,
    log: Callable[[frozenset[str]], Watermarks],
    *,
    committed: Mapping[TopicPartition, int],
    reasons: int,
    most: int | None = None,
) -> QuarantineView:
    """What is in the quarantine of a table that the pipeline loads, with the commonest `reasons`, and a sample of each.

    `log` asks the brokers for what they hold of topics, some of which may be gone (`held_of`). `committed` are the offsets of
    the pipeline's cursor.

    Raises:
        SinkUnavailable: the catalog does not answer.
        SinkMisfit: the table is no quarantine.
        RequestError: it holds more than `most` records.
        StateCorrupt: a receipt of the pipeline cannot be read.
    """
    rejections = sink.rejections(quarantine, most=most)
    topics = frozenset(one.topic for one in rejections)
    held = log(topics) if topics else Watermarks({}, {})
    found = judge_quarantine(rejections, sink.receipts(table, pipeline), committed, held)
    shown = found.reasons[:reasons]
    samples = sink.rejected_values(quarantine, [each.first for each in shown])
    views = (
        ReasonView(
            reason=_printable(each.reason),
            rejected_by=each.rejected_by,
            records=each.records,
            first=each.first.place,
            last=each.last.place,
            sample=_sample(samples.get(each.first)),
        )
        for each in shown
    )
    return QuarantineView(
        pipeline=pipeline,
        table=quarantine,
        records=found.records,
        left=found.left,
        gone=found.gone,
        reasons=tuple(views),
        more=len(found.reasons) - len(shown),
        replay=replay_command(pipeline, found.ranges),
    )


def held_of(topics: Collection[str], brokers: Brokers, isolation_level: IsolationLevel) -> Watermarks:
    """What brokers hold of topics: nothing of those that are gone. Raises BrokerUnavailable and KafkaError."""
    there = sorted({*topics}.intersection(brokers.match_topics(".*")))
    return brokers.watermarks(there, isolation_level=isolation_level) if there else Watermarks({}, {})


def replay_command(pipeline: str, ranges: Iterable[OffsetRange]) -> str | None:
    """The command that loads these ranges again, one of a partition; None where there are none."""
    bounds: list[str] = []
    for r in ranges:
        of = f"{r.topic}:{r.partition}"
        bounds += ["--from", f"{of}:{r.from_offset}", "--until", f"{of}:{r.until_offset}"]
    return shlex.join(["tidegate", "replay", pipeline, *bounds]) if bounds else None


def _sample(value: bytes | None) -> str:
    if value is None:
        return "no value"
    text = _printable(value[: 4 * LONGEST + 4].decode(errors="backslashreplace"))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
