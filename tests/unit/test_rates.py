"""Laws of rates: shares, the fit of a batch's cost, and what follows from it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.rates import BatchTiming, PidRateEstimator, PidState, max_messages_per_partition, share_limit
from tidegate.core.rates.advice import Advice, executors_for, full_batch, least_interval
from tidegate.core.rates.cost import Fit, arrival_rate, fit_cost

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))


@pytest.mark.parametrize(
    ("sizes", "limit", "shares"),
    [
        ({P0: 100, P1: 300}, 40, {P0: 10, P1: 30}),
        ({P0: 1, P1: 999}, 100, {P0: 1, P1: 99}),  # 0.1 rounds up, 99.9 rounds down
        ({P0: 10, P1: 10}, 1000, {P0: 10, P1: 10}),  # never more than there is
        ({P0: 0, P1: 10}, 5, {P0: 0, P1: 5}),
        ({P0: 0, P1: 0}, 5, {P0: 0, P1: 0}),
        ({P0: 10, P1: 10, P2: 10}, 1, {P0: 1, P1: 1, P2: 1}),  # overshoots rather than starves
        ({P0: 10}, 0, {P0: 0}),
        ({}, 5, {}),
        ({P0: 2**62, P1: 2**62}, 2**62, {P0: 2**61, P1: 2**61}),
    ],
)
def test_shares_follow_the_examples(sizes: dict[TopicPartition, int], limit: int, shares: dict[TopicPartition, int]) -> None:
    assert share_limit(sizes, limit) == shares


@given(
    st.dictionaries(st.builds(TopicPartition, st.just("t"), st.integers(0, 50)), st.integers(0, 2**63)), st.integers(1, 2**63)
)
def test_no_lag_is_starved_and_no_share_exceeds_its_lag(sizes: dict[TopicPartition, int], limit: int) -> None:
    shares = share_limit(sizes, limit)
    assert shares.keys() == sizes.keys()
    assert all((0 < shares[tp] <= size) if size else shares[tp] == 0 for tp, size in sizes.items())
    assert sum(shares.values()) < limit + max(1, len(sizes))


@pytest.mark.parametrize(
    ("lags", "rate", "maximum", "minimum", "interval_s", "expected"),
    [
        ({P0: 100, P1: 300}, 40.0, 0, 1, 2.0, {P0: 20, P1: 60}),
        ({P0: 100, P1: 300}, 40.0, 20, 1, 2.0, {P0: 20, P1: 40}),  # the maximum of each partition
        ({P0: 100, P1: 300}, None, 20, 1, 0.5, {P0: 10, P1: 10}),  # no rate: the maximum alone
        ({P0: 100, P1: 300}, 0.0, 20, 1, 1.0, {P0: 20, P1: 20}),  # 0 is like none
        ({P0: 100, P1: 300}, None, 0, 5, 1.0, None),  # nothing limits
        ({P0: 0, P1: 0}, 10.0, 20, 5, 1.0, None),  # a rate, and no lag anywhere
        ({P0: 0, P1: 10}, 10.0, 0, 3, 1.0, {P0: 3, P1: 10}),  # every partition is in the answer
        ({P0: 1, P1: 999}, 100.0, 0, 1, 1.0, {P0: 1, P1: 99}),  # 0.1 is cut to 0, then the minimum
        ({P0: 10}, 10.0, 2, 50, 1.0, {P0: 50}),  # the minimum beats the maximum
        ({P0: 2**62, P1: 2**62, P2: 0}, 8.0, 0, 0, 1.0, {P0: 4, P1: 4, P2: 0}),
        ({}, 10.0, 10, 1, 1.0, None),
    ],
)
def test_limits_by_rate_follow_the_examples(
    lags: Any, rate: float | None, maximum: int, minimum: int, interval_s: float, expected: Any
) -> None:
    """As Spark's direct stream computes them."""
    bounds = {"max_rate_per_partition": maximum, "min_rate_per_partition": minimum}
    assert by_rate(lags=lags, rate=rate, interval_s=interval_s, **bounds) == expected


def by_rate(**change: Any) -> object:
    arguments = {"rate": 1.0, "max_rate_per_partition": 1, "min_rate_per_partition": 1, "interval_s": 1.0, **change}
    return max_messages_per_partition(arguments.pop("lags", {P0: 1}), **arguments)


