"""Laws of what a plan reads: each port once, and a damaged value only where it is needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from tests.records import changed, write_of
from tidegate.core.audit.table import TableCommit, TableHistory
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.errors import BrokerUnavailable, CursorLost, StateCorrupt, TableLost, TopicRecreated
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.schedule.evidence import read_evidence
from tidegate.core.schedule.plan import Skip
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.schedule.trust import believe
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(10))


@dataclass
class CountingReader(FakeReader):
    """Counts what is asked of the table."""

    asked: Counter[str] = field(default_factory=Counter)

    def history(self, table: str, *, expired: bool = False) -> TableHistory:
        """Counted."""
        self.asked["history"] += 1
        return super().history(table, expired=expired)


@dataclass
class World:
    """A pipeline with twenty records in one partition, two batches of them."""

    store: MemoryStore = field(default_factory=MemoryStore)
    sink: CountingReader = field(default_factory=CountingReader)
    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers({TopicPartition("t", 0): 40}))

    def plan(self, run_id: str, ran_at_ms: int | None = None, pipeline: Pipeline = PIPELINE) -> Planned:
        planned = plan_batch(
            pipeline, run_id, Request(ran_at_ms=ran_at_ms), store=self.store, brokers=self.brokers, sink=self.sink, now_ms=1
        )
        assert not isinstance(planned, Skip)
        return planned

    def load(self, planned: Planned) -> Receipt:
        saved, number = planned.saved, len(self.sink.found) + 1
        load = write_of(
            "p", saved.load.seq, saved.load.run_id, saved.load.nonempty, "v", "a", saved.load.topic_ids, saved.load.generation
        )
        self.sink.found.append(Receipt(load, number, number, 10))
        return self.sink.found[-1]

    def run(self, run_id: str) -> Planned:
        planned = self.plan(run_id)
        commit_batch(PIPELINE, planned.key, self.load(planned), store=self.store)
        return planned

    def forget_calls(self) -> None:
        self.store.calls.clear()
        self.sink.asked.clear()
        self.brokers.asked = 0


@pytest.fixture
def world() -> World:
    world = World()
    for name in ("one", "two"):
        world.run(name)
    return world


@pytest.mark.parametrize("run_id", ["new", "own", "adopting", "cleared", "put back"])
def test_a_plan_reads_each_value_once_the_table_once_and_the_brokers_once(world: World, run_id: str) -> None:
    """Whatever it finds: nothing, a range of its own or of another run, a committed one, a cursor that was put back."""
    if run_id == "adopting":
        world.plan("another")
    if run_id == "own":
        world.plan("own")
    if run_id == "put back":
        before = world.store.values["tidegate.p.cursor"]
        world.run("three")
        world.plan("four")
        world.store.values["tidegate.p.cursor"] = before
    world.forget_calls()
    world.plan("one" if run_id == "cleared" else run_id, 0 if run_id == "cleared" else None)
    read = Counter(key for verb, key in world.store.calls if verb in ("get", "keys"))
    written = [key for verb, key in world.store.calls if verb == "put" and "range" in key]
    read["tidegate.p.cursor"] -= len(written)  # once more after a range is written, in case that came too late
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
    """A run that has saved its own range goes on; one that has to judge the damaged range does not."""
    own = world.plan("own")
    pending = world.plan("another")
    world.store.values[pending.key] = "{}"
    evidence = read_evidence(PIPELINE, world.store, world.sink, run_id="own")
    assert believe(evidence, "own").saved == own.saved
    with pytest.raises(StateCorrupt, match="another"):
        believe(evidence, "next")


def test_what_is_believed_is_a_value_of_what_was_read(world: World) -> None:
    """The same evidence gives the same belief, and nothing is asked or written for it."""
    evidence = read_evidence(PIPELINE, world.store, world.sink)
    world.forget_calls()
    assert believe(evidence, "next") == believe(evidence, "next")
    assert (world.store.calls, world.sink.asked, world.brokers.asked) == ([], {}, 0)


def test_a_batch_without_offsets_needs_no_receipt(world: World) -> None:
    """One that only retires a partition is planned again though a receipt in the table's history cannot be read."""
    retiring = replace(PIPELINE, source=replace(PIPELINE.source, on_deleted="retire"))
    world.brokers.latest = {TopicPartition("t", 1): 0}
    first = world.plan("retires", pipeline=retiring)
    assert first.saved.load.nonempty == ()
    world.sink.others.append(TableCommit(99, 99, {"tidegate.pipeline": "p", "tidegate.seq": "1"}))
    for run_id, origin in (("retires", "own"), ("adopts", "adopted")):
        assert world.plan(run_id, pipeline=retiring).origin == origin


def test_a_cursor_that_was_put_back_is_written_before_the_brokers_are_asked(world: World) -> None:
    """They may be away for long, and commands read the cursor meanwhile."""
    before = world.store.values["tidegate.p.cursor"]
    world.run("three")
    world.plan("four")
    ahead = Ledger(world.store, "p").cursor()
    world.store.values["tidegate.p.cursor"] = before
    world.brokers.away = True
    with pytest.raises(BrokerUnavailable):
        world.plan("next")
    assert Ledger(world.store, "p").cursor() == changed(ahead, record_bytes=None, timing=None)


def test_the_range_of_a_pruned_run_is_saved_before_the_brokers_are_asked(world: World) -> None:
    """What refuses it now may be repaired, and its snapshot may have expired by then."""
    key = Ledger(world.store, "p").range_key(1, "one")
    world.store.delete(key)
    world.brokers.ids["t"] = "another"
    with pytest.raises(TopicRecreated):
        world.plan("one", 5)
    assert key in world.store.values


def test_a_lost_cursor_is_named_without_a_look_at_the_saved_ranges(world: World) -> None:
    """However many there are, and whatever is wrong with them."""
    world.store.delete("tidegate.p.cursor")
    world.forget_calls()
    with pytest.raises(CursorLost):
        world.plan("next")
    assert [verb for verb, _ in world.store.calls] == ["keys"]
