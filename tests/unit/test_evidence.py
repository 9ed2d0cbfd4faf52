"""Laws of what a plan reads: each port once, and a damaged value only where it is needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from tests.records import changed
from tests.unit import world as common
from tests.unit.world import CURSOR, P0, PIPELINE
from tidegate.core.model.errors import BrokerUnavailable, CursorLost, StateCorrupt, TableLost, TopicRecreated
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.planning.evidence import read_evidence
from tidegate.core.planning.trust import believe
from tidegate.core.state.history import TableCommit, TableHistory
from tidegate.core.state.ledger import range_key
from tidegate.testing.fakes import FakeBrokers, FakeReader


@dataclass
class CountingReader(FakeReader):
    """Counts what is asked of the table."""

    asked: Counter[str] = field(default_factory=Counter)

    def history(self, table: str, *, expired: bool = False) -> TableHistory:
        """Counted."""
        self.asked["history"] += 1
        return super().history(table, expired=expired)


@dataclass
class World(common.World):
    """A pipeline with twenty records in one partition, two batches of them."""

    sink: CountingReader = field(default_factory=CountingReader)
    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers(latest={P0: 40}))
    committed: int = 2

    def put_back(self) -> None:
        """A later run has planned, and the cursor is an older one again."""
        before = self.store.values[CURSOR]
        self.run("run3")
        self.planned("run4")
        self.store.values[CURSOR] = before

    def forget_calls(self) -> None:
        self.store.calls.clear()
        self.sink.asked.clear()
        self.brokers.asked = 0


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("run_id", ["new", "own", "adopting", "cleared", "put back"])
def test_a_plan_reads_each_value_once_the_table_once_and_the_brokers_once(world: World, run_id: str) -> None:
    """Whatever it finds: nothing, a range of its own or of another run, a committed one, a cursor that was put back."""
    if run_id in ("adopting", "own"):
        world.planned("another" if run_id == "adopting" else "own")
    if run_id == "put back":
        world.put_back()
    world.forget_calls()
    world.planned("run1" if run_id == "cleared" else run_id, ran_at_ms=0 if run_id == "cleared" else None)
    read = Counter(key for verb, key in world.store.calls if verb in ("get", "keys"))
    written = [key for verb, key in world.store.calls if verb == "put" and "range" in key]
    read[CURSOR] -= len(written)  # once more after a range is written, in case that came too late
    assert set(read.values()) == {1}
    assert world.sink.asked == {"history": 1}
    assert world.brokers.asked == 1


def test_a_table_that_is_doubted_is_looked_at_once_more(world: World) -> None:
    """Its commits once, also with those that have expired, each saved range once; the brokers are not asked."""
    world.sink.expired = True
    world.sink.found = world.sink.found[:1]
    world.forget_calls()
    with pytest.raises(TableLost):
        world.plan("next")
    assert set(Counter(world.store.calls).values()) == {1}
    assert world.sink.asked == {"history": 2}
    assert world.brokers.asked == 0


def test_a_damaged_range_stops_only_who_needs_it(world: World) -> None:
    """A run that has its own range goes on. What is believed is a value: nothing is asked or written for it."""
    own = world.planned("own")
    pending = world.planned("another")
    world.store.values[pending.key] = "{}"
    evidence = read_evidence(PIPELINE, world.store, world.sink, run_id="own")
    world.forget_calls()
    assert believe(evidence, "own").saved == own.saved
    with pytest.raises(StateCorrupt, match="another"):
        believe(evidence, "next")
    assert (world.store.calls, world.sink.asked, world.brokers.asked) == ([], {}, 0)


def test_a_batch_without_offsets_needs_no_receipt(world: World) -> None:
    """One that only retires a partition is planned again though a receipt in the table's history cannot be read."""
    world.pipeline = replace(PIPELINE, source=replace(PIPELINE.source, on_deleted="retire"))
    world.brokers.latest = {TopicPartition("t", 1): 0}
    assert world.planned("retires").saved.load.nonempty == ()
    world.sink.others.append(TableCommit(99, 99, {"tidegate.pipeline": "p", "tidegate.seq": "1"}))
    for run_id, origin in (("retires", "own"), ("adopts", "adopted")):
        assert world.planned(run_id).origin == origin


def test_what_was_overwritten_or_pruned_is_saved_before_the_brokers_are_asked(world: World) -> None:
    """They may be away for long, and commands read it meanwhile; a receipt may have expired when they are back."""
    cleared = range_key(world.ledger.pipeline, 1, "run1")
    world.store.delete(cleared)
    world.brokers.ids["t"] = "another"
    with pytest.raises(TopicRecreated):
        world.plan("run1", ran_at_ms=5)
    assert cleared in world.store.values
    world.brokers.ids.clear()
    world.put_back()
    world.brokers.away = True
    with pytest.raises(BrokerUnavailable):
        world.plan("next")
    assert world.cursor.seq == 3
    assert world.cursor == changed(world.cursor, record_bytes=None, timing=None)


def test_a_lost_cursor_is_named_without_a_look_at_the_saved_ranges(world: World) -> None:
    """However many there are, and whatever is wrong with them."""
    world.store.delete(CURSOR)
    world.forget_calls()
    with pytest.raises(CursorLost):
        world.plan("next")
    assert [verb for verb, _ in world.store.calls] == ["keys"]
