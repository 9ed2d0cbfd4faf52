"""Laws of what a table must hold for a schedule to go on: in one file, for one world.

A lost batch is named, a healthy table is never refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, write_of
from tests.unit import world as common
from tests.unit.world import CURSOR, P0, PIPELINE, in_turn
from tidegate.core.config.pipeline import Source
from tidegate.core.model.errors import CursorLost, RequestError, TableLost, TidegateError
from tidegate.core.model.ranges import OffsetRange, TopicPartition, without
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.accept import accept_loss, accept_table, missing_now
from tidegate.core.planning.admission import refused_by_table
from tidegate.core.planning.run import Planned
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.history import Missing, TableCommit, find_missing, loadable
from tidegate.core.state.ledger import range_key
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers, FakeReader


def t(start: int, until: int) -> OffsetRange:
    return OffsetRange("t", 0, start, until)


@dataclass
class World(common.World):
    """A pipeline that has committed three batches of ten offsets, an hour apart, and whose next ten wait."""

    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers(latest={P0: 40}))
    step_ms: int = 3_600_000
    landing_ms: int = 1
    committed: int = 3

    def stranger(self) -> None:
        self.sink.others.append(TableCommit(-self.now_ms, self.now_ms + 1))

    def accept(self) -> tuple[OffsetRange, ...]:
        return accept_table(self.pipeline, store=self.store, sink=self.sink).absent

    @property
    def saved(self) -> list[SavedRange]:
        return [self.ledger.saved_range(key) for key in self.store.keys("tidegate.p.range.")]

    def found_missing(self, cursor: Cursor | None = None) -> Missing | None:
        return find_missing(cursor or self.cursor, self.sink.history(""), lambda: self.saved)

    def missing(self, run_id: str = "next") -> tuple[str, str]:
        """The ranges that a plan refuses for, and its message; it saves nothing."""
        before = dict(self.store.values)
        with pytest.raises(TableLost, match="tidegate ledger reload p") as caught:
            self.plan(run_id)
        assert (self.store.values, caught.value.retryable) == (before, False)
        return str(caught.value.fields["missing"]), caught.value.message

    def foretold(self) -> TidegateError | None:
        """What pages say of the next plan, by what they have read anyway."""
        by_batch = self.pipeline.identity == "batch"
        return refused_by_table(self.cursor, "lake.a.b", self.sink.history(""), shared_with=(), by_batch=by_batch)

    def loadable(self, *marks: Any) -> tuple[OffsetRange, ...]:
        """What of the missing can be loaded again from such a log."""
        found = self.found_missing()
        assert found is not None
        return loadable(found, self.cursor, Watermarks(*marks), self.saved)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def batches() -> World:
    return World(pipeline=replace(PIPELINE, identity="batch"))


def is_gone(world: World) -> None:
    world.sink.exists = False


def is_empty(world: World) -> None:
    world.sink.found.clear()


def is_rolled_back(world: World) -> None:
    del world.sink.found[1:]


def has_expired(world: World) -> None:
    world.sink.expired = True


has_forgotten = in_turn(is_empty, World.stranger, has_expired)


@pytest.mark.parametrize(
    ("table", "missing", "told"),
    [
        (is_gone, "t-0 [0, 30)", ["batches 1, 2, 3 of p", "there is no such table", "30 offsets"]),
        (is_empty, "t-0 [0, 30)", []),
        (in_turn(is_empty, World.stranger), "t-0 [0, 30)", []),
        (is_rolled_back, "t-0 [10, 30)", ["batches 2, 3 of p"]),
        (in_turn(is_rolled_back, has_expired), "t-0 [10, 30)", ["batches 2, 3 of p"]),
        (has_forgotten, "t-0 [0, 30)", ["its snapshots from then have expired"]),
    ],
)
def test_a_table_that_lacks_batches_is_refused_until_that_is_accepted(
    world: World, table: Callable[[World], object], missing: str, told: list[str]
) -> None:
    """With all that is missing. The partition begins anew then, and no later loss is accepted by that."""
    with pytest.raises(RequestError, match="holds all"):
        world.accept()
    table(world)
    found, message = world.missing()
    assert (found, [words for words in told if words not in message]) == (missing, [])
    foretold = world.foretold()
    assert foretold is None if world.sink.expired else foretold and foretold.fields["missing"] == missing
    assert missing == str(*world.accept())
    assert world.run("next").create
    assert (world.cursor.at.starts, world.ledger.listing().accepted) == ({P0: 30}, ())
    assert not world.run_of(10, "later").create
    is_empty(world)
    assert world.missing()[0] == "t-0 [30, 50)"


def names_the_batch_before(world: World) -> None:
    """All its snapshots have expired but the newest, which names its parent."""
    *older, newest = world.sink.found
    world.sink.found, world.sink.expired = [replace(newest, parent=older[-1].snapshot)], True


def is_maintained(world: World) -> None:
    """Such as that of a pipeline that had nothing to read for weeks, beside others in its table."""
    world.sink.kept = world.sink.found[:]
    has_forgotten(world)


@pytest.mark.parametrize("table", [World.stranger, names_the_batch_before, is_maintained])
def test_a_table_that_descends_from_the_last_batch_is_believed(world: World, table: Callable[[World], None]) -> None:
    """Without a further look where its own snapshots prove it: no older range is read."""
    table(world)
    assert world.foretold() is None
    world.store.calls.clear()
    planned = world.planned("next")
    assert (planned.saved.load.ranges, planned.create) == ((t(30, 40),), False)
    got = [key for verb, key in world.store.calls if verb == "get"]  # the cursor once more, in case the write came too late
    assert table is is_maintained or got == [CURSOR, range_key(world.ledger.pipeline, 3, "run3"), CURSOR]


def test_a_table_of_which_only_a_compaction_is_left_is_believed_by_what_the_last_batch_was_made_on(
    world: World,
) -> None:
    """The compaction names the last batch, which was made on the one before; a commit of others between them proves nothing."""
    cursor, newest = world.cursor, world.sink.found[-1].snapshot
    assert cursor.receipt is not None
    world.sink.found.clear()
    world.sink.others.append(TableCommit(-1, world.now_ms + 1, parent=newest))
    world.sink.expired = True
    for before, believed in ((cursor.head, True), (-2, False), (None, False)):
        world.ledger.save_cursor(replace(cursor, receipt=replace(cursor.receipt, parent=before)))
        assert (missing_now(PIPELINE, store=world.store, sink=world.sink)[1] is None) == believed


def test_of_receipts_that_cannot_be_read_pages_foretell_nothing(world: World) -> None:
    is_rolled_back(world)
    world.sink.others.append(TableCommit(-1, -1, {"tidegate.pipeline": "p"}))
    assert world.foretold() is None


def test_lost_batches_of_aggregates_are_told_by_their_numbers(batches: World) -> None:
    """A receipt of other ranges under the same number is none."""
    lost = batches.sink.found.pop(1)
    batches.sink.found.pop()
    assert batches.foretold() is None
    missing, message = batches.missing()
    assert (missing, "batches 2, 3" in message) == ("t-0 [10, 30)", True)
    batches.replay(t(10, 25), batch=2)
    assert batches.missing()[0] == "t-0 [10, 30)"
    batches.replay(*lost.load.ranges, batch=2)
    assert batches.missing()[0] == "t-0 [20, 30)"
    batches.replay(t(20, 30), batch=3)
    assert batches.planned("next").saved.load.seq == 4


@given(held=st.sets(st.integers(1, 6)), replayed=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 15)), max_size=4))
def test_every_offset_of_a_complete_lineage_is_in_a_receipt_or_missing(held: set[int], replayed: list[tuple[int, int]]) -> None:
    world = World(brokers=FakeBrokers(latest={P0: 100}), committed=7)
    world.sink.found = [r for r in world.sink.found if r.load.seq in held]
    for start, count in replayed:
        world.replay(t(start, start + count))
    there = [r for receipt in world.sink.found for r in receipt.load.ranges]
    found = world.found_missing()
    assert (found.ranges if found else ()) == without([t(0, 70)], there)


def test_a_cleared_run_whose_variable_was_pruned_does_its_own_range_again(world: World) -> None:
    """By its receipt; the cursor stays, and no new range is planned. A damaged range of the next batch keeps none back."""
    world.store.values[world.planned("run4").key] = "damaged"
    assert world.planned("run2", ran_at_ms=1).origin == "own"
    world.store.delete(range_key(world.ledger.pipeline, 2, "run2"))
    again = world.planned("run2", ran_at_ms=1)
    assert (again.origin, again.committed, again.saved.load.seq, again.create) == ("own", True, 2, False)
    assert again.saved.load.ranges == (t(10, 20),)
    assert world.commit(again) is False
    assert world.cursor.seq == 3


def test_a_cleared_run_that_never_saved_a_range_plans_one(world: World) -> None:
    """It failed before, since no broker answered. If it had saved a range, that range would still be kept."""
    assert world.planned("failed", ran_at_ms=1).saved.load.seq == 4
    world.store.delete(range_key(world.ledger.pipeline, 1, "run1"))
    world.run("failed")
    world.brokers.latest[P0] = 50
    assert world.planned("later", ran_at_ms=world.now_ms).saved.load.seq == 5


def test_aggregates_whose_saved_ranges_were_pruned_are_not_forgotten(batches: World) -> None:
    """Their offsets are named, though no batch of them can be loaded again; an operator goes on without them."""
    batches.store.delete(range_key(batches.ledger.pipeline, 1, "run1"))
    batches.sink.found.clear()
    missing, message = batches.missing()
    assert (missing, "batches 2, 3" in message) == ("t-0 [0, 30)", True)
    assert batches.loadable({P0: 0}, {P0: 40}, {"t": "id"}) == (t(10, 30),)
    for n in (2, 3):
        batches.replay(t(n * 10 - 10, n * 10), batch=n)
    assert str(*batches.accept()) == "t-0 [0, 10)"
    assert batches.planned("next").saved.load.seq == 4


def test_what_cannot_be_loaded_again_is_left_out(world: World) -> None:
    world.sink.exists = False
    logs: list[tuple[Any, ...]] = [({P0: 12}, {P0: 40}), ({P0: 0}, {P0: 40}, {"t": "new"}), ({}, {})]
    assert [world.loadable(*marks) for marks in logs] == [(t(12, 30),), (), ()]
    other = changed(world.cursor, topic_ids={"t": "new"}, starts={P0: 0}, offsets={P0: 5})
    assert getattr(world.found_missing(other), "ranges", None) == (t(0, 5),)


def test_after_an_accepted_loss_of_records_a_partition_begins_anew(world: World) -> None:
    """Retention took them before they were read, and all that was before them."""
    world.brokers.latest[P0], world.brokers.earliest[P0] = 60, 35
    accept_loss(PIPELINE, **world.ports)
    assert (world.run("next").saved.skipped, world.cursor.at.starts) == ((t(30, 35),), {P0: 35})
    is_gone(world)
    assert world.missing()[0] == "t-0 [35, 45)"


def test_a_table_that_is_gone_and_would_hold_nothing_is_created_by_whichever_batch_loads_first(world: World) -> None:
    """The batch that was accepted to go on without it may have had nothing to load."""
    world.drop()
    world.brokers.earliest[P0] = 40
    world.accept()
    accept_loss(PIPELINE, **world.ports)
    assert not world.run("empty").saved.load.nonempty
    world.brokers.latest[P0] = 50
    assert world.planned("next").create


def test_a_table_that_is_gone_is_refused_also_where_nothing_that_the_cursor_names_was_in_it(world: World) -> None:
    """It held rows of a topic that was retired since, which nothing can load again."""
    u0 = TopicPartition("u", 0)
    world.pipeline = replace(PIPELINE, source=Source(("t", "u"), on_deleted="retire"))
    world.brokers.latest = {u0: 0}
    world.run("run4")
    assert world.cursor.at.offsets == {u0: 0}
    world.brokers.latest[u0] = 10
    is_gone(world)
    missing, message = world.missing()
    assert str(world.foretold()).startswith(message)
    assert (missing, "earlier batches of p, which its cursor has committed: there is no such table" in message) == ("", True)
    for _ in range(2):  # a second answer is the same
        assert world.accept() == ()
    assert world.planned("next").create


@pytest.mark.parametrize("committed", [0, 3])
def test_a_load_makes_a_table_anew_that_was_dropped_since_its_first_commit_lost_its_files(committed: int) -> None:
    """As its error advises: there is nothing to roll back to. So does another run, and after an accepted loss."""
    world = World(committed=committed)
    if committed:
        world.drop()
        world.accept()
    world.load(world.planned("run"))
    world.drop()
    assert world.planned("run").create
    assert world.run("other").create
    assert world.run_of(10, "next").saved.load.seq == committed + 2


def test_an_acceptance_that_is_withdrawn_counts_no_more(world: World) -> None:
    world.sink.found.pop()
    world.accept()
    world.plan("run4")
    del world.store.values[world.ledger.accepted_key(4)]
    assert world.missing()[0] == "t-0 [20, 30)"
    world.accept()
    world.sink.found.pop()
    assert world.accept() == (t(10, 30),)
    assert world.planned("next").saved.after.starts == {P0: 30}


def test_an_acceptance_outlives_a_cursor_that_is_put_back(world: World) -> None:
    """It was deleted with the commit of its batch, whose saved range still has it."""
    back = world.store.values[CURSOR]
    fourth = world.planned("run4")
    world.sink.found.clear()  # made anew by somebody
    world.commit(fourth)
    world.accept()
    world.run_of(10, "run5")
    world.store.values[CURSOR] = back
    cursor, missing = missing_now(PIPELINE, store=world.store, sink=world.sink)
    assert (cursor.seq, missing) == (4, None)
    again = world.planned("run6")
    assert (again.saved.load.seq, again.caught_up_from, again.saved.after.starts) == (5, 3, {P0: 40})
    world.commit(again)
    assert world.cursor.at.starts == {P0: 40}


def test_of_two_copies_of_a_batch_that_with_what_was_accepted_counts_when_the_cursor_is_put_back(world: World) -> None:
    """The run that adopted the range saved it; the run that planned it died before."""
    back = world.store.values[CURSOR]
    world.planned("run4")
    world.sink.found.clear()
    world.accept()
    assert world.run("run5").saved.why.adopted_from == "run4"
    world.run_of(10, "run6")
    world.store.values[CURSOR] = back
    cursor, missing = missing_now(PIPELINE, store=world.store, sink=world.sink)
    assert (cursor.seq, cursor.at.starts, missing) == (4, {P0: 30}, None)


def test_what_is_accepted_counts_also_for_a_run_that_has_its_own_range_when_the_cursor_is_put_back(world: World) -> None:
    """It follows the table's commits as any other run does, so that its commit is none of another cursor."""
    back = world.store.values[CURSOR]
    world.run_of(10, "run4")
    own = world.planned("run5").saved
    world.store.values[CURSOR] = back
    world.sink.found = world.sink.found[3:]
    assert world.missing("run5")[0] == "t-0 [0, 30)"
    world.accept()
    again = world.planned("run5")
    assert (again.origin, again.committed, again.caught_up_from, again.saved) == ("own", False, 3, own)
    world.commit(again)
    assert (world.cursor.seq, world.cursor.at.starts) == (5, {P0: 40})


