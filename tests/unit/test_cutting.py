from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.ranges import OffsetRange
from tidegate.sinks.boxes import Box, boxes_of, cut_boxes, hull

MIXED = Box((("a", "a"), (0, 1), (5, 12)))
ANYWHERE = Box((("a", "a"), (0, 0), (None, None)))
WORLD = [(topic, partition, offset) for topic in "ab" for partition in range(2) for offset in range(10)]


def box(first: int, last: int, partition: int = 0, topic: str = "a") -> Box:
    return Box(((topic, topic), (partition, partition), (first, last)))


def at(first: int, until: int, partition: int = 0, topic: str = "a") -> OffsetRange:
    return OffsetRange(topic, partition, first, until)


def of_rows(rows: list[tuple[str, int, int]], known: tuple[bool, bool, bool]) -> Box:
    """The bounds of a file that holds these rows; open where they are not known."""
    columns = [sorted(column) for column in zip(*rows, strict=True)]
    return Box(tuple((column[0], column[-1]) if here else (None, None) for column, here in zip(columns, known, strict=True)))


def holds_row(one: Box, row: tuple[str, int, int]) -> bool:
    return one.holds(box(row[2], row[2], row[1], row[0]))


single = st.sampled_from([("a", 0), ("a", 1), ("b", 0)]).flatmap(
    lambda place: st.lists(st.sampled_from([row for row in WORLD if row[:2] == place]), min_size=1, max_size=4)
)
mixed = st.lists(st.sampled_from(WORLD), min_size=1, max_size=3)
whole = st.just((True, True, True))
anyhow = st.tuples(st.booleans(), st.booleans(), st.booleans())
one_range = st.tuples(st.integers(0, 8), st.integers(1, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))
ranges_of = st.dictionaries(st.sampled_from([("a", 0), ("a", 1), ("b", 1)]), one_range, min_size=1).map(
    lambda found: [OffsetRange(topic, partition, *bounds) for (topic, partition), bounds in found.items()]
)
files_of = st.lists(st.one_of(st.tuples(single, whole), st.tuples(single, anyhow), st.tuples(mixed, anyhow)), max_size=8)


@given(ranges_of, files_of)
def test_replacing_the_boxes_keeps_every_row_outside_the_ranges(
    ranges: list[OffsetRange], files: list[tuple[list[tuple[str, int, int]], tuple[bool, bool, bool]]]
) -> None:
    """A table in small: a file that a box holds is dropped, no other one is touched, and what was not in the ranges is kept."""
    bounds, wanted = [of_rows(*file) for file in files], boxes_of(ranges)
    found = cut_boxes(wanted, bounds)
    boxes = found or wanted
    assert all(any(one.holds(other) for one in boxes) for other in wanted)
    assert bool(found) == any(
        one.touches(file) and not any(other.holds(file) for other in wanted) for one in wanted for file in bounds
    )
    dropped = [any(one.holds(file) for one in boxes) for file in bounds]
    assert not any(one.touches(file) for one in boxes for file, gone in zip(bounds, dropped, strict=True) if not gone)
    outside = [row for file, _ in files for row in file if not any(holds_row(one, row) for one in wanted)]
    kept = [row for row in outside if any(holds_row(one, row) for one in boxes)]
    stayed = [row for (file, _), gone in zip(files, dropped, strict=True) if not gone for row in file]
    assert sorted(kept + stayed) == sorted(outside)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], ()),
        ([box(10, 14), box(15, 19)], ()),
        ([box(0, 9), box(20, 29)], ()),
        ([box(0, 99, partition=1), box(0, 99, topic="b")], ()),
        ([box(5, 12)], (box(5, 19),)),
        ([box(0, 30)], (box(0, 30),)),
        ([box(5, 10), box(3, 5), box(1, 2)], (box(3, 19),)),
        ([ANYWHERE], (ANYWHERE,)),
        ([MIXED, box(0, 6, partition=1)], (box(10, 19), MIXED, box(0, 6, partition=1))),
        (
            [MIXED, box(0, 6, partition=1), box(11, 15, partition=1)],
            (box(10, 19), MIXED, box(0, 6, partition=1), box(11, 15, partition=1)),
        ),
    ],
)
def test_a_range_is_widened_by_the_files_it_goes_through(files: list[Box], expected: tuple[Box, ...]) -> None:
    """Whole files widen nothing; what a widened box touches widens it further."""
    assert set(cut_boxes(boxes_of([at(10, 20), at(3, 3, partition=1)]), files)) == set(expected)


def test_the_hull_reaches_over_all_partitions() -> None:
    """And is open where one of them is."""
    assert hull([box(1, 2), box(5, 6, partition=3, topic="c")]) == Box((("a", "c"), (0, 3), (None, None)))
    assert hull([box(1, 2), Box(((None, "b"), (0, None), (1, 2)))]) == Box(((None, "b"), (0, None), (None, None)))
    assert hull([Box(((5, 5),))]) == Box(((None, None),))  # rows of a batch are known by one column
