"""Laws of cutting ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.model.splitting import split_ranges


def sized(*sizes: int) -> list[OffsetRange]:
    """Partitions 0, 1, … with so many offsets."""
    return [OffsetRange("t", p, 0, size) for p, size in enumerate(sizes)]


def cut(ranges: list[OffsetRange], minimum: int | None = None, maximum: int | None = None) -> list[tuple[int, int, int]]:
    return [
        (r.partition, r.from_offset, r.until_offset)
        for r in split_ranges(ranges, min_partitions=minimum, max_records_per_partition=maximum)
    ]


@pytest.mark.parametrize(
    ("sizes", "minimum", "maximum", "pieces"),
    [
        ((5, 0, 5), None, None, [(0, 0, 5), (2, 0, 5)]),
        ((5, 5), 2, None, [(0, 0, 5), (1, 0, 5)]),
        ((5,), 1, None, [(0, 0, 5)]),
        ((5,), 4, None, [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 5)]),  # the last takes the rounding
        ((2,), 4, None, [(0, 0, 1), (0, 1, 2)]),  # never an empty piece
        ((1, 100), 3, None, [(0, 0, 1), (1, 0, 50), (1, 50, 100)]),
        ((10, 10), 3, None, [(0, 0, 5), (0, 5, 10), (1, 0, 5), (1, 5, 10)]),  # 1.5 rounds up
        (
            (1, 1, 1, 97),
            8,
            None,
            [(0, 0, 1), (1, 0, 1), (2, 0, 1), (3, 0, 19), (3, 19, 38), (3, 38, 57), (3, 57, 77), (3, 77, 97)],
        ),
        ((5, 4), None, 2, [(0, 0, 1), (0, 1, 3), (0, 3, 5), (1, 0, 2), (1, 2, 4)]),
        ((5, 4), 5, 2, [(0, 0, 1), (0, 1, 3), (0, 3, 5), (1, 0, 2), (1, 2, 4)]),  # enough already
        ((8,), 4, 4, [(0, 0, 2), (0, 2, 4), (0, 4, 6), (0, 6, 8)]),  # first the maximum, then the minimum
        ((), 4, 4, []),
    ],
)
def test_pieces_follow_the_examples(
    sizes: tuple[int, ...], minimum: int | None, maximum: int | None, pieces: list[tuple[int, int, int]]
) -> None:
    """Rounding, order, small ranges, both limits together."""
    assert cut(sized(*sizes), minimum, maximum) == pieces


@given(
    st.lists(st.integers(0, 2**62), max_size=8),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(2**57, 2**63),
)
def test_pieces_partition_their_ranges_exactly(sizes: list[int], minimum: int | None, maximum: int | None) -> None:
    """No offset twice, none lost, none empty, none above the maximum."""
    ranges = sized(*sizes)
    pieces = split_ranges(ranges, min_partitions=minimum, max_records_per_partition=maximum)
    assert all(p.count > 0 for p in pieces)
    for r in ranges:
        mine = [p for p in pieces if p.topic_partition == r.topic_partition]
        bounds = [r.from_offset, *(p.until_offset for p in mine)]
        assert [p.from_offset for p in mine] == bounds[:-1]
        assert bounds[-1] == r.until_offset
    if maximum is not None:
        assert all(p.count <= maximum for p in pieces)


@pytest.mark.parametrize(("minimum", "maximum"), [(0, None), (-1, None), (None, 0), (1.5, None), (True, None)])
def test_refused_limits(minimum: int | None, maximum: int | None) -> None:
    """A limit is a positive whole number or absent."""
    with pytest.raises(RequestError, match="positive integer"):
        split_ranges(sized(1), min_partitions=minimum, max_records_per_partition=maximum)
