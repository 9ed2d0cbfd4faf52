"""Laws of a batch's way: plan, adopt, load again, commit. What a plan refuses: `test_refused_plans.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.records import changed, cursor_of
from tests.unit.test_refused_plans import retires, two
from tests.unit.world import CURSOR, P0, PIPELINE, Q0, World, source
from tidegate.core.audit.restore import restore
from tidegate.core.config.pipeline import Limits, Sink
from tidegate.core.config.values import StartGroup, StartOffsets, StartTime
from tidegate.core.model import errors
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.accept import accept_loss, accept_recreated
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.rebuild import rebuild
from tidegate.core.planning.run import Planned, commit_batch
from tidegate.core.state.codec import encode
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.history import TableCommit, find_missing
from tidegate.core.state.ledger import run_key
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers, MemoryStore


def ranges_of(planned: Planned) -> list[str]:
    return [str(r) for r in planned.saved.load.ranges]


def skipped(world: World, run_id: str, **asked: Any) -> Skip:
    found = world.plan(run_id, **asked)
    assert isinstance(found, Skip)
    return found


def of_two(t: int, q: int, **settings: Any) -> World:
    """A pipeline of two topics that hold so many records."""
    return World(pipeline=source(**{"topics": ("t", "q"), **settings}), brokers=FakeBrokers(latest={P0: t, Q0: q}))


def test_a_plan_is_saved_by_one_write_before_any_work() -> None:
    """The write is the last thing that planning does, but for a look whether it came too late."""
    world = World()
    planned = world.planned("run1")
    assert (planned.origin, ranges_of(planned), planned.saved.why.limits) == ("planned", ["t-0 [0, 10)"], {"max_records": 10})
    assert [verb for verb, _ in world.store.calls].count("put") == 1
    assert world.store.calls[-2:] == [("put", planned.key), ("get", CURSOR)]


def test_a_plan_says_how_many_records_wait_and_after_which_cursor() -> None:
    """Those of its range among them. A range that was saved before knows only what waited then."""
    world = World()
    first = world.planned("run1")
    told = [(first.waiting, first.cursor)]
    told += [(again.waiting, again.cursor) for again in (world.planned("run1"), world.planned("run2"))]
    assert told == [(waiting, cursor_of("p")) for waiting in (25, None, None)]
    world.load(first)
    assert world.planned("run2").cursor is None  # the table holds the batch: brokers that are away do not matter
    world.commit(first)
    assert (world.run("run3").waiting, world.run("run4").waiting) == (15, 5)
    skip = skipped(world, "run5")
    assert (skip.waiting, skip.cursor) == (0, world.cursor)
    world.pipeline = replace(PIPELINE, limits=Limits(10, min_records=5))
    world.brokers.latest[P0] += 4
    skip = skipped(world, "run6")
    assert (skip.waiting, skip.cursor) == (4, world.cursor)
    assert skipped(world, "run7", until={P0: 25}).waiting == 4


@dataclass
class FrozenStore(MemoryStore):
    """A store whose next write is held up until `meanwhile` is over."""

    meanwhile: Callable[[], object] | None = None

    def put(self, key: str, value: str, description: str) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().put(key, value, description)


@pytest.mark.parametrize("committed", [0, 1], ids=["first", "later"])
def test_a_plan_that_was_frozen_before_its_write_does_not_overwrite_what_was_committed(committed: int) -> None:
    """The next try of its run has read further and committed; the saved range is again that of the receipt."""
    store = FrozenStore()
    world = World(store=store, pipeline=replace(PIPELINE, limits=Limits()), committed=committed)
    done: list[Planned] = []

    def next_try() -> None:
        world.brokers.latest[P0] = 40
        done.append(world.run("run"))

    world.brokers.latest[P0] = 30
    store.meanwhile = next_try
    with pytest.raises(errors.CommitConflict, match="was committed while this task was frozen"):
        world.plan("run")
    load, kept = done[0].saved.load, world.ledger.saved_range(done[0].key).load
    assert (kept.ranges, kept.run_id, kept.seq, world.cursor.at.offsets) == (load.ranges, "run", load.seq, {P0: 40})
    again = world.planned("run")
    assert (again.origin, again.committed, again.saved.load.ranges) == ("own", True, load.ranges)


def test_a_plan_that_was_frozen_while_another_run_committed_leaves_nothing_behind() -> None:
    """Its run has no batch: a range under its name would contradict that of the batch."""
    store = FrozenStore()
    world = World(store=store, pipeline=replace(PIPELINE, limits=Limits()))
    store.meanwhile = lambda: world.run("run2")
    with pytest.raises(errors.CommitConflict):
        world.plan("run1")
    assert [r.run for r in world.ledger.listing().ranges] == [run_key("run2")]


def test_a_long_history_costs_a_batch_no_further_call() -> None:
    """One listing and the same few values, after three batches as after twenty. The newest ranges are kept."""
    world = World(brokers=FakeBrokers(latest={P0: 1000}), committed=3)

    def calls_of_the_next(run_id: str) -> list[str]:
        before = len(world.store.calls)
        world.run(run_id)
        return [verb for verb, _ in world.store.calls[before:]]

    early = calls_of_the_next("run4")
    for n in range(5, 20):
        world.run(f"run{n}")
    assert calls_of_the_next("run20") == early


def test_history_is_pruned_to_the_newest_ranges() -> None:
    """Uncommitted ranges never go."""
    world = World(pipeline=replace(PIPELINE, limits=Limits(1), keep_ranges=3), committed=8)
    assert [r.seq for r in world.ledger.listing().ranges] == [6, 7, 8]


def test_an_uncommitted_range_is_adopted_and_never_planned_again() -> None:
    """The log has grown and the limits have changed: the range has not. The run that adopts it owns it too."""
    world = World()
    first = world.planned("run1")
    world.brokers.latest[P0] = 1000
    second = world.planned("run2", max_records=500)
    assert (second.origin, second.saved.why.adopted_from) == ("adopted", "run1")
    assert second.saved.load.ranges == first.saved.load.ranges
    assert (world.commit(second), world.commit(first), world.cursor.seq) == (True, False, 1)
    world.run("run3")
    assert world.planned("run2").saved == second.saved


def test_a_cursor_that_was_put_back_by_several_batches_catches_up_as_far_as_the_table_tells() -> None:
    """A commit that was stopped between its check and its write, and woke up late; batches without records count too."""
    world = World(pipeline=source(topics=("t",), start="latest"), committed=1)
    old = world.store.values[CURSOR]
    for n in range(2, 5):
        world.run_of(5, f"run{n}")
    world.brokers.latest[P0] += 5
    pending = world.planned("run5")
    world.store.values[CURSOR] = old
    dry = world.plan("dry", save=False)
    assert isinstance(dry, Planned)
    assert (world.store.values[CURSOR], dry.caught_up_from) == (old, 1)
    again = world.planned("run6")
    assert (again.origin, again.caught_up_from, again.saved.load.ranges) == ("adopted", 1, pending.saved.load.ranges)
    assert (world.cursor.seq, world.commit(again)) == (4, True)
    assert (world.cursor.seq, world.cursor.at.offsets, world.cursor.at.starts) == (5, {P0: 45}, {P0: 25})


def test_a_range_that_a_late_plan_wrote_over_is_no_fault_of_the_cursor() -> None:
    """The receipt tells what was loaded: the plan of an earlier try of the same task woke up after the commit."""
    world = World()
    planned = world.run("run1")
    world.store.values[planned.key] = encode("range", {**planned.saved.to_json(), "ranges": {"t": {"0": [0, 4]}}})
    assert ranges_of(world.run("run2")) == ["t-0 [10, 20)"]


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_commit_that_happened_is_done_again_though_a_partition_was_retired_or_made_anew_since(*, made_anew: bool) -> None:
    """As for a run that is cleared: the cursor keeps how far it had come there."""
    world = two()
    first = world.planned("run1", ran_at_ms=1)
    if made_anew:
        world.brokers.ids["q"], world.brokers.latest[Q0] = "new", 3
        accept_recreated(world.pipeline, "q", **world.ports)
    else:
        world.pipeline = source(topics=("t",), on_deleted="retire")
    world.run("run2")
    before = world.cursor
    assert not world.commit(first if made_anew else world.planned("run1", ran_at_ms=1))
    assert world.cursor == before


# ---- topics that come and go


def test_a_topic_that_is_made_again_starts_anew_once_that_is_accepted() -> None:
    """Also after it was retired: its records have the origins of the old one's, and replace some of the old rows.

    Only a topic of the pipeline can be accepted, and only one that was created again.
    """
    world = two()
    for topic, words in (("x", "has read no topic x"), ("t", "not created again")):
        with pytest.raises(errors.RequestError, match=words):
            accept_recreated(world.pipeline, topic, **world.ports)
    retires(world)
    world.brokers.latest, world.brokers.ids["q"] = {P0: 5, Q0: 3}, "new"
    assert accept_recreated(world.pipeline, "q", **world.ports).recreated == {"q": "new"}
    assert ranges_of(world.run("run3")) == ["q-0 [0, 3)"]
    assert (world.cursor.at.topic_ids["q"], world.cursor.at.former) == ("new", {Q0: 7})


@pytest.mark.parametrize("named", [{"topics": ("q",)}, {"topics": (), "pattern": "q"}, {"topics": (), "assign": {"q": (0,)}}])
def test_a_pipeline_whose_only_topic_was_retired_skips_until_there_is_one(named: dict[str, Any]) -> None:
    """Every run of it is green, as the one that retired the topic."""
    world = of_two(5, 7, **named, on_deleted="retire")
    world.run("run1")
    retires(world)
    assert "no topic of the pipeline's `source` exists" in skipped(world, "run3").reason


def test_unread_records_of_a_topic_that_the_file_left_out_are_counted_and_accepted_before_it_is_retired() -> None:
    """The topic is there, and holds them, unless it is another one now. More of them may come before the next run."""
    world = two()
    with pytest.raises(errors.RequestError, match="lost nothing"):
        accept_loss(world.pipeline, **world.ports)
    world.pipeline = source(topics=("t",), on_deleted="retire")
    world.brokers.latest[Q0], world.brokers.earliest[Q0] = 40, 10
    with pytest.raises(errors.PartitionsLeftOut, match=r"30 of its records are unread.*tidegate accept loss p"):
        world.plan("run2")
    world.brokers.ids["q"] = "new"
    assert world.planned("other", save=False).saved.retired == (Q0,)
    world.brokers.ids["q"] = "id"
    assert accept_loss(world.pipeline, **world.ports)[0].loss == (OffsetRange("q", 0, 10, 40),)
    world.brokers.latest[Q0] = 41
    assert world.run("run2").saved.retired == (Q0,)
    skipped(world, "run3")


def test_a_start_is_resolved_once_by_the_first_run_and_saved_as_numbers() -> None:
    """By time; where no record is that late, it is the log's end. Offsets are taken as they are."""
    world = of_two(9, 3, start=StartTime(4))
    first = world.run("run1")
    assert ranges_of(first) == ["q-0 [3, 3)", "t-0 [4, 9)"]
    assert {d.from_reason for d in first.saved.why.decisions} == {"timestamp"}
    world.brokers.latest[Q0] = 6
    assert ranges_of(world.run("run2")) == ["q-0 [3, 6)"]
    assert ranges_of(World(pipeline=source(topics=("t",), start=StartOffsets({P0: 20}))).run("run1")) == ["t-0 [20, 25)"]


