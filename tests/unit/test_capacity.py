"""Laws of what a load gets of Spark: executors and pieces by the records planned, and nothing where nobody asks for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.world import P0, PIPELINE, World
from tidegate.core.config.pipeline import Backpressure, Limits, Spark
from tidegate.core.model.ranges import total_count
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.advice import Resources
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers

OVERHEAD_S, CORE_S = 2.0, 0.01


def elastic(**spark: Any) -> World:
    """A pipeline of 10 s intervals, whose records take 10 ms of a core each."""
    pipeline = replace(PIPELINE, limits=Limits(interval_s=10), spark=Spark(**spark), backpressure=Backpressure())
    return World(pipeline=pipeline, brokers=FakeBrokers(latest={P0: 0}))


def run(world: World, records: int) -> SavedRange:
    """A batch of so many records, which took what the cores that it got allow."""
    world.brokers.latest[P0] += records
    world.now_ms += 10_000
    planned = world.planned(f"run{world.now_ms}")
    saved, read = planned.saved, total_count(planned.saved.load.ranges)
    cores = saved.resources.total_cores if saved.resources else 2
    run_ms = round(1000 * (OVERHEAD_S + CORE_S * read / cores))
    world.commit(planned, timing=BatchTiming(read, saved.allowed, run_ms, 0, 0, world.now_ms))
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


UNKNOWN = "no batch with these cores was measured yet"


def test_executors_follow_the_records_up_at_once_and_down_one_a_run() -> None:
    """What a record takes is learned together with the cores that loaded it; the overhead needs no executor."""
    world = warm(elastic(cores=2, min_executors=1, max_executors=8))
    burst = "7,000 records of 10,000 core seconds a million in 7 s need 5"
    assert resources(world, 7000) == Resources(5, 2, None, reason=burst)
    assert [resources(world, 10).executors for _ in range(5)] == [4, 3, 2, 1, 1]
    most = resources(world, 70_000)
    assert (most.executors, most.reason.endswith("the most is 8")) == (8, True)


def test_without_a_measured_batch_a_load_gets_the_least() -> None:
    """And without any cores of its own known, none of the batches before counts."""
    assert run(elastic(max_executors=4), 5000).resources == Resources(1, 1, None, reason=UNKNOWN)
    world = warm(elastic())
    world.pipeline = replace(world.pipeline, spark=Spark(min_executors=2, max_executors=4))
    assert resources(world, 5000).executors == 2
    assert world.cursor.pace.cores == (0, 0, 0, 0, 2)


def test_a_load_of_a_running_spark_is_cut_by_what_its_records_are_worth() -> None:
    """Five pieces a core where there is work for them, fewer otherwise. Those of a bounded batch, not of all that waits."""
    world = elastic(cores=2)
    assert run(world, 100).resources == Resources(None, 2, None, reason=UNKNOWN)
    warm(world)
    assert [resources(world, records).pieces for records in (30, 100, 5000)] == [1, 5, 10]
    world.pipeline = replace(world.pipeline, backpressure=Backpressure("static", max_records=30))
    size = resources(world, 5000)
    assert (size.pieces, size.reason.startswith("30 records of ")) == (1, True)


def test_spark_decides_where_nobody_asks() -> None:
    """No executors, no cores: nothing is saved; and neither is it for a batch without records."""
    assert run(warm(elastic()), 1000).resources is None
    assert elastic(max_executors=4).planned("run1").saved.resources is None


@pytest.mark.parametrize(
    ("executors", "cores", "pieces", "told"),
    [
        (1, 1, None, "1 executor of 1 core"),
        (3, 2, None, "3 executors of 2 cores"),
        (None, 2, 10, "at least 10 Spark tasks on 2 cores"),
        (None, 2, None, "2 cores"),
    ],
)
def test_resources_are_one_line_for_people(executors: int | None, cores: int, pieces: int | None, told: str) -> None:
    assert str(Resources(executors, cores, pieces, reason="why")) == f"{told}: why"


def test_a_cursor_whose_cores_are_none_goes_on_without_them() -> None:
    world = warm(elastic(max_executors=4))
    value = world.cursor.to_json()
    assert Cursor.from_json(json.loads(json.dumps(value))).pace.cores == (1, 1, 1, 1)
    world.ledger.save_cursor(Cursor.from_json({**value, "cores": "x"}))
    run(world, 10)
    assert world.cursor.pace.cores == (0, 0, 0, 0, 1)


def targeting(*records: int) -> World:
    """A pipeline whose policy has learned from batches of so many records how many it allows."""
    world = elastic(max_executors=8)
    world.pipeline = replace(world.pipeline, backpressure=Backpressure("target", initial_records=100))
    for each in records:
        run(world, each)
    return world


def test_the_bound_of_a_policy_grows_with_the_executors() -> None:
    """Executors follow what waits; the policy learns what the least of them load, so that none of its runs gets too long."""
    world = targeting(100, 50, 70, 100, 100, 100)
    small = world.cursor.pace.rate_state["state"]["bound"]
    burst = run(world, 6000)
    assert burst.resources
    assert burst.why.rate
    assert (burst.resources.executors, burst.why.rate.records) == (8, 8 * small)
    assert world.cursor.pace.timings[-1].run_ms < 1.25 * 10_000
    for _ in range(8):
        if not run(world, 0).remaining:
            break
    of_one_executor = (9 - OVERHEAD_S) / CORE_S
    assert world.cursor.pace.rate_state["state"]["bound"] <= 1.1 * of_one_executor


def test_the_drain_of_a_backlog_uses_all_executors() -> None:
    """A policy that would only see its own bounded batches never asks for more."""
    world = targeting(100, 50, 70, 100)
    world.brokers.latest[P0] += 100_000
    most = max(saved.resources.executors or 0 for saved in (run(world, 1) for _ in range(4)) if saved.resources)
    assert most == 8
