"""What of a quarantine counts, and which replay would empty it: the rejected records, judged by the receipts of their table.

A record counts as rejected where the load that set it aside is the one that the table holds of its offset. Any other is left of
a load that was killed, or has yet to commit, and is removed by the next try.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks, other_topics
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import live


class Rejection(NamedTuple):
    """A record in quarantine: where it is in the log, what has rejected it and why, in which attempt to load it."""

    topic: str
    partition: int
    offset: int
    rejected_by: str
    reason: str
    attempt: str

    @property
    def topic_partition(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def place(self) -> str:
        """In words."""
        return f"{self.topic_partition} at {self.offset}"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Rejected records that have one reason: how many, and the first and the last in the order of the log."""

    reason: str
    rejected_by: str
    records: int
    first: Rejection
    last: Rejection

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        bounds = {"first": self.first.place, "last": self.last.place}
        return {"reason": self.reason, "rejected_by": self.rejected_by, "records": self.records, **bounds}


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