def test_a_first_run_goes_on_where_a_consumer_group_stopped() -> None:
    """What the group had no offset of, is read from its beginning; later runs do not ask for the group, which may be gone."""
    world = of_two(9, 3, start=StartGroup("g"))
    world.brokers.groups["g"] = {P0: 7}
    first = world.run("run1")
    assert ranges_of(first) == ["q-0 [0, 3)", "t-0 [7, 9)"]
    assert [(d.topic_partition, d.from_reason) for d in first.saved.why.decisions] == [(Q0, "earliest"), (P0, "group")]
    world.brokers.groups.clear()
    world.brokers.latest[P0] = 12
    assert ranges_of(world.run("run2")) == ["t-0 [9, 12)"]


@pytest.mark.parametrize(
    ("committed", "joined", "refused", "says"),
    [
        ({}, set(), "RequestError", "group g has committed no offset of t, q"),
        ({P0: 10}, set(), "RequestError", "at offset 10 of t-0, whose log holds 2 to 9"),
        ({P0: 1, Q0: 1}, set(), "RequestError", r'planned.*"offsets": \{"q": \{"0": 1\}, "t": \{"0": 2\}\}'),
        ({P0: 8}, set(), "RequestError", "behind which a transaction is open"),
        ({P0: 7}, {"g"}, "KafkaError", "members"),
    ],
    ids=["none", "beyond", "expired", "open", "active"],
)
def test_a_group_that_is_nowhere_in_the_log_or_moves_on_is_no_start(
    committed: dict[TopicPartition, int], joined: set[str], refused: str, says: str
) -> None:
    """Nothing is saved, so the next run asks again."""
    world = of_two(9, 3, start=StartGroup("g"))
    world.brokers.earliest[P0] = 2
    world.brokers.stable |= {P0: 7} if committed == {P0: 8} else {}
    world.brokers.groups["g"] = committed
    world.brokers.joined |= joined
    with pytest.raises(getattr(errors, refused), match=says):
        world.planned("run1")
    assert world.store.values == {}


