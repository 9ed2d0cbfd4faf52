"""Laws of rates and shares."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.rates import BatchTiming, PidRateEstimator, PidState, max_messages_per_partition, share_limit

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


@pytest.mark.parametrize(
    ("lags", "rate", "maximum", "minimum", "interval_s", "expected"),
    [
        ({A: 100, B: 300}, 40.0, 0, 1, 2.0, {A: 20, B: 60}),
        ({A: 100, B: 300}, 40.0, 20, 1, 2.0, {A: 20, B: 40}),  # the maximum of each partition
        ({A: 100, B: 300}, None, 20, 1, 0.5, {A: 10, B: 10}),  # no rate: the maximum alone
        ({A: 100, B: 300}, 0.0, 20, 1, 1.0, {A: 20, B: 20}),  # 0 is like none
        ({A: 100, B: 300}, None, 0, 5, 1.0, None),  # nothing limits
        ({A: 0, B: 0}, 10.0, 20, 5, 1.0, None),  # a rate, and no lag anywhere
        ({A: 0, B: 10}, 10.0, 0, 3, 1.0, {A: 3, B: 10}),  # every partition is in the answer
        ({A: 1, B: 999}, 100.0, 0, 1, 1.0, {A: 1, B: 99}),  # 0.1 is cut to 0, then the minimum
        ({A: 10}, 10.0, 2, 50, 1.0, {A: 50}),  # the minimum beats the maximum
        ({A: 2**62, B: 2**62, C: 0}, 8.0, 0, 0, 1.0, {A: 4, B: 4, C: 0}),
        ({}, 10.0, 10, 1, 1.0, None),
    ],
)
def test_limits_by_rate_follow_the_examples(
    lags: dict[TopicPartition, int],
    rate: float | None,
    maximum: int,
    minimum: int,
    interval_s: float,
    expected: dict[TopicPartition, int] | None,
) -> None:
    """As Spark's direct stream computes them."""
    found = max_messages_per_partition(
        lags, rate=rate, max_rate_per_partition=maximum, min_rate_per_partition=minimum, interval_s=interval_s
    )
    assert found == expected


@pytest.mark.parametrize(
    "change",
    [
        {"lags": {A: -1}},
        {"rate": -1.0},
        {"rate": float("nan")},
        {"max_rate_per_partition": -1},
        {"min_rate_per_partition": 1.5},
        {"interval_s": -1},
    ],
)
def test_refused_rates(change: dict[str, object]) -> None:
    """Negative, fractional and endless numbers."""
    arguments = {
        "lags": {A: 1},
        "rate": 1.0,
        "max_rate_per_partition": 1,
        "min_rate_per_partition": 1,
        "interval_s": 1.0,
        **change,
    }
    with pytest.raises(RequestError):
        max_messages_per_partition(arguments.pop("lags"), **arguments)  # type: ignore[arg-type]


def test_the_first_valid_call_measures_and_the_next_ones_correct() -> None:
    """The measured speed is kept as it is, also below the minimum."""
    pid = PidRateEstimator(1000, 1.0, 0.0, 0.0, 100.0)
    assert pid.compute(0, 10, 1000, 0) is None
    assert pid.state == PidState(first_run=False, latest_time_ms=0, latest_rate=10.0, latest_error=0.0)
    assert pid.compute(1000, 5000, 1000, 0) == 5000.0
    assert pid.compute(time_ms=2000, elements=50, processing_delay_ms=1000, scheduling_delay_ms=0) == 100.0


@pytest.mark.parametrize("call", [(0, 5, 5, 0), (-1, 5, 5, 0), (10, 0, 5, 0), (10, -1, 5, 0), (10, 5, 0, 0), (10, 5, -1, 0)])
def test_a_skipped_call_changes_nothing(call: tuple[int, int, int, int]) -> None:
    """Old times, no elements, no work."""
    pid = PidRateEstimator(1000)
    pid.compute(0, 100, 100, 0)
    before = pid.state
    assert pid.compute(*call) is None
    assert pid.state == before


