"""Arithmetic on sets of offsets, given as ranges: union, intersection, difference. Its time is that of sorting them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, by_partition


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