@pytest.mark.parametrize(
    ("start", "begins"),
    [
        ("latest", 9),
        (StartTime(4), 4),
        (StartOffsets({Q0: 7}), 7),
        (StartGroup("g"), 6),
        (StartGroup("gone"), 0),
        ("earliest", 0),
    ],
)
def test_a_topic_that_is_added_to_the_file_begins_at_its_start(start: Any, begins: int) -> None:
    """As in a first run; the topics that were read go on."""
    world = World(
        pipeline=source(topics=("t",), start="earliest" if isinstance(start, StartOffsets | StartGroup) else start), committed=1
    )
    world.brokers.latest |= {Q0: 9, P0: 30}
    world.brokers.groups["g"] = {Q0: 6}
    world.pipeline = source(topics=("t", "q"), start=start)
    assert ranges_of(world.planned("run2")) == [f"q-0 [{begins}, 9)", "t-0 [25, 30)"]


def test_a_log_end_below_the_cursor_is_read_again_before_it_is_believed() -> None:
    """A recovering broker comes back."""
    world = World(committed=3)
    world.brokers.next_reads = [{P0: 20}, {P0: 27}]
    assert ranges_of(world.run("next")) == ["t-0 [25, 27)"]
    assert world.brokers.settled == 1


# ---- what is kept with the cursor