@pytest.mark.parametrize("kept", ["accepted", "accepted, range", "accepted, cursor"])
def test_what_is_accepted_counts_after_the_very_batch_that_it_was_given_after(kept: str) -> None:
    """Not after another load of its number, where other Variables were deleted or put back, and the table was dropped."""
    world = World(committed=2 if "cursor" in kept else 1)
    world.drop()
    world.accept()
    world.store.values = {key: value for key, value in world.store.values.items() if key.split(".")[2] in kept}
    if "cursor" in kept:
        world.store.values[CURSOR] = World(committed=1).store.values[CURSOR]
        world.accept()
    world.run("again")
    world.drop()
    assert "there is no such table" in world.missing()[1]


def test_a_table_with_rows_of_the_pipeline_is_never_taken_for_new() -> None:
    """Its receipts have expired and its Variables are gone: it says itself who owns it. A replay has loaded rows, too."""
    sink = FakeReader(others=[TableCommit(1, 1)], owners=frozenset({"p"}), has_rows=True, expired=True)
    replayed = write_of("p", 0, "again", (t(0, 5),), "v", "x", {"t": "id"}, replay="again")
    for held in (sink, FakeReader(found=[Receipt(replayed, 1, 1, rows=5)])):
        with pytest.raises(CursorLost):
            common.World(sink=held).plan("run")
    for new in (replace(sink, has_rows=False), replace(sink, expired=False)):
        assert isinstance(common.World(sink=new).plan("run"), Planned)


def test_missing_batches_are_named_and_those_whose_ranges_were_pruned_are_not() -> None:
    named: dict[tuple[int, ...], Any] = {(3, 4): "batches 3, 4", (3,): "batch 3", (): "earlier batches"}
    assert {numbers: Missing(ranges=(), batches=numbers, why="gone").named_batches for numbers in named} == named
