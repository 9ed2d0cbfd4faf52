"""Laws of what a load gets of Spark: executors and pieces by the records planned, and nothing where nobody asks for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.world import P0, World
from tidegate.core.config.pipeline import Backpressure, Limits, Pipeline, Sink, Source, Spark
from tidegate.core.model.errors import StateCorrupt
from tidegate.core.model.ranges import total_count
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.resources import Resources
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers

OVERHEAD_S, CORE_S = 2.0, 0.01


def elastic(**spark: Any) -> World:
    """A pipeline of 10 s intervals, whose records take 10 ms of a core each."""
    limits, policy = Limits(interval_s=10), Backpressure()
    pipeline = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=limits, spark=Spark(**spark), backpressure=policy)
    return World(pipeline=pipeline, brokers=FakeBrokers(latest={P0: 0}))


def run(world: World, records: int, *, known: bool = True) -> SavedRange:
    """A batch of so many records, which took what the cores that it got allow."""
    world.brokers.latest[P0] += records
    world.now_ms += 10_000
    planned = world.planned(f"run{world.now_ms}")
    saved = planned.saved
    cores = saved.resources.total_cores if saved.resources else 2
    run_ms = round(1000 * (OVERHEAD_S + CORE_S * total_count(saved.load.ranges) / cores))
    timing = BatchTiming(total_count(saved.load.ranges), saved.allowed, run_ms, 0, 0, world.now_ms)
    world.commit(planned, timing=timing if known else None)
    return saved


def resources(world: World, records: int) -> Resources:
    """What the load of such a batch gets."""
    found = run(world, records).resources
    assert found is not None
    return found


def warm(world: World) -> World:
    """Batches of different sizes tell the overhead from the cost of a record, whatever cores they had."""
    for records in (100, 400, 200, 300):
        run(world, records)
    return world


def test_executors_follow_the_records_up_at_once_and_down_one_a_run() -> None:
    """What a record takes is learned together with the cores that loaded it; the overhead needs no executor."""
    world = warm(elastic(cores=2, min_executors=1, max_executors=8))
    burst = resources(world, 7000)
    assert (burst.executors, burst.cores, burst.pieces) == (5, 2, None)
    assert burst.reason == "7,000 records of 10,000 core seconds a million in 7 s need 5"
    assert [resources(world, 10).executors for _ in range(5)] == [4, 3, 2, 1, 1]
    most = resources(world, 70_000)
    assert most.executors == 8
    assert most.reason.endswith("the most is 8")


def test_without_a_measured_batch_a_load_gets_the_least() -> None:
    """And without any cores of its own known, none of the batches before counts."""
    world = elastic(max_executors=4)
    assert run(world, 5000).resources == Resources(1, 1, None, reason="no batch with these cores was measured yet")
    world = elastic()
    warm(world)
    world.pipeline = replace(world.pipeline, spark=Spark(min_executors=2, max_executors=4))
    assert resources(world, 5000).executors == 2
    assert world.cursor.pace.cores == (0, 0, 0, 0, 2)


def test_a_load_of_a_running_spark_is_cut_by_what_its_records_are_worth() -> None:
    """Five pieces a core where there is work for them, fewer otherwise."""
    world = elastic(cores=2)
    assert run(world, 100).resources == Resources(None, 2, None, reason="no batch with these cores was measured yet")
    warm(world)
    assert [resources(world, records).pieces for records in (30, 100, 5000)] == [1, 5, 10]


def test_the_pieces_of_a_bounded_batch_are_those_of_its_own_records() -> None:
    """Not of all that waits: the rest is another batch's."""
    world = warm(elastic(cores=2))
    world.pipeline = replace(world.pipeline, backpressure=Backpressure("static", max_records=30))
    size = resources(world, 5000)
    assert size.pieces == 1
    assert size.reason.startswith("30 records of ")


def test_spark_decides_where_nobody_asks() -> None:
    """No executors, no cores: nothing is saved; and neither is it for a batch without records."""
    assert run(warm(elastic()), 1000).resources is None
    world = elastic(max_executors=4)
    world.brokers.latest[P0] = 0
    assert world.planned("run1").saved.resources is None


def test_resources_are_one_line_for_people() -> None:
    """In the log of a plan, the note of its run, and `tidegate plan`."""
    assert str(Resources(1, 1, None, reason="why")) == "1 executor of 1 core: why"
    assert str(Resources(3, 2, None, reason="why")) == "3 executors of 2 cores: why"
    assert str(Resources(None, 2, 10, reason="why")) == "at least 10 Spark tasks on 2 cores: why"
    assert str(Resources(None, 2, None, reason="why")) == "2 cores: why"


def test_a_cursor_whose_cores_are_none_is_believed_without_them() -> None:
    """No batch depends on them."""
    world = elastic(max_executors=4)
    warm(world)
    value = world.cursor.to_json()
    assert Cursor.from_json(json.loads(json.dumps(value))).pace.cores == (1, 1, 1, 1)
    for poison in (None, "x", [-1], [None], {"a": 1}):
        old = Cursor.from_json({**value, "cores": poison})
        assert old.pace.cores == ()
    world.store.values = {key: text for key, text in world.store.values.items() if "cursor" not in key}
    Ledger(world.store, "p").save_cursor(old)
    run(world, 10)
    assert world.cursor.pace.cores == (0, 0, 0, 0, 1)


@pytest.mark.parametrize("poison", [{"cores": 1}, {"executors": 0, "cores": 1, "pieces": None, "reason": ""}])
def test_resources_that_are_none_are_refused_by_name(poison: dict[str, Any]) -> None:
    """A range is written once and never edited."""
    saved = run(elastic(max_executors=4), 10)
    value = saved.to_json()
    assert SavedRange.from_json(value) == saved
    with pytest.raises(StateCorrupt):
        SavedRange.from_json({**value, "resources": poison})


def test_the_bound_of_a_policy_grows_with_the_executors() -> None:
    """Executors follow what waits; the policy learns what the least of them load, so that none of its runs gets too long."""
    world = elastic(max_executors=8)
    world.pipeline = replace(world.pipeline, backpressure=Backpressure("target", initial_records=100))
    for records in (100, 50, 70, 100, 100, 100):
        run(world, records)
    small = world.cursor.pace.rate_state["state"]["bound"]
    burst = run(world, 6000)
    assert burst.resources is not None
    assert burst.why.rate is not None
    assert burst.resources.executors == 8
    assert burst.why.rate.records == 8 * small
    assert world.cursor.pace.timing is not None
    assert world.cursor.pace.timing.run_ms < 1.25 * 10_000
    for _ in range(8):
        saved = run(world, 0)
        assert saved.why.rate is not None
        if not saved.remaining:
            break
    of_one_executor = (9 - OVERHEAD_S) / CORE_S
    assert world.cursor.pace.rate_state["state"]["bound"] <= 1.1 * of_one_executor


def test_the_drain_of_a_backlog_uses_all_executors() -> None:
    """A policy that would only see its own bounded batches never asks for more."""
    world = elastic(max_executors=8)
    world.pipeline = replace(world.pipeline, backpressure=Backpressure("target", initial_records=100))
    for records in (100, 50, 70, 100):
        run(world, records)
    world.brokers.latest[P0] += 100_000
    most = max(saved.resources.executors or 0 for saved in (run(world, 1) for _ in range(4)) if saved.resources)
    assert most == 8
