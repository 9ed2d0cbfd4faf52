"""Laws of rate policies: settings, the gate, state; and bars of rate control in virtual time."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.rate_policies import B, best, growing, least, part, saturated, settled_after, simulate
from tests.bench.rate_policies import T as T_S
from tidegate.core.model.errors import ConfigError
from tidegate.core.rates import BatchTiming, PidRateEstimator
from tidegate.core.rates.advice import least_interval
from tidegate.core.rates.cost import Cost
from tidegate.core.rates.policies import TargetPolicy, make_rate_policy
from tidegate.core.rates.policy import RatePolicy
from tidegate.simulation import experiment
from tidegate.simulation.experiment import overlong
from tidegate.simulation.plant import Plant, Steps

LEARNING = ("pid", "fixed_point", "target")
ALL = ("static", *LEARNING)
T = 10.0
MINUTE = 60_000


def policy_of(name: str, **settings: Any) -> RatePolicy:
    return make_rate_policy({"policy": name, **settings}, interval_s=T)


def bound_of(policy: RatePolicy, state: dict[str, Any]) -> int:
    return policy.bound(state) or 0


def took(records: int, run_s: float, ended_min: int = 1, *, bound: int | None = -1, delay_s: float = 0.0) -> BatchTiming:
    """A full batch, unless `bound` says otherwise."""
    limit = records if bound == -1 else bound
    return BatchTiming(records, limit, round(run_s * 1000), 0, round(delay_s * 1000), ended_min * MINUTE)


def warm(policy: RatePolicy, *, a: float = 1.0, b: float = 0.001, batches: int = 20) -> dict[str, Any]:
    """The state after full batches that cost a + b * n."""
    state = policy.start()
    for k in range(1, batches + 1):
        bound = bound_of(policy, state)
        state = policy.observe(state, took(bound, a + b * bound, k))
    return state


GAINS = ("proportional", "integral", "derivative")
NUMBERS = {
    # settings of a policy, what is expected of them, and values that are not
    "static max_records": ("a whole number", (0, -1, 1.5, True, "9", 2**63)),
    "fixed_point initial_records": ("a whole number", (0, -1, 1.5, True, math.nan)),
    "target utilization": ("a number above 0, at most 1", (0, -0.1, 1.01, True, "1", None, math.nan, math.inf)),
    **dict.fromkeys(
        ["pid initial_rate", "pid min_rate"], ("a number above 0", (0, -1, True, "1", math.nan, math.inf, 1e10, 10**400))
    ),
    **{f"pid {gain}": ("a number of at least 0", (-0.1, True, None, math.nan, math.inf)) for gain in GAINS},
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "expected settings by name"),
        ({}, "policy: expected one of static, pid, fixed_point, target, got None"),
        ({"policy": "vegas"}, "expected one of static, pid, fixed_point, target, got 'vegas'"),
        ({"policy": ["pid"]}, "policy: expected one of"),
        ({"policy": "pid", "utilization": 0.9}, "has no setting utilization. Its settings are initial_rate, min_rate"),
        ({"policy": "target", "rho": 1, 7: 2}, "policy target has no setting rho, 7. Its settings are utilization"),
        ({"policy": "static", "interval_s": 5}, "has no setting interval_s. Its settings are max_records"),
        ({"policy": "pid", "initial_rate": 10, "min_rate": 20}, "initial_rate 10 is below min_rate 20"),
        *(
            ({"policy": policy, setting: value}, f"{setting}: expected {expected}")
            for (policy, setting), (expected, values) in ((name.split(), of) for name, of in NUMBERS.items())
            for value in values
        ),
    ],
)
def test_settings_are_refused_by_name_with_the_fix(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_rate_policy(settings, interval_s=T)
    assert message in str(refused.value)
    assert refused.value.fix


def test_the_first_bound_is_what_the_settings_say_or_1000_records_a_second() -> None:
    """A first batch is never all that waits, except under `static`, whose limit is its only one."""
    first = {name: policy_of(name).bound(policy_of(name).start()) for name in ALL}
    assert policy_of("static", max_records=7).observe({"x": 1}, took(7, 100)) == policy_of("static").start()
    assert first == {"static": None, "pid": 10_000, "fixed_point": 10_000, "target": 10_000}
    for policy, bound in (
        (policy_of("static", max_records=7), 7),
        (policy_of("pid", initial_rate=7), 70),
        (policy_of("pid", min_rate=5000), 50_000),
        (policy_of("pid", min_rate=5000, initial_rate=6000), 60_000),
        (policy_of("fixed_point", initial_records=7), 7),
        (policy_of("target", initial_records=2**62), 2**62),
        (make_rate_policy({"policy": "target"}, interval_s=1e-9), 1),
    ):
        assert policy.bound(policy.start()) == bound


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("interval_s", [0, -1, math.nan, math.inf, True, None, "60", 367 * 86400])
def test_an_interval_is_a_time_above_0(name: str, interval_s: Any) -> None:
    with pytest.raises(ConfigError, match="interval_s: expected a number above 0"):
        make_rate_policy({"policy": name}, interval_s=interval_s)


@pytest.mark.parametrize("rho", [1.0, 0.9, 0.5])
def test_fixed_point_takes_the_last_speed_for_the_time_of_a_run(rho: float) -> None:
    """Next = records * utilization * interval / run time; 0.9 where it is not set. Rounding hides no change of 5 %."""
    policy = policy_of("fixed_point", utilization=rho)
    assert policy.bound(policy.observe(policy.start(), took(10_000, 5))) == round(20_000 * rho)
    assert policy_of("fixed_point") == policy_of("fixed_point", utilization=0.9)
    few = policy_of("fixed_point", initial_records=2)
    assert [few.bound(few.observe(few.start(), took(2, run_s))) for run_s in (11, 9.1)] == [1, 2]


def test_pid_is_the_estimator_behind_the_gate() -> None:
    """The first bound stays until there is a rate; then rate * interval, from the whole run's time and the wait before it."""
    gains: dict[str, Any] = {"proportional": 0.8, "integral": 0.3, "derivative": 0.1, "min_rate": 50.0}
    policy, estimator = policy_of("pid", **gains), PidRateEstimator(T * 1000, **gains)
    state = policy.start()
    batches = [(10_000, 5, 0), (10_000, 8, 1), (9_000, 12, 3), (400, 30, 20), (5_000, 4, 0)]
    for k, (records, run_s, delay_s) in enumerate(batches, 1):
        state = json.loads(json.dumps(policy.observe(state, took(records, run_s, k, delay_s=delay_s))))
        rate = estimator.compute(k * MINUTE, records, run_s * 1000, delay_s * 1000)
        assert policy.bound(state) == (10_000 if rate is None else max(500, round(rate * T)))
        assert [state["latest_rate"], state["latest_error"]] == [estimator.state.latest_rate, estimator.state.latest_error]


