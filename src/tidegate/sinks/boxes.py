"""Boxes: bounds on the columns that identify a row.

Ranges and batches have exact boxes; the bounds that a sink keeps of a data file are one, too. Pure: the core only.
"""

from __future__ import annotations

from collections.abc import Iterable
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
