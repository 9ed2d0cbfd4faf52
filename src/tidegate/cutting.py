"""Which rows have to be written anew where a range of offsets goes through data files: arithmetic on bounds, no table.

A table replaces data files as a whole. So a range that goes through a file is widened by what that file may hold, and by what
the files that this touches may hold, until each file lies in it as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.ranges import OffsetRange


@dataclass(frozen=True, slots=True)
class Box:
    """Origins between bounds, each inclusive. None is an open bound: what a data file holds there is not known.

    A data file is described by the smallest box known to hold its rows. A column with nulls has open bounds, since no
    comparison is true of a null.
    """

    first_topic: str | None
    last_topic: str | None
    first_partition: int | None
    last_partition: int | None
    first_offset: int | None
    last_offset: int | None

    @staticmethod
    def of(r: OffsetRange) -> Box:
        """The box of a range that is not empty."""
        return Box(r.topic, r.topic, r.partition, r.partition, r.from_offset, r.until_offset - 1)

    @property
    def columns(self) -> tuple[tuple[Any, Any], tuple[Any, Any], tuple[Any, Any]]:
        """First and last topic, partition and offset."""
        return (
            (self.first_topic, self.last_topic),
            (self.first_partition, self.last_partition),
            (self.first_offset, self.last_offset),
        )

    @property
    def in_one_partition(self) -> bool:
        """Whether all of it lies in one partition of one topic."""
        return all(first is not None and first == last for first, last in self.columns[:2])

    def touches(self, other: Box) -> bool:
        """Whether an origin may lie in both."""
        return all(
            _reaches(last, other_first) and _reaches(other_last, first)
            for (first, last), (other_first, other_last) in zip(self.columns, other.columns, strict=True)
        )

    def holds(self, other: Box) -> bool:
        """Whether every origin in `other` lies in this box."""
        return all(
            (first is None or (other_first is not None and first <= other_first))
            and (last is None or (other_last is not None and other_last <= last))
            for (first, last), (other_first, other_last) in zip(self.columns, other.columns, strict=True)
        )


def _reaches(last: Any, first: Any) -> bool:
    return last is None or first is None or bool(first <= last)


def cut_boxes(ranges: Iterable[OffsetRange], files: Iterable[Box]) -> tuple[Box, ...]:
    """The boxes that a replacement of `ranges` has to write anew; none where each file that they touch lies in one of them.

    The boxes hold every range, and each file lies in one of them as a whole or touches none. They are the smallest that do,
    where each file holds one Kafka partition.

    Args:
        ranges: what is to be replaced; empty ranges are passed over.
        files: the data files, each by its bounds. Files that no box can reach may be left out.
    """
    boxes = _Boxes(Box.of(r) for r in ranges if r.count)
    waiting, widened = list(files), False
    while True:
        left = [file for file in waiting if not boxes.hold(file)]
        cut = [file for file in left if boxes.touch(file)]
        if not cut:
            return tuple(boxes) if widened else ()
        for file in cut:
            if not boxes.hold(file):
                boxes.add(file)
        waiting, widened = left, True


def hull(boxes: Sequence[Box]) -> Box:
    """The topics and partitions that the boxes, at least one, reach from and to; offsets are open."""
    (first_topics, last_topics), (first_partitions, last_partitions), _ = (
        tuple(zip(*column, strict=True)) for column in zip(*(box.columns for box in boxes), strict=True)
    )
    return Box(
        None if None in first_topics else min(first_topics),
        None if None in last_topics else max(last_topics),
        None if None in first_partitions else min(first_partitions),
        None if None in last_partitions else max(last_partitions),
        None,
        None,
    )


class _Boxes:
    """Boxes by their topics and partitions: a file of one Kafka partition is compared with few, however many there are."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        self._by_place: dict[object, list[Box]] = {}
        for box in boxes:
            self._by_place.setdefault(box.columns[:2], []).append(box)

    def __iter__(self) -> Iterator[Box]:
        return (box for boxes in self._by_place.values() for box in boxes)

    def hold(self, file: Box) -> bool:
        return any(box.holds(file) for box in self._near(file))

    def touch(self, file: Box) -> bool:
        return any(box.touches(file) for box in self._near(file))

    def add(self, file: Box) -> None:
        """One box more. Those of the same place that share an offset with it become one with it, which holds nothing else."""
        apart = []
        for box in self._by_place.get(file.columns[:2], ()):
            if box.touches(file):
                file = replace(file, first_offset=_least(box, file), last_offset=_most(box, file))
            else:
                apart.append(box)
        self._by_place[file.columns[:2]] = [*apart, file]

    def _near(self, file: Box) -> Iterable[Box]:
        if not file.in_one_partition:
            return self
        wide = (box for boxes in self._by_place.values() if not boxes[0].in_one_partition for box in boxes)
        return [*self._by_place.get(file.columns[:2], ()), *wide]


def _least(a: Box, b: Box) -> int | None:
    return None if a.first_offset is None or b.first_offset is None else min(a.first_offset, b.first_offset)


def _most(a: Box, b: Box) -> int | None:
    return None if a.last_offset is None or b.last_offset is None else max(a.last_offset, b.last_offset)
