"""Boxes: bounds on the columns that identify a row, and which boxes a replacement has to write anew. Pure: the core only.

Ranges and batches have exact boxes; the bounds that a sink keeps of a data file are one, too.

A sink may replace data files as a whole. So what is replaced (ranges of offsets, or a batch) is widened by what a file that it
goes through may hold, and by what the files that this touches may hold, until each file lies in it as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.model.ranges import OffsetRange

Bounds = tuple[Any, Any]
"""First and last value, both inclusive. None is an open bound: the value is not known."""


@dataclass(frozen=True, slots=True)
class Box:
    """Rows between bounds, by the columns that identify a row: topic, partition and offset, or the batch alone.

    A column with nulls has open bounds, since no comparison is true of a null. The columns before the last one are the box's
    place; the last column numbers the rows within that place.
    """

    columns: tuple[Bounds, ...]

    @property
    def place(self) -> tuple[Bounds, ...]:
        """All bounds but the last column's."""
        return self.columns[:-1]

    @property
    def span(self) -> Bounds:
        """The bounds of the last column."""
        return self.columns[-1]

    @property
    def in_one_place(self) -> bool:
        """Whether all of it lies in one place: in one partition of one topic."""
        return all(first is not None and first == last for first, last in self.place)

    def touches(self, other: Box) -> bool:
        """Whether a row may lie in both."""
        return all(
            _reaches(last, other_first) and _reaches(other_last, first)
            for (first, last), (other_first, other_last) in zip(self.columns, other.columns, strict=True)
        )

    def holds(self, other: Box) -> bool:
        """Whether every row in `other` lies in this box."""
        return all(
            (first is None or (other_first is not None and first <= other_first))
            and (last is None or (other_last is not None and other_last <= last))
            for (first, last), (other_first, other_last) in zip(self.columns, other.columns, strict=True)
        )


def boxes_of(ranges: Iterable[OffsetRange]) -> tuple[Box, ...]:
    """One box a range, by topic, partition and offset; empty ranges are passed over."""
    return tuple(
        Box(((r.topic, r.topic), (r.partition, r.partition), (r.from_offset, r.until_offset - 1))) for r in ranges if r.count
    )


def _reaches(last: Any, first: Any) -> bool:
    return last is None or first is None or bool(first <= last)


def cut_boxes(targets: Iterable[Box], files: Iterable[Box]) -> tuple[Box, ...]:
    """The boxes that a replacement of `targets` has to write anew; none where each file that it touches lies in one of them.

    The boxes hold all targets, and each file lies in one of them as a whole or touches none. They are the smallest that
    do, where each file lies in one place.

    `files` are the data files, each by its bounds. Those that no box can reach may be left out.
    """
    boxes = _Boxes(targets)
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
    """The places that the boxes, at least one, reach from and to; the last column is open."""
    reach = []
    for column in zip(*(box.place for box in boxes), strict=True):
        firsts, lasts = zip(*column, strict=True)
        reach.append((None if None in firsts else min(firsts), None if None in lasts else max(lasts)))
    return Box((*reach, (None, None)))


class _Boxes:
    """Boxes by their places: a file of one place is compared with few, however many there are."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        self._by_place: dict[object, list[Box]] = {}
        for box in boxes:
            self._by_place.setdefault(box.place, []).append(box)

    def __iter__(self) -> Iterator[Box]:
        return (box for boxes in self._by_place.values() for box in boxes)

    def hold(self, file: Box) -> bool:
        return any(box.holds(file) for box in self._near(file))

    def touch(self, file: Box) -> bool:
        return any(box.touches(file) for box in self._near(file))

    def add(self, file: Box) -> None:
        """One box more. Those of the same place that touch it become one with it, which holds nothing else."""
        apart = []
        for box in self._by_place.get(file.place, ()):
            if box.touches(file):
                file = Box((*file.place, _both(box.span, file.span)))
            else:
                apart.append(box)
        self._by_place[file.place] = [*apart, file]

    def _near(self, file: Box) -> Iterable[Box]:
        if not file.in_one_place:
            return self
        wide = (box for boxes in self._by_place.values() if not boxes[0].in_one_place for box in boxes)
        return [*self._by_place.get(file.place, ()), *wide]


def _both(one: Bounds, other: Bounds) -> Bounds:
    (first, last), (other_first, other_last) = one, other
    return (
        None if first is None or other_first is None else min(first, other_first),
        None if last is None or other_last is None else max(last, other_last),
    )
