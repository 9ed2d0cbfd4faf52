"""Which rows have to be written anew where a replacement goes through data files: arithmetic on bounds, no table.

Iceberg replaces data files as a whole. So what is replaced (ranges of offsets, or a batch) is widened by what a file that it
goes through may hold, and by what the files that this touches may hold, until each file lies in it as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidegate.sinks.boxes import Bounds, Box


def cut_boxes(targets: Iterable[Box], files: Iterable[Box]) -> tuple[Box, ...]:
    """The boxes that a replacement of `targets` has to write anew; none where each file that it touches lies in one of them.

    The boxes hold all targets, and each file lies in one of them as a whole or touches none. They are the smallest that
    do, where each file lies in one place.

    Args:
        targets: what is to be replaced.
        files: the data files, each by its bounds. Files that no box can reach may be left out.
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
