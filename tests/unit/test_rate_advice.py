"""Laws of what follows from the cost of a batch: intervals, sizes, backlogs, executors, pieces."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigError, RequestError
from tidegate.core.rates.advice import advise, catch_up_batch, drain_time, full_batch, least_interval
from tidegate.core.rates.choice import make_rate_policy
from tidegate.core.rates.resources import ExecutorLimits, executors_for, pieces_for
from tidegate.core.simulation.plant import Plant

A, B, T = 5.0, 1e-5, 60.0
overheads = st.floats(0.01, 100)
records_cost = st.floats(1e-8, 1e-2)
utilizations = st.floats(0.1, 1)


@given(overheads, records_cost, utilizations, st.floats(0, 0.99))
def test_at_the_least_interval_a_run_takes_just_its_share(a: float, b: float, rho: float, load: float) -> None:
    """T_min = a / (rho - b * rate), whose run of rate * T_min records takes rho * T_min."""
    rate = load * rho / b
    least = least_interval(a, b, arrival_rate=rate, utilization=rho)
    assert least is not None
    assert a + b * rate * least == pytest.approx(rho * least)


@given(overheads, records_cost, utilizations, st.floats(1, 100))
def test_no_interval_holds_what_exceeds_the_rate_of_endless_batches(a: float, b: float, rho: float, load: float) -> None:
    """From b * rate = rho on."""
    assert least_interval(a, b, arrival_rate=load * rho / b * (1 + 1e-9), utilization=rho) is None


@given(overheads, records_cost, utilizations, st.floats(0, 1e4))
def test_the_least_interval_grows_with_the_load(a: float, b: float, rho: float, rate: float) -> None:
    """And with the overhead."""
    least = least_interval(a, b, arrival_rate=rate, utilization=rho)
    if least is not None:
        more = least_interval(a, b, arrival_rate=1.1 * rate, utilization=rho)
        assert more is None or more >= least
        assert least_interval(2 * a, b, arrival_rate=rate, utilization=rho) == pytest.approx(2 * least)


@pytest.mark.parametrize(("factor", "stays"), [(1.05, True), (0.8, False)])
def test_the_least_interval_is_where_a_plant_keeps_up(factor: float, *, stays: bool) -> None:
    """Just above it the lag stays what arrives in an interval, below it grows without end."""
    rate = 60_000.0
    least = least_interval(A, B, arrival_rate=rate, utilization=0.9)
    assert least is not None
    interval_s = factor * least
    policy = make_rate_policy({"policy": "target"}, interval_s=interval_s)
    trace = Plant(interval_s, A, B, rate).run(policy, 300 * interval_s)
    kept_up = trace.batches[-1].lag < 3 * rate * interval_s
    assert kept_up == stays


def test_a_full_batch_takes_its_share_of_the_interval() -> None:
    """0 where the overhead alone takes it."""
    assert full_batch(A, B, interval_s=T, utilization=0.9) == 4_900_000
    assert full_batch(54, B, interval_s=T, utilization=0.9) == 0
    assert full_batch(100, B, interval_s=T, utilization=0.9) == 0
    assert full_batch(0, 1e-12, interval_s=1e7, utilization=1) < 2**63


@given(overheads, records_cost, st.floats(0.01, 0.99))
def test_a_batch_for_catching_up_leaves_the_overhead_its_share(a: float, b: float, share: float) -> None:
    """And is the least that does."""
    n = catch_up_batch(a, b, overhead_share=share)
    assert a <= share * (a + b * n) * (1 + 1e-6)
    assert n == 1 or a >= share * (a + b * (n - 1)) * (1 - 1e-6)


@pytest.mark.parametrize("catch_up", [False, True])
@pytest.mark.parametrize("rate", [0.0, 20_000.0])
def test_a_backlog_is_drained_when_the_plant_has_drained_it(*, catch_up: bool, rate: float) -> None:
    """With what arrives meanwhile, within an interval."""
    batch, backlog = 4_900_000, 40_000_000
    policy = make_rate_policy({"policy": "static", "max_records": batch}, interval_s=T)
    trace = Plant(T, A, B, rate, backlog=backlog - round(rate * T), catch_up=catch_up).run(policy, 100 * T)
    first = trace.batches[0]
    assert first.lag == backlog
    drained = next(b for b in trace.batches if b.records == b.lag)
    forecast = drain_time(A, B, backlog=backlog, batch=batch, arrival_rate=rate, interval_s=T, catch_up=catch_up)
    assert forecast == pytest.approx(drained.ended_s - first.started_s, rel=0.02)


def test_a_backlog_that_does_not_shrink_has_no_end() -> None:
    """Nothing waits: nothing to drain."""
    at: dict[str, Any] = {"arrival_rate": 81_700.0, "interval_s": T}
    assert drain_time(A, B, backlog=1, batch=4_900_000, **at) is None
    assert drain_time(A, B, backlog=0, batch=4_900_000, **at) == 0
    assert drain_time(A, B, backlog=10, batch=0, **at) is None


@pytest.mark.parametrize(
    ("rate", "backlog", "told"),
    [
        (
            50_000,
            0,
            [
                "the pipeline keeps up: 50,000 records/s arrive, and a run every 60 s loads at most 81,667 records/s",
                "it would keep up with an interval of 12.5 s or longer",
                "a run of 54 s has 4,900,000 records",
                "from 4,500,000 records on, overhead is at most 10% of a run",
            ],
        ),
        (
            1000,
            10_000_000,
            ["the pipeline keeps up: 1,000 records/s arrive", "4,900,000", "the backlog of 10,000,000 records is loaded in"],
        ),
        (
            85_000,
            1,
            [
                "the pipeline falls behind: 85,000 records/s arrive, and a run every 60 s loads at most 81,667 records/s",
                "since each run has 5 s of overhead; it would keep up with an interval of 100 s or longer",
                "does not shrink",
            ],
        ),
        (90_000, 0, ["at any interval: 90,000 records/s arrive, and it loads at most 90,000 records/s", "more cores"]),
    ],
)
def test_advice_tells_whether_the_interval_holds(rate: float, backlog: int, told: list[str]) -> None:
    """With what to do where it does not."""
    advice = advise(A, B, interval_s=T, arrival_rate=rate, backlog=backlog)
    assert all(words in " ".join(advice.sentences()) for words in told)
    assert advice.holds == (rate <= 50_000)
    assert json.loads(json.dumps(advice.to_json(), allow_nan=False))["holds"] == advice.holds


def test_an_overhead_beyond_the_interval_is_told_without_a_size() -> None:
    """No overhead holds at any interval."""
    advice = advise(70, B, interval_s=T, arrival_rate=100)
    assert "loads at most 0 records/s" in advice.sentences()[0]
    assert len(advice.sentences()) == 2
    assert "0.5 records/s arrive" in advise(1, B, interval_s=T, arrival_rate=0.5).sentences()[0]
    assert "it would keep up at any interval" in advise(0, B, interval_s=T, arrival_rate=100).sentences()[0]


@pytest.mark.parametrize(("minutes", "told"), [(1, "s"), (30, "min"), (300, "h")])
def test_a_time_is_told_in_its_unit(minutes: int, told: str) -> None:
    """Seconds, minutes or hours."""
    advice = advise(A, B, interval_s=T, arrival_rate=0, backlog=4_900_000 * minutes)
    assert advice.sentences()[-1].endswith(f" {told}")


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
    """With the fix."""
    settings: dict[str, Any] = {"a": A, "b": B, "interval_s": T, "arrival_rate": 100.0, **wrong}
    with pytest.raises((RequestError, ConfigError), match=f"^{next(iter(wrong))}: expected") as refused:
        advise(**settings)
    assert refused.value.fix


LIMITS = ExecutorLimits(2, 10, cores=4)


def test_executors_grow_at_once_and_shrink_by_one_a_run() -> None:
    """What 4 million records of 40 core seconds a million need in 10 s is 16 cores: 4 executors."""
    need: dict[str, Any] = {"records": 4_000_000, "core_s": 4e-5, "records_s": 10.0, "limits": LIMITS}
    assert executors_for(**need, last=None).executors == 4
    assert executors_for(**need, last=2).executors == 4
    shrunk = executors_for(**need, last=7)
    assert (shrunk.executors, shrunk.cores) == (6, 4)
    assert shrunk.reason == "4,000,000 records of 40 core seconds a million in 10 s need 4, 7 shrink by one a run"
    assert executors_for(**need, last=5).executors == 4
    assert executors_for(**need, last=4).reason.endswith("need 4")
    assert json.dumps(shrunk.to_json())


def test_executors_stay_within_their_limits_and_say_so() -> None:
    """Also where the last run had others."""
    many = executors_for(10**9, 4e-5, records_s=10, last=None, limits=LIMITS)
    assert (many.executors, many.reason.endswith("need 1000, the most is 10")) == (10, True)
    few = executors_for(0, 4e-5, records_s=10, last=None, limits=LIMITS)
    assert (few.executors, few.reason.endswith("need 1, the least is 2")) == (2, True)
    assert executors_for(0, 4e-5, records_s=10, last=99, limits=LIMITS).executors == 9
    assert executors_for(0, 4e-5, records_s=10, last=1, limits=LIMITS).executors == 2


def test_an_overhead_asks_for_no_executor() -> None:
    """Where it leaves nothing of the target time, their number stays as it is."""
    for left_s in (0.0, -5.0):
        kept = executors_for(10**9, 4e-5, records_s=left_s, last=3, limits=LIMITS)
        assert kept.executors == 3
        assert "the overhead takes the whole target time" in kept.reason
    assert executors_for(1, 4e-5, records_s=0, last=None, limits=LIMITS).executors == 2


@given(st.integers(0, 10**9), st.floats(1e-7, 1e-3), st.floats(0.1, 1000), st.integers(1, 20), st.integers(0, 9))
def test_the_executors_of_many_runs_reach_what_the_load_needs(n: int, b: float, left_s: float, last: int, more: int) -> None:
    """Within the limits, whatever they were before: no oscillation, no more than needed at last."""
    limits = ExecutorLimits(1, 1 + more, cores=2)
    counts = [last]
    for _ in range(20):
        counts.append(executors_for(n, b, records_s=left_s, last=counts[-1], limits=limits).executors or 0)
    assert counts[-1] == counts[-2]
    assert all(1 <= count <= limits.most for count in counts[1:])
    enough = n * b / (counts[-1] * 2) <= left_s * (1 + 1e-6)
    assert enough or counts[-1] == limits.most
    assert counts[-1] == 1 or n * b / ((counts[-1] - 1) * 2) > left_s * (1 - 1e-6)


@pytest.mark.parametrize("wrong", [(0, 1), (3, 2), (1, 2, 0), (1.5, 2)])
def test_limits_of_executors_are_whole_and_in_order(wrong: tuple[Any, ...]) -> None:
    """From 1."""
    with pytest.raises(RequestError):
        ExecutorLimits(*wrong)


@pytest.mark.parametrize("wrong", [{"records": -1}, {"core_s": 0}, {"last": 0}])
def test_executors_refuse_nonsense(wrong: dict[str, Any]) -> None:
    """By name."""
    need: dict[str, Any] = {"records": 1, "core_s": 1e-5, "records_s": 1.0, "last": 1, "limits": LIMITS, **wrong}
    with pytest.raises(RequestError):
        executors_for(**need)


def test_a_small_load_has_few_pieces_and_a_large_one_five_a_core() -> None:
    """A piece has at least 0.2 s of work; there is always one."""
    assert [pieces_for(n, 2e-5, cores=2) for n in (0, 1000, 20_000, 50_000, 100_000, 10**9)] == [1, 1, 2, 5, 10, 10]
    for wrong in ({"records": -1}, {"cores": 0}, {"core_s": -1.0}):
        with pytest.raises(RequestError):
            pieces_for(**{"records": 1, "core_s": 1e-5, "cores": 1, **wrong})  # type: ignore[arg-type]
