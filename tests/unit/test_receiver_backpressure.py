"""Laws of back-pressure from a pipeline to the instances of the receiver before it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import cursor_of
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.control import RateControl
from tidegate_receivers.config.receiver import Backpressure
from tidegate_receivers.runtime.backpressure import (
    Heard,
    Taken,
    Throttle,
    loadable_rate,
    records_behind,
)

A, B, NEW = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
NOTHING = Taken(0, 0)


def throttle(policy: Any, max_rate: float | None = None, **settings: Any) -> Throttle:
    return Throttle(Backpressure(policy, **settings), max_rate)


def test_static_knows_nothing_but_its_maximum() -> None:
    """Whatever it hears, however late."""
    this = throttle("static", 70)
    assert this.heard is None
    this.hear(Heard(lag=10**9, rate=1), NOTHING, 0)
    this.stored(10**6)
    assert (this.limit(10**6), this.room(10**6), this.is_deaf(10**6)) == (70, math.inf, False)


@pytest.mark.parametrize(("rate", "instances", "limit"), [(90, 1, 50), (90, 2, 45), (90, 3, 30), (None, 3, 50)])
def test_rate_is_the_instances_part_of_what_the_pipeline_loads(rate: float | None, instances: int, limit: float) -> None:
    """Never above the maximum; a pipeline without a bound sets none."""
    this = throttle("rate", 50)
    this.hear(Heard(lag=10**9, rate=rate, instances=instances), NOTHING, 0)
    assert (this.limit(0), this.room(0)) == (limit, math.inf)
    assert this.acquire(int(limit), 0) == 0
    assert this.delay_s(0) == pytest.approx(int(limit) / limit)


@pytest.mark.parametrize(
    ("lag", "in_flight", "instances", "room"),
    [
        (0, 0, 1, 100),
        (60, 0, 1, 40),
        (60, 30, 1, 10),
        (99, 1, 1, 0),
        (500, 0, 1, 0),
        (0, 0, 2, 25),
        (60, 0, 5, 4),
        (97, 0, 2, 1),
    ],
)
def test_credit_is_the_places_that_are_free_or_a_part_of_half_of_them(
    lag: int, in_flight: int, instances: int, room: int
) -> None:
    """What is stored after the look began takes places, too."""
    this = throttle("credit", max_backlog=100)
    this.stored(40 + in_flight)
    this.ended(40)
    taken = this.taken
    assert taken == Taken(40 + in_flight, in_flight)
    this.hear(Heard(lag=lag, instances=instances), taken, 0)
    assert this.room(0) == room
    this.stored(room)
    assert this.room(0) == 0
    this.hear(Heard(lag=0), taken, 1)
    assert this.room(1) == 100 - in_flight - room


@given(
    st.integers(1, 4),
    st.integers(8, 500),
    st.lists(st.tuples(st.sampled_from(["store", "land", "load"]), st.integers(0, 3), st.integers(1, 400)), max_size=120),
)
def test_under_credit_the_backlog_stays_within_its_bound_whatever_is_stored_and_landed_between_two_looks(
    instances: int, most: int, steps: list[tuple[str, int, int]]
) -> None:
    """Each instance looks as often as the others: in turn, at any place between what else happens. Rounding adds one each."""
    end = loaded = 0
    each = [throttle("credit", max_backlog=most, safe_rate=0) for _ in range(instances)]
    stored, flying = [0] * instances, [0] * instances
    for number, (step, which, many) in enumerate(steps):
        looks = each[number % instances]
        looks.hear(Heard(lag=end - loaded, instances=instances), looks.taken, number)
        at = which % instances
        if step == "store":
            fits = int(max(0, min(many, each[at].room(number))))
            each[at].stored(fits)
            stored[at] += fits
            flying[at] += fits
        elif step == "land":
            lands = min(many, flying[at])
            each[at].ended(lands)
            flying[at] -= lands
            end += lands
        else:
            loaded = min(end, loaded + many)
        assert end - loaded + sum(flying) <= most + instances


def fill(count: int, max_backlog: int, *, lands: bool) -> int:
    """Every instance looks in turn, again and again, and stores all that it may; records stored or landed at the end."""
    throttles = [throttle("credit", max_backlog=max_backlog) for _ in range(count)]
    landed = 0
    for second in range(200):
        for each in throttles:
            each.hear(Heard(lag=landed, instances=count), each.taken, float(second))
            each.stored(max(0, int(each.room(float(second)))))
        for each in throttles if lands else ():
            landed += each.taken.in_flight
            each.ended(each.taken.in_flight)
    return sum(each.taken.stored for each in throttles)


@given(st.integers(1, 20), st.integers(20, 10**6))
def test_together_instances_fill_the_backlog_and_never_pass_it(count: int, max_backlog: int) -> None:
    """To less than a record for each of them. Records that are long on their way make no room: each counts its own as all's."""
    assert max_backlog - count < fill(count, max_backlog, lands=True) <= max_backlog
    assert fill(count, max_backlog, lands=False) <= max_backlog


@pytest.mark.parametrize("max_backlog", [1, 3, 9])
def test_a_backlog_of_fewer_places_than_instances_is_used(max_backlog: int) -> None:
    """Each takes one while nothing waits; otherwise all would wait for ever."""
    assert fill(10, max_backlog, lands=True) == 10


