"""Laws of whether a pipeline may load into its table at all: on fakes, plan, replay and acceptances together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from tests.records import cursor_of, write_of
from tests.unit import world as common
from tests.unit.world import CURSOR, P0
from tidegate.core.config.pipeline import Limits, Pipeline, Replay, Sink, Source
from tidegate.core.config.values import StartOffsets
from tidegate.core.model.errors import CursorLost, RequestError, SinkMisfit
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.accept import accept_foreign, accept_loss
from tidegate.core.planning.admission import refused_by_table
from tidegate.core.planning.trust import misfit_of
from tidegate.core.replay.request import ReplayRequest
from tidegate.core.replay.run import plan_replay
from tidegate.core.state.history import Origins
from tidegate.core.state.receipt import Receipt
from tidegate.testing.fakes import FakeBrokers

START = Source(("t",), start=StartOffsets({P0: 20}))
PIPELINE = Pipeline("p", START, "m:f", sink=Sink("lake.a.b"), limits=Limits(10), replay=Replay(tables=("lake.a.trial",)))


@dataclass
class World(common.World):
    """A pipeline that begins at offset 20 of a log of 50, and has not run yet."""

    pipeline: Pipeline = PIPELINE
    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers(latest={P0: 50}))
    step_ms: int = 1000
    version: str = "m:f@1"

    def accept(self) -> None:
        accept_foreign(self.pipeline, store=self.store, sink=self.sink)

    def replayed(self, **params: Any) -> tuple[OffsetRange, ...]:
        request = ReplayRequest.from_params(params)
        planned = plan_replay(self.pipeline, "replay", request, **self.ports, now_ms=self.now_ms, save=False)
        return planned.saved.selection

    def misfit(self, run_id: str = "next") -> str:
        """How a plan is refused; it saves nothing."""
        before = dict(self.store.values)
        with pytest.raises(SinkMisfit) as caught:
            self.plan(run_id)
        assert (self.store.values, caught.value.retryable) == (before, False)
        return str(caught.value)

    def has_foreign_rows(self, *, accepted: bool = False) -> None:
        self.sink.origins = replace(self.sink.origins, unproved=True)
        if accepted:
            self.accept()


@pytest.fixture
def world() -> World:
    return World()


def test_a_table_of_others_is_refused_before_positions_are_saved(world: World) -> None:
    """By its owners, or where it names none by its loads: a pipeline under a new name would begin behind unread records."""
    world.sink.owners = frozenset({"old"})
    refused = "belongs to pipeline old, not to p. If p is old under a new name, name its file back, or run `tidegate rename old"
    assert refused in world.misfit()
    foretold = partial(refused_by_table, cursor_of("p"), "lake.a.b", world.sink.history(""), by_batch=False)
    assert refused in str(foretold(shared_with=()))
    assert foretold(shared_with=("old",)) is None
    world.sink.found.append(Receipt(write_of("old", 1, "run", (), "v", "a"), 1, 1, rows=0))
    world.sink.owners = frozenset()
    assert refused in world.misfit()
    world.pipeline = replace(PIPELINE, identity="batch")
    assert "belongs to pipeline old, whose batches have the same numbers" in world.misfit()
    world.pipeline = replace(PIPELINE, sink=Sink("lake.a.b", shared_with=("old",)))
    assert world.planned("run1").saved.load.seq == 1
    world.sink.owners, world.pipeline = frozenset({"p", "old"}), PIPELINE
    assert world.planned("run1").saved.load.seq == 1


def test_a_check_names_what_the_next_plan_refuses_of_a_table(world: World) -> None:
    """And leaves the ledger to the plan."""
    ask = partial(misfit_of, store=world.store, sink=world.sink)
    assert ask(PIPELINE) is None
    world.sink.owners, world.sink.has_rows, world.sink.expired = frozenset({"p"}), True, True
    with pytest.raises(CursorLost):
        world.plan("run1")
    assert ask(PIPELINE) is None
    world.sink.owners = frozenset({"old"})
    assert "belongs to pipeline old" in str(ask(PIPELINE))


def test_rows_without_origin_are_refused_until_they_are_accepted_once(world: World) -> None:
    """By every plan and replay; what was accepted for the table is kept with the first batch, whatever else is accepted."""
    world.run("run1")
    world.has_foreign_rows()
    assert "tidegate accept table p --foreign" in world.misfit()
    with pytest.raises(SinkMisfit, match="rows without origin"):
        world.replayed(batches="1")
    world.accept()
    world.brokers.earliest[P0] = 31
    accept_loss(world.pipeline, **world.ports)
    world.run("run2")
    world.run("run3")
    assert (world.cursor.seq, world.cursor.at.foreign) == (3, "lake.a.b")
    world.pipeline = replace(PIPELINE, sink=Sink("lake.a.c"))
    assert "lake.a.c holds rows without origin" in world.misfit()


def test_rows_without_origin_stay_accepted_where_the_cursor_is_put_back(world: World) -> None:
    """The acceptance was deleted with the commit of its batch, whose saved range leads to it."""
    world.run("run1")
    back = world.store.values[CURSOR]
    world.has_foreign_rows(accepted=True)
    world.run("run2")
    world.store.values[CURSOR] = back
    planned = world.planned("run3")
    assert (planned.origin, planned.saved.load.seq, planned.saved.after.foreign) == ("adopted", 2, "lake.a.b")


def test_nothing_before_the_start_is_replayed_beside_rows_without_origin(world: World) -> None:
    """They may be of these records; into a table of trials, and beside rows with an origin, it is."""
    world.has_foreign_rows(accepted=True)
    world.run("run1")
    for params in ({"offsets": [0, 30]}, {"from_time": 0}, {"offsets": [19, 21], "accept_loss": True}):
        with pytest.raises(RequestError, match=r"begins before 20, the pipeline's start.*p can replay t-0 \[20, 30\)"):
            world.replayed(**params)
    assert world.replayed(offsets=[None, 30]) == (OffsetRange("t", 0, 20, 30),)
    assert world.replayed(offsets=[0, 30], table="lake.a.trial") == (OffsetRange("t", 0, 0, 30),)
    world.sink.origins = Origins()  # the table was made anew
    for each in (world, World(committed=1)):
        assert each.replayed(offsets=[0, 30]) == (OffsetRange("t", 0, 0, 30),)


def test_a_table_without_the_columns_is_accepted_before_they_are_added(world: World) -> None:
    """The columns alone where it has no rows."""
    world.sink.origins = Origins(("_kafka_partition", "_kafka_offset"))
    add = "ALTER TABLE lake.a.b ADD COLUMNS (_kafka_partition int, _kafka_offset bigint)"
    assert world.misfit().endswith(f"Run {add}")
    world.has_foreign_rows()
    assert f"--foreign`, and then {add}" in world.misfit()
    world.accept()
    assert world.misfit().endswith(f"Run {add}")
    world.sink.origins = Origins(unproved=True)
    assert world.planned("run1").saved.load.seq == 1


@pytest.mark.parametrize(
    ("lacks", "now", "repair"),
    [
        (("_kafka_offset",), "at", "Run ALTER TABLE lake.a.b RENAME COLUMN `at` TO _kafka_offset"),
        ((), "at", "then ALTER TABLE lake.a.b DROP COLUMN `at`"),
        (("_kafka_offset",), "", "name a new table in `sink.table`"),
    ],
)
def test_a_table_that_has_lost_its_origin_gets_it_back_and_is_never_accepted(
    world: World, lacks: tuple[str, ...], now: str, repair: str
) -> None:
    """Renamed, renamed and added once more, or dropped: also where foreign rows were accepted before."""
    world.has_foreign_rows(accepted=True)
    world.run("run1")
    world.sink.origins = Origins(lacks, {"_kafka_offset": now}, unproved=True)
    refused = world.misfit()
    assert repair in refused
    assert "ADD COLUMN" not in refused
    with pytest.raises(SinkMisfit, match="has lost _kafka_offset"):
        world.accept()
    world.sink.origins = replace(world.sink.origins, unproved=False)  # no row is left that was written before
    if not lacks:
        world.run("run2")


def test_only_rows_that_are_there_are_accepted_and_batches_have_no_origin(world: World) -> None:
    """Nothing is recorded otherwise."""
    with pytest.raises(RequestError, match="nothing to accept"):
        world.accept()
    assert not world.store.values
    world.sink.origins, world.pipeline = Origins(unproved=True), replace(PIPELINE, identity="batch")
    assert world.planned("run1").saved.load.seq == 1
    with pytest.raises(RequestError):
        world.accept()
