"""Laws of a batch's way: plan, adopt, load again, commit; in one file, since they share a world of ports in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, cursor_of, write_of
from tests.unit.world import P0, PIPELINE, World, receipt_of
from tidegate.core.audit.rebuild import rebuild
from tidegate.core.audit.restore import restore
from tidegate.core.audit.table import TableCommit, find_missing
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.config.times import StartOffsets, StartTime
from tidegate.core.errors import (
    CommitConflict,
    CursorBeyondLog,
    CursorLost,
    OffsetsExpired,
    PartitionsLeftOut,
    RequestError,
    StateCorrupt,
    StateError,
    StateUnavailable,
    TopicNotFound,
    TopicRecreated,
    WatermarksUnstable,
)
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.schedule.accept import accept_loss, accept_recreated
from tidegate.core.schedule.plan import Skip
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.accepted import Accepted
from tidegate.core.state.codec import encode
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, run_key
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers, MemoryStore


def test_a_plan_is_saved_by_one_write_before_any_work() -> None:
    """The write is the last thing that planning does, but for a look whether it came too late."""
    world = World()
    planned = world.planned("run1")
    assert planned.origin == "planned"
    assert [verb for verb, _ in world.store.calls].count("put") == 1
    assert world.store.calls[-2:] == [("put", planned.key), ("get", "tidegate.p.cursor")]
    assert planned.saved.load.ranges == (OffsetRange("t", 0, 0, 10),)
    assert planned.saved.why.limits == {"max_records": 10}


def test_a_plan_says_how_many_records_wait_and_after_which_cursor() -> None:
    """Those of its range among them. A range that was saved before knows only what waited then."""
    world = World()
    first = world.planned("run1")
    assert (first.waiting, first.cursor) == (25, cursor_of("p"))
    for again in (world.planned("run1"), world.planned("run2")):
        assert (again.origin, again.waiting, again.cursor) == (again.origin, None, cursor_of("p"))
    world.load(first)
    assert world.planned("run2").cursor is None  # the table holds the batch: brokers that are away do not matter
    world.commit(first)
    assert (world.run("run3").waiting, world.run("run4").waiting) == (15, 5)
    skip = world.plan("run5")
    assert isinstance(skip, Skip)
    assert (skip.waiting, skip.cursor) == (0, world.cursor)
    world.pipeline = replace(PIPELINE, limits=Limits(10, min_records=5))
    world.brokers.latest[P0] += 4
    skip = world.plan("run6")
    assert isinstance(skip, Skip)
    assert (skip.waiting, skip.cursor) == (4, world.cursor)
    skip = world.plan("run7", Request(until={P0: 25}))
    assert isinstance(skip, Skip)
    assert skip.waiting == 4


@dataclass
class FrozenStore(MemoryStore):
    """A store whose next write is held up until `meanwhile` is over."""

    meanwhile: Callable[[], object] | None = None

    def put(self, key: str, value: str, description: str) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().put(key, value, description)


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_plan_that_was_frozen_before_its_write_does_not_overwrite_what_was_committed(*, first: bool) -> None:
    """The next try of its run has read further and committed; the saved range is again that of the receipt."""
    store = FrozenStore()
    world = World(store=store, pipeline=replace(PIPELINE, limits=Limits()))
    if not first:
        world.run("run0")
    committed: list[Planned] = []

    def next_try() -> None:
        world.brokers.latest[P0] = 40
        committed.append(world.run("run1"))

    world.brokers.latest[P0] = 30
    store.meanwhile = next_try
    with pytest.raises(CommitConflict, match="was committed while this task was frozen"):
        world.plan("run1")
    kept = Ledger(store, "p").saved_range(committed[0].key)
    assert (kept.load.ranges, kept.load.run_id, kept.load.seq) == (
        committed[0].saved.load.ranges,
        "run1",
        committed[0].saved.load.seq,
    )
    assert world.cursor.at.offsets == {P0: 40}
    again = world.planned("run1")
    assert (again.origin, again.committed, again.saved.load.ranges) == ("own", True, committed[0].saved.load.ranges)


def test_a_plan_that_was_frozen_while_another_run_committed_leaves_nothing_behind() -> None:
    """Its run has no batch: a range under its name would contradict that of the batch."""
    store = FrozenStore()
    world = World(store=store, pipeline=replace(PIPELINE, limits=Limits()))
    store.meanwhile = lambda: world.run("run2")
    with pytest.raises(CommitConflict):
        world.plan("run1")
    assert [r.run for r in Ledger(store, "p").listing().ranges] == [run_key("run2")]


def test_runs_follow_each_other_until_nothing_lags() -> None:
    """Then a run is skipped."""
    world = World()
    ranges = [world.run(f"run{n}").saved.load.ranges[0] for n in range(3)]
    assert [(r.from_offset, r.until_offset) for r in ranges] == [(0, 10), (10, 20), (20, 25)]
    assert isinstance(world.plan("run4"), Skip)
    assert (world.cursor.seq, world.cursor.at.offsets, world.cursor.at.topic_ids) == (3, {P0: 25}, {"t": "id"})
    assert world.cursor.fired_at_ms == 3


@pytest.mark.slow
def test_a_long_history_costs_a_batch_no_further_call() -> None:
    """One listing and the same few values, after three batches as after five hundred."""
    world = World(brokers=FakeBrokers({P0: 10_000}))

    def calls_of_the_next(run_id: str) -> list[str]:
        before = len(world.store.calls)
        world.run(run_id)
        return [verb for verb, _ in world.store.calls[before:]]

    for n in range(3):
        world.run(f"run{n}")
    early = calls_of_the_next("run3")
    for n in range(4, 500):
        world.run(f"run{n}")
    assert calls_of_the_next("run500") == early


def test_an_uncommitted_range_is_adopted_and_never_planned_again() -> None:
    """The log has grown and the limits have changed: the range has not."""
    world = World()
    first = world.planned("run1")
    world.brokers.latest[P0] = 1000
    second = world.plan("run2", Request(max_records=500))
    assert isinstance(second, Planned)
    assert second.origin == "adopted"
    assert second.saved.load.ranges == first.saved.load.ranges
    assert second.saved.why.adopted_from == "run1"
    assert world.brokers.asked == 2  # once for the plan, and once for the topics' ids
    assert world.commit(second) is True
    assert world.commit(first) is False
    assert world.cursor.seq == 1


def test_an_adopting_run_owns_the_range_too() -> None:
    """Cleared later, it re-does what it loaded."""
    world = World()
    world.planned("run1")
    second = world.run("run2")
    world.run("run3")
    assert world.planned("run2").saved == second.saved


def test_a_lost_cursor_is_never_taken_for_a_beginning() -> None:
    """Receipts in the sink, or later saved ranges, tell that the pipeline has run."""
    world = World()
    planned = world.run("run1")
    receipt = receipt_of(planned.saved)
    assert receipt is not None
    world.store.values.clear()
    world.sink.found.append(receipt)
    with pytest.raises(CursorLost, match="ledger rebuild p"):
        world.plan("run2")
    other = World()
    other.run("run1")
    other.planned("run2")
    del other.store.values["tidegate.p.cursor"]
    with pytest.raises(CursorLost, match="batch 2"):
        other.plan("run3")


def test_a_first_run_that_died_before_its_commit_is_adopted_though_the_sink_has_its_receipt() -> None:
    """Its saved range tells that this is no beginning and no loss."""
    world = World()
    first = world.planned("run1")
    receipt = receipt_of(first.saved)
    assert receipt is not None
    world.sink.found.append(receipt)
    assert world.planned("run2").saved.load.ranges == first.saved.load.ranges


def test_an_unreadable_store_plans_nothing() -> None:
    """A failed listing, and a listed key that cannot be read, are errors."""
    world = World()
    world.run("run1")
    world.store.failing = True
    with pytest.raises(StateUnavailable):
        world.plan("run2")
    world.store.failing = False
    before = dict(world.store.values)
    world.store.values["tidegate.p.cursor"] = '{"seq": 0}'
    with pytest.raises(StateCorrupt, match=r"tidegate\.p\.cursor"):
        world.plan("run2")
    assert len(world.store.values) == len(before)


def test_a_cursor_older_than_the_schedule_is_refused() -> None:
    """A restored backup of one Variable is found out."""
    world = World()
    world.run("run1")
    old = world.store.values["tidegate.p.cursor"]
    world.run("run2")
    world.planned("run3")
    world.store.values["tidegate.p.cursor"] = old
    del world.sink.found[1:]
    with pytest.raises(StateCorrupt, match=r"batch 3 is saved, but the cursor is at batch 1.*ledger rebuild p"):
        world.plan("run4")


def test_a_cursor_that_was_never_where_it_is_says_so_before_anything_else() -> None:
    """Its batch number goes back, and its offsets do not: no commit left it like this."""
    world = World()
    for n in range(3):
        world.run(f"run{n}")
    Ledger(world.store, "p").save_cursor(replace(world.cursor, seq=1))
    with pytest.raises(StateCorrupt, match=r"batch 1 did not lead to where the cursor is.*ledger rebuild p"):
        world.plan("run4")


def test_a_cursor_that_was_put_back_by_several_batches_catches_up_as_far_as_the_table_tells() -> None:
    """A commit that was stopped between its check and its write, and woke up late; batches without records count too."""
    world = World(pipeline=source(topics=("t",), start="latest"))
    world.run("run0")
    old = world.store.values["tidegate.p.cursor"]
    for n in range(1, 4):
        world.brokers.latest[P0] += 5
        planned = world.planned(f"run{n}")
        landed(world, planned)
        world.commit(planned)
    world.brokers.latest[P0] += 5
    pending = world.planned("run4")
    world.store.values["tidegate.p.cursor"] = old
    dry = plan_batch(
        world.pipeline, "dry", Request(), store=world.store, brokers=world.brokers, sink=world.sink, now_ms=9, save=False
    )
    assert isinstance(dry, Planned)
    assert (world.store.values["tidegate.p.cursor"], dry.caught_up_from) == (old, 1)
    again = world.planned("run5")
    assert (again.origin, again.caught_up_from, again.saved.load.ranges) == ("adopted", 1, pending.saved.load.ranges)
    assert world.cursor.seq == 4
    assert world.commit(again) is True
    assert (world.cursor.seq, world.cursor.at.offsets, world.cursor.at.starts) == (5, {P0: 45}, {P0: 25})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ranges": {"t": {"0": [13, 20]}}}, r"t-0 at 10, not 13 \(-3 offsets\)"),
        ({"ranges": {"t": {"0": [7, 20]}}}, r"t-0 at 10, not 7 \(\+3 offsets\)"),
        ({"ranges": {"t": {"1": [5, 20]}}, "reasons": {"cursor to log end": {"t": [1]}}}, "does not know t-1, expected at 5"),
        ({"topic_ids": {"t": "other"}}, "the topic id id of t, not other"),
    ],
    ids=["gap", "overlap", "unknown partition", "another topic"],
)
def test_a_saved_range_that_does_not_start_at_the_cursor_is_refused(change: dict[str, Any], fault: str) -> None:
    """With its key, what differs, and the command that drops it; nothing is planned."""
    world = World()
    world.run("run1")
    pending = world.planned("run2")
    world.store.values[pending.key] = encode("range", {**pending.saved.to_json(), **change})
    before = dict(world.store.values)
    with pytest.raises(CommitConflict, match=rf"^{pending.key}: .*{fault}.*airflow variables delete {pending.key}"):
        world.plan("run3")
    assert world.store.values == before
    del world.store.values[pending.key]
    assert world.run("run4").saved.load.ranges == pending.saved.load.ranges


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"offsets": {"t": {"0": 13}}}, r"t-0 at 13, not 10 \(\+3 offsets\)"),
        ({"offsets": {"t": {"0": 7}}}, r"t-0 at 7, not 10 \(-3 offsets\)"),
        ({"offsets": {}}, "does not know t-0, expected at 10"),
        ({"topic_ids": {"t": "other"}}, "the topic id other of t, not id"),
    ],
    ids=["gap", "overlap", "missing partition", "another topic"],
)
def test_a_cursor_that_is_not_where_its_last_batch_ended_is_refused(change: dict[str, Any], fault: str) -> None:
    """Though its checksum fits; a rebuild repairs it, since the table holds the batch."""
    world = World()
    landed(world, world.run("run1"))
    key = "tidegate.p.cursor"
    world.store.values[key] = encode("cursor", {**world.cursor.to_json(), **change})
    before = dict(world.store.values)
    with pytest.raises(StateCorrupt, match=rf"^{key}: batch 1 .*{fault}.*tidegate ledger rebuild p"):
        world.plan("run2")
    assert world.store.values == before


def test_a_range_that_a_late_plan_wrote_over_is_no_fault_of_the_cursor() -> None:
    """The receipt tells what was loaded: the plan of an earlier try of the same task woke up after the commit."""
    world = World()
    planned = world.run("run1")
    landed(world, planned)
    world.store.values[planned.key] = encode("range", {**planned.saved.to_json(), "ranges": {"t": {"0": [0, 4]}}})
    assert [str(r) for r in world.run("run2").saved.load.ranges] == ["t-0 [10, 20)"]


def test_a_partition_that_a_batch_retired_is_gone_from_the_cursor_it_led_to() -> None:
    """One that somebody put in again is found."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    del world.brokers.latest[Q0]
    world.run("run2")
    Ledger(world.store, "p").save_cursor(changed(world.cursor, offsets={P0: 5, Q0: 7}))
    with pytest.raises(StateCorrupt, match="q-0 at 7, which it should not know"):
        world.plan("run3")


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_commit_that_happened_is_done_again_though_a_partition_was_retired_or_made_anew_since(*, made_anew: bool) -> None:
    """As for a run that is cleared: the cursor keeps how far it had come there."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    first = world.run("run1")
    if made_anew:
        world.brokers.ids["q"], world.brokers.latest[Q0] = "new", 3
        accept_recreated(world.pipeline, "q", **world.ports)
    else:
        world.pipeline = source(topics=("t",), on_deleted="retire")
    world.run("run2")
    before = world.cursor
    again = first if made_anew else world.plan("run1", Request(ran_at_ms=1))
    assert isinstance(again, Planned)
    assert not world.commit(again)
    assert world.cursor == before


def test_a_range_of_a_topic_that_was_created_again_is_not_loaded_from_the_new_one() -> None:
    """Neither adopted, nor tried again, nor done over; what has landed already is committed all the same."""
    world = World()
    first, second = world.run("run1"), world.planned("run2")
    world.brokers.ids["t"] = "new"
    for run_id in ("run2", "run3"):
        with pytest.raises(TopicRecreated, match=rf"batch 2 was planned: .*new.*airflow variables delete {second.key}"):
            world.plan(run_id)
    with pytest.raises(TopicRecreated, match=r"batch 1 was planned.*rows stay"):
        world.plan(first.saved.load.run_id)
    landed(world, second)
    assert world.commit(world.planned("run2")) is True
    with pytest.raises(TopicRecreated, match="accept recreated p t"):
        world.plan("run4")


def test_a_value_under_a_strangers_key_is_refused() -> None:
    """A copied Variable is not this batch's, a copied cursor not this pipeline's."""
    world = World()
    planned = world.planned("run1")
    world.store.values["tidegate.p.range.0000000007.x-1"] = world.store.values[planned.key]
    with pytest.raises(StateCorrupt, match="holds batch 1"):
        Ledger(world.store, "p").saved_range("tidegate.p.range.0000000007.x-1")
    world.store.values["tidegate.p.cursor"] = encode("cursor", cursor_of("q").to_json())
    with pytest.raises(StateCorrupt, match="cursor of q"):
        Ledger(world.store, "p").cursor()


@pytest.mark.parametrize("body", [{}, {**cursor_of("p").to_json(), "seq": -1}, {**cursor_of("p").to_json(), "offsets": [1]}])
def test_a_value_of_the_wrong_shape_is_refused_with_its_key_and_the_repair(body: dict[str, Any]) -> None:
    """Though its checksum fits."""
    world = World()
    world.store.values["tidegate.p.cursor"] = encode("cursor", body)
    with pytest.raises(StateCorrupt, match=r"^tidegate\.p\.cursor: .*ledger rebuild p"):
        world.plan("run1")


def test_history_is_pruned_to_the_newest_ranges() -> None:
    """Uncommitted ranges never go."""
    world = World(pipeline=Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(1), keep_ranges=3))
    for n in range(8):
        world.run(f"run{n}")
    seqs = [r.seq for r in Ledger(world.store, "p").listing().ranges]
    assert seqs == [6, 7, 8]


def test_strange_keys_of_the_same_prefix_are_passed_over() -> None:
    """Replays and other pipelines share the prefix."""
    store = MemoryStore({"tidegate.p.replay.x.1": "", "tidegate.p.range.x": "", "tidegate.p2.cursor": ""})
    assert Ledger(store, "p").listing().ranges == ()
    assert not Ledger(store, "p").listing().has_cursor


@given(st.text(min_size=1, max_size=250))
def test_any_run_id_makes_a_key_that_stores_and_logs_can_take(run_id: str) -> None:
    """Short, plain, and free of words that Airflow masks."""
    key = Ledger(MemoryStore(), "p" * 60).range_key(9_999_999_999, run_id)
    assert len(key) < 250
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in key)
    assert not any(word in run_key(run_id) for word in ("token", "secret", "password"))


def test_run_ids_that_look_alike_have_different_keys() -> None:
    """Run ids that differ in case, blanks or signs have different keys, also in a store that compares keys loosely."""
    ids = ["manual__A", "manual__a", "manual a", "manual/a", "manual?a", "manual#a", "manual%a", "manual+a", "my_token_run", ""]
    assert len({run_key(i).lower() for i in ids}) == len(ids)


Q0 = TopicPartition("q", 0)


def source(**settings: Any) -> Pipeline:
    return Pipeline("p", Source(**settings), "m:f", Sink("lake.a.b"))


def test_a_pattern_takes_new_topics_from_their_beginning_in_the_run_that_first_sees_them() -> None:
    """And leaves out what is excluded."""
    world = World(pipeline=source(pattern="[a-z]", exclude=("x",)), brokers=FakeBrokers({P0: 5, TopicPartition("x", 0): 9}))
    assert world.run("run1").saved.load.ranges == (OffsetRange("t", 0, 0, 5),)
    world.brokers.latest[Q0] = 3
    assert world.run("run2").saved.load.ranges == (OffsetRange("q", 0, 0, 3),)
    assert world.cursor.at.topic_ids == {"t": "id", "q": "id"}


def test_a_pattern_that_matches_nothing_is_named_by_a_first_run() -> None:
    """Rather than committing an empty beginning."""
    with pytest.raises(TopicNotFound, match="no topic matches"):
        World(pipeline=source(pattern="z")).plan("run1")


def test_an_assignment_reads_these_partitions_and_no_others() -> None:
    """Of several topics."""
    world = World(
        pipeline=source(assign={"t": (1,), "q": (0,)}), brokers=FakeBrokers({P0: 5, TopicPartition("t", 1): 6, Q0: 7})
    )
    assert [str(r) for r in world.run("run1").saved.load.ranges] == ["q-0 [0, 7)", "t-1 [0, 6)"]


def test_a_topic_that_is_made_again_after_it_was_retired_stops_the_pipeline_until_that_is_accepted() -> None:
    """Its records have the origins of the old one's, and would replace some of the old rows."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    del world.brokers.latest[Q0]
    world.run("run2")
    world.brokers.latest, world.brokers.ids["q"] = {P0: 5, Q0: 3}, "new"
    with pytest.raises(TopicRecreated, match="accept recreated p q"):
        world.plan("run3")
    accept_recreated(world.pipeline, "q", **world.ports)
    assert [str(r) for r in world.run("run3").saved.load.ranges] == ["q-0 [0, 3)"]
    assert (world.cursor.at.topic_ids["q"], world.cursor.at.former) == ("new", {Q0: 7})


