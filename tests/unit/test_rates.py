"""Laws of sharing a cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import RequestError
from tidegate.ranges import TopicPartition
from tidegate.rates import share_limit

A, B, C = (TopicPartition("t", p) for p in range(3))


@pytest.mark.parametrize(
    ("sizes", "limit", "shares"),
    [
        ({A: 100, B: 300}, 40, {A: 10, B: 30}),
        ({A: 1, B: 999}, 100, {A: 1, B: 99}),  # 0.1 rounds up, 99.9 rounds down
        ({A: 10, B: 10}, 1000, {A: 10, B: 10}),  # never more than there is
        ({A: 0, B: 10}, 5, {A: 0, B: 5}),
        ({A: 0, B: 0}, 5, {A: 0, B: 0}),
        ({A: 10, B: 10, C: 10}, 1, {A: 1, B: 1, C: 1}),  # overshoots rather than starves
        ({A: 10}, 0, {A: 0}),
        ({}, 5, {}),
        ({A: 2**62, B: 2**62}, 2**62, {A: 2**61, B: 2**61}),
    ],
)
def test_shares_follow_the_examples(sizes: dict[TopicPartition, int], limit: int, shares: dict[TopicPartition, int]) -> None:
    """Proportional, whole, below one up and others down."""
    assert share_limit(sizes, limit) == shares


@given(
    st.dictionaries(st.builds(TopicPartition, st.just("t"), st.integers(0, 50)), st.integers(0, 2**63)), st.integers(1, 2**63)
)
def test_no_lag_is_starved_and_no_share_exceeds_its_lag(sizes: dict[TopicPartition, int], limit: int) -> None:
    """The sum overshoots by less than one record for each partition."""
    shares = share_limit(sizes, limit)
    assert shares.keys() == sizes.keys()
    assert all((0 < shares[tp] <= size) if size else shares[tp] == 0 for tp, size in sizes.items())
    assert sum(shares.values()) < limit + max(1, len(sizes))


@pytest.mark.parametrize(("sizes", "limit"), [({A: -1}, 1), ({A: 1}, -1), ({A: 1.5}, 1), ({A: 1}, True)])
def test_refused_counts(sizes: dict[TopicPartition, int], limit: int) -> None:
    """Counts are whole numbers from 0."""
    with pytest.raises(RequestError):
        share_limit(sizes, limit)
