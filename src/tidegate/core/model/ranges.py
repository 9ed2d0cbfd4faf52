"""Offset ranges, the unit of everything: half-open `[from_offset, until_offset)` of one topic partition.

Words are Kafka's and Spark's (`org.apache.spark.streaming.kafka010.OffsetRange`). Offsets are positions in the log, not a
row count: transactions and compaction leave gaps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, Self

from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import RequestError


class _Named(NamedTuple):
    topic: str
    partition: int


class TopicPartition(_Named):
    """One partition of one topic; ordered by topic, then partition number.

    A tuple, since a plan of thousands of partitions is mostly looking them up: a dataclass compares and hashes in Python.

    Raises RequestError: the topic is empty, or the partition is not a whole number of at least 0.
    """

    __slots__ = ()

    def __new__(cls, topic: str, partition: int) -> Self:
        """Checked."""
        _check_names_partition(topic, partition)
        return tuple.__new__(cls, (topic, partition))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """The records of one partition with `from_offset <= offset < until_offset`; equal bounds are a legal, empty range.

    Raises RequestError: the topic is empty, a number is negative or not whole, or `until_offset < from_offset`.
    """

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    def __post_init__(self) -> None:
        _check_names_partition(self.topic, self.partition)
        if not is_whole(self.from_offset) or not is_whole(self.until_offset):
            raise RequestError(
                f"{self.topic_partition}: offsets must be whole numbers from 0, not {self.from_offset!r} and "
                f"{self.until_offset!r}",
                fix="Write a range as [from, until), for example [0, 1000]",
            )
        if self.until_offset < self.from_offset:
            raise RequestError(
                f"{self.topic_partition}: the range ends at {self.until_offset}, before it starts at {self.from_offset}",
                fix="Write a range as [from, until), for example [0, 1000]",
            )

    @property
    def count(self) -> int:
        """Offsets in the range: the most records it can hold."""
        return self.until_offset - self.from_offset

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition the range lies in."""
        return TopicPartition._make((self.topic, self.partition))  # which are checked already

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.from_offset}, {self.until_offset})"


_ORDER = attrgetter("topic", "partition", "from_offset", "until_offset")
"""Sorts ranges as they compare, with one tuple for each range instead of two for each comparison."""


def _check_names_partition(topic: object, partition: object) -> None:
    if type(topic) is str and topic and type(partition) is int and partition >= 0:
        return  # by far the commonest case, without a call
    if not isinstance(topic, str) or not topic:
        raise RequestError(f"a topic must be a non-empty name, not {topic!r}", topic=topic)
    if not is_whole(partition):
        raise RequestError(f"a partition must be a whole number from 0, not {partition!r}", partition=partition)


def total_count(ranges: Iterable[OffsetRange]) -> int:
    """Offsets in all ranges together."""
    return sum(r.count for r in ranges)


