"""What of a quarantine counts, and which replay would empty it: the rejected records, judged by the receipts of their table.

A record counts as rejected where the load that set it aside is the one that the table holds of its offset. Any other is left of
a load that was killed, or has yet to commit, and is removed by the next try.
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import IsolationLevel, Watermarks, other_topics
from tidegate.core.state.ports import Brokers, SinkReader
from tidegate.core.state.receipt import Receipt
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

    `rejected` are the records that count, sorted, for these `reasons`, the commonest first. `left` is how many are of loads
    that were killed, or have not committed yet. `gone` is how many of those that count the log does not hold any more, and
    `ranges` hold all others, one of a partition.
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
    rejections: Iterable[Rejection], receipts: Sequence[Receipt], log: Watermarks | None = None
) -> Quarantined:
    """What of the records in a quarantine counts, by the receipts of a pipeline, oldest commit first, replays too.

    Records of partitions that it has not loaded are another pipeline's, which shares the table. `log` is what the brokers hold
    of its topics; None: every record.
    """
    loaded: dict[TopicPartition, list[tuple[int, int, str, bool]]] = {}
    for receipt, ranges in live(receipts):
        former = {} if log is None else other_topics(receipt.load.topic_ids, log.topic_ids)
        for r in ranges:
            known = r.from_offset, r.until_offset, receipt.write.attempt, r.topic in former
            loaded.setdefault(r.topic_partition, []).append(known)
    for loads in loaded.values():
        loads.sort()
    counted, left, gone = [], 0, 0
    by_reason: dict[tuple[str, str], list[Rejection]] = {}
    by_partition: dict[TopicPartition, list[int]] = {}
    for one in sorted(rejections):
        tp = one.topic_partition
        if tp not in loaded:
            continue
        at = bisect_right(loaded[tp], one.offset, key=lambda load: load[0]) - 1
        _, until, attempt, is_former = loaded[tp][max(at, 0)]
        if at < 0 or one.offset >= until or attempt != one.attempt:
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


@dataclass(frozen=True, kw_only=True)
class ReasonView:
    """Records in quarantine that have one reason; its fields are its JSON.

    Attributes:
        reason: why they were rejected.
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
        left: how many more are of loads that did not commit, or have yet to.
        gone: how many of `records` are not in the log any more, so that no replay reads them.
        reasons: the commonest first.
        replay: the command that loads them again; None where the log holds none of them.
    """

    pipeline: str
    table: str
    records: int
    left: int
    gone: int
    reasons: tuple[ReasonView, ...]
    replay: str | None


def view_quarantine(
    pipeline: str,
    table: str,
    quarantine: str,
    sink: SinkReader,
    log: Callable[[frozenset[str]], Watermarks],
    *,
    reasons: int,
    most: int | None = None,
) -> QuarantineView:
    """What is in the quarantine of a table that the pipeline loads, with the commonest `reasons`, and a sample of each.

    `log` asks the brokers for what they hold of topics, some of which may be gone (`held_of`).

    Raises:
        SinkUnavailable: the catalog does not answer.
        SinkMisfit: the table is no quarantine.
        RequestError: it holds more than `most` records.
        StateCorrupt: a receipt of the pipeline cannot be read.
    """
    rejections = sink.rejections(quarantine, most=most)
    topics = frozenset(one.topic for one in rejections)
    held = log(topics) if topics else Watermarks({}, {})
    found = judge_quarantine(rejections, sink.receipts(table, pipeline), held)
    shown = found.reasons[:reasons]
    samples = sink.rejected_values(quarantine, [each.first for each in shown])
    views = (
        ReasonView(
            reason=each.reason,
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
        replay=_replay(pipeline, found.ranges),
    )


def held_of(topics: Collection[str], brokers: Brokers, isolation_level: IsolationLevel) -> Watermarks:
    """What brokers hold of topics: nothing of those that are gone. Raises BrokerUnavailable and KafkaError."""
    there = sorted({*topics}.intersection(brokers.match_topics(".*")))
    return brokers.watermarks(there, isolation_level=isolation_level) if there else Watermarks({}, {})


def _replay(pipeline: str, ranges: Iterable[OffsetRange]) -> str | None:
    bounds: list[str] = []
    for r in ranges:
        of = f"{r.topic}:{r.partition}"
        bounds += ["--from", f"{of}:{r.from_offset}", "--until", f"{of}:{r.until_offset}"]
    return shlex.join(["tidegate", "replay", pipeline, *bounds]) if bounds else None


def _sample(value: bytes | None) -> str:
    if value is None:
        return "no value"
    text = value.decode(errors="backslashreplace")
    printable = "".join(c if c.isprintable() else " " for c in text[: LONGEST + 1])
    return printable if len(printable) <= LONGEST else f"{printable[:LONGEST]}…"
