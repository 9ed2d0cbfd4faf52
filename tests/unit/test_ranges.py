"""Laws of offset ranges."""

from __future__ import annotations

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange, TopicPartition, covers, disjoint

offsets = st.integers(0, 2**63 - 1)
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 20))


@st.composite
def range_sets(draw: st.DrawFn) -> tuple[OffsetRange, ...]:
    """One range for each of some partitions."""
    found = []
    for tp in draw(st.sets(partitions)):
        low, high = sorted((draw(offsets), draw(offsets)))
        found.append(OffsetRange(tp.topic, tp.partition, low, high))
    return tuple(sorted(found))


def test_a_range_is_half_open_and_counts_its_offsets() -> None:
    """[10, 15) holds five offsets of its partition."""
    r = OffsetRange("t", 3, 10, 15)
    assert r.count == 5
    assert r.topic_partition == TopicPartition("t", 3)
    assert str(r) == "t-3 [10, 15)"
    assert OffsetRange("t", 0, 7, 7).count == 0  # it fixes a position


@pytest.mark.parametrize(
    "arguments",
    [
        ("t", 0, 5, 4),
        ("t", 0, -1, 4),
        ("t", 0, -2, -1),
        ("", 0, 0, 1),
        ("t", -1, 0, 1),
        ("t", 0, 0, 1.5),
        ("t", True, 0, 1),
        (None, 0, 0, 1),
    ],
)
def test_nonsense_is_refused_by_the_constructor(arguments: tuple[object, ...]) -> None:
    """Reversed, negative, fractional and unnamed ranges cannot exist."""
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
    """Disjoint means: no offset twice."""
    first, second = OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 9)
    assert disjoint([second, first]) == (first, second)
    with pytest.raises(RequestError, match="overlap"):
        disjoint([first, OffsetRange("t", 0, 4, 6)])
    assert len(disjoint([first, OffsetRange("t", 0, 2, 2), OffsetRange("t", 1, 0, 5)])) == 3


@given(range_sets())
def test_ranges_cover_themselves_and_every_part_of_themselves(ranges: tuple[OffsetRange, ...]) -> None:
    """Covering is reflexive, and nothing covers what lies outside."""
    assert covers(ranges, ranges)
    assert covers(ranges, [OffsetRange(r.topic, r.partition, r.from_offset, r.from_offset + r.count // 2) for r in ranges])
    for r in ranges:
        if r.until_offset < 2**63 - 1:
            assert not covers(ranges, [OffsetRange(r.topic, r.partition, r.from_offset, r.until_offset + 1)])