def test_the_three_terms_divide_by_what_spark_divides_by() -> None:
    """The integral by the batch interval, the derivative by elapsed seconds."""
    pid = PidRateEstimator(batch_interval_ms=2000, proportional=0.5, integral=0.25, derivative=0.1, min_rate=1)
    pid.compute(1000, 1000, 1000, 0)
    # measured 600, error 400, piled up 500 * 600 / 2000 = 150, change (400 - 0) / 4
    assert pid.compute(5000, 600, 1000, 500) == pytest.approx(1000 - 0.5 * 400 - 0.25 * 150 - 0.1 * 100)


def test_an_estimator_goes_on_from_exported_state() -> None:
    """Across processes."""
    one = PidRateEstimator(1000)
    one.compute(0, 100, 100, 0)
    two = PidRateEstimator(1000, state=PidState(**asdict(one.state)))
    assert one.compute(1000, 90, 100, 10) == two.compute(1000, 90, 100, 10)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_interval_ms": 0},
        {"proportional": -1},
        {"integral": -1},
        {"derivative": -1},
        {"min_rate": 0},
        {"min_rate": float("inf")},
    ],
)
def test_an_estimator_refuses_nonsense(arguments: dict[str, Any]) -> None:
    """Gains from 0, interval and minimum above 0."""
    with pytest.raises(RequestError):
        PidRateEstimator(**{"batch_interval_ms": 1000, **arguments})


def test_a_timing_refuses_what_no_batch_takes() -> None:
    """Whole numbers from 0; a bound is at least 1, or None where nothing limited the batch."""
    good: dict[str, Any] = asdict(BatchTiming(10, 10, 5, 4, 0, 99))
    assert BatchTiming(**{**good, "bound": None, "records": 0}).bound is None
    for name in good:
        for wrong in (-1, 1.5, math.nan, math.inf, True, "1"):
            with pytest.raises(RequestError, match=f"{name}: expected a whole number"):
                BatchTiming(**{**good, name: wrong})
    with pytest.raises(RequestError, match="bound: expected a whole number from 1, got 0"):
        BatchTiming(**{**good, "bound": 0})


def test_a_saved_timing_is_read_as_far_as_it_is_known() -> None:
    """A later version may add to it; what cannot be read is as good as none."""
    took = BatchTiming(10, None, 5, 4, 0, 99)
    assert BatchTiming.from_json({**took.to_json(), "later": 1}) == took
    unreadable: list[Any] = [None, {}, [], "x", {**took.to_json(), "run_ms": -1}, {"records": 1}]
    assert [BatchTiming.from_json(value) for value in unreadable] == [None] * len(unreadable)


def test_a_timing_is_the_span_of_its_run_without_the_wait_before() -> None:
    """In milliseconds; clocks that disagree make no negative span."""
    assert BatchTiming.between(7, None, due_ms=1000, started_ms=1500, ended_ms=4000, load_s=1.2345) == BatchTiming(
        records=7, bound=None, run_ms=2500, load_ms=1234, scheduling_delay_ms=500, ended_at_ms=4000
    )
    early = BatchTiming.between(7, None, due_ms=2000, started_ms=1500, ended_ms=1400, load_s=0.0)
    assert (early.run_ms, early.scheduling_delay_ms) == (0, 0)


@pytest.mark.parametrize(
    ("delay_ms", "before", "waited_ms"),
    [
        (2_592_000_000, BatchTiming(1, None, 5_000, 1_000, 0, 1_000_000), 0),  # dated back beyond the batch before
        (500_000, BatchTiming(1, None, 5_000, 1_000, 0, 1_000_000), 0),  # due after it, and paused until now
        (30_000, BatchTiming(1, None, 90_000, 1_000, 0, 1_599_000), 29_000),  # due while it ran
        (30_000, BatchTiming(1, None, 10_000, 1_000, 0, 9_000_000), 0),  # it ended ahead of time: a clock that was wrong
        (30_000, None, 0),
    ],
)
def test_a_run_is_late_only_by_the_batch_before(delay_ms: int, before: BatchTiming | None, waited_ms: int) -> None:
    """Not by a pause, nor by a date that a person gave it. It started at 1,600,000."""
    timing = BatchTiming(1, None, 100_000, 1_000, delay_ms, 1_700_000)
    assert timing.waiting_for(before) == replace(timing, scheduling_delay_ms=waited_ms)
