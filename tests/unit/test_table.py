"""Laws of what a table must hold for a schedule to go on: in one file, for one world.

A lost batch is named, a healthy table is never refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, write_of
from tidegate.core.audit.table import Missing, TableCommit, find_missing, loadable
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.errors import CursorLost, RangeForgotten, RequestError, TableLost
from tidegate.core.load.receipt import Receipt, Write
from tidegate.core.offsets.algebra import without
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.schedule.accept import accept_loss, accept_table, missing_now
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

P0 = TopicPartition("t", 0)
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(10))
BY_BATCH = replace(PIPELINE, identity="batch")
HOUR_MS = 3_600_000


@dataclass
class World:
    """A pipeline that has committed three batches of ten offsets, an hour apart, and whose next ten wait."""

    pipeline: Pipeline = PIPELINE
    store: MemoryStore = field(default_factory=MemoryStore)
    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers({P0: 40}))
    sink: FakeReader = field(default_factory=FakeReader)
    now_ms: int = 0
    committed: int = 3

    def __post_init__(self) -> None:
        for n in range(self.committed):
            self.batch(f"run{n + 1}")

    def plan(self, run_id: str, **changes: Any) -> Planned:
        self.now_ms += HOUR_MS
        ports: dict[str, Any] = {"store": self.store, "brokers": self.brokers, "sink": self.sink, "now_ms": self.now_ms}
        found = plan_batch(self.pipeline, run_id, Request(**changes), **ports)
        assert isinstance(found, Planned)
        return found

    def batch(self, run_id: str) -> Planned:
        planned = self.plan(run_id)
        saved = planned.saved
        number = saved.load.seq if self.pipeline.identity == "batch" else None
        receipt = self.land(
            write_of("p", saved.load.seq, run_id, saved.load.nonempty, "v", run_id, saved.load.topic_ids, batch=number)
        )
        commit_batch(self.pipeline, planned.key, receipt, store=self.store)
        return planned

    def batch_of_ten(self, run_id: str) -> Planned:
        """A batch of ten records that have just come."""
        self.brokers.latest[P0] += 10
        return self.batch(run_id)

    def land(self, load: Write) -> Receipt:
        self.now_ms += 1
        made = Receipt(load, self.now_ms, self.now_ms, total_count(load.load.ranges))
        self.sink.found.append(made)
        self.sink.exists = True
        return made

    def drop(self) -> None:
        self.sink.found.clear()
        self.sink.exists = False

    def replay(self, *ranges: OffsetRange, batch: int | None = None) -> None:
        self.land(write_of("p", 0, "again", ranges, "v", "x", {"t": "id"}, replay="again", batch=batch))

    def stranger(self) -> None:
        """A commit of somebody else, the newest of the table."""
        self.sink.others.append(TableCommit(-self.now_ms, self.now_ms + 1))

    @property
    def cursor(self) -> Cursor:
        return Ledger(self.store, "p").cursor()

    def missing_of(self, run_id: str) -> str:
        """The ranges that the plan of a run refuses for."""
        with pytest.raises(TableLost) as caught:
            self.plan(run_id)
        return str(caught.value.fields["missing"])

    def missing(self) -> tuple[str, str]:
        """The ranges that a plan refuses for, and its message; it saves nothing."""
        before = dict(self.store.values)
        with pytest.raises(TableLost) as caught:
            self.plan("next")
        assert self.store.values == before
        assert not caught.value.retryable
        assert "tidegate ledger reload p" in caught.value.fix
        return str(caught.value.fields["missing"]), caught.value.message


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def batches() -> World:
    return World(BY_BATCH)


def test_a_table_that_descends_from_the_last_batch_is_believed_without_a_further_look(world: World) -> None:
    """Also behind commits of others; no saved range and no file is read."""
    world.stranger()
    before = len([call for call in world.store.calls if call[0] == "get"])
    assert world.plan("next").saved.load.ranges == (OffsetRange("t", 0, 30, 40),)
    assert [key for verb, key in world.store.calls if verb == "get"][before:] == [
        "tidegate.p.cursor",
        Ledger(world.store, "p").range_key(3, "run3"),
        "tidegate.p.cursor",  # once more after the write, in case that came too late
    ]


def test_a_table_that_was_dropped_or_renamed_is_refused_with_all_that_is_missing(world: World) -> None:
    """So is one that a changed `sink.table` names for the first time."""
    world.sink.exists = False
    missing, message = world.missing()
    assert missing == "t-0 [0, 30)"
    assert "batches 1, 2, 3 of p" in message
    assert "there is no such table" in message
    assert "30 offsets" in message


def test_a_table_that_was_created_again_is_refused(world: World) -> None:
    """Empty, or with rows of somebody."""
    world.sink.found.clear()
    assert world.missing()[0] == "t-0 [0, 30)"
    world.stranger()
    assert world.missing()[0] == "t-0 [0, 30)"


@pytest.mark.parametrize("expired", [False, True])
def test_a_table_that_was_rolled_back_is_refused_with_the_batches_since(world: World, *, expired: bool) -> None:
    """Whether or not older snapshots have expired."""
    del world.sink.found[1:]
    world.sink.expired = expired
    missing, message = world.missing()
    assert missing == "t-0 [10, 30)"
    assert "batches 2, 3 of p" in message


def test_a_table_whose_snapshots_expired_but_the_newest_is_believed_by_the_parent_that_it_names(world: World) -> None:
    """That is the commit of the batch before."""
    *older, newest = world.sink.found
    world.sink.found, world.sink.expired = [replace(newest, parent=older[-1].snapshot)], True
    assert world.plan("next").saved.load.seq == 4


def test_a_table_that_was_compacted_and_expired_but_the_newest_is_believed_by_what_the_last_batch_was_made_on(
    world: World,
) -> None:
    """The compaction names the last batch, which was made on the one before; a commit of others between them proves nothing."""
    ledger, cursor, newest = Ledger(world.store, "p"), world.cursor, world.sink.found[-1].snapshot
    assert cursor.receipt is not None
    world.sink.found.clear()
    world.sink.others.append(TableCommit(-1, world.now_ms + 1, parent=newest))
    world.sink.expired = True
    for before, believed in ((cursor.head, True), (-2, False), (None, False)):
        ledger.save_cursor(replace(cursor, receipt=replace(cursor.receipt, parent=before)))
        assert (missing_now(PIPELINE, store=world.store, sink=world.sink)[1] is None) == believed


def test_a_table_is_refused_where_nothing_that_is_left_proves_what_it_holds(world: World) -> None:
    """All snapshots of its batches have expired. The schedule goes on once somebody has accepted it."""
    world.sink.found.clear()
    world.sink.expired = True
    world.stranger()
    missing, message = world.missing()
    assert missing == "t-0 [0, 30)"
    assert "its snapshots from then have expired, and nothing that is left proves that it holds their rows" in message
    accept_table(PIPELINE, store=world.store, sink=world.sink)
    world.batch("next")
    assert world.cursor.at.starts == {P0: 30}
    world.batch_of_ten("later")


def test_what_maintenance_has_kept_of_expired_snapshots_proves_what_the_table_holds(world: World) -> None:
    """Such as of a pipeline that had nothing to read for weeks, beside others in its table."""
    world.sink.kept, world.sink.found = world.sink.found, []
    world.sink.expired = True
    world.stranger()
    assert world.plan("next").saved.load.seq == 4


def test_ranges_of_a_topic_that_was_created_again_are_nobodys(world: World) -> None:
    """They cannot be loaded any more."""
    world.sink.exists = False
    cursor = world.cursor
    other = changed(cursor, topic_ids={"t": "new"}, starts={P0: 0}, offsets={P0: 5})
    saved = [Ledger(world.store, "p").saved_range(key) for key in world.store.keys("tidegate.p.range.")]
    found = find_missing(other, world.sink.history(""), lambda: saved)
    assert found is not None
    assert found.ranges == (OffsetRange("t", 0, 0, 5),)


@pytest.mark.parametrize(("left", "missing"), [(0, "t-0 [0, 20)"), (1, "t-0 [10, 20)")], ids=["recreated", "rolled back"])
@pytest.mark.parametrize("expired", [False, True])
def test_a_table_that_was_lost_between_a_plan_and_its_load_is_refused_by_the_next_plan(
    world: World, left: int, missing: str, *, expired: bool
) -> None:
    """The batch came to another table than the one that its plan had looked at."""
    del world.sink.found[left:2]
    world.sink.expired = expired
    assert world.missing()[0] == missing
    world.replay(OffsetRange("t", 0, 0, 20))
    world.batch("next")
    world.batch_of_ten("later")


def test_a_repair_that_is_lost_between_a_plan_and_its_load_is_missed(world: World) -> None:
    """The batch before had come to a table that lacked rows, and a replay after it brought them back."""
    del world.sink.found[:2]
    world.replay(OffsetRange("t", 0, 0, 20))
    planned = world.plan("next")
    world.sink.found.pop()
    load = write_of("p", 4, "next", planned.saved.load.nonempty, "v", "next", planned.saved.load.topic_ids)
    commit_batch(PIPELINE, planned.key, world.land(load), store=world.store)
    assert world.missing()[0] == "t-0 [0, 20)"


def test_a_later_load_may_not_create_the_table(world: World) -> None:
    """It would hold that batch alone."""
    assert not world.plan("next").create
    assert not world.plan("run1").create


def test_an_operator_lets_the_schedule_go_on_without_what_is_missing(world: World) -> None:
    """The partition begins anew, and no later loss is accepted by that."""
    ports: dict[str, Any] = {"store": world.store, "sink": world.sink}
    with pytest.raises(RequestError, match="holds all"):
        accept_table(PIPELINE, **ports)
    world.sink.exists = False
    assert accept_table(PIPELINE, **ports).absent == (OffsetRange("t", 0, 0, 30),)
    planned = world.plan("next")
    assert planned.create
    world.sink.exists = True
    world.sink.found.clear()
    world.batch("next")
    assert world.cursor.at.starts == {P0: 30}
    assert Ledger(world.store, "p").listing().accepted == ()
    world.brokers.latest[P0] = 50
    world.sink.found.clear()
    assert world.missing()[0] == "t-0 [30, 40)"


def test_lost_batches_of_aggregates_are_told_by_their_numbers(batches: World) -> None:
    """A receipt of other ranges under the same number is none."""
    lost = batches.sink.found.pop(1)
    batches.sink.found.pop()
    missing, message = batches.missing()
    assert missing == "t-0 [10, 30)"
    assert "batches 2, 3" in message
    batches.replay(OffsetRange("t", 0, 10, 25), batch=2)
    assert batches.missing()[0] == "t-0 [10, 30)"
    batches.replay(*lost.load.ranges, batch=2)
    assert batches.missing()[0] == "t-0 [20, 30)"
    batches.replay(OffsetRange("t", 0, 20, 30), batch=3)
    assert batches.plan("next").saved.load.seq == 4


@given(
    held=st.sets(st.integers(1, 6)),
    replayed=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 15)), max_size=4),
)
def test_every_offset_of_a_complete_lineage_is_in_a_receipt_or_missing(held: set[int], replayed: list[tuple[int, int]]) -> None:
    """None is lost silently, none is asked for twice."""
    world = World(brokers=FakeBrokers({P0: 100}))
    for n in range(4, 8):
        world.batch(f"run{n}")
    world.sink.found = [r for r in world.sink.found if r.load.seq in held]
    for start, count in replayed:
        world.replay(OffsetRange("t", 0, start, start + count))
    there = [r for receipt in world.sink.found for r in receipt.load.ranges]
    saved = [Ledger(world.store, "p").saved_range(key) for key in world.store.keys("tidegate.p.range.")]
    found = find_missing(world.cursor, world.sink.history(""), lambda: saved)
    expected = without([OffsetRange("t", 0, 0, 70)], there)
    assert (found.ranges if found else ()) == expected


def test_a_cleared_run_whose_variable_was_pruned_does_its_own_range_again(world: World) -> None:
    """By its receipt; the cursor stays, and nothing is planned under its id."""
    world.store.delete(Ledger(world.store, "p").range_key(2, "run2"))
    again = world.plan("run2", ran_at_ms=1)
    assert (again.origin, again.committed, again.saved.load.seq) == ("own", True, 2)
    assert again.saved.load.ranges == (OffsetRange("t", 0, 10, 20),)
    assert commit_batch(PIPELINE, again.key, world.sink.found[1], store=world.store)[2] is False
    assert world.cursor.seq == 3


def test_a_cleared_run_that_nothing_is_known_of_fails_by_name(world: World) -> None:
    """Its Variable was pruned, and its snapshot has expired."""
    ledger = Ledger(world.store, "p")
    world.store.delete(ledger.range_key(1, "run1"))
    world.sink.found = [replace(world.sink.found[2], parent=world.sink.found[1].snapshot)]
    world.sink.expired = True
    before = dict(world.store.values)
    with pytest.raises(RangeForgotten, match=r"run run1 of p.*keep_ranges: 1000.*tidegate replay p"):
        world.plan("run1", ran_at_ms=HOUR_MS - 1)
    assert world.store.values == before
    for key in world.store.keys("tidegate.p.range."):
        world.store.delete(key)
    with pytest.raises(RangeForgotten):
        world.plan("run1", ran_at_ms=HOUR_MS - 1)


def test_a_cleared_run_that_never_saved_a_range_plans_one(world: World) -> None:
    """It failed before, since no broker answered. If it had saved a range, that range would still be kept."""
    assert world.plan("failed", ran_at_ms=1).saved.load.seq == 4
    world.store.delete(Ledger(world.store, "p").range_key(1, "run1"))
    world.batch("failed")
    world.brokers.latest[P0] = 50
    assert world.plan("later", ran_at_ms=world.now_ms).saved.load.seq == 5


def test_a_reload_that_stopped_half_way_is_never_taken_for_whole(world: World) -> None:
    """Rows that a replay has loaded say nothing of what else there was, also where older snapshots have expired."""
    world.sink.found.clear()
    world.stranger()
    world.sink.expired = True
    world.replay(OffsetRange("t", 0, 10, 30))
    assert world.missing()[0] == "t-0 [0, 10)"
    world.replay(OffsetRange("t", 0, 0, 10))
    assert world.plan("next").saved.load.seq == 4


def test_aggregates_whose_saved_ranges_were_pruned_are_not_forgotten(batches: World) -> None:
    """Their offsets are named, though no batch of them can be loaded again; an operator goes on without them."""
    ledger = Ledger(batches.store, "p")
    batches.store.delete(ledger.range_key(1, "run1"))
    batches.sink.found.clear()
    missing, message = batches.missing()
    assert (missing, "batches 2, 3" in message) == ("t-0 [0, 30)", True)
    saved = [ledger.saved_range(key) for key in batches.store.keys("tidegate.p.range.")]
    found = find_missing(batches.cursor, batches.sink.history(""), lambda: saved)
    assert found is not None
    marks = Watermarks({P0: 0}, {P0: 40}, {"t": "id"})
    assert loadable(found, batches.cursor, marks, saved) == (OffsetRange("t", 0, 10, 30),)
    for n in (2, 3):
        batches.replay(OffsetRange("t", 0, n * 10 - 10, n * 10), batch=n)
    assert batches.missing()[0] == "t-0 [0, 10)"
    accept_table(BY_BATCH, store=batches.store, sink=batches.sink)
    assert batches.plan("next").saved.load.seq == 4


def test_what_cannot_be_loaded_again_is_left_out(world: World) -> None:
    """Retention deleted it, or its topic is gone or another one; of aggregates only whole batches count."""
    world.sink.exists = False
    found = find_missing(world.cursor, world.sink.history(""), list)
    assert found is not None
    assert loadable(found, world.cursor, Watermarks({P0: 12}, {P0: 40})) == (OffsetRange("t", 0, 12, 30),)
    assert loadable(found, world.cursor, Watermarks({P0: 0}, {P0: 40}, {"t": "new"})) == ()
    assert loadable(found, world.cursor, Watermarks({}, {})) == ()


def test_after_an_accepted_loss_of_records_a_partition_begins_anew(world: World) -> None:
    """Retention took them before they were read, and all that was before them."""
    ports: dict[str, Any] = {"store": world.store, "sink": world.sink}
    world.brokers.latest[P0], world.brokers.earliest[P0] = 60, 35
    accept_loss(PIPELINE, **ports, brokers=world.brokers)
    assert world.batch("next").saved.skipped == (OffsetRange("t", 0, 30, 35),)
    assert world.cursor.at.starts == {P0: 35}
    world.sink.exists = False
    assert world.missing()[0] == "t-0 [35, 45)"


def test_a_table_that_is_gone_and_would_hold_nothing_is_created_by_whichever_batch_loads_first(world: World) -> None:
    """The batch that was accepted to go on without it may have had nothing to load."""
    world.sink.found.clear()
    world.sink.exists = False
    world.brokers.earliest[P0] = 40
    accept_table(PIPELINE, store=world.store, sink=world.sink)
    accept_loss(PIPELINE, store=world.store, brokers=world.brokers, sink=world.sink)
    empty = world.plan("empty")
    assert not empty.saved.load.nonempty
    commit_batch(PIPELINE, empty.key, None, store=world.store)
    world.brokers.latest[P0] = 50
    assert world.plan("next").create


def test_a_table_that_is_gone_is_refused_also_where_nothing_that_the_cursor_names_was_in_it(world: World) -> None:
    """It held rows of a topic that was retired since, which nothing can load again."""
    world.pipeline = replace(PIPELINE, source=Source(("t", "u"), on_deleted="retire"))
    world.brokers.latest = {TopicPartition("u", 0): 0}
    retired = world.plan("run4")
    commit_batch(world.pipeline, retired.key, None, store=world.store)
    assert world.cursor.at.offsets == {TopicPartition("u", 0): 0}
    world.brokers.latest[TopicPartition("u", 0)] = 10
    world.sink.exists = False
    missing, message = world.missing()
    assert missing == ""
    assert "does not hold earlier batches of p, which its cursor has committed: there is no such table" in message
    for _ in range(2):  # a second answer is the same
        accepted = accept_table(world.pipeline, store=world.store, sink=world.sink)
        assert (accepted.absent, accepted.gone) == ((), True)
    assert world.plan("next").create


@pytest.mark.parametrize("committed", [0, 3])
def test_a_load_makes_a_table_anew_that_was_dropped_since_its_first_commit_lost_its_files(committed: int) -> None:
    """As its error advises: there is nothing to roll back to. So does another run, and after an accepted loss."""
    world = World(committed=committed)
    if committed:
        world.drop()
        accept_table(PIPELINE, store=world.store, sink=world.sink)
    world.land(write_of("p", committed + 1, "run", world.plan("run").saved.load.nonempty, "v", "run", {"t": "id"}))
    world.drop()
    assert world.plan("run").create
    assert world.batch("other").create
    assert world.batch_of_ten("next").saved.load.seq == committed + 2


def test_an_acceptance_that_is_withdrawn_counts_no_more(world: World) -> None:
    """Also where a range was planned with it. A new acceptance counts, and what was accepted before is kept."""
    key = Ledger(world.store, "p").accepted_key(4)
    world.sink.found.pop()
    accept_table(PIPELINE, store=world.store, sink=world.sink)
    world.plan("run4")
    del world.store.values[key]
    assert world.missing()[0] == "t-0 [20, 30)"
    accept_table(PIPELINE, store=world.store, sink=world.sink)
    world.sink.found.pop()
    assert accept_table(PIPELINE, store=world.store, sink=world.sink).absent == (OffsetRange("t", 0, 10, 30),)
    assert world.plan("next").saved.after.starts == {P0: 30}


def test_a_damaged_range_of_the_next_batch_does_not_keep_older_runs_from_being_cleared(world: World) -> None:
    """It is read only where something is missing."""
    world.store.values[world.plan("run4").key] = "damaged"
    assert world.plan("run2", ran_at_ms=1).origin == "own"


def test_an_acceptance_outlives_a_cursor_that_is_put_back(world: World) -> None:
    """It was deleted with the commit of its batch, whose saved range still has it."""
    back = world.store.values[Ledger(world.store, "p").cursor_key]
    world.brokers.latest[P0] = 40
    fourth = world.plan("run4")
    world.sink.found.clear()  # made anew by somebody
    receipt = world.land(write_of("p", 4, "run4", fourth.saved.load.nonempty, "v", "run4", fourth.saved.load.topic_ids))
    commit_batch(PIPELINE, fourth.key, receipt, store=world.store)
    accept_table(PIPELINE, store=world.store, sink=world.sink)
    world.batch_of_ten("run5")
    world.store.values[Ledger(world.store, "p").cursor_key] = back
    cursor, missing = missing_now(PIPELINE, store=world.store, sink=world.sink)
    assert (cursor.seq, missing) == (4, None)
    again = world.plan("run6")
    assert (again.saved.load.seq, again.caught_up_from, again.saved.after.starts) == (5, 3, {P0: 40})
    commit_batch(PIPELINE, again.key, world.sink.found[-1], store=world.store)
    assert world.cursor.at.starts == {P0: 40}


def test_what_is_accepted_counts_also_for_a_run_that_has_its_own_range_when_the_cursor_is_put_back(world: World) -> None:
    """It follows the table's commits as any other run does, so that its commit is none of another cursor."""
    back = world.store.values[Ledger(world.store, "p").cursor_key]
    world.batch_of_ten("run4")
    own = world.plan("run5").saved
    world.store.values[Ledger(world.store, "p").cursor_key] = back
    world.sink.found = world.sink.found[3:]
    assert world.missing_of("run5") == "t-0 [0, 30)"
    accept_table(PIPELINE, store=world.store, sink=world.sink)
    again = world.plan("run5")
    assert (again.origin, again.committed, again.caught_up_from, again.saved) == ("own", False, 3, own)
    receipt = world.land(write_of("p", 5, "run5", own.load.nonempty, "v", "run5", own.load.topic_ids))
    commit_batch(PIPELINE, again.key, receipt, store=world.store)
    assert (world.cursor.seq, world.cursor.at.starts) == (5, {P0: 40})


