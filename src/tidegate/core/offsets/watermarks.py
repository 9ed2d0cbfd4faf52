"""What the brokers hold of the topics of a pipeline, and whether it still is what offsets were read from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

from tidegate.core.errors import RequestError, TopicRecreated
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition

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
    """Refuse offsets of topics that have another id now: they mean other records.

    Args:
        known: topic ids that the offsets belong to.
        current: the ids that the brokers have now.
        since: what happened under the known ids, for the error.
        fix: the error's fix.

    Raises:
        TopicRecreated: a topic was deleted and created again.
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
