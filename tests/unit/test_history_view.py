"""Laws of what pages show over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, cursor_of, range_of
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.control import RateBound, RateControl
from tidegate.views.history import Forecast, Point, forecast, points, sampled

SAVED = range_of("p", 3, "r", (OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 5)), (), {}, {}, 1000, remaining=7)


def plan(seq: int) -> Point:
    return Point(1000 * seq, seq, 1, lag=15, records=10)


def load(seq: int, at_ms: int, rows: int = 9) -> Point:
    return Point(at_ms, seq, 1, lag=None, records=10, rows=rows)


def timing(ended_at_ms: int, records: int = 10, run_ms: int = 400) -> BatchTiming:
    return BatchTiming(records, None, run_ms=run_ms, load_ms=run_ms // 2, scheduling_delay_ms=0, ended_at_ms=ended_at_ms)


def test_what_waited_is_the_batch_and_what_it_left_behind() -> None:
    """The bound is what the policy allowed, where it was applied."""
    assert Point.of(SAVED) == Point(1000, 3, 1, lag=22, records=15)
    rate = RateBound("pid", 20, terms={})
    assert Point.of(changed(SAVED, rate=rate)).bound == 20
    assert Point.of(changed(SAVED, rate=replace(rate, applied=False))).bound is None


def test_each_batch_is_one_point() -> None:
    """By its plan, its load and its timing; one whose plan is gone is known by its receipt alone."""
    receipts = [load(1, 900), load(2, 2600, rows=8), load(2, 2900), load(3, 3300)]
    cursor = cursor_of("p", 3, timings=(timing(500), timing(3500)))
    found = points([plan(4), plan(3), plan(2)], receipts, cursor)
    assert found == [
        Point(900, 1, 1, lag=None, records=10, rows=9),
        Point(2000, 2, 1, lag=15, records=10, run_s=0.6, rows=9),
        Point(3000, 3, 1, lag=15, records=10, run_s=0.4, load_s=0.2, rows=9),
        Point(4000, 4, 1, lag=15, records=10),
    ]


def test_a_batch_that_is_loaded_again_keeps_its_place_in_time() -> None:
    """By its first receipt, or else before the next batch; timings go to the batch whose they are."""
    cursor = cursor_of("p", 3, timings=(timing(1100), timing(3400, run_ms=700)))
    found = points([plan(3)], [load(1, 900), load(3, 3300), load(1, 5000, rows=8), load(2, 3350)], cursor)
    assert found == [
        Point(900, 1, 1, lag=None, records=10, run_s=0.4, load_s=0.2, rows=8),
        Point(3000, 2, 1, lag=None, records=10, rows=9),
        Point(3000, 3, 1, lag=15, records=10, run_s=0.7, load_s=0.35, rows=9),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 50)), max_size=60).map(sorted),
    st.integers(0, 900),
    st.integers(1, 300),
    st.integers(1, 40),
)
def test_a_sample_has_each_batch_of_its_span_once(
    batches: list[tuple[int, int]], from_ms: int, length: int, buckets: int
) -> None:
    """In order, in as many points as are asked for at most, with the greatest lag and all records."""
    made = [Point(at_ms, seq, 1, lag=lag, records=lag, rows=1) for seq, (at_ms, lag) in enumerate(batches)]
    inside = [point for point in made if from_ms <= point.at_ms < from_ms + length]
    found = sampled(made, from_ms=from_ms, until_ms=from_ms + length, buckets=buckets)
    assert len(found) <= buckets
    assert sum(point.batches for point in found) == sum(point.rows or 0 for point in found) == len(inside)
    assert sum(point.records for point in found) == sum(point.records for point in inside)
    assert [point.at_ms for point in found] == sorted(point.at_ms for point in found)
    assert max((p.lag or 0 for p in found), default=0) == max((p.lag or 0 for p in inside), default=0)


def test_what_is_not_known_of_one_batch_is_known_of_others() -> None:
    """But a sum needs all of them."""
    known, unknown = Point(1, 1, 1, lag=5, records=5, bound=9, run_s=1.0, rows=5), Point(2, 2, 1, lag=None, records=3)
    assert known.joined(unknown) == Point(2, 2, 2, lag=5, records=8, bound=9, run_s=1.0)
    assert unknown.to_json()["lag"] is None


def test_the_forecast_says_what_the_policy_allows_and_when_the_backlog_is_gone() -> None:
    """By what the last batches took, and by what arrived between their plans."""
    control = RateControl({"policy": "static", "max_records": 40}, 1.0)
    timings = tuple(timing(1000 * n, records=n, run_ms=100 + 10 * n) for n in range(10, 31))
    cursor = cursor_of("p", 20, rate_state=control.saved({}), timings=timings)
    batches = [Point(1000 * n, n, 1, lag=20, records=10) for n in range(20)]
    found = forecast(cursor, batches, interval_s=1.0, lag=100)
    assert (found.next_bound, found.arrival_per_s, found.interval_s) == (40, 10.0, 1.0)
    assert found.verdict is not None
    assert found.verdict.startswith("the pipeline keeps up: 10 records/s arrive")
    assert found.drain_s == pytest.approx(2 * 1.0 + 0.1 + 0.01 * 40, abs=0.01)
    without_lag = forecast(cursor, batches, interval_s=1.0, lag=None)
    assert without_lag == replace(found, drain_s=None)
    unbounded = forecast(changed(cursor, rate_state={}), batches, interval_s=1.0, lag=100)
    assert (unbounded.next_bound, unbounded.drain_s is not None) == (None, True)


@pytest.mark.parametrize(
    ("state", "batches", "interval_s"),
    [
        ({}, [], 1.0),
        ({"settings": "?"}, [Point(1, 1, 1, lag=5, records=5), Point(1, 2, 1, lag=5, records=5)], 1.0),
        ({"settings": {"policy": "unheard of", "interval_s": 1.0}, "state": {}}, [Point(1, 1, 1, lag=None, records=5)], None),
        ({"settings": {"policy": "static"}, "state": {}}, [], None),
    ],
)
def test_what_is_not_known_is_not_forecast(state: dict[str, Any], batches: list[Point], interval_s: float | None) -> None:
    """Too few batches, none with records, runs without an interval, or a policy of another version."""
    for timings in ((), (timing(1),)):
        found = forecast(cursor_of("p", rate_state=state, timings=timings), batches, interval_s=interval_s, lag=5)
        assert found == Forecast(interval_s=interval_s)
    assert found.to_json()["next_bound"] is None
