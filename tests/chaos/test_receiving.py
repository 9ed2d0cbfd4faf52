"""The short form of the harness for receivers: each kind of fault once, and a verdict that does not believe everything."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.chaos.receiving.faults import FAULTS, Fault, Planned, plan
from tests.chaos.receiving.harness import Harness, Result
from tests.chaos.receiving.sender import Sender
from tests.chaos.receiving.stage import DAG, PIPELINE, ReceivingStage
from tests.chaos.receiving.verdict import judge

SEED = 2026
WITHIN_S = 3.0
COMBINED = ("both", "scheduler-tree")
"""What `path` kills as well, and the broker with it; `make test-all` has them alone."""


@pytest.fixture(scope="module")
def harness(stage: ReceivingStage) -> Iterator[Harness]:
    """A receiver to which a sender posts; what the harness tells is shown when a test fails."""
    with Sender(stage.port, SEED) as sender:
        made = Harness(stage, sender, Result(SEED), lambda line: sys.stdout.write(f"{line}\n"))
        made.begin()
        yield made
    for dag in (DAG, PIPELINE):
        stage.pause(dag)


def test_a_seed_gives_the_same_faults_and_each_before_any_comes_again() -> None:
    """Or a failing seed would not reproduce."""
    first, again = plan(7, len(FAULTS)), plan(7, len(FAULTS))
    assert [(p.fault.name, p.draw().random()) for p in first] == [(p.fault.name, p.draw().random()) for p in again]
    assert {p.fault.name for p in first} == {fault.name for fault in FAULTS}
    assert [p.fault.name for p in plan(8, len(FAULTS))] != [p.fault.name for p in first]


def test_the_verdict_believes_ids_that_are_there_once_and_repeats_in_the_topic() -> None:
    """What was sent and not answered may be there, or not."""
    verdict = judge({1, 2}, 4, topic=[1, 2, 2, 3], table=[1, 2, 3])
    assert verdict.holds
    assert (verdict.records, verdict.repeated, verdict.rows) == (4, 1, 3)


@pytest.mark.parametrize(
    ("acknowledged", "topic", "table", "broken"),
    [
        ({1, 2, 3}, [1, 2], None, "lost"),
        ({1, 2, 3}, [1, 2], [1, 2], "lost"),
        ({1, 2}, [1, 2], [1], "lost"),
        ({1}, [1, 9], None, "unknown"),
        ({1}, [1], [1, 2], "unknown"),
        ({1}, [1, 1], [1, 1], "repeated_rows"),
        ({1}, [1, 2], [1], "unloaded"),
    ],
    ids=[
        "an acknowledgement that was made up",
        "the same, with a table",
        "not in the table",
        "never sent",
        "a row without a record",
        "a row twice",
        "a record that was not loaded",
    ],
)
def test_the_verdict_finds_what_the_law_forbids(
    acknowledged: set[int], topic: list[int], table: list[int] | None, broken: str
) -> None:
    """Each of its figures alone breaks the law."""
    verdict = judge(acknowledged, 4, topic, table)
    assert (getattr(verdict, broken), verdict.holds) == (1, False)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.name, marks=[pytest.mark.long] * (fault.name in COMBINED)) for fault in FAULTS],
)
def test_no_acknowledged_record_is_lost_by_a_kill(harness: Harness, fault: Fault) -> None:
    """And posts are acknowledged again with no help but `tidegate up`."""
    assert harness.strike(Planned(FAULTS.index(fault), fault, SEED, WITHIN_S)).broken == ""


def test_the_drained_table_holds_what_was_acknowledged_and_no_row_twice(harness: Harness) -> None:
    """Also what was repeated with the same key; and with an acknowledgement that nobody gave, the same verdict fails."""
    assert harness.finish(), harness.result.to_json()
    told = harness.sender.acknowledged() | {harness.sender.sent + 1}
    rows = harness.stage.rows()
    assert judge(told, harness.sender.sent, rows, rows).lost == 1