@pytest.mark.parametrize("named", [{"topics": ("q",)}, {"pattern": "q"}, {"assign": {"q": (0,)}}])
def test_a_pipeline_whose_only_topic_was_retired_skips_until_there_is_one(named: dict[str, Any]) -> None:
    """Every run of it is green, as the one that retired the topic."""
    world = World(pipeline=source(**named, on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    del world.brokers.latest[Q0]
    world.run("run2")
    found = world.plan("run3")
    assert isinstance(found, Skip)
    assert "no topic of the pipeline's `source` exists" in found.reason


def test_what_the_file_names_and_never_existed_is_refused_where_deleted_topics_are_retired() -> None:
    """A partition that an assignment names, too: nothing would ever be read of it."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    world.pipeline = source(topics=("t", "q", "typo"), on_deleted="retire")
    with pytest.raises(TopicNotFound, match="typo"):
        world.plan("run2")
    for on_deleted in ("stop", "retire"):
        world.pipeline = source(assign={"t": (0, 1), "q": (0,)}, on_deleted=on_deleted)
        with pytest.raises(TopicNotFound, match="partition t-1 does not exist: topic t has 1 partitions"):
            world.plan("run2")


def test_unread_records_of_a_topic_that_the_file_left_out_are_counted_and_accepted_before_it_is_retired() -> None:
    """The topic is there, and holds them. More of them may come before the next run."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    with pytest.raises(RequestError, match="lost nothing"):
        accept_loss(world.pipeline, **world.ports)
    world.pipeline = source(topics=("t",), on_deleted="retire")
    world.brokers.latest[Q0], world.brokers.earliest[Q0] = 40, 10
    with pytest.raises(PartitionsLeftOut, match="30 of its records are unread") as caught:
        world.plan("run2")
    assert "tidegate accept loss p" in caught.value.fix
    accepted, _ = accept_loss(world.pipeline, **world.ports)
    assert accepted.loss == (OffsetRange("q", 0, 10, 40),)
    world.brokers.latest[Q0] = 41
    assert world.run("run2").saved.retired == (Q0,)
    assert isinstance(world.plan("run3"), Skip)


def test_a_topic_that_was_left_out_and_made_again_has_nothing_unread() -> None:
    """Its records are others than those that the cursor waits for."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    world.pipeline = source(topics=("t",), on_deleted="retire")
    world.brokers.latest[Q0], world.brokers.ids["q"] = 40, "new"
    assert world.run("run2").saved.retired == (Q0,)


def test_a_start_by_time_is_resolved_once_by_the_first_run_and_saved_as_numbers() -> None:
    """Where no record is that late, it is the log's end."""
    world = World(pipeline=source(topics=("t", "q"), start=StartTime(4)), brokers=FakeBrokers({P0: 9, Q0: 3}))
    first = world.run("run1").saved
    assert [str(r) for r in first.load.ranges] == ["q-0 [3, 3)", "t-0 [4, 9)"]
    assert {d.from_reason for d in first.why.decisions} == {"timestamp"}
    world.brokers.latest[Q0] = 6
    assert [str(r) for r in world.run("run2").saved.load.ranges] == ["q-0 [3, 6)"]


def test_a_start_at_offsets_is_taken_as_it_is() -> None:
    """By the first run."""
    world = World(pipeline=source(topics=("t",), start=StartOffsets({P0: 20})))
    assert [str(r) for r in world.run("run1").saved.load.ranges] == ["t-0 [20, 25)"]


def test_a_log_end_below_the_cursor_is_read_again_before_it_is_believed() -> None:
    """A recovering broker that comes back, one that goes on moving, and a truncated log."""
    world = World()
    for n in range(3):
        world.run(f"run{n}")
    world.brokers.next_reads = [{P0: 20}, {P0: 27}]
    assert [str(r) for r in world.run("run3").saved.load.ranges] == ["t-0 [25, 27)"]
    assert world.brokers.settled == 1
    world.brokers.next_reads = [{P0: 20}, {P0: 21}, {P0: 22}]
    with pytest.raises(WatermarksUnstable) as caught:
        world.plan("run4")
    assert caught.value.retryable
    world.brokers.next_reads = [{P0: 20}, {P0: 20}, {P0: 20}]
    with pytest.raises(CursorBeyondLog):
        world.plan("run5")


def test_an_accepted_recreation_lets_the_topic_start_anew() -> None:
    """Only a topic of the pipeline, only one that was created again, and kept beside an accepted loss."""
    world = World()
    world.run("run1")
    with pytest.raises(RequestError, match="has read no topic q"):
        accept_recreated(PIPELINE, "q", **world.ports)
    with pytest.raises(RequestError, match="not created again"):
        accept_recreated(PIPELINE, "t", **world.ports)
    world.brokers.ids["t"], world.brokers.latest[P0] = "new", 4
    with pytest.raises(TopicRecreated, match="accept recreated p t"):
        world.plan("run2")
    assert accept_recreated(PIPELINE, "t", **world.ports).recreated == {"t": "new"}
    assert [str(r) for r in world.run("run3").saved.load.ranges] == ["t-0 [0, 4)"]
    assert (world.cursor.at.offsets, world.cursor.at.topic_ids) == ({P0: 4}, {"t": "new"})


def test_an_acceptance_under_another_batchs_key_is_refused() -> None:
    """A copied Variable."""
    world = World()
    world.run("run1")
    world.store.values["tidegate.p.accepted.0000000002"] = encode("accepted", Accepted(9).to_json())
    with pytest.raises(StateCorrupt, match="accepted for batch 9"):
        world.plan("run2")


def test_the_size_of_records_is_kept_for_limits_in_bytes() -> None:
    """The cursor carries it from one load to the next plan."""
    pipeline = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(max_bytes=1000))
    world = World(pipeline=pipeline)
    planned = world.planned("run1")
    commit_batch(pipeline, planned.key, world.load(planned), store=world.store, record_bytes=200.0)
    world.brokers.latest[P0] = 1000
    assert [str(r) for r in world.run("run2").saved.load.ranges] == ["t-0 [25, 30)"]


def test_what_is_announced_with_a_batch_is_saved_with_the_cursor() -> None:
    """It is decided on the batch and the cursor after it, once; a batch that announces nothing keeps what was announced."""
    world = World()
    asked = []

    def announce(saved: SavedRange, cursor: Cursor) -> tuple[int, int]:
        asked.append((saved.load.seq, cursor.seq, cursor.announced))
        return 10, 20

    planned = world.planned("run1")
    for _ in range(2):
        _, after, _ = commit_batch(PIPELINE, planned.key, world.load(planned), store=world.store, announce=announce)
        assert after.announced == world.cursor.announced == (10, 20)
    assert asked == [(1, 1, None)]
    world.brokers.latest[P0] = 1000
    world.run("run2")
    assert world.cursor.announced == (10, 20)


@given(st.data())
def test_over_growth_limits_expansions_and_crashes_each_offset_is_committed_once_and_in_order(data: st.DataObject) -> None:
    """A run may die after its plan, be called again, be cleared later; the log may grow, and the topic, at any moment."""
    world = World(brokers=FakeBrokers({P0: data.draw(st.integers(0, 30))}))
    done: list[Planned] = []
    committed: dict[TopicPartition, list[OffsetRange]] = {}
    for n in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            world.brokers.latest.setdefault(TopicPartition("t", len(world.brokers.latest)), 0)
        for tp in world.brokers.latest:
            world.brokers.latest[tp] += data.draw(st.integers(0, 25))
        if data.draw(st.booleans()) and done:  # somebody clears an old run
            old = data.draw(st.sampled_from(done))
            again = world.planned(old.saved.load.run_id)
            assert again.saved.load.ranges == old.saved.load.ranges
            assert world.commit(again) is False
        request = Request(max_records=data.draw(st.none() | st.integers(1, 30)))
        found = world.plan(f"run{n}", request)
        if isinstance(found, Skip) or data.draw(st.booleans()):  # nothing to do, or the run dies here
            continue
        assert world.commit(found) is True
        done.append(found)
        for r in found.saved.load.ranges:
            committed.setdefault(r.topic_partition, []).append(r)
    for tp, ranges in committed.items():
        assert [r.from_offset for r in ranges] == [0, *(r.until_offset for r in ranges[:-1])]
        assert ranges[-1].until_offset == world.cursor.at.offsets[tp] <= world.brokers.latest[tp]
    assert [p.saved.load.seq for p in done] == list(range(1, len(done) + 1))


def landed(world: World, planned: Planned) -> None:
    """The load's commit is in the sink."""
    receipt = receipt_of(planned.saved)
    assert receipt is not None
    world.sink.found.append(receipt)


def test_a_cursor_that_a_zombie_wrote_over_is_caught_up_from_the_saved_range() -> None:
    """One batch behind: its range is adopted, its load has landed, and nothing is read twice into the table."""
    world = World()
    world.run("run1")
    old = world.store.values["tidegate.p.cursor"]
    second = world.planned("run2")
    landed(world, second)
    world.commit(second)
    world.store.values["tidegate.p.cursor"] = old
    again = world.planned("run3")
    assert (again.origin, again.saved.load.ranges) == ("adopted", second.saved.load.ranges)
    assert world.commit(again) is True
    assert world.cursor.seq == 2


def test_a_cursor_that_the_tables_own_commits_have_passed_is_refused() -> None:
    """Also where no saved range is left to tell."""
    world = World()
    world.run("run1")
    old = world.store.values["tidegate.p.cursor"]
    second = world.planned("run2")
    landed(world, second)
    world.commit(second)
    world.store.values["tidegate.p.cursor"] = old
    del world.store.values[second.key]
    with pytest.raises(StateCorrupt, match=r"the table holds batch 2 .*ledger rebuild p"):
        world.plan("run3")


def test_a_cursor_from_before_a_rebuild_is_refused() -> None:
    """The table holds loads of a later generation."""
    world = World()
    world.run("run1")
    world.sink.found.append(Receipt(write_of("p", 1, "r", (OffsetRange("t", 0, 0, 10),), "v", "a", generation=1), 1, 1, 1))
    with pytest.raises(StateCorrupt, match="generation 1"):
        world.plan("run2")


def test_a_range_from_before_a_rebuild_is_never_committed() -> None:
    """A zombie's commit needs the generation that it planned under."""
    world = World()
    stale = world.planned("run1")
    Ledger(world.store, "p").save_cursor(cursor_of("p", 0, generation=1))
    with pytest.raises(CommitConflict):
        world.commit(stale)
    assert world.cursor.generation == 1


def test_a_cursor_that_is_rebuilt_once_more_is_later_than_every_saved_range() -> None:
    """Also where the one before it is lost, whose generation is in no receipt, but in the range that was planned by it."""
    world = World()
    world.run("run1")
    for generation in (1, 2):
        assert restore(world.pipeline, store=world.store, sink=world.sink).cursor.generation == generation
        world.planned(f"after{generation}")
        del world.store.values["tidegate.p.cursor"]


def test_a_replay_in_the_table_says_nothing_of_the_cursor() -> None:
    """Its chunks are no batches."""
    world = World()
    world.run("run1")
    replayed = write_of("p", 99, "r", (OffsetRange("t", 0, 0, 10),), "v", "a", generation=0, replay="again")
    world.sink.found.append(Receipt(replayed, 1, 1, 1))
    assert world.run("run2").saved.load.seq == 2


@pytest.mark.parametrize(
    "source",
    [Source(("t",)), Source(pattern="t|u", exclude=("u",)), Source(assign={"t": (0,)})],
    ids=["topics", "pattern", "assign"],
)
def test_what_the_file_left_out_is_named_whatever_names_the_source(source: Source) -> None:
    """Nothing is planned until somebody says what to do with it."""
    before = Pipeline("p", Source(("t", "u")), "m:f", Sink("lake.a.b"))
    world = World(brokers=FakeBrokers({P0: 25, TopicPartition("u", 0): 5}), pipeline=before)
    world.run("run1")
    world.pipeline = replace(before, source=source)
    with pytest.raises(PartitionsLeftOut, match="u-0"):
        world.plan("run2")
    world.pipeline = replace(before, source=replace(source, on_deleted="retire"))
    assert world.planned("run2").saved.retired == (TopicPartition("u", 0),)


@pytest.mark.parametrize(
    ("start", "begins"), [("latest", 9), (StartTime(4), 4), (StartOffsets({TopicPartition("u", 0): 7}), 7), ("earliest", 0)]
)
def test_a_topic_that_is_added_to_the_file_begins_at_its_start(start: Any, begins: int) -> None:
    """As in a first run; the topics that were read go on."""
    source = Source(("t",), start=start if not isinstance(start, StartOffsets) else "earliest")
    pipeline = Pipeline("p", source, "m:f", Sink("lake.a.b"))
    world = World(brokers=FakeBrokers({P0: 25}), pipeline=pipeline)
    world.run("run1")
    world.brokers.latest[TopicPartition("u", 0)] = 9
    world.brokers.latest[P0] = 30
    world.pipeline = replace(pipeline, source=Source(("t", "u"), start=start))
    ranges = {r.topic: r for r in world.planned("run2").saved.load.ranges}
    assert ranges["u"] == OffsetRange("u", 0, begins, 9)
    assert ranges["t"].from_offset == 25


@pytest.mark.parametrize("expired", [False, True])
def test_a_first_range_that_retention_passed_is_named_and_its_loss_can_be_accepted(*, expired: bool) -> None:
    """Also in a table with rows of another pipeline, which its failed load has made it an owner of."""
    world = World(pipeline=replace(PIPELINE, sink=Sink("lake.a.b", shared_with=("other",))))
    planned = world.planned("failed")
    world.sink.owners, world.sink.has_rows, world.sink.expired = frozenset({"p", "other"}), True, expired
    world.brokers.earliest[P0] = 7
    with pytest.raises(OffsetsExpired, match=r"batch 1 of p were deleted after it was planned.*\[0, 7\).*accept loss p"):
        world.plan("run2")
    accepted, dropped = accept_loss(world.pipeline, **world.ports)
    assert (accepted.loss, dropped) == ((OffsetRange("t", 0, 0, 7),), (planned.saved,))
    assert world.run("run2").saved.load.ranges == (OffsetRange("t", 0, 7, 17),)


def test_a_first_range_that_was_deleted_is_planned_anew_once_the_table_does_not_name_the_pipeline() -> None:
    """Where receipts have expired, rows of others look like its own to a pipeline whose load has failed."""
    world = World(pipeline=replace(PIPELINE, sink=Sink("lake.a.b", shared_with=("other",))))
    world.store.delete(world.planned("failed").key)
    world.sink.owners, world.sink.has_rows, world.sink.expired = frozenset({"p", "other"}), True, True
    with pytest.raises(CursorLost, match="ledger rebuild p"):
        world.plan("run2")
    with pytest.raises(StateError, match=r"UNSET TBLPROPERTIES \('tidegate.owner.p'\)"):
        restore(world.pipeline, store=world.store, sink=world.sink)
    world.sink.owners = frozenset({"other"})
    assert world.planned("run2").saved.load.seq == 1


def test_a_pending_range_of_a_topic_that_is_gone_and_retired_is_named_and_its_loss_can_be_accepted() -> None:
    """Otherwise each run would adopt it, and none could load it. One of a topic that the file has left out is still loaded."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    world.brokers.latest = {P0: 8, Q0: 9}
    planned = world.planned("failed")
    world.pipeline = source(topics=("t",), on_deleted="retire")
    assert accept_loss(world.pipeline, **world.ports)[1] == ()
    world.pipeline = source(topics=("t", "q"), on_deleted="retire")
    del world.brokers.latest[Q0]
    for run in ("failed", "run2"):
        with pytest.raises(OffsetsExpired, match=r"batch 2 of p were deleted.*: q-0 \[7, 9\) = 2 offsets.*accept loss p"):
            world.plan(run)
    assert accept_loss(world.pipeline, **world.ports)[1] == (planned.saved,)
    again = world.run("run2").saved
    assert (again.load.ranges, again.retired) == ((OffsetRange("t", 0, 5, 8),), (Q0,))


def test_a_committed_batch_whose_records_are_gone_is_not_loaded_again() -> None:
    """Its rows stay as they are."""
    world = World()
    world.run("run1")
    world.brokers.earliest[P0] = 3
    with pytest.raises(OffsetsExpired, match="rows of this batch stay as they are"):
        world.plan("run1")


def test_a_batch_carries_the_positions_of_what_it_does_not_read() -> None:
    """Its receipt tells the whole cursor."""
    p1 = TopicPartition("t", 1)
    world = World(brokers=FakeBrokers({P0: 25, p1: 0}))
    world.run("run1")
    world.brokers.latest[P0] = 30
    beside = world.run("run2").saved.load.beside
    assert beside is not None
    assert (beside.offsets, beside.topic_ids, beside.starts) == ({p1: 0}, {}, {})
    assert world.sink.found[-1].load.after == world.cursor.at


def test_a_rebuilt_schedule_keeps_where_a_topic_begins_that_had_no_record_yet() -> None:
    """By the batch that fixed it, which leaves no receipt, as long as its saved range is kept; later by a receipt."""
    start = source(topics=("t", "q"), start="latest")
    world = World(pipeline=source(topics=("t",)), brokers=FakeBrokers({P0: 5}))
    world.run("run1")
    world.pipeline, world.brokers.latest[Q0] = start, 100
    assert world.run("run2").saved.load.nonempty == ()
    before = world.cursor
    del world.store.values["tidegate.p.cursor"]
    assert restore(start, store=world.store, sink=world.sink).cursor.at == before.at
    assert before.at.offsets[Q0] == world.cursor.at.offsets[Q0] == 100
    world.brokers.latest[P0] = 9
    world.run("run3")
    assert world.sink.found[-1].load.after == world.cursor.at
    assert rebuild("p", world.sink.found).cursor.at == world.cursor.at


def test_what_was_read_of_one_topic_is_held_though_another_one_was_made_again() -> None:
    """A receipt counts for the topics that are still the same ones."""
    world = World(pipeline=source(topics=("t", "q")), brokers=FakeBrokers({P0: 25, Q0: 5}))
    world.run("run1")
    cursor = changed(world.cursor, topic_ids={**world.cursor.at.topic_ids, "q": "new"}, offsets={P0: 25, Q0: 0})
    missing = find_missing(cursor, world.sink.history("lake.a.b"), lambda: (), lineage=False)
    assert missing is None


def test_what_was_accepted_goes_with_a_rebuild() -> None:
    """It was for a batch of the schedule that is replaced; a commit keeps what is for a later batch."""
    world = World()
    ledger = Ledger(world.store, "p")
    key = ledger.save_accepted(Accepted(2))
    world.run("run1")
    assert ledger.replace(ledger.listing(), world.cursor, (), keep=10) == [key]


def test_what_maintenance_keeps_of_expired_snapshots_is_nothing_to_maintain() -> None:
    """A plan reads it where the table's own snapshots do not prove the last batch."""
    world = World()
    world.run("run1")
    [last] = world.sink.found
    world.sink.found, world.sink.expired, world.sink.others = [], True, [TableCommit(-1, last.committed_at_ms + 1)]
    world.sink.kept = [*(replace(last, snapshot=-n, committed_at_ms=0) for n in range(2, 3000)), last]
    world.now_ms = 100 * 86_400_000
    assert world.planned("run2").remarks.maintenance is None