def test_the_size_of_records_is_kept_for_limits_in_bytes() -> None:
    """The cursor carries it from one load to the next plan."""
    world = World(pipeline=replace(PIPELINE, limits=Limits(max_bytes=1000)), record_bytes=200.0, committed=1)
    world.brokers.latest[P0] = 1000
    assert ranges_of(world.run("run2")) == ["t-0 [25, 30)"]


def test_what_is_announced_with_a_batch_is_saved_with_the_cursor() -> None:
    """It is decided on the batch and the cursor after it, once; a batch that announces nothing keeps what was announced."""
    world, asked = World(), []

    def announce(saved: SavedRange, cursor: Cursor) -> tuple[int, int]:
        asked.append((saved.load.seq, cursor.seq, cursor.announced))
        return 10, 20

    planned = world.planned("run1")
    for _ in range(2):
        _, after, _ = commit_batch(PIPELINE, planned.key, world.load(planned), store=world.store, announce=announce)
        assert after.announced == world.cursor.announced == (10, 20)
    assert asked == [(1, 1, None)]
    world.run_of(100, "run2")
    assert world.cursor.announced == (10, 20)


# ---- a rebuilt schedule


def test_a_cursor_that_is_rebuilt_once_more_is_later_than_every_saved_range() -> None:
    """Also where the one before it is lost, whose generation is in no receipt, but in the range that was planned by it.

    A zombie from before a rebuild commits nothing.
    """
    world = World(committed=1)
    stale = world.planned("stale")
    for generation in (1, 2):
        del world.store.values[CURSOR]
        assert restore(world.pipeline, store=world.store, sink=world.sink).cursor.generation == generation
        world.planned(f"after{generation}")
    world.store.values[stale.key] = encode("range", stale.saved.to_json())
    with pytest.raises(errors.CommitConflict, match="generation 2, not 0"):
        world.commit(stale)


def test_a_rebuilt_schedule_keeps_where_a_topic_begins_that_had_no_record_yet() -> None:
    """By the batch that fixed it, which leaves no receipt, as long as its saved range is kept; later by a receipt."""
    start = source(topics=("t", "q"), start="latest")
    world = World(pipeline=source(topics=("t",)), brokers=FakeBrokers(latest={P0: 5}), committed=1)
    world.pipeline, world.brokers.latest[Q0] = start, 100
    assert world.run("run2").saved.load.nonempty == ()
    before = world.cursor
    del world.store.values[CURSOR]
    assert restore(start, store=world.store, sink=world.sink).cursor.at == before.at
    assert before.at.offsets[Q0] == world.cursor.at.offsets[Q0] == 100
    beside = world.run_of(4, "run3").saved.load.beside
    assert beside is not None
    assert (beside.offsets, beside.topic_ids, beside.starts) == ({Q0: 100}, {"q": "id"}, {Q0: 100})
    assert world.sink.found[-1].load.after == world.cursor.at
    assert rebuild("p", world.sink.found).cursor.at == world.cursor.at


