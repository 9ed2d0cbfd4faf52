"""Laws of a receiver's rate limit, and of the flags that stop all its instances."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidegate.core.model.errors import RequestError
from tidegate_receivers.rules.limits import RateLimiter, WatermarkThrottle

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("rates", [(-1, None), (NAN, None), (100, -0.1)])
def test_negative_rates_are_refused(rates: tuple[float | None, float | None]) -> None:
    """And what is no number."""
    with pytest.raises(RequestError, match="at least 0, or None"):
        RateLimiter(*rates)


@given(st.one_of(st.none(), st.floats(0)), st.one_of(st.none(), st.floats(0)), st.lists(st.floats()))
@example(100, 50, [0.0])
def test_a_limit_is_the_last_valid_rate_and_never_above_the_maximum(
    max_rate: float | None, initial_rate: float | None, updates: list[float]
) -> None:
    """Whatever the updates were."""
    limiter = RateLimiter(max_rate, initial_rate)
    for rate in updates:
        limiter.update(rate)
    maximum = max_rate or INF
    rates = [INF if initial_rate is None else initial_rate, *(rate for rate in updates if rate > 0)]
    assert limiter.limit == min(rates[-1], maximum)


def test_a_changed_limit_holds_at_once() -> None:
    """Also for the block that is waiting to be paid for."""
    limiter = RateLimiter(1000, 1)
    assert limiter.acquire(1000, 0.0) == 0.0
    limiter.update(1000)
    assert limiter.acquire(1000, 0.5) == 0.5
    limiter.update(100)
    assert limiter.acquire(1, 1.0) == 10.0


def test_no_limit_lets_everything_through_and_a_limit_of_nothing_nothing() -> None:
    """What may not go reserves no time."""
    assert [RateLimiter().acquire(10**9, 5.0) for _ in range(3)] == [0.0] * 3
    limiter = RateLimiter(initial_rate=0)
    assert [limiter.acquire(5, 0.0), limiter.acquire(5, 1.0)] == [INF, INF]
    limiter.update(5)
    assert [limiter.acquire(5, 2.0), limiter.acquire(5, 2.0)] == [0.0, 1.0]
    limiter.update(5e-324)
    assert limiter.acquire(5, 4.0) == INF
    limiter.update(5)
    assert limiter.acquire(5, 5.0) == 0.0


@given(st.floats(0.1, 1e6), st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 100)), min_size=1, max_size=30))
def test_no_window_takes_more_than_its_time_at_the_limit_and_one_block(limit: float, asked: list[tuple[int, float]]) -> None:
    """From the start of any block to the start of a later one; and no block waits longer than that needs."""
    limiter, now_s = RateLimiter(limit), 0.0
    blocks: list[tuple[float, int]] = []
    for records, pause_s in asked:
        now_s += pause_s
        start_s = now_s + limiter.acquire(records, now_s)
        due_s = blocks[-1][0] + blocks[-1][1] / limit if blocks else now_s
        assert start_s == pytest.approx(max(now_s, due_s))
        blocks.append((start_s, records))
    for i, (from_s, _) in enumerate(blocks):
        for j in range(i, len(blocks)):
            assert sum(n for _, n in blocks[i:j]) <= (blocks[j][0] - from_s) * limit * (1 + 1e-9) + 1e-3


@pytest.mark.parametrize(("records", "now_s"), [(0, 0.0), (1.5, 0.0), (1, NAN), (1, INF)])
def test_a_refused_block_takes_no_time(records: Any, now_s: float) -> None:
    """Numbers out of their bounds."""
    limiter = RateLimiter(1)
    with pytest.raises(RequestError):
        limiter.acquire(records, now_s)
    assert limiter.acquire(1, 0.0) == 0.0


@pytest.mark.parametrize("expiry_s", [10.0, INF])
def test_a_flag_that_has_expired_is_forgotten(expiry_s: float) -> None:
    """Whatever the clock does. A report between the marks renews it. It may never expire; the marks may be all and nothing."""
    throttle = WatermarkThrottle(1.0, 0.0, expiry_s=expiry_s)
    throttle.report("a", 10, 10, now_s=0.0)
    throttle.report("a", 5, 10, now_s=8.0)
    assert [throttle.throttled(at_s) for at_s in (17.9, 1e300, 10.0)] == [True, *[expiry_s == INF] * 2]


@pytest.mark.parametrize(
    "settings",
    [
        {"high": 0.4, "low": 0.4},
        {"high": 1.1},
        {"low": -0.1},
        {"high": NAN},
        {"low": NAN},
        {"expiry_s": 0},
        {"expiry_s": NAN},
    ],
)
def test_marks_that_contradict_each_other_are_refused(settings: dict[str, float]) -> None:
    """0 ≤ low < high ≤ 1, and a time above 0."""
    with pytest.raises(RequestError) as refused:
        WatermarkThrottle(**settings)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("used", "capacity", "now_s"),
    [
        (-1, 10, 50.0),
        (0, 0, 50.0),
        (0.5, 10, 50.0),
        (0, 10.0, 50.0),
        (0, 10, NAN),
        (0, 10, INF),
    ],
)
def test_a_refused_report_changes_nothing(used: Any, capacity: Any, now_s: float) -> None:
    """The instance's flag stays, and another instance's flag expires as before."""
    throttle = WatermarkThrottle()
    throttle.report("a", 9, 10, now_s=0.0)
    throttle.report("b", 9, 10, now_s=20.0)
    with pytest.raises(RequestError) as refused:
        throttle.report("b", used, capacity, now_s=now_s)
    assert refused.value.fix
    if not math.isfinite(now_s):
        with pytest.raises(RequestError):
            throttle.throttled(now_s)
    assert throttle.throttled(49.0)
    assert not throttle.throttled(50.0)


class Throttling(RuleBasedStateMachine):
    """The throttle agrees with the whole history of reports, read again each time."""

    def __init__(self) -> None:
        super().__init__()
        self.throttle = WatermarkThrottle(0.75, 0.25, expiry_s=5)
        self.reports: dict[str, list[tuple[int, int, int]]] = {}
        self.now_s = 0

    @rule(instance=st.sampled_from("abc"), used=st.integers(0, 14), capacity=st.sampled_from([1, 2, 5, 8, 12]))
    def report(self, instance: str, used: int, capacity: int) -> None:
        """One instance."""
        self.throttle.report(instance, used, capacity, now_s=self.now_s)
        self.reports.setdefault(instance, []).append((self.now_s, used, capacity))

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        """Up to more than the expiry."""
        self.now_s += seconds

    def up(self, instance: str) -> bool:
        """Whether the flag of an instance is up: raised, not lowered since, and never without a report for 5 s since."""
        flag, last_s = False, 0
        for at_s, used, capacity in self.reports[instance]:
            flag = flag and at_s - last_s < 5
            if used <= capacity // 4:
                flag = False
            elif used >= 3 * capacity // 4:
                flag = True
            last_s = at_s
        return flag and self.now_s - last_s < 5

    @invariant()
    def agrees(self) -> None:
        """One flag is enough."""
        assert self.throttle.throttled(self.now_s) == any(map(self.up, self.reports))


TestThrottling = Throttling.TestCase


def test_the_delay_is_what_a_block_would_wait_and_reserves_nothing() -> None:
    """However often it is asked for."""
    limiter = RateLimiter(100)
    assert limiter.delay_s(0.0) == 0.0
    limiter.acquire(200, 10.0)
    assert [limiter.delay_s(10.0), limiter.delay_s(10.0), limiter.delay_s(11.5), limiter.delay_s(99.0)] == [2.0, 2.0, 0.5, 0.0]
    assert limiter.acquire(1, 11.5) == 0.5
    assert RateLimiter(initial_rate=0).delay_s(5.0) == INF
