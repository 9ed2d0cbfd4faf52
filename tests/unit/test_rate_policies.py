"""Laws of rate policies: settings, the gate, state, and what no measurement does."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import ConfigError
from tidegate.core.rates import BatchTiming, PidRateEstimator
from tidegate.core.rates.cost import Cost
from tidegate.core.rates.policies import TargetPolicy, make_rate_policy
from tidegate.core.rates.policy import RatePolicy

LEARNING = ("pid", "fixed_point", "target")
ALL = ("static", *LEARNING)
T = 10.0
MINUTE = 60_000


def policy_of(name: str, **settings: Any) -> RatePolicy:
    return make_rate_policy({"policy": name, **settings}, interval_s=T)


def bound_of(policy: RatePolicy, state: dict[str, Any]) -> int:
    bound = policy.bound(state)
    assert bound is not None
    return bound


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "expected settings by name"),
        ({}, "policy: expected one of static, pid, fixed_point, target, got None"),
        ({"policy": "vegas"}, "expected one of static, pid, fixed_point, target, got 'vegas'"),
        ({"policy": ["pid"]}, "policy: expected one of"),
        (
            {"policy": "pid", "utilization": 0.9},
            "has no setting utilization. Its settings are initial_rate, min_rate, proportional",
        ),
        (
            {"policy": "target", "rho": 1, 7: 2},
            "policy target has no setting rho, 7. Its settings are utilization, initial_records",
        ),
        ({"policy": "static", "interval_s": 5}, "has no setting interval_s. Its settings are max_records"),
        ({"policy": "pid", "initial_rate": 10, "min_rate": 20}, "initial_rate 10 is below min_rate 20"),
        *[
            ({"policy": "static", "max_records": value}, "max_records: expected a whole number")
            for value in (0, -1, 1.5, True, "9", 2**63)
        ],
        *[
            ({"policy": name, "initial_records": value}, "initial_records: expected a whole number")
            for name in ("fixed_point", "target")
            for value in (0, -1, 1.5, True, math.nan)
        ],
        *[
            ({"policy": name, "utilization": value}, "utilization: expected a number above 0, at most 1")
            for name in ("fixed_point", "target")
            for value in (0, -0.1, 1.01, True, "1", None, math.nan, math.inf)
        ],
        *[
            ({"policy": "pid", rate: value}, f"{rate}: expected a number above 0")
            for rate in ("initial_rate", "min_rate")
            for value in (0, -1, True, "1", math.nan, math.inf, 1e10, 10**400)
        ],
        *[
            ({"policy": "pid", gain: value}, f"{gain}: expected a number of at least 0")
            for gain in ("proportional", "integral", "derivative")
            for value in (-0.1, True, None, math.nan, math.inf)
        ],
    ],
)
def test_settings_are_refused_by_name_with_the_fix(settings: Any, message: str) -> None:
    """Nothing unknown, nothing out of bounds, no limits that contradict each other."""
    with pytest.raises(ConfigError) as refused:
        make_rate_policy(settings, interval_s=T)
    assert message in str(refused.value)
    assert refused.value.fix


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("interval_s", [0, -1, math.nan, math.inf, True, None, "60", 367 * 86400])
def test_an_interval_is_a_time_above_0(name: str, interval_s: Any) -> None:
    """Of at most 366 days."""
    with pytest.raises(ConfigError, match="interval_s: expected a number above 0"):
        make_rate_policy({"policy": name}, interval_s=interval_s)


def test_the_first_bound_is_what_the_settings_say_or_1000_records_a_second() -> None:
    """A first batch is never all that waits, except under `static`, whose limit is its only one."""
    first = {name: policy_of(name).bound(policy_of(name).start()) for name in ALL}
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


def test_static_learns_nothing() -> None:
    """Whatever its state holds."""
    policy = policy_of("static", max_records=7)
    assert policy.observe({"x": 1}, took(7, 100)) == policy.start()
    assert policy.bound({}) == 7


@pytest.mark.parametrize("rho", [1.0, 0.9, 0.5])
def test_fixed_point_takes_the_last_speed_for_the_time_of_a_run(rho: float) -> None:
    """Next = records * utilization * interval / run time; 0.9 where it is not set."""
    policy = policy_of("fixed_point", utilization=rho)
    assert policy.bound(policy.observe(policy.start(), took(10_000, 5))) == round(20_000 * rho)
    assert policy_of("fixed_point") == policy_of("fixed_point", utilization=0.9)


def test_pid_is_the_estimator_behind_the_gate() -> None:
    """The first bound stays until there is a rate; then rate * interval, from the whole run's time and the wait before it."""
    gains: dict[str, Any] = {"proportional": 0.8, "integral": 0.3, "derivative": 0.1, "min_rate": 50.0}
    policy, estimator = policy_of("pid", **gains), PidRateEstimator(T * 1000, **gains)
    state = policy.start()
    for k, (records, run_s, delay_s) in enumerate(
        [(10_000, 5, 0), (10_000, 8, 1), (9_000, 12, 3), (400, 30, 20), (5_000, 4, 0)], 1
    ):
        state = json.loads(json.dumps(policy.observe(state, took(records, run_s, k, delay_s=delay_s))))
        rate = estimator.compute(k * MINUTE, records, run_s * 1000, delay_s * 1000)
        assert policy.bound(state) == (10_000 if rate is None else max(500, round(rate * T)))
        assert [state["latest_rate"], state["latest_error"]] == [estimator.state.latest_rate, estimator.state.latest_error]