@pytest.mark.parametrize(("min_rate", "bound"), [(0.15, 2), (1.1, 11)])
def test_pid_never_falls_below_its_least_rate(min_rate: float, bound: int) -> None:
    """Rounded up: 0.15 records/s for 10 s are 2 records."""
    policy = policy_of("pid", min_rate=min_rate, initial_rate=100)
    state = policy.observe(policy.observe(policy.start(), took(1000, 1, 1)), took(1000, 9999, 2))
    assert policy.bound(state) == bound


@pytest.mark.parametrize(
    ("name", "a", "settings", "batches", "rel"),
    [
        *[(name, a, {}, 60, 0.03) for name in LEARNING for a in (0.0, 1.0, 5.0)],
        # where the first batches take nearly the target time, the bound alone would hardly change
        *[("target", a, {"initial_records": first}, 20, 0.2) for first in (10, 100, 10_000) for a in (6.0, 7.0, 8.0)],
    ],
)
def test_a_policy_rests_at_its_own_fixed_point(name: str, a: float, settings: dict[str, Any], batches: int, rel: float) -> None:
    """`target` and `fixed_point` at (0.9 T - a)/b, `pid` at (T - a)/b; a large overhead is told from the cost of records."""
    policy = policy_of(name, **settings)
    rest = ((1.0 if name == "pid" else 0.9) * T - a) / 0.001
    assert policy.bound(warm(policy, a=a, batches=batches)) == pytest.approx(rest, rel=rel)


@pytest.mark.parametrize("initial_records", [1_000, 10_000])
@pytest.mark.parametrize("a", [9.0, 10.0, 20.0])
def test_an_overhead_beyond_the_target_does_not_shrink_batches_to_nothing(a: float, initial_records: int) -> None:
    """A tenth of a run is left for records: smaller batches would make runs hardly shorter."""
    policy = policy_of("target", initial_records=initial_records)
    tenth = a / 9 / 0.001
    assert 0.25 * tenth <= bound_of(policy, warm(policy, a=a, batches=200)) <= 1.25 * tenth