@pytest.mark.parametrize("kept", ["accepted", "accepted, range", "accepted, cursor"])
def test_what_is_accepted_counts_after_the_very_batch_that_it_was_given_after(kept: str) -> None:
    """Not after another load of its number, where other Variables were deleted or put back, and the table was dropped."""
    world = World(committed=2 if "cursor" in kept else 1)
    ledger = Ledger(world.store, "p")
    ports: dict[str, Any] = {"store": world.store, "sink": world.sink}
    world.drop()
    accept_table(PIPELINE, **ports)
    world.store.values = {key: value for key, value in world.store.values.items() if key.split(".")[2] in kept}
    if "cursor" in kept:
        world.store.values[ledger.cursor_key] = World(committed=1).store.values[ledger.cursor_key]
        accept_table(PIPELINE, **ports)
    world.batch("again")
    world.drop()
    assert "there is no such table" in world.missing()[1]


def test_a_table_with_rows_of_the_pipeline_is_never_taken_for_new() -> None:
    """Its receipts have expired and its Variables are gone: it says itself who owns it. A replay has loaded rows, too."""
    sink = FakeReader(others=[TableCommit(1, 1)], owners=frozenset({"p"}), has_rows=True, expired=True)
    ports: dict[str, Any] = {"store": MemoryStore(), "brokers": FakeBrokers({P0: 5}), "sink": sink, "now_ms": 1}
    with pytest.raises(CursorLost):
        plan_batch(PIPELINE, "run", Request(), **ports)
    for new in (replace(sink, has_rows=False), replace(sink, expired=False)):
        assert isinstance(plan_batch(PIPELINE, "run", Request(), **{**ports, "store": MemoryStore(), "sink": new}), Planned)
    replayed = write_of("p", 0, "again", (OffsetRange("t", 0, 0, 5),), "v", "x", {"t": "id"}, replay="again")
    with pytest.raises(CursorLost):
        plan_batch(PIPELINE, "run", Request(), **{**ports, "sink": FakeReader([Receipt(replayed, 1, 1, 5)])})


def test_missing_batches_are_named_and_those_whose_ranges_were_pruned_are_not() -> None:
    """In words that fit a sentence."""
    assert Missing((), (3, 4), "gone").named_batches == "batches 3, 4"
    assert Missing((), (3,), "gone").named_batches == "batch 3"
    assert Missing((), (), "gone").named_batches == "earlier batches"