def test_pid_never_falls_below_its_least_rate() -> None:
    """Rounded up: 0.15 records/s for 10 s are 2 records."""
    policy = policy_of("pid", min_rate=0.15, initial_rate=100)
    state = policy.observe(policy.observe(policy.start(), took(1000, 1, 1)), took(1000, 9999, 2))
    assert policy.bound(state) == 2
    exact = make_rate_policy({"policy": "pid", "min_rate": 1.1, "initial_rate": 100}, interval_s=10)
    state = exact.observe(exact.observe(exact.start(), took(1000, 1, 1)), took(1000, 9999, 2))
    assert exact.bound(state) == 11


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("a", [0.0, 1.0, 5.0])
def test_a_policy_rests_at_its_own_fixed_point(name: str, a: float) -> None:
    """`target` and `fixed_point` at (0.9 T - a)/b, `pid` at (T - a)/b."""
    policy = policy_of(name)
    rest = ((1.0 if name == "pid" else 0.9) * T - a) / 0.001
    assert policy.bound(warm(policy, a=a, batches=60)) == pytest.approx(rest, rel=0.03)


@pytest.mark.parametrize("initial_records", [10, 100, 10_000])
@pytest.mark.parametrize("a", [6.0, 7.0, 8.0])
def test_a_large_overhead_is_told_from_the_cost_of_records(a: float, initial_records: int) -> None:
    """Also where the first batches take nearly the target time, so that the bound alone would hardly change."""
    policy = policy_of("target", initial_records=initial_records)
    assert bound_of(policy, warm(policy, a=a)) == pytest.approx((0.9 * T - a) / 0.001, rel=0.2)


@pytest.mark.parametrize("initial_records", [1_000, 10_000])
@pytest.mark.parametrize("a", [9.0, 10.0, 20.0])
def test_an_overhead_beyond_the_target_does_not_shrink_batches_to_nothing(a: float, initial_records: int) -> None:
    """A tenth of a run is left for records: smaller batches would make runs hardly shorter."""
    policy = policy_of("target", initial_records=initial_records)
    tenth = a / 9 / 0.001
    assert 0.25 * tenth <= bound_of(policy, warm(policy, a=a, batches=200)) <= 1.25 * tenth