@pytest.mark.parametrize("name", LEARNING)
def test_a_batch_below_its_bound_changes_nothing_unless_its_run_exceeds_the_interval(name: str) -> None:
    """Below 95 %, or not limited at all: it shows how little there was. A slow sink lowers the bound in a quiet hour too."""
    policy = policy_of(name)
    state = warm(policy)
    bound = bound_of(policy, state)
    nearly = -(-95 * bound // 100)
    for timing in (took(1, 5, 30, bound=bound), took(nearly - 1, 10, 30, bound=bound), took(bound, 5, 30, bound=None)):
        assert policy.observe(state, timing) == state
    assert policy.observe(state, took(nearly, 5, 30, bound=bound)) != state
    slow = policy.observe(state, took(bound // 2, 10.001, 30, bound=bound))
    assert slow == policy.observe(state, took(bound // 2, 10.001, 30))
    assert bound_of(policy, slow) < bound


@pytest.mark.parametrize("name", LEARNING)
def test_bounds_grow_from_one_record_while_runs_are_short(name: str) -> None:
    small = {"initial_rate": 0.1, "min_rate": 0.01} if name == "pid" else {"initial_records": 1}
    policy = policy_of(name, **small)
    assert policy.bound(policy.start()) == 1
    assert bound_of(policy, warm(policy, a=7.5, batches=60)) > 500


@pytest.mark.parametrize("name", LEARNING)
def test_what_is_no_measurement_changes_nothing(name: str) -> None:
    policy = policy_of(name)
    state = warm(policy)
    for timing in (
        took(0, 20, 30, bound=10),
        took(100, 0, 30),
        took(2**63, 20, 30),
        BatchTiming(100, 100, 2**63, 0, 0, 30 * MINUTE),
        BatchTiming(100, 100, 20_000, 0, 2**63, 30 * MINUTE),
        took(100, 20, 20),
        took(100, 20, 0),
    ):
        assert policy.observe(state, timing) == state


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("minutes", [10_000, 10**8, 10**400], ids=["a week", "two centuries", "beyond floats"])
def test_a_clock_that_ran_far_ahead_silences_no_later_batch(name: str, minutes: int) -> None:
    policy = policy_of(name)
    state = warm(policy)
    bound = bound_of(policy, state)
    ahead = policy.observe(state, took(bound, 9, minutes))
    after = policy.observe(ahead, took(bound, 20, 21))
    assert bound_of(policy, after) < 0.7 * bound
    assert policy.observe(after, took(bound, 30, 21)) == after


@pytest.mark.parametrize("name", LEARNING)
def test_a_first_batch_beyond_all_times_silences_no_later_batch(name: str) -> None:
    policy = policy_of(name)
    first = policy.observe(policy.start(), took(10_000, 5, 10**8))
    assert policy.observe(first, took(10_000, 20, 1)) != first != policy.start()


@pytest.mark.parametrize("name", LEARNING)
def test_after_a_long_pause_batches_count_in_their_order(name: str) -> None:
    """A pause of weeks looks like a clock that runs ahead: batches count all the same, and none counts twice."""
    policy = policy_of(name)
    state = policy.observe(warm(policy), took(5000, 6, 100_000))
    assert policy.observe(state, took(5000, 20, 100_000)) == state
    later = policy.observe(state, took(5000, 20, 100_001))
    assert later != state
    assert policy.observe(later, took(5000, 30, 100_000)) == later


numbers = st.one_of(st.integers(1, 100), st.integers(1, 2**63), st.integers(1, 10**7))
timings = st.builds(
    BatchTiming,
    records=st.one_of(st.just(0), numbers),
    bound=st.one_of(st.none(), numbers),
    run_ms=st.one_of(st.just(0), numbers),
    load_ms=st.just(0),
    scheduling_delay_ms=st.one_of(st.just(0), numbers),
    ended_at_ms=st.one_of(numbers, st.integers(1, 10**6)),
)
policies = st.one_of(
    st.builds(
        lambda name, interval_s: make_rate_policy({"policy": name}, interval_s=interval_s),
        st.sampled_from(ALL),
        st.sampled_from([1e-6, 1.0, 60.0, 86400.0]),
    ),
    st.builds(
        lambda gain, interval_s: make_rate_policy({"policy": "pid", **dict.fromkeys(GAINS, gain)}, interval_s=interval_s),
        st.sampled_from([1e-300, 1.0, 1e308]),
        st.sampled_from([1e-300, 60.0]),
    ),
)


@given(policies, st.lists(timings, max_size=8))
def test_any_batches_leave_strict_json_and_a_bound_from_1(policy: RatePolicy, batches: list[BatchTiming]) -> None:
    state = policy.start()
    for timing in batches:
        before = json.dumps(state, allow_nan=False)
        after = policy.observe(state, timing)
        assert json.dumps(state, allow_nan=False) == before
        assert policy.observe(json.loads(before), timing) == after
        bound = policy.bound(after)
        assert bound is None or (type(bound) is int and 1 <= bound < 2**63)
        state = after


ODD: tuple[Any, ...] = (math.nan, math.inf, -math.inf, -1, 0, 1e308, -1e308, 1e-320, 10**400, 2**62, "", "x", [], {})
poison = st.one_of(st.none(), st.booleans(), st.sampled_from(ODD), st.floats(), st.integers())


@given(policies, st.lists(timings, max_size=4), st.data())
def test_a_poisoned_state_makes_no_endless_empty_or_unbounded_batch(
    policy: RatePolicy, batches: list[BatchTiming], data: st.DataObject
) -> None:
    """Missing keys, wrong types, absurd numbers: the bound is one of the policy's, and later batches are learned from."""
    state = policy.start()
    for timing in batches:
        state = policy.observe(state, timing)
    keys = data.draw(st.lists(st.sampled_from(sorted(state)), min_size=1, max_size=3, unique=True))
    poisoned = {**state, **{key: data.draw(poison) for key in keys}}
    if data.draw(st.booleans()):
        del poisoned[keys[0]]
    most = max(10**9 * getattr(policy, "interval_s", T), bound_of(policy, policy.start()) if policy.bound({}) else 1) + 1
    saved: list[Any] = [poisoned, None, [], "x", 7]
    for known in saved:
        for timing in (took(10, 1, 1), took(1000, 20, 2), took(10**6, 5, 3)):
            bound = policy.bound(known)
            assert bound is None or (type(bound) is int and 1 <= bound <= most)
            known = policy.observe(known, timing)  # noqa: PLW2901 - from each of them on
            json.dumps(known, allow_nan=False)


@given(
    st.builds(
        Cost,
        a=st.floats(0, 1e9),
        b=st.floats(1e-24, 1e9),
        var_a=st.floats(0, 1e20),
        lean=st.floats(-1e3, 1e3),
        var_b=st.floats(0, 1e20),
        noise=st.floats(0.03, 0.2),
        strain=st.floats(-3.5, 3.5),
        n=st.integers(1, 2**63),
    ),
    numbers,
    numbers,
)
def test_a_cost_stays_an_estimate_whatever_it_was(cost: Cost, records: int, run_ms: int) -> None:
    if cost.plausible:
        after = cost.after(records, run_ms / 1000, interval_s=60.0)
        assert after.plausible
        assert 0 <= after.a <= run_ms / 1000


def test_a_cost_that_leaves_all_bounds_is_estimated_anew() -> None:
    """From the batch that showed it. A policy reports the cost that it knows: none before the first full batch."""
    absurd = Cost(a=3e7, b=1.0, var_a=1e20, lean=-1e3, var_b=0.0, noise=0.03, strain=0.0, n=1)
    assert absurd.after(1, 1.0, interval_s=60.0) == Cost.first(1, 1.0)
    policy = policy_of("target", initial_records=100)
    assert isinstance(policy, TargetPolicy)
    cost = policy.cost(warm(policy))
    assert cost is not None
    assert policy.cost(policy.start()) is None
    assert [cost.a, cost.b] == pytest.approx([1.0, 0.001], rel=0.1)


SMALL, LARGE = 0.1, 0.5
"""Overheads of a run, as a share of the interval."""


def stepped(overhead: float, down: int = 30, back: int = 60, **changes: Any) -> Plant:
    return experiment.step(saturated(overhead, **changes), since_s=down * T_S, until_s=back * T_S)


@pytest.mark.parametrize(("overhead", "most"), [(0.02, 2), (SMALL, 2), (LARGE, 3)])
def test_target_settles_within_few_batches_after_a_step_of_the_cost(overhead: float, most: int) -> None:
    """Down and back, without undershoot, and with one overlong batch: the one that was planned before."""
    batches = simulate("target", stepped(overhead), 90)
    down, back = part(batches, 30, 60), part(batches, 60, 90)
    slow, fast = best(overhead, 3 * B), best(overhead)
    assert max(settled_after(down, slow), settled_after(back, fast)) <= most
    assert min(least(down, slow), least(back, fast)) >= 0.75
    assert (overlong(part(batches, 0, 30), T_S), overlong(down, T_S), overlong(back, T_S)) == (0, 1, 0)


@pytest.mark.parametrize("overhead", [SMALL, LARGE])
def test_target_keeps_up_with_a_ramp(overhead: float) -> None:
    """The cost of a record grows to three times in 20 intervals, and falls back: no batch is overlong, none far too small."""
    plant = growing(saturated(overhead), since_s=30 * T_S)
    batches = part(simulate("target", plant, 90), 20, 90)
    cost = Steps.of(plant.record_s)
    assert overlong(batches, T_S) == 0
    assert min(batch.records / best(overhead, cost.at(batch.started_s)) for batch in batches) > 0.75


@pytest.mark.parametrize("overhead", [SMALL, LARGE])
@pytest.mark.parametrize("name", LEARNING)
def test_a_burst_after_quiet_hours_meets_the_full_bound(name: str, overhead: float) -> None:
    """Twenty quiet batches make no policy forget what the pipeline can do; the burst drains without an overlong batch."""
    quiet, full = 1000 / T_S, 2 * best(overhead) / T_S
    arrivals = Steps([(0, full), (30 * T_S, 0.0), (70 * T_S, quiet), (90 * T_S, 10 * full), (91 * T_S, quiet)])
    batches = simulate(name, replace(saturated(overhead), arrivals=arrivals), 150)
    assert [batch.records for batch in part(batches, 71, 90)] == [1000] * 19
    burst = part(batches, 91, 111)
    assert burst[0].records >= 0.75 * best(overhead)
    assert overlong(burst, T_S) == 0
    assert batches[-1].lag == 1000


@pytest.mark.parametrize(("overhead", "most"), [(SMALL, 1), (LARGE, 3)])
def test_a_first_batch_four_times_too_large_is_the_only_overlong_one(overhead: float, most: int) -> None:
    size = best(overhead)
    batches = simulate("target", saturated(overhead, backlog=int(8 * size)), 30, initial_records=int(4 * size))
    assert (batches[0].records, overlong(batches, T_S)) == (int(4 * size), 1)
    assert settled_after(batches, size) <= most


@pytest.mark.parametrize("name", LEARNING)
def test_an_outage_of_an_hour_drains_without_a_second_overlong_batch(name: str) -> None:
    size, away = best(SMALL), [(30.5 * T_S, 90.5 * T_S)]
    plant = replace(saturated(SMALL, outages=away, backlog=int(40 * size)), arrivals=0.5 * size / T_S)
    batches = simulate(name, plant, 250)
    after = part(batches, 90, 250)
    assert overlong(batches, T_S) == 1
    assert min(batch.bound or 0 for batch in after) >= 1
    assert settled_after(after[:20], size) <= 12
    assert batches[-1].lag < size


@pytest.mark.slow
@pytest.mark.parametrize("overhead", [SMALL, 0.3])
def test_target_bears_noise(overhead: float) -> None:
    """10 % of a run's time, over 200 seeds: overlong batches, undershoot and settling, with a step down and back in each."""
    size = best(overhead)
    runs = [simulate("target", stepped(overhead, 20, 40, noise=0.1), 60, seed=seed) for seed in range(200)]
    assert fmean(overlong(batches, T_S) for batches in runs) <= 1.4
    for minutes, rests in (((20, 40), size / 3), ((40, 60), size)):
        lowest = [least(part(batches, *minutes), rests) for batches in runs]
        assert median(lowest) >= 0.75
        assert minutes == (20, 40) or sum(low < 0.75 for low in lowest) <= 0.15 * 200
        assert median(settled_after(part(batches, *minutes), rests) for batches in runs) <= 2


@pytest.mark.parametrize(("overhead", "noise"), [(SMALL, 0.0), (LARGE, 0.0), (SMALL, 0.1), (LARGE, 0.1)])
def test_target_knows_the_least_stable_interval_after_8_batches(overhead: float, noise: float) -> None:
    """T_min = a / (utilization - b * arrival rate), within 20 %: exactly without noise, in the median with it."""
    policy = TargetPolicy(interval_s=T_S)
    rate = 0.5 * best(overhead) / T_S
    errors = []
    for seed in range(25 if noise else 1):
        state = policy.start()
        for k, batch in enumerate(saturated(overhead, noise=noise).run(policy, 9 * T_S, seed=seed).batches, 1):
            state = policy.observe(state, BatchTiming(batch.records, batch.bound, round(batch.run_s * 1000), 0, 0, k))
        cost = policy.cost(state)
        assert k == 8
        assert cost is not None
        costs = ((cost.a, cost.b), (overhead * T_S, B))
        found, true = (least_interval(a, b, arrival_rate=rate, utilization=0.9) or math.nan for a, b in costs)
        errors.append(abs(found / true - 1))
    assert median(errors) <= 0.2
