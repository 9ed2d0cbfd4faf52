"""Laws of what follows from the cost of a batch: intervals, sizes, backlogs, executors, pieces."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.rates.advice import Advice, full_batch, least_interval
from tidegate.core.rates.policies import make_rate_policy
from tidegate.core.rates.resources import Resources, executors_for, pieces_for
from tidegate.simulation.plant import Plant

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


@pytest.mark.parametrize(("factor", "stays"), [(1.05, True), (0.8, False)])
def test_the_least_interval_is_where_a_plant_keeps_up(factor: float, *, stays: bool) -> None:
    """Just above it the lag stays what arrives in an interval, below it grows without end."""
    rate = 60_000.0
    least = least_interval(A, B, arrival_rate=rate, utilization=0.9)
    assert least is not None
    interval_s = factor * least
    policy = make_rate_policy({"policy": "target"}, interval_s=interval_s)
    trace = Plant(interval_s, A, record_s=B, arrivals=rate).run(policy, 300 * interval_s)
    kept_up = trace.batches[-1].lag < 3 * rate * interval_s
    assert kept_up == stays


def test_a_full_batch_takes_its_share_of_the_interval() -> None:
    """0 where the overhead alone takes it."""
    assert full_batch(A, B, interval_s=T, utilization=0.9) == 4_900_000
    assert full_batch(54, B, interval_s=T, utilization=0.9) == 0
    assert full_batch(100, B, interval_s=T, utilization=0.9) == 0
    assert full_batch(0, 1e-12, interval_s=1e7, utilization=1) < 2**63


@given(overheads, records_cost)
def test_a_batch_for_catching_up_leaves_the_overhead_a_tenth(a: float, b: float) -> None:
    """And is the least that does."""
    n = Advice(a, b, interval_s=T, arrival_rate=0).catch_up_batch
    assert a <= 0.1 * (a + b * n) * (1 + 1e-6)
    assert n == 1 or a >= 0.1 * (a + b * (n - 1)) * (1 - 1e-6)


@pytest.mark.parametrize("rate", [0.0, 20_000.0])
def test_a_backlog_is_drained_when_the_plant_has_drained_it(rate: float) -> None:
    """With what arrives meanwhile, within an interval."""
    batch, backlog = 4_900_000, 40_000_000
    policy = make_rate_policy({"policy": "static", "max_records": batch}, interval_s=T)
    trace = Plant(T, A, record_s=B, arrivals=rate, backlog=backlog - round(rate * T)).run(policy, 100 * T)
    first = trace.batches[0]
    assert first.lag == backlog
    drained = next(b for b in trace.batches if b.records == b.lag)
    assert Advice(A, B, interval_s=T, arrival_rate=rate, backlog=backlog).drain_s(batch) == pytest.approx(
        drained.ended_s - first.started_s, rel=0.02
    )


def test_a_backlog_that_does_not_shrink_has_no_end() -> None:
    """Nothing waits: nothing to drain. Runs that take longer than the interval follow each other at once."""

    def drained_s(backlog: int, batch: int, rate: float = 81_700) -> float | None:
        return Advice(A, B, interval_s=T, arrival_rate=rate, backlog=backlog).drain_s(batch)

    assert drained_s(1, 4_900_000) is None
    assert drained_s(0, 4_900_000) == 0
    assert drained_s(10, 0) is None
    assert drained_s(1, 4_800_000, rate=80_000) is None
    assert drained_s(24_000_000, 12_000_000, rate=0) == pytest.approx(250)


@pytest.mark.parametrize(
    ("a", "rate", "backlog", "holds", "told"),
    [
        (A, 50_000, 0, True, ["keeps up: 50,000 records/s arrive", "12.5 s or longer", "54 s has 4,900,000", "from 4,500,000"]),
        (A, 1000, 10_000_000, True, ["the backlog of 10,000,000 records is loaded in 2 min"]),
        (A, 0, 4_900_000, True, ["is loaded in 54 s"]),
        (A, 0, 4_900_000 * 30, True, ["is loaded in 30 min"]),
        (A, 0, 4_900_000 * 300, True, ["is loaded in 5.0 h"]),
        (
            A,
            85_000,
            1,
            False,
            ["falls behind: 85,000 records/s arrive", "81,667 records/s", "100 s or longer", "does not shrink"],
        ),
        (
            A,
            90_000,
            0,
            False,
            ["falls behind at any interval: 90,000 records/s arrive, and it loads at most 90,000", "more cores"],
        ),
        (70, 0.5, 0, False, ["0.5 records/s arrive", "loads at most 0 records/s"]),
        (0, 100, 0, True, ["it would keep up at any interval"]),
    ],
)
def test_advice_tells_whether_the_interval_holds(a: float, rate: float, backlog: int, told: list[str], *, holds: bool) -> None:
    """With what to do where it does not."""
    advice = Advice(a, B, interval_s=T, arrival_rate=rate, backlog=backlog)
    said = " ".join(advice.sentences())
    assert [words for words in told if words not in said] == []
    assert advice.holds == holds
    assert json.loads(json.dumps(advice.to_json(), allow_nan=False))["sentences"] == list(advice.sentences())
    assert ("a run of 54 s has" in said) == (advice.full_batch > 0)


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
        Advice(**settings)
    assert refused.value.fix


def executors(records: int, *, records_s: float = 10.0, last: int | None = None) -> Resources:
    """Records of 40 core seconds a million, and from 2 to 10 executors of 4 cores."""
    return executors_for(records, 4e-5, records_s=records_s, last=last, least=2, most=10, cores=4)


@pytest.mark.parametrize(
    ("records", "records_s", "last", "count", "reason"),
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
def test_executors_grow_at_once_and_shrink_by_one_a_run(
    records: int, records_s: float, last: int | None, count: int, reason: str
) -> None:
    """Within their limits, and by nothing that they do not shorten."""
    found = executors(records, records_s=records_s, last=last)
    assert (found.executors, found.cores) == (count, 4)
    assert found.reason.endswith(reason)


@given(st.integers(0, 10**9), st.floats(1e-7, 1e-3), st.floats(0.1, 1000), st.integers(1, 20), st.integers(0, 9))
def test_the_executors_of_many_runs_reach_what_the_load_needs(n: int, b: float, left_s: float, last: int, more: int) -> None:
    """Within the limits, whatever they were before: no oscillation, no more than needed at last."""
    counts, most = [last], 1 + more
    for _ in range(20):
        found = executors_for(n, b, records_s=left_s, last=counts[-1], least=1, most=most, cores=2)
        counts.append(found.executors or 0)
    assert counts[-1] == counts[-2]
    assert all(1 <= count <= most for count in counts[1:])
    enough = n * b / (counts[-1] * 2) <= left_s * (1 + 1e-6)
    assert enough or counts[-1] == most
    assert counts[-1] == 1 or n * b / ((counts[-1] - 1) * 2) > left_s * (1 - 1e-6)


def test_a_small_load_has_few_pieces_and_a_large_one_five_a_core() -> None:
    """A piece has at least 0.2 s of work; there is always one."""
    assert [pieces_for(n, 2e-5, cores=2).pieces for n in (0, 1000, 20_000, 50_000, 100_000, 10**9)] == [1, 1, 2, 5, 10, 10]
