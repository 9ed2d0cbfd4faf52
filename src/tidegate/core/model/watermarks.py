"""What the brokers hold of a pipeline's topics, whether offsets were read from the same, and what open transactions hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, get_args

from tidegate.core.model.errors import RequestError, TopicRecreated
from tidegate.core.model.ranges import OffsetRange, TopicPartition

IsolationLevel = Literal["read_committed", "read_uncommitted"]
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)

Assigned = Mapping[str, Collection[int]] | None
"""The partitions that a pipeline reads, by topic; None: all of its topics."""


@dataclass(frozen=True)
class Watermarks:
    """What the brokers hold: earliest retained offset and log end (exclusive) by partition, and topic ids (KIP-516).

    `held_back` counts the offsets beyond that end that an open transaction keeps from `read_committed`, where there are any.
    """

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    held_back: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.earliest.keys() != self.latest.keys():
            raise RequestError("earliest and latest name different partitions")
        for tp, latest in self.latest.items():
            if not 0 <= self.earliest[tp] <= latest:
                raise RequestError(f"{tp}: the log cannot hold [{self.earliest[tp]}, {latest})")

    def assigned(self, assign: Assigned) -> Watermarks:
        """Of the partitions that a pipeline reads."""
        if assign is None:
            return self
        earliest, latest, held_back = (
            {tp: offset for tp, offset in offsets.items() if tp.partition in assign.get(tp.topic, ())}
            for offsets in (self.earliest, self.latest, self.held_back)
        )
        return Watermarks(earliest, latest, self.topic_ids, held_back=held_back)


def other_topics(known: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """The ids in `current` of topics that have another id in `known`. A topic without a known id is taken for the same."""
    return {topic: current[topic] for topic, topic_id in known.items() if current.get(topic, topic_id) != topic_id}


def check_same_topics(known: Mapping[str, str], current: Mapping[str, str], *, since: str, fix: str) -> None:
    """Refuse offsets of topics that have another id now than the known one: they mean other records.

    `since` says, for the error, what happened under the known ids. Raises TopicRecreated: a topic was deleted and created
    again.
    """
    for topic, topic_id in other_topics(known, current).items():
        raise TopicRecreated(
            f"topic {topic} was deleted and created again since {since}: its id is {topic_id}, it was {known[topic]}",
            fix=f"Its offsets mean other records now. {fix}",
            topic=topic,
            topic_id=topic_id,
        )


def deleted_of(ranges: Iterable[OffsetRange], watermarks: Watermarks) -> list[OffsetRange]:
    """What of the ranges the log no longer holds; of a partition that is gone, all."""
    held = ((r, watermarks.earliest.get(r.topic_partition, r.until_offset)) for r in ranges)
    return [replace(r, until_offset=min(r.until_offset, first)) for r, first in held if r.from_offset < first]


def begins(watermarks: Watermarks) -> dict[TopicPartition, int]:
    """The offset of the first open transaction's first record, of each partition that has one."""
    return {tp: watermarks.latest[tp] for tp in watermarks.held_back}


def age_s(began_ms: int | None, now_ms: int) -> float | None:
    """How long a transaction is open whose first record has this timestamp; None where that is not known."""
    return None if began_ms is None else max(0.0, (now_ms - began_ms) / 1000)


def sentence(records: int, open_s: float | None) -> str | None:
    """That so many records wait behind a transaction; None where none does."""
    if not records:
        return None
    since = "" if open_s is None else f", open for {open_s:,.0f} s"
    return f"{records:,} records wait behind an open transaction{since}"


def waiting(watermarks: Watermarks, began_ms: Mapping[TopicPartition, int], *, now_ms: int) -> str | None:
    """The `sentence` on all partitions together, with the transaction that is open for the longest time.

    `began_ms` is the timestamp of the record at each of `begins`, epoch ms, where it is known.
    """
    return sentence(sum(watermarks.held_back.values()), age_s(min(began_ms.values(), default=None), now_ms))