def test_what_was_accepted_goes_with_a_rebuild() -> None:
    """It was for a batch of the schedule that is replaced; a commit keeps what is for a later batch."""
    world = World()
    key = world.ledger.save_accepted(Accepted(seq=2))
    world.run("run1")
    assert world.ledger.replace(world.ledger.listing(), world.cursor, (), keep=10) == [key]


# ---- losses, and tables of others


def beside_another(*, expired: bool) -> tuple[World, Planned]:
    """A failed first load has made the pipeline an owner of a table with rows of another one."""
    world = World(pipeline=replace(PIPELINE, sink=Sink("lake.a.b", shared_with=("other",))))
    planned = world.planned("failed")
    world.sink.owners, world.sink.has_rows, world.sink.expired = frozenset({"p", "other"}), True, expired
    return world, planned


@pytest.mark.parametrize("expired", [False, True])
def test_the_loss_of_a_first_range_can_be_accepted(*, expired: bool) -> None:
    """Also in a table with rows of another pipeline."""
    world, planned = beside_another(expired=expired)
    world.brokers.earliest[P0] = 7
    accepted, dropped = accept_loss(world.pipeline, **world.ports)
    assert (accepted.loss, dropped) == ((OffsetRange("t", 0, 0, 7),), (planned.saved,))
    assert ranges_of(world.run("run2")) == ["t-0 [7, 17)"]


def test_a_first_range_that_was_deleted_is_planned_anew_once_the_table_does_not_name_the_pipeline() -> None:
    """Where receipts have expired, rows of others look like its own to a pipeline whose load has failed."""
    world, planned = beside_another(expired=True)
    world.store.delete(planned.key)
    with pytest.raises(errors.CursorLost, match="ledger rebuild p"):
        world.plan("run2")
    with pytest.raises(errors.StateError, match=r"UNSET TBLPROPERTIES \('tidegate"):
        restore(world.pipeline, store=world.store, sink=world.sink)
    world.sink.owners = frozenset({"other"})
    assert world.planned("run2").saved.load.seq == 1


def test_a_pending_range_of_a_topic_that_is_gone_and_retired_is_named_and_its_loss_can_be_accepted() -> None:
    """Otherwise each run would adopt it, and none could load it. One of a topic that the file has left out is still loaded."""
    world = two()
    world.brokers.latest = {P0: 8, Q0: 9}
    planned = world.planned("failed")
    whole, world.pipeline = world.pipeline, source(topics=("t",), on_deleted="retire")
    assert accept_loss(world.pipeline, **world.ports)[1] == ()
    world.pipeline = whole
    del world.brokers.latest[Q0]
    for run in ("failed", "run2"):
        with pytest.raises(
            errors.OffsetsExpired, match=r"batch 2 of p were deleted.*: q-0 \[7, 9\) = 2 offsets.*accept loss p"
        ):
            world.plan(run)
    assert accept_loss(world.pipeline, **world.ports)[1] == (planned.saved,)
    again = world.run("run2")
    assert (ranges_of(again), again.saved.retired) == (["t-0 [5, 8)"], (Q0,))


def test_what_was_read_of_one_topic_is_held_though_another_one_was_made_again() -> None:
    """A receipt counts for the topics that are still the same ones."""
    world = of_two(25, 5)
    world.run("run1")
    cursor = changed(world.cursor, topic_ids={**world.cursor.at.topic_ids, "q": "new"}, offsets={P0: 25, Q0: 0})
    assert find_missing(cursor, world.sink.history("lake.a.b"), lambda: (), lineage=False) is None


def test_what_maintenance_keeps_of_expired_snapshots_is_nothing_to_maintain() -> None:
    """A plan reads it where the table's own snapshots do not prove the last batch."""
    world = World(committed=1)
    [last] = world.sink.found
    world.sink.found, world.sink.expired, world.sink.others = [], True, [TableCommit(-1, last.committed_at_ms + 1)]
    world.sink.kept = [*(replace(last, snapshot=-n, committed_at_ms=0) for n in range(2, 3000)), last]
    world.now_ms = 100 * 86_400_000
    assert world.planned("run2").maintenance is None
