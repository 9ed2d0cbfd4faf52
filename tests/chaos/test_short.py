"""The short form of the chaos harness: a kill at each boundary, the other faults once, a lost table.

Its long form adds ten at random instants, of each server alone; `make chaos` any number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.chaos.faults import BY_NAME, FAULTS
from tests.chaos.generator import Generator
from tests.chaos.harness import Harness, Result
from tests.chaos.schedule import Planned, pipelines_at, plan
from tests.chaos.stage import BATCHES, CONNECT, Stage
from tidegate.failpoints import POINTS

SEED = 2026
KILLS = ("task", "supervisor", "scheduler", "dag-processor", "api-server", "spark", "broker")
"""Tasks die at each boundary, servers all at once by the fault `everything`; the long form has each of them alone."""
OF_TABLE = [fault.name for fault in FAULTS if fault.of_table]
OTHERS = [fault.name for fault in FAULTS if fault.name not in (*KILLS, *OF_TABLE)]


@pytest.fixture(scope="module")
def generator(stage: Stage) -> Iterator[Generator]:
    """Writes while the schedule is hurt."""
    with stage.generator(200, SEED) as made:
        yield made


@pytest.fixture(scope="module")
def harness(stage: Stage, generator: Generator) -> Harness:
    """Strikes and judges; what it tells is shown when a test fails."""
    made = Harness(stage, Result(SEED), lambda line: sys.stdout.write(f"{line}\n"))
    made.begin()
    return made


def test_a_seed_gives_the_same_faults_and_every_place_before_any_comes_again() -> None:
    """Or a failing seed would not reproduce."""
    places = sum(len(fault.phases) for fault in FAULTS)
    first, again = plan(7, places), plan(7, places)
    assert [(p.fault.name, p.phase, p.draw().random()) for p in first] == [
        (p.fault.name, p.phase, p.draw().random()) for p in again
    ]
    assert len({(p.fault.name, p.phase) for p in first}) == places
    assert [p.fault.name for p in plan(8, places)] != [p.fault.name for p in first]


@pytest.mark.parametrize("point", POINTS)
def test_no_record_is_lost_or_doubled_by_a_kill_at_any_boundary(harness: Harness, point: str) -> None:
    """And the schedule goes on by itself."""
    number = POINTS.index(point)
    pipelines = pipelines_at(point)
    assert harness.strike(Planned(number, BY_NAME["task"], point, SEED, pipelines[number // 2 % len(pipelines)])).broken == ""
    assert harness.judge(), harness.result.verdicts[-1]


@pytest.mark.long
def test_no_record_is_lost_or_doubled_by_ten_kills_at_random_instants(harness: Harness) -> None:
    """Of tasks and servers, one at a time; the only help is `tidegate up`."""
    for planned in plan(SEED, 10, only=["random"], skip=[*OTHERS, *OF_TABLE]):
        struck = harness.strike(planned)
        assert (struck.broken, struck.help) == ("", 0)
    assert harness.judge(), harness.result.verdicts[-1]


@pytest.mark.parametrize("fault", OTHERS)
def test_no_record_is_lost_or_doubled_by_a_fault_while_a_batch_is_written(harness: Harness, fault: str) -> None:
    """A load that sleeps until others went on, a dead driver, all servers dead, a locked database, a full disk, a cut line."""
    pipeline = BY_NAME[fault].pipeline or CONNECT
    struck = harness.strike(Planned(OTHERS.index(fault), BY_NAME[fault], "before-write", SEED, pipeline))
    if struck.skipped:
        pytest.skip(struck.skipped)
    assert (struck.broken, struck.help) == ("", 0)
    assert harness.judge(), harness.result.verdicts[-1]


@pytest.mark.parametrize(
    ("fault", "phase", "pipeline"), [("rolled-back", "before-write", CONNECT), ("dropped", "before-write", BATCHES)]
)
def test_a_table_that_lost_batches_stops_the_schedule_until_one_command_brings_them_back(
    harness: Harness, fault: str, phase: str, pipeline: str
) -> None:
    """Refused, not silently green; after `tidegate ledger reload` the schedule goes on by itself."""
    struck = harness.strike(Planned(OF_TABLE.index(fault), BY_NAME[fault], phase, SEED, pipeline))
    assert (struck.broken, struck.help) == ("", 1)


def test_a_drained_schedule_leaves_each_record_once_as_it_was_written(harness: Harness, generator: Generator) -> None:
    """Aborted records are not there; broken ones and tombstones are."""
    generator.stop()
    assert harness.finish(), harness.result.to_json()
