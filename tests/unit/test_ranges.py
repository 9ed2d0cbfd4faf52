"""Laws of offset ranges: what they are, sets of them, and how they are cut for Spark's tasks."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange, TopicPartition, common, covers, disjoint, merged, without
from tidegate.core.model.splitting import split_ranges

some_ranges = st.lists(
    st.builds(
        lambda p, start, count: OffsetRange("t", p, start, start + count),
        *(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15)),
    ),
    max_size=6,
)


def offsets(ranges: Iterable[OffsetRange]) -> set[tuple[int, int]]:
    return {(one.partition, offset) for one in ranges for offset in range(one.from_offset, one.until_offset)}


@pytest.mark.parametrize(
    "arguments",
    [
        *[("t", 0, *bounds) for bounds in ((5, 4), (-1, 4), (-2, -1), (0, 1.5))],
        *[(*where, 0, 1) for where in (("", 0), ("t", -1), ("t", True), (None, 0))],
    ],
)
def test_nonsense_is_refused_by_the_constructor(arguments: tuple[object, ...]) -> None:
    with pytest.raises(RequestError):
        OffsetRange(*arguments)  # type: ignore[arg-type]


def test_numbers_and_names_may_be_of_a_type_of_their_own() -> None:
    """As those of an enumeration are; they are equal to plain ones."""

    class Number(enum.IntEnum):
        THREE = 3

    class Name(str):
        __slots__ = ()

    assert OffsetRange(Name("t"), Number.THREE, 0, 1).topic_partition == TopicPartition("t", 3)
    assert {TopicPartition("t", 3): 1}[TopicPartition(Name("t"), Number.THREE)] == 1


def test_overlapping_ranges_are_refused_and_touching_ones_are_not() -> None:
    first, second = OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 9)
    assert disjoint([second, first]) == (first, second)
    with pytest.raises(RequestError, match="overlap"):
        disjoint([first, OffsetRange("t", 0, 4, 6)])
    assert len(disjoint([first, OffsetRange("t", 0, 2, 2), OffsetRange("t", 1, 0, 5)])) == 3


@given(some_ranges, some_ranges)
def test_ranges_are_sets_of_offsets(one: list[OffsetRange], other: list[OffsetRange]) -> None:
    """Union, intersection, difference and parts are those of sets. Merged ranges neither touch nor are empty."""
    assert offsets(merged([*one, *other])) == offsets(one) | offsets(other)
    assert offsets(common(one, other)) == offsets(one) & offsets(other)
    assert offsets(without(one, other)) == offsets(one) - offsets(other)
    found = merged(one)
    assert covers(found, other) == (offsets(other) <= offsets(found))
    assert all(r.count for r in found)
    for before, after in pairwise(found):
        assert before.topic_partition != after.topic_partition or before.until_offset < after.from_offset


def sized(*sizes: int) -> list[OffsetRange]:
    """Partitions 0, 1, … with so many offsets."""
    return [OffsetRange("t", p, 0, size) for p, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "minimum", "maximum", "pieces"),
    [
        ((5, 0, 5), None, None, [[0, 5], [], [0, 5]]),
        ((5, 5), 2, None, [[0, 5], [0, 5]]),
        ((5,), 1, None, [[0, 5]]),
        ((5,), 4, None, [[0, 1, 2, 3, 5]]),  # the last takes the rounding
        ((2,), 4, None, [[0, 1, 2]]),  # never an empty piece
        ((1, 100), 3, None, [[0, 1], [0, 50, 100]]),
        ((10, 10), 3, None, [[0, 5, 10], [0, 5, 10]]),  # 1.5 rounds up
        ((1, 1, 1, 97), 8, None, [[0, 1], [0, 1], [0, 1], [0, 19, 38, 57, 77, 97]]),
        ((5, 4), None, 2, [[0, 1, 3, 5], [0, 2, 4]]),
        ((5, 4), 5, 2, [[0, 1, 3, 5], [0, 2, 4]]),  # enough already
        ((8,), 4, 4, [[0, 2, 4, 6, 8]]),  # first the maximum, then the minimum
        ((), 4, 4, []),
    ],
)
def test_pieces_are_as_shown(sizes: tuple[int, ...], minimum: int | None, maximum: int | None, pieces: list[list[int]]) -> None:
    found = split_ranges(sized(*sizes), min_partitions=minimum, max_records_per_partition=maximum)
    assert found == [OffsetRange("t", p, *ends) for p, bounds in enumerate(pieces) for ends in pairwise(bounds)]


@given(st.lists(st.integers(0, 2**62), max_size=8), st.none() | st.integers(1, 200), st.none() | st.integers(2**57, 2**63))
def test_pieces_partition_their_ranges_exactly(sizes: list[int], minimum: int | None, maximum: int | None) -> None:
    ranges = sized(*sizes)
    pieces = split_ranges(ranges, min_partitions=minimum, max_records_per_partition=maximum)
    assert all(0 < p.count <= (maximum or p.count) for p in pieces)
    for r in ranges:
        mine = [p for p in pieces if p.topic_partition == r.topic_partition]
        bounds = [r.from_offset, *(p.until_offset for p in mine)]
        assert [p.from_offset for p in mine] == bounds[:-1]
        assert bounds[-1] == r.until_offset


@pytest.mark.parametrize(("minimum", "maximum"), [(0, None), (-1, None), (None, 0), (1.5, None), (True, None)])
def test_a_limit_of_pieces_is_a_positive_whole_number_or_absent(minimum: int | None, maximum: int | None) -> None:
    with pytest.raises(RequestError, match="expected a whole number from 1"):
        split_ranges(sized(1), min_partitions=minimum, max_records_per_partition=maximum)
