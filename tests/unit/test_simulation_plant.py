"""Laws of the modelled pipeline on which rate policies are tried."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tidegate.core.config.pipeline import Limits
from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.planning.plan import RangePolicy
from tidegate.core.rates.policies import make_rate_policy
from tidegate.simulation import plant as plants
from tidegate.simulation.plant import Plant, Skipped
from tidegate.simulation.steps import Steps

UNBOUNDED = make_rate_policy({"policy": "static"}, interval_s=10)
TEN = make_rate_policy({"policy": "static", "max_records": 10}, interval_s=10)


def test_a_number_in_steps_holds_until_the_next_one() -> None:
    """Its sum is exact over any time."""
    steps = Steps([(0, 2.0), (10, 5.0)])
    assert [steps.at(second) for second in (0, 9.9, 10, 99)] == [2.0, 2.0, 5.0, 5.0]
    assert (steps.total(0, 10), steps.total(8, 12), steps.total(20, 30)) == (20.0, 14.0, 50.0)
    assert Steps.of(steps) is steps
    assert Steps.of(3.0).at(1e9) == 3.0


def test_every_record_is_loaded_once_and_costs_what_the_model_says() -> None:
    """Runs are due each interval, and a run without lag is skipped."""
    batches = Plant(10, 1.0, record_s=0.1, arrivals=Steps([(0, 3.0), (20, 0.0)])).run(UNBOUNDED, 100).batches
    assert [(b.due_s, b.started_s, b.records, b.bound, b.lag) for b in batches] == [
        (10, 10, 30, None, 30),
        (20, 20, 30, None, 30),
    ]
    assert [b.run_s for b in batches] == pytest.approx([4.0, 4.0])


def test_a_bound_leaves_the_rest_for_later_runs() -> None:
    """What was not loaded waits."""
    batches = Plant(10, 1.0, record_s=0.1, arrivals=0.0, backlog=25).run(TEN, 100).batches
    assert [(b.records, b.lag) for b in batches] == [(10, 25), (10, 15), (5, 5)]


def test_a_batch_gets_a_share_of_the_policys_bound() -> None:
    """One record at least; a whole bound is not rounded."""
    plant = Plant(10, 1.0, record_s=0.1, arrivals=0.0, backlog=2**53 + 1)
    assert [plant.run(TEN, 11, share=share).batches[0].bound for share in (1, 0.75, 0.01)] == [10, 8, 1]
    most = make_rate_policy({"policy": "static", "max_records": 2**63 - 1}, interval_s=10)
    assert plant.run(most, 11).batches[0].records == 2**53 + 1


def test_a_late_run_starts_when_the_one_before_has_ended() -> None:
    """Of the runs that became due meanwhile only the latest is started."""
    batches = Plant(10, 25.0, record_s=0.0, arrivals=1.0).run(TEN, 60).batches
    assert [(b.due_s, b.started_s, b.ended_s) for b in batches] == [(10, 10, 35), (30, 35, 60)]


def test_an_outage_holds_the_run_that_meets_it_and_skips_those_within() -> None:
    """What was left of the run is done after it."""
    batches = Plant(10, 4.0, record_s=0.0, arrivals=1.0, outages=[(22, 52), (75, 85)]).run(TEN, 90).batches
    assert [(b.started_s, b.ended_s) for b in batches] == [(10, 14), (20, 54), (54, 58), (60, 64), (70, 74)]


def test_noise_is_the_same_for_the_same_seed() -> None:
    """A figure of a simulation can be made again."""
    plant = Plant(10, 1.0, record_s=0.1, arrivals=5.0, noise=0.1)
    assert plant.run(TEN, 100, seed=1) == plant.run(TEN, 100, seed=1) != plant.run(TEN, 100, seed=2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "begins at second 0"),
        ([(1, 2.0)], "begins at second 0"),
        ([(0, 2.0), (0, 3.0)], "second 0 is not after second 0"),
        ([(0, 2.0), (9, 3.0), (5, 3.0)], "second 5 is not after second 9"),
        ([(0, 2.0), (math.nan, 3.0)], "second nan is not after second 0"),
        ([(0, -2.0)], "at second 0: expected a number from 0, got -2.0"),
        ([(0, 1.0), (5, math.inf)], "at second 5: expected a number from 0, got inf"),
    ],
)
def test_a_number_in_steps_has_times_in_order_and_values_from_0(values: list[tuple[float, float]], message: str) -> None:
    """Refused by the time that is wrong."""
    with pytest.raises(RequestError, match=message):
        Steps(values)


def test_a_number_in_steps_is_multiplied_during_a_time() -> None:
    """Other steps stay where they were."""
    steps = Steps([(0, 2.0), (10, 5.0)]).during(5, 15, 3)
    assert list(steps.values) == [(0, 2.0), (5, 6.0), (10, 15.0), (15, 5.0)]
    assert list(Steps.of(1.0).during(0, 10, 2).values) == [(0, 2.0), (10, 1.0)]


def test_a_run_that_loads_nothing_is_skipped_with_its_reason() -> None:
    """Nothing to read, the run before, or an outage; with the records that wait."""
    arrivals = Steps([(0, 0.0), (10, 1.0)])
    trace = Plant(10, 12.0, record_s=0.0, arrivals=arrivals, outages=[(45, 55)]).run(TEN, 60)
    assert [batch.due_s for batch in trace.batches] == [20, 30, 40]
    assert trace.skipped == [
        Skipped(10, "nothing to read", 0),
        Skipped(50, "the run before", 10),
    ]
    away = Plant(10, 1.0, record_s=0.0, arrivals=1.0, outages=[(15, 35)]).run(TEN, 50)
    assert away.skipped == [Skipped(20, "outage", 10), Skipped(30, "outage", 20)]


def test_a_run_that_never_ends_skips_all_after_it() -> None:
    """And none beyond the time that is simulated."""
    trace = Plant(10, 1e9, record_s=0.0, arrivals=1.0).run(TEN, 60)
    assert len(trace.batches) == 1
    assert [skip.due_s for skip in trace.skipped] == [20, 30, 40, 50]


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_the_planner_shares_the_bound_among_the_partitions(partitions: int) -> None:
    """By their lag, rounded down: a batch is short of its bound by less than a record each."""
    policy = make_rate_policy({"policy": "static", "max_records": 100}, interval_s=10)
    trace = Plant(10, 1.0, record_s=0.0, arrivals=0.0, backlog=1000, partitions=partitions).run(policy, 200)
    assert sum(batch.records for batch in trace.batches) == 1000
    assert all(100 - partitions < batch.records <= 100 for batch in trace.batches[:9])


def test_the_pipelines_own_limits_hold_beside_the_bound() -> None:
    """As in a real plan: the least of both, a rate for each partition, and batches that wait for enough records."""
    tight = Plant(10, 1.0, record_s=0.0, arrivals=0.0, backlog=30, limits=RangePolicy(limits=Limits(max_records=4))).run(
        TEN, 60
    )
    assert [batch.records for batch in tight.batches] == [4, 4, 4, 4, 4]
    rate = Plant(
        10,
        1.0,
        record_s=0.0,
        arrivals=0.0,
        backlog=30,
        partitions=2,
        limits=RangePolicy(limits=Limits(max_rate_per_partition=1)),
    )
    assert [batch.records for batch in rate.run(UNBOUNDED, 60).batches] == [20, 10]
    waiting = Plant(
        10, 1.0, record_s=0.0, arrivals=1.0, limits=RangePolicy(limits=Limits(min_records=30, max_delay_s=1000))
    ).run(UNBOUNDED, 100)
    assert [(batch.due_s, batch.records) for batch in waiting.batches] == [(10, 10), (40, 30), (70, 30)]


def test_catching_up_starts_the_next_run_at_once_after_one_that_left_records_behind() -> None:
    """Then runs are due in their intervals again; no run of the schedule is counted as skipped."""
    trace = Plant(10, 2.0, record_s=0.0, arrivals=0.0, backlog=95, catch_up=True).run(TEN, 100)
    assert [batch.started_s for batch in trace.batches] == [10, 12, 14, 16, 18, 20, 22, 24, 26, 28]
    assert {skip.reason for skip in trace.skipped} == {"nothing to read"}
    unbounded = Plant(10, 2.0, record_s=0.0, arrivals=1.0, catch_up=True).run(UNBOUNDED, 50)
    assert [batch.started_s for batch in unbounded.batches] == [10, 20, 30, 40]


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval_s": 0},
        {"backlog": -1},
        {"partitions": 0},
        {"partitions": 10_001},
        {"noise": -0.1},
        {"noise": math.nan},
        {"overhead_s": -1.0},
        {"record_s": math.nan},
        {"arrivals": math.inf},
    ],
)
def test_a_plant_refuses_nonsense(wrong: dict[str, Any]) -> None:
    """By name, or by the time at which a number is wrong."""
    with pytest.raises((ConfigError, RequestError)):
        Plant(**{"interval_s": 10, "overhead_s": 1.0, "record_s": 0.1, "arrivals": 1.0, **wrong})


def test_a_simulation_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many runs are refused, before or while they run."""
    with pytest.raises(ConfigError, match="seconds: expected a number above 0"):
        Plant(10, 1.0, record_s=0.1, arrivals=1.0).run(TEN, 0)
    with pytest.raises(RequestError, match="more than 200,000 runs"):
        Plant(10, 1.0, record_s=0.1, arrivals=1.0).run(TEN, 2_000_001)
    monkeypatch.setattr(plants, "MOST_RUNS", 20)
    with pytest.raises(RequestError, match="more than 20 batches"):
        Plant(10, 0.0, record_s=0.0, arrivals=1000.0, catch_up=True).run(TEN, 100)


def test_absurd_loads_stay_within_what_offsets_can_count() -> None:
    """The log ends at the last offset."""
    trace = Plant(10, 1.0, record_s=0.0, arrivals=1e300).run(UNBOUNDED, 30)
    assert [batch.records for batch in trace.batches] == [2**63 - 1]