def disjoint(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The ranges, sorted. Raises RequestError: two of them share an offset."""
    ordered = tuple(sorted(ranges, key=_ORDER))
    for before, after in pairwise(ordered):
        if before.topic_partition == after.topic_partition and after.from_offset < before.until_offset and after.count:
            raise RequestError(f"the ranges {before} and {after} overlap", fix="Name each offset once")
    return ordered


def covers(outer: Iterable[OffsetRange], inner: Iterable[OffsetRange]) -> bool:
    """Whether every offset of `inner` lies in one range of `outer`."""
    outers = by_partition(outer)
    return all(
        any(o.from_offset <= i.from_offset and i.until_offset <= o.until_offset for o in outers.get(i.topic_partition, ()))
        for i in inner
        if i.count
    )


def by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[OffsetRange]]:
    """The ranges of each partition, in the order given."""
    by_place: dict[TopicPartition, list[OffsetRange]] = {}
    for r in ranges:
        by_place.setdefault(r.topic_partition, []).append(r)
    return by_place


def from_offsets(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Where each partition's range starts."""
    return {r.topic_partition: r.from_offset for r in ranges}


def until_offsets(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Where each partition's range ends (exclusive)."""
    return {r.topic_partition: r.until_offset for r in ranges}


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """`{topic: {partition: offset}}`, sorted: the shape of Spark's `JsonUtils.partitionOffsets`."""
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def offsets_from_json(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of `offsets_to_json`.

    Raises RequestError: a number is negative or not whole, or a name is empty. ValueError, TypeError, AttributeError: the value
    has another shape.
    """
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in nested.items():
        for partition, offset in partitions.items():
            tp = TopicPartition(topic, int(partition))
            if not is_whole(offset):
                raise RequestError(f"{tp}: an offset must be a whole number from 0, not {offset!r}")
            offsets[tp] = offset
    return offsets


def ranges_to_json(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[int]]]:
    """`{topic: {partition: [from, until]}}`, sorted. One range a partition."""
    nested: dict[str, dict[str, list[int]]] = {}
    for r in sorted(ranges, key=_ORDER):
        nested.setdefault(r.topic, {})[str(r.partition)] = [r.from_offset, r.until_offset]
    return nested


def ranges_from_json(nested: Mapping[str, Mapping[str, list[int]]]) -> tuple[OffsetRange, ...]:
    """The inverse of `ranges_to_json`.

    Raises RequestError: a bound is negative, not whole, or reversed. ValueError, TypeError, AttributeError: the value has
    another shape.
    """
    return selection_from_json({topic: {p: [bounds] for p, bounds in parts.items()} for topic, parts in nested.items()})


def selection_to_json(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[list[int]]]]:
    """`{topic: {partition: [[from, until], ...]}}`, sorted. Any number of ranges a partition."""
    nested: dict[str, dict[str, list[list[int]]]] = {}
    for r in sorted(ranges, key=_ORDER):
        nested.setdefault(r.topic, {}).setdefault(str(r.partition), []).append([r.from_offset, r.until_offset])
    return nested


def selection_from_json(nested: Mapping[str, Mapping[str, list[list[int]]]]) -> tuple[OffsetRange, ...]:
    """The inverse of `selection_to_json`. Raises as `ranges_from_json`."""
    return tuple(
        sorted(
            (
                OffsetRange(topic, int(partition), *bounds)
                for topic, partitions in nested.items()
                for partition, pairs in partitions.items()
                for bounds in pairs
            ),
            key=_ORDER,
        )
    )


def merged(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The same offsets as disjoint ranges, sorted, none of them empty and none touching the next."""
    union: list[OffsetRange] = []
    for r in sorted(r for r in ranges if r.count):
        last = union[-1] if union else None
        if last is not None and last.topic_partition == r.topic_partition and r.from_offset <= last.until_offset:
            union[-1] = OffsetRange(r.topic, r.partition, last.from_offset, max(last.until_offset, r.until_offset))
        else:
            union.append(r)
    return tuple(union)


def near(ranges: Sequence[OffsetRange], r: OffsetRange) -> slice:
    """Which of the disjoint, sorted ranges of one partition share an offset with another range, or touch it."""
    first = bisect_left(ranges, r.from_offset, key=lambda one: one.until_offset)
    return slice(first, bisect_right(ranges, r.until_offset, lo=first, key=lambda one: one.from_offset))


def common(one: Iterable[OffsetRange], other: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The offsets that are in both."""
    others = by_partition(merged(other))
    return merged(
        OffsetRange(r.topic, r.partition, max(r.from_offset, o.from_offset), min(r.until_offset, o.until_offset))
        for r in one
        for o in _near(others, r)
        if max(r.from_offset, o.from_offset) < min(r.until_offset, o.until_offset)
    )


def without(one: Iterable[OffsetRange], other: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The offsets of `one` that are not in `other`."""
    others = by_partition(merged(other))
    left = []
    for r in merged(one):
        start = r.from_offset
        for o in _near(others, r):
            if start < o.from_offset:
                left.append(OffsetRange(r.topic, r.partition, start, o.from_offset))
            start = max(start, o.until_offset)
        if start < r.until_offset:
            left.append(OffsetRange(r.topic, r.partition, start, r.until_offset))
    return tuple(left)


def one_of_a_partition(ranges: Iterable[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """The same ranges in as few groups as there can be with at most one range of a partition in each, in order."""
    parts = by_partition(sorted(ranges))
    deepest = max((len(ranges) for ranges in parts.values()), default=0)
    return [tuple(ranges[n] for _, ranges in sorted(parts.items()) if n < len(ranges)) for n in range(deepest)]


def _near(ranges: Mapping[TopicPartition, Sequence[OffsetRange]], r: OffsetRange) -> Sequence[OffsetRange]:
    of_partition = ranges.get(r.topic_partition, ())
    return of_partition[near(of_partition, r)]
