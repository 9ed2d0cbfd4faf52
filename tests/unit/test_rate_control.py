"""Bars of rate control, in virtual time: policies after a step, a ramp, quiet hours with a burst, an outage, and with noise."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import pytest

from tests.bench.rate_policies import part, settled_after
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.advice import least_interval
from tidegate.core.rates.policies import TargetPolicy, make_rate_policy
from tidegate.simulation import comparison
from tidegate.simulation.plant import Plant, PlantBatch
from tidegate.simulation.steps import Steps

T = 60.0
B = 1e-5
SMALL, LARGE = 0.1, 0.5
"""Overheads of a run, as a share of the interval."""


def optimum(name: str, overhead: float, record_s: float = B) -> float:
    """The policy's own fixed point, in records."""
    return ((1.0 if name == "pid" else 0.9) - overhead) * T / record_s


def simulate(name: str, plant: Plant, intervals: int, *, seed: int = 0, **settings: Any) -> list[PlantBatch]:
    policy = make_rate_policy({"policy": name, **settings}, interval_s=T)
    return plant.run(policy, intervals * T, seed=seed).batches


def saturated(overhead: float, record_s: Steps | float = B, **changes: Any) -> Plant:
    """More arrives than can be loaded."""
    return Plant(T, overhead * T, record_s=record_s, arrivals=2 / B, **changes)


def step(down: int = 30, back: int = 60) -> Steps:
    """A sink three times slower from one interval to another."""
    return Steps([(0, B), (down * T, 3 * B), (back * T, B)])


def overlong(batches: Sequence[PlantBatch]) -> int:
    return comparison.overlong(batches, T)


def sizes(batches: Sequence[PlantBatch], best: float) -> list[float]:
    return [batch.records / best for batch in batches]


@pytest.mark.parametrize(("overhead", "most"), [(0.02, 2), (SMALL, 2), (LARGE, 3)])
def test_target_settles_within_few_batches_after_a_step_of_the_cost(overhead: float, most: int) -> None:
    """Down and back, without undershoot, and with one overlong batch: the one that was planned before."""
    batches = simulate("target", saturated(overhead, step()), 90)
    down, back = part(batches, 30, 60), part(batches, 60, 90)
    slow, fast = optimum("target", overhead, 3 * B), optimum("target", overhead)
    assert settled_after(down, slow) <= most
    assert settled_after(back, fast) <= most
    assert min(sizes(down[2:], slow) + sizes(back[2:], fast)) >= 0.75
    assert (overlong(part(batches, 0, 30)), overlong(down), overlong(back)) == (0, 1, 0)


def test_target_beats_the_others_where_half_of_a_run_is_overhead() -> None:
    """So that its model is worth its code."""
    settled = {}
    for name in ("pid", "fixed_point", "target"):
        batches = simulate(name, saturated(LARGE, step()), 90)
        settled[name] = [
            settled_after(part(batches, 30, 60), optimum(name, LARGE, 3 * B)),
            settled_after(part(batches, 60, 90), optimum(name, LARGE)),
        ]
    assert sum(settled["target"]) < min(sum(settled["pid"]), sum(settled["fixed_point"]))


@pytest.mark.parametrize("overhead", [SMALL, LARGE])
def test_target_keeps_up_with_a_ramp(overhead: float) -> None:
    """The cost of a record grows to three times in 20 intervals, and falls back: no batch is overlong, none far too small."""
    up = [((30 + k) * T, B * (1 + k / 10)) for k in range(1, 21)]
    down = [((60 + k) * T, B * (3 - k / 10)) for k in range(1, 21)]
    cost = Steps([(0, B), *up, *down])
    batches = part(simulate("target", saturated(overhead, cost), 90), 20, 90)
    assert overlong(batches) == 0
    assert min(batch.records / optimum("target", overhead, cost.at(batch.started_s)) for batch in batches) > 0.75