@pytest.mark.parametrize(("lag", "goes_on"), [(79, True), (80, False), (50, False), (21, False), (20, True)])
def test_watermark_stops_at_the_high_mark_of_the_backlog_and_goes_on_at_the_low_one(lag: int, *, goes_on: bool) -> None:
    """Between the marks it stays as it was, here stopped; what is in flight counts as backlog."""
    this = throttle("watermark", max_backlog=100, high=0.8, low=0.2)
    this.hear(Heard(lag=0 if goes_on and lag > 20 else 85), NOTHING, 0)
    this.hear(Heard(lag=lag - 5), Taken(5, 5), 1)
    assert this.room(1) == (math.inf if goes_on else 0)
    assert this.limit(1) == math.inf


def test_watermark_stops_for_the_buffer_of_any_instance_until_its_flag_expires() -> None:
    """One that died raises it no more."""
    this = throttle("watermark", max_backlog=100, silence=30)
    this.hear(Heard(lag=0, buffers={"a": (0.95, 0.0), "b": (0.1, 0.0)}), NOTHING, 0)
    assert this.room(0) == 0
    this.hear(Heard(lag=0, buffers={"a": (0.95, 29.0), "b": (0.1, 0.0)}), NOTHING, 29)
    assert this.room(29) == 0
    this.hear(Heard(lag=0, buffers={"a": (0.95, 31.0), "b": (0.1, 0.0)}), NOTHING, 31)
    assert this.room(31) == math.inf
    this.hear(Heard(lag=0, buffers={"b": (0.91, 0.0)}), NOTHING, 32)
    this.hear(Heard(lag=0, buffers={"b": (0.3, 0.0)}), NOTHING, 33)
    assert this.room(33) == math.inf


@pytest.mark.parametrize("policy", ["rate", "watermark", "credit"])
def test_an_instance_that_hears_nothing_goes_on_at_its_safe_rate(policy: Any) -> None:
    """Before the first word, and when the last one is old. It goes by what it hears again at once."""
    this = throttle(policy, safe_rate=7, silence=30)
    assert (this.is_deaf(0), this.limit(0), this.room(0)) == (True, 7, math.inf)
    heard = Heard(lag=10**6, rate=1000)
    this.hear(heard, NOTHING, 5)
    assert this.heard == heard
    assert (this.is_deaf(34.9), this.limit(34.9)) == (False, 1000 if policy == "rate" else math.inf)
    assert (this.room(34.9) > 0) is (policy == "rate")
    assert (this.is_deaf(35), this.limit(35), this.room(35)) == (True, 7, math.inf)
    this.hear(Heard(lag=0, rate=500), NOTHING, 40)
    assert not this.is_deaf(40)
    assert this.limit(40) == (500 if policy == "rate" else math.inf)


def test_a_safe_rate_of_0_takes_in_nothing_and_the_maximum_bounds_it_too() -> None:
    """The pipeline may be down for long."""
    assert throttle("credit", safe_rate=0).room(0) == 0
    assert throttle("credit", 5, safe_rate=100).limit(0) == 5


def test_a_pipeline_is_behind_by_what_the_log_holds_and_it_has_not_loaded() -> None:
    """Expired records are gone, partitions it has not begun count as a whole, and so does a topic that was created anew.

    Partitions that it never reads do not count: they would fill a receiver's backlog for ever.
    """
    log = Watermarks({A: 10, B: 0, NEW: 2}, {A: 100, B: 50, NEW: 7}, {"t": "id"})
    assert records_behind(None, log) == 90 + 50 + 5
    assert records_behind(cursor_of("p", offsets={A: 60, B: 50}, topic_ids={"t": "id"}), log) == 40 + 0 + 5
    assert records_behind(cursor_of("p", offsets={A: 3, B: 80}, topic_ids={"t": "id"}), log) == 90 + 0 + 5
    assert records_behind(cursor_of("p", offsets={A: 60, B: 50}, topic_ids={"t": "before"}), log) == 90 + 50 + 5
    assert [records_behind(None, log.assigned({"t": parts})) for parts in ((0, 2), ())] == [90 + 5, 0]


@pytest.mark.parametrize(
    ("policy", "most", "remaining", "rate"),
    [
        (None, None, 0, None),
        (None, 600, 0, 10),
        (500, 600, 0, 500 / 60),
        (900, 600, 0, 10),
        (None, 600, 300, 5),
        (None, 600, 10**9, 1),
        (600, None, 60, 9),
    ],
)
def test_a_pipeline_loads_its_bound_each_interval_without_what_it_has_left_behind(
    policy: int | None, most: int | None, remaining: int, rate: float | None
) -> None:
    """Down to a tenth of it."""
    control = None if policy is None else RateControl({"policy": "static", "max_records": policy}, 60)
    assert loadable_rate(control, most, cursor_of("p", remaining=remaining), 60) == (rate and pytest.approx(rate))
    if not remaining:  # as one that has not run
        assert loadable_rate(control, most, None, 60) == rate


def test_a_pipeline_loads_by_what_its_policy_has_learned() -> None:
    """Which its cursor holds."""
    control = RateControl({"policy": "fixed_point", "initial_records": 600}, 60)
    learned = control.observed({}, BatchTiming(600, 600, 30_000, 20_000, 0, 60_000))
    assert loadable_rate(control, None, cursor_of("p", rate_state=learned), 60) == 1080 / 60