def estimator(**change: Any) -> object:
    return PidRateEstimator(**{"batch_interval_ms": 1000, **change})


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        *((share_limit, {"sizes": {P0: value}, "limit": 1}) for value in (-1, 1.5)),
        *((share_limit, {"sizes": {P0: 1}, "limit": value}) for value in (-1, True)),
        *((by_rate, change) for change in ({"lags": {P0: -1}}, {"rate": -1.0}, {"rate": math.nan}, {"interval_s": -1})),
        *((by_rate, change) for change in ({"max_rate_per_partition": -1}, {"min_rate_per_partition": 1.5})),
        *((estimator, {name: -1}) for name in ("batch_interval_ms", "proportional", "integral", "derivative")),
        *((estimator, change) for change in ({"batch_interval_ms": 0}, {"min_rate": 0}, {"min_rate": math.inf})),
    ],
)
def test_numbers_that_mean_nothing_are_refused(made: Callable[..., object], wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        made(**wrong)


def test_the_first_valid_call_measures_and_a_skipped_one_changes_nothing() -> None:
    """The measured speed is kept as it is, also below the minimum. Old times, no elements, no work are skipped."""
    pid = PidRateEstimator(1000, 1.0, 0.0, 0.0, 100.0)
    assert pid.compute(0, 10, 1000, 0) is None
    first = PidState(first_run=False, latest_time_ms=0, latest_rate=10.0, latest_error=0.0)
    for call in ((0, 5, 5, 0), (-1, 5, 5, 0), (10, 0, 5, 0), (10, -1, 5, 0), (10, 5, 0, 0), (10, 5, -1, 0)):
        assert (pid.state, pid.compute(*call)) == (first, None)
    assert pid.compute(1000, 5000, 1000, 0) == 5000.0
    assert pid.compute(time_ms=2000, elements=50, processing_delay_ms=1000, scheduling_delay_ms=0) == 100.0


def test_the_three_terms_divide_by_what_spark_divides_by() -> None:
    """The integral by the batch interval, the derivative by elapsed seconds."""
    pid = PidRateEstimator(batch_interval_ms=2000, proportional=0.5, integral=0.25, derivative=0.1, min_rate=1)
    pid.compute(1000, 1000, 1000, 0)
    # measured 600, error 400, piled up 500 * 600 / 2000 = 150, change (400 - 0) / 4
    assert pid.compute(5000, 600, 1000, 500) == pytest.approx(1000 - 0.5 * 400 - 0.25 * 150 - 0.1 * 100)


def test_a_timing_refuses_what_no_batch_takes() -> None:
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


A, B = 5.0, 1e-5


def batch(records: int, run_s: float, minute: int = 1, *, bound: int | None = None, load_s: float = 0.0) -> BatchTiming:
    return BatchTiming(records, bound, round(run_s * 1000), round(load_s * 1000), 0, minute * 60_000)


def batches(count: int = 60, *, noise: float = 0.0, seed: int = 0, least: float = 1e5, most: float = 5e6) -> list[BatchTiming]:
    chance = random.Random(seed)  # noqa: S311 - noise of a model, no secret
    sizes = [round(chance.uniform(least, most)) for _ in range(count)]
    return [batch(n, (A + B * n) * chance.gauss(1, noise), k, load_s=B * n) for k, n in enumerate(sizes, 1)]


def test_an_overhead_is_never_negative() -> None:
    """Then all of a run is for records."""
    below = fit_cost([batch(n, 1e-5 * n - 2, n // 1_000_000) for n in (1_000_000, 2_000_000, 3_000_000, 4_000_000)])
    assert (below.separate, below.a) == (True, 0)
    assert 0 < below.b < 1e-5


@given(st.floats(0, 100), st.floats(1e-7, 1e-2), st.lists(st.integers(1000, 10**7), min_size=5, max_size=30))
def test_any_exact_cost_is_explained(a: float, b: float, sizes: list[int]) -> None:
    """Whether or not the sizes tell a from b, every batch of one size costs what it cost."""
    timings = [batch(n, a + b * n, k) for k, n in enumerate(sizes)]
    assume(all(t.run_ms > 1000 for t in timings))
    found = fit_cost(timings)
    assert found.a >= 0
    assert found.b > 0
    if found.separate:
        assert all(found.a + found.b * t.records == pytest.approx(t.run_ms / 1000, rel=0.01) for t in timings)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
def test_noise_moves_the_fit_by_little(noise: float) -> None:
    """The overhead within the noise, the records' cost within 10 %; without noise to the rounding of milliseconds."""
    for seed in range(20):
        found = fit_cost(batches(noise=noise, seed=seed))
        assert (found.separate, found.batches) == (True, 60)
        assert found.a == pytest.approx(A, rel=noise or 1e-3)
        assert found.b == pytest.approx(B, rel=0.1 if noise else 1e-3)


@pytest.mark.parametrize(
    "sizes",
    [
        [(1e6, 11)],
        [(1e6, 11)] * 30,
        [(1e6, 11), (1.1e6, 12), (1.05e6, 11.5)],  # alike
        [(1e6, 11), (2e6, 26), (3e6, 21)],  # contradicting
        [(100, 0.001), (200, 3e7 - 4), (300, 3e7 - 4)],  # a slow server
        [(1e9, 0.001), (1, 3e7 - 4), (2, 3e7 - 4)],  # one that outweighs all
    ],
)
def test_sizes_that_do_not_tell_a_from_b_leave_the_overhead_outside_the_job(sizes: list[tuple[float, float]]) -> None:
    """What the runs spent outside their Spark jobs is the least that it can be; the fit says so."""
    found = fit_cost([batch(int(records), 4 + load_s, load_s=load_s) for records, load_s in sizes])
    assert not found.separate
    assert found.a == pytest.approx(4)
    assert found.b > 0
    assert "do not tell the overhead of a run from the cost of a record" in found.sentences()[-1]


def test_a_number_that_is_given_is_kept_and_the_other_one_estimated() -> None:
    same = [batch(1_000_000, 15, k) for k in range(5)]
    assert fit_cost(same, a=3).b == pytest.approx(12e-6)
    assert fit_cost(same, b=1e-5).a == pytest.approx(5)
    assert fit_cost(same, b=1e-3).a == 0
    assert fit_cost(same, a=100).b == pytest.approx(0.01 * 15e-6)
    assert fit_cost(same, a=5, b=2e-5) == Fit(5, 2e-5, 5, separate=True)


@pytest.mark.parametrize(
    ("given_cost", "message"),
    [
        *[({"a": value}, "a: expected the seconds of a run") for value in (-1, math.nan, math.inf, 10**9, True, "5")],
        *[({"b": value}, "b: expected the seconds of each record") for value in (0, -1e-5, math.nan, math.inf, 1e-13)],
    ],
)
def test_a_given_number_is_refused_by_name(given_cost: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        fit_cost(batches(), **given_cost)
    assert refused.value.fix


def test_batches_that_measured_nothing_or_are_old_are_left_out() -> None:
    """No records, no time, absurd numbers; nothing but those is refused. The last hundred count."""
    nothing = [batch(0, 5), batch(100, 0), batch(2**63, 5), replace(batch(100, 5), run_ms=10**12)]
    old = [batch(n, 100 + n / 1000, k) for k, n in enumerate(range(1000, 2000), 1)]
    assert fit_cost([*nothing, *batches(20)]) == fit_cost(batches(20))
    assert fit_cost([*old, *batches(100)]) == fit_cost(batches(100))
    with pytest.raises(RequestError, match="no batch with records whose time was measured"):
        fit_cost(nothing)


def test_the_arrival_rate_is_what_arrived_between_two_batches_that_took_all() -> None:
    """A batch at its bound does not tell how much waited."""
    timings = [batch(600, 10, 1), batch(1000, 10, 2, bound=1000), batch(200, 10, 3, bound=1000), batch(1000, 10, 4, bound=1000)]
    assert arrival_rate(timings) == pytest.approx(1200 / 120)
    assert [arrival_rate(some) for some in (timings[:2], [], [timings[0], timings[0]])] == [None] * 3


T = 60.0


@given(a=st.floats(0.01, 100), b=st.floats(1e-8, 1e-2), rho=st.floats(0.1, 1), load=st.floats(0, 0.99))
def test_at_the_least_interval_a_run_takes_just_its_share(a: float, b: float, rho: float, load: float) -> None:
    """T_min = a / (rho - b * rate), whose run of rate * T_min records takes rho * T_min; none from b * rate = rho on."""
    rate = load * rho / b
    least = least_interval(a, b, arrival_rate=rate, utilization=rho)
    assert least is not None
    assert a + b * rate * least == pytest.approx(rho * least)
    assert least_interval(a, b, arrival_rate=(1 + load) * rho / b * (1 + 1e-9), utilization=rho) is None


def test_a_full_batch_takes_its_share_of_the_interval() -> None:
    assert [full_batch(a, B, interval_s=T, utilization=0.9) for a in (A, 54, 100)] == [4_900_000, 0, 0]
    assert full_batch(0, 1e-12, interval_s=1e7, utilization=1) < 2**63


@pytest.mark.parametrize(
    ("backlog", "batch", "rate", "drained_s"),
    [
        (1, 4_900_000, 81_700, None),
        (0, 4_900_000, 81_700, 0),
        (10, 0, 81_700, None),
        (1, 4_800_000, 80_000, None),
        (24_000_000, 12_000_000, 0, 250),
        (40_000_000, 4_900_000, 0, 493),
        (40_000_000, 4_900_000, 20_000, 635),
    ],
)
def test_a_backlog_is_drained_or_has_no_end(backlog: int, batch: int, rate: float, drained_s: float | None) -> None:
    """Nothing waits: nothing to drain. Runs that take longer than the interval follow each other at once."""
    found = Advice(A, B, interval_s=T, arrival_rate=rate, backlog=backlog).drain_s(batch)
    assert found == (drained_s and pytest.approx(drained_s))


@pytest.mark.parametrize(
    ("a", "rate", "holds", "told"),
    [
        (A, 50_000, True, ["keeps up: 50,000 records/s arrive", "12.5 s or longer"]),
        (A, 85_000, False, ["falls behind: 85,000 records/s arrive", "81,667 records/s", "100 s or longer"]),
        (A, 90_000, False, ["falls behind at any interval: 90,000 records/s arrive", "more cores"]),
        (70, 0.5, False, ["0.5 records/s arrive", "loads at most 0 records/s"]),
        (0, 100, True, ["it would keep up at any interval"]),
    ],
)
def test_advice_tells_whether_the_interval_holds(a: float, rate: float, told: list[str], *, holds: bool) -> None:
    advice = Advice(a, B, interval_s=T, arrival_rate=rate, backlog=1)
    assert [words for words in told if words not in advice.verdict] == []
    assert advice.holds == holds
    assert json.loads(json.dumps(advice.to_json(), allow_nan=False))["verdict"] == advice.verdict


@pytest.mark.parametrize(
    "wrong",
    [
        *[{"arrival_rate": value} for value in (-1, math.nan, math.inf, 1e10)],
        *[{"utilization": value} for value in (0, 1.1, math.nan)],
        *[{"interval_s": value} for value in (0, -1, math.nan)],
        *[{"backlog": value} for value in (-1, 1.5)],
        {"a": -1},
        {"b": 0},
    ],
)
def test_advice_refuses_nonsense_by_name(wrong: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"a": A, "b": B, "interval_s": T, "arrival_rate": 100.0, **wrong}
    with pytest.raises((RequestError, ConfigError), match=f"^{next(iter(wrong))}: expected") as refused:
        Advice(**settings)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("records", "in_s", "last", "count", "reason"),
    [
        (4_000_000, 10, None, 4, "4,000,000 records of 40 core seconds a million in 10 s need 4"),
        (4_000_000, 10, 2, 4, "need 4"),
        (4_000_000, 10, 5, 4, "5 shrink by one a run"),
        (4_000_000, 10, 7, 6, "need 4, 7 shrink by one a run"),
        (4_000_000, 10, 4, 4, "need 4"),
        (10**9, 10, None, 10, "need 1000, the most is 10"),
        (0, 10, None, 2, "need 1, the least is 2"),
        (0, 10, 99, 9, "10 shrink by one a run"),
        (0, 10, 1, 2, "the least is 2"),
        (10**9, 0, 3, 3, "the overhead takes the whole target time, which executors do not shorten"),
        (10**9, -5, 3, 3, "the overhead takes the whole target time, which executors do not shorten"),
        (1, 0, None, 2, "the overhead takes the whole target time, which executors do not shorten"),
    ],
)
def test_executors_grow_at_once_and_shrink_by_one(records: int, in_s: float, last: int | None, count: int, reason: str) -> None:
    """Here of 40 core seconds a million records, and from 2 to 10 executors of 4 cores."""
    found = executors_for(records, 4e-5, records_s=in_s, last=last, least=2, most=10, cores=4)
    assert (found.executors, found.cores) == (count, 4)
    assert found.reason.endswith(reason)