@pytest.mark.parametrize("overhead", [SMALL, LARGE])
@pytest.mark.parametrize("name", ["pid", "fixed_point", "target"])
def test_a_burst_after_quiet_hours_meets_the_full_bound(name: str, overhead: float) -> None:
    """Twenty quiet batches make no policy forget what the pipeline can do; the burst drains without an overlong batch."""
    best = optimum(name, overhead)
    quiet, full = 1000 / T, 2 * best / T
    arrivals = Steps([(0, full), (30 * T, 0.0), (70 * T, quiet), (90 * T, 10 * full), (91 * T, quiet)])
    batches = simulate(name, Plant(T, overhead * T, record_s=B, arrivals=arrivals), 150)
    assert [batch.records for batch in part(batches, 71, 90)] == [1000] * 19
    burst = part(batches, 91, 111)
    assert burst[0].records >= 0.75 * best
    assert overlong(burst) == 0
    assert batches[-1].lag == 1000


@pytest.mark.parametrize(("overhead", "most"), [(SMALL, 1), (LARGE, 3)])
def test_a_first_batch_four_times_too_large_is_the_only_overlong_one(overhead: float, most: int) -> None:
    """Without history the overhead is unknown, so it takes longer where that is large."""
    best = optimum("target", overhead)
    batches = simulate("target", saturated(overhead, backlog=int(8 * best)), 30, initial_records=int(4 * best))
    assert batches[0].records == int(4 * best)
    assert settled_after(batches, best) <= most
    assert overlong(batches) == 1


@pytest.mark.parametrize("name", ["pid", "fixed_point", "target"])
def test_an_outage_of_an_hour_drains_without_a_second_overlong_batch(name: str) -> None:
    """The run that met it took an hour; from then on the backlog drains within bounds that grow back."""
    best = optimum(name, SMALL)
    plant = Plant(T, SMALL * T, record_s=B, arrivals=0.5 * best / T, backlog=int(40 * best), outages=[(30.5 * T, 90.5 * T)])
    batches = simulate(name, plant, 250)
    after = part(batches, 90, 250)
    assert overlong(batches) == 1
    assert min(batch.bound or 0 for batch in after) >= 1
    assert settled_after(after[:20], best) <= 12
    assert batches[-1].lag < best


@pytest.mark.slow
@pytest.mark.parametrize("overhead", [SMALL, 0.3])
def test_target_bears_noise(overhead: float) -> None:
    """10 % of a run's time, over 200 seeds: overlong batches, undershoot and settling, with a step down and back in each."""
    long, low, low_back, down_after, back_after = [], [], [], [], []
    best = optimum("target", overhead)
    for seed in range(200):
        batches = simulate("target", saturated(overhead, step(20, 40), noise=0.1), 60, seed=seed)
        down, back = part(batches, 20, 40), part(batches, 40, 60)
        long.append(overlong(batches))
        low.append(min(sizes(down[2:], best / 3)))
        low_back.append(min(sizes(back[2:], best)))
        down_after.append(settled_after(down, best / 3))
        back_after.append(settled_after(back, best))
    assert fmean(long) <= 1.4
    assert min(median(low), median(low_back)) >= 0.75
    assert sum(least < 0.75 for least in low_back) <= 0.15 * 200
    assert (median(down_after), median(back_after)) <= (2, 2)


@pytest.mark.parametrize(("overhead", "noise"), [(SMALL, 0.0), (LARGE, 0.0), (SMALL, 0.1), (LARGE, 0.1)])
def test_target_knows_the_least_stable_interval_after_8_batches(overhead: float, noise: float) -> None:
    """T_min = a / (utilization - b * arrival rate), within 20 %: exactly without noise, in the median with it."""
    policy = TargetPolicy(interval_s=T)
    rate = 0.5 * optimum("target", overhead) / T
    errors = []
    for seed in range(25 if noise else 1):
        state = policy.start()
        for k, batch in enumerate(saturated(overhead, noise=noise).run(policy, 9 * T, seed=seed).batches, 1):
            timing = BatchTiming(batch.records, batch.bound, round(batch.run_s * 1000), 0, 0, k)
            state = policy.observe(state, timing)
        cost = policy.cost(state)
        assert k == 8
        assert cost is not None
        found = least_interval(cost.a, cost.b, arrival_rate=rate, utilization=0.9)
        true = least_interval(overhead * T, B, arrival_rate=rate, utilization=0.9)
        assert found is not None
        assert true is not None
        errors.append(abs(found / true - 1))
    assert median(errors) <= 0.2