@pytest.mark.parametrize("name", LEARNING)
def test_a_batch_below_its_bound_changes_nothing(name: str) -> None:
    """Below 95 %, or not limited at all: it shows how little there was."""
    policy = policy_of(name)
    state = warm(policy)
    bound = bound_of(policy, state)
    nearly = -(-95 * bound // 100)
    for timing in (took(1, 5, 30, bound=bound), took(nearly - 1, 10, 30, bound=bound), took(bound, 5, 30, bound=None)):
        assert policy.observe(state, timing) == state
    assert policy.observe(state, took(nearly, 5, 30, bound=bound)) != state


@pytest.mark.parametrize("name", LEARNING)
def test_a_batch_below_its_bound_counts_like_a_full_one_when_its_run_exceeds_the_interval(name: str) -> None:
    """So a slow sink lowers the bound in a quiet hour too."""
    policy = policy_of(name)
    state = warm(policy)
    bound = bound_of(policy, state)
    slow = policy.observe(state, took(bound // 2, 10.001, 30, bound=bound))
    assert slow == policy.observe(state, took(bound // 2, 10.001, 30))
    assert bound_of(policy, slow) < bound


@pytest.mark.parametrize("name", LEARNING)
def test_bounds_grow_from_one_record_while_runs_are_short(name: str) -> None:
    """Rounding does not keep a bound of 1 at 1."""
    small = {"initial_rate": 0.1, "min_rate": 0.01} if name == "pid" else {"initial_records": 1}
    policy = policy_of(name, **small)
    assert policy.bound(policy.start()) == 1
    assert bound_of(policy, warm(policy, a=7.5, batches=60)) > 500


def test_a_bound_of_few_records_shrinks_although_rounding_would_keep_it() -> None:
    """2 records that take 1.1 intervals become 1."""
    policy = policy_of("fixed_point", initial_records=2)
    assert policy.bound(policy.observe(policy.start(), took(2, 11))) == 1
    assert policy.bound(policy.observe(policy.start(), took(2, 9.1))) == 2


@pytest.mark.parametrize("name", LEARNING)
def test_what_is_no_measurement_changes_nothing(name: str) -> None:
    """No records, no time, an end no later than the last one, numbers beyond an offset."""
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
    """Batches of the right time count as before, each once."""
    policy = policy_of(name)
    state = warm(policy)
    bound = bound_of(policy, state)
    ahead = policy.observe(state, took(bound, 9, minutes))
    after = policy.observe(ahead, took(bound, 20, 21))
    assert bound_of(policy, after) < 0.7 * bound
    assert policy.observe(after, took(bound, 30, 21)) == after


@pytest.mark.parametrize("name", LEARNING)
def test_a_first_batch_beyond_all_times_silences_no_later_batch(name: str) -> None:
    """Its measurement counts, its time does not."""
    policy = policy_of(name)
    first = policy.observe(policy.start(), took(10_000, 5, 10**8))
    assert first != policy.start()
    assert first["ended_at_ms"] is None
    assert policy.observe(first, took(10_000, 20, 1))["ended_at_ms"] == MINUTE


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
        lambda gain, interval_s: make_rate_policy(
            {"policy": "pid", "derivative": gain, "proportional": gain, "integral": gain}, interval_s=interval_s
        ),
        st.sampled_from([1e-300, 1.0, 1e308]),
        st.sampled_from([1e-300, 60.0]),
    ),
)


@given(policies, st.lists(timings, max_size=8))
def test_any_batches_leave_strict_json_and_a_bound_from_1(policy: RatePolicy, batches: list[BatchTiming]) -> None:
    """The state before stays as it was, and a state that has been through JSON gives the same next one."""
    state = policy.start()
    for timing in batches:
        before = json.dumps(state, allow_nan=False)
        after = policy.observe(state, timing)
        assert json.dumps(state, allow_nan=False) == before
        assert policy.observe(json.loads(before), timing) == after
        bound = policy.bound(after)
        assert bound is None or (type(bound) is int and 1 <= bound < 2**63)
        state = after


@given(policies, st.lists(timings, max_size=6), timings)
def test_no_batch_below_its_bound_lowers_the_bound(policy: RatePolicy, batches: list[BatchTiming], last: BatchTiming) -> None:
    """Nor raises it, while its run is within the interval."""
    state = policy.start()
    for timing in batches:
        state = policy.observe(state, timing)
    interval_ms = 1000 * getattr(policy, "interval_s", T)
    if (last.bound is None or 100 * last.records < 95 * last.bound) and last.run_ms <= interval_ms:
        assert policy.observe(state, last) == state


poison = st.one_of(
    st.none(),
    st.booleans(),
    st.just(math.nan),
    st.sampled_from([math.inf, -math.inf, -1, 0, 1e308, -1e308, 1e-320, 10**400, 2**62, "", "x", [], {}]),
    st.floats(),
    st.integers(),
)


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
    """Its numbers stay those of an estimate, so arithmetic on them goes on."""
    if cost.plausible:
        after = cost.after(records, run_ms / 1000, interval_s=60.0)
        assert after.plausible
        assert 0 <= after.a <= run_ms / 1000


def test_a_cost_that_leaves_all_bounds_is_estimated_anew() -> None:
    """From the batch that showed it."""
    absurd = Cost(a=3e7, b=1.0, var_a=1e20, lean=-1e3, var_b=0.0, noise=0.03, strain=0.0, n=1)
    assert absurd.after(1, 1.0, interval_s=60.0) == Cost.first(1, 1.0)


def test_a_policy_reports_the_cost_that_it_knows() -> None:
    """None before the first full batch."""
    policy = policy_of("target", initial_records=100)
    assert isinstance(policy, TargetPolicy)
    assert policy.cost(policy.start()) is None
    cost = policy.cost(warm(policy))
    assert cost is not None
    assert cost.a == pytest.approx(1.0, rel=0.1)
    assert cost.b == pytest.approx(0.001, rel=0.05)
