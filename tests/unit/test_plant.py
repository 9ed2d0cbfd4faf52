"""Laws of the modelled pipeline on which rate policies are tried."""

from __future__ import annotations

import pytest

from tidegate.core.rates.choice import make_rate_policy
from tidegate.testing.plant import Plant, Steps

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
    batches = Plant(10, 1.0, 0.1, Steps([(0, 3.0), (20, 0.0)])).run(UNBOUNDED, 100)
    assert [(b.due_s, b.started_s, b.records, b.bound, b.lag) for b in batches] == [
        (10, 10, 30, None, 30),
        (20, 20, 30, None, 30),
    ]
    assert [b.run_s for b in batches] == pytest.approx([4.0, 4.0])


def test_a_bound_leaves_the_rest_for_later_runs() -> None:
    """What was not loaded waits."""
    batches = Plant(10, 1.0, 0.1, 0.0, backlog=25).run(TEN, 100)
    assert [(b.records, b.lag) for b in batches] == [(10, 25), (10, 15), (5, 5)]


def test_a_late_run_starts_when_the_one_before_has_ended() -> None:
    """Of the runs that became due meanwhile only the latest is started."""
    batches = Plant(10, 25.0, 0.0, 1.0).run(TEN, 60)
    assert [(b.due_s, b.started_s, b.ended_s) for b in batches] == [(10, 10, 35), (30, 35, 60)]


def test_an_outage_holds_the_run_that_meets_it_and_skips_those_within() -> None:
    """What was left of the run is done after it."""
    batches = Plant(10, 4.0, 0.0, 1.0, outages=[(22, 52), (75, 85)]).run(TEN, 90)
    assert [(b.started_s, b.ended_s) for b in batches] == [(10, 14), (20, 54), (54, 58), (60, 64), (70, 74)]


def test_noise_is_the_same_for_the_same_seed() -> None:
    """A figure of a simulation can be made again."""
    plant = Plant(10, 1.0, 0.1, 5.0, noise=0.1)
    assert plant.run(TEN, 100, seed=1) == plant.run(TEN, 100, seed=1) != plant.run(TEN, 100, seed=2)
