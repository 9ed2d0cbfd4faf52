"""What a plan refuses: nothing is saved then, and the error says what helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.records import changed, write_of
from tests.unit.world import CURSOR, P0, Q0, World, in_turn, source
from tidegate.core.model.errors import (
    CommitConflict,
    CursorBeyondLog,
    CursorLost,
    OffsetsExpired,
    PartitionsLeftOut,
    RangeForgotten,
    StateCorrupt,
    StateUnavailable,
    TidegateError,
    TopicNotFound,
    TopicRecreated,
    WatermarksUnstable,
)
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.codec import encode
from tidegate.core.state.cursor import Accepted
from tidegate.core.state.ledger import range_key
from tidegate.core.state.receipt import Receipt
from tidegate.testing.fakes import FakeBrokers

NEXT = "tidegate.p.range.0000000002"
REBUILD = "tidegate ledger rebuild p"
BROKEN = f"^{CURSOR}: .*{REBUILD}"
Happens = Callable[[World], object]
one, at_end = (partial(World, committed=batches) for batches in (1, 3))
"""A pipeline that has committed a batch, or all that there is."""


def names(**settings: Any) -> Happens:
    """The file names other topics, or partitions."""
    return lambda world: setattr(world, "pipeline", source(**settings))


def two() -> World:
    """A pipeline that has read two topics."""
    brokers = FakeBrokers(latest={P0: 5, Q0: 7})
    return World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=brokers, committed=1)


def cursor_is(**body: Any) -> Happens:
    return lambda world: world.store.values.update({CURSOR: encode("cursor", {**world.cursor.to_json(), **body})})


def pending_is(**body: Any) -> Happens:
    def happens(world: World) -> None:
        planned = world.planned("run2")
        world.store.values[planned.key] = encode("range", {**planned.saved.to_json(), **body})

    return happens


def put_back(world: World) -> None:
    """To the batch before, and the table has lost later ones."""
    old = world.store.values[CURSOR]
    world.run("run2")
    world.planned("run3")
    world.store.values[CURSOR] = old
    del world.sink.found[1:]


def passed(world: World) -> None:
    """The table holds a batch that neither cursor nor range knows."""
    old = world.store.values[CURSOR]
    world.store.delete(world.run("run2").key)
    world.store.values[CURSOR] = old


def retires(world: World) -> None:
    del world.brokers.latest[Q0]
    world.run("run2")


def retired(world: World) -> None:
    retires(world)
    world.ledger.save_cursor(changed(world.cursor, offsets={P0: 5, Q0: 7}))


def made_anew(world: World) -> None:
    retires(world)
    world.brokers.latest, world.brokers.ids["q"] = {P0: 5, Q0: 3}, "new"


def pruned(world: World) -> None:
    """The run's Variable is gone, and so is its receipt."""
    world.store.delete(range_key(world.ledger.pipeline, 1, "run1"))
    world.sink.found = [replace(world.sink.found[-1], parent=world.sink.found[-2].snapshot)]
    world.sink.expired = True


def newer(world: World) -> None:
    load = write_of("p", 1, "r", (OffsetRange("t", 0, 0, 10),), generation=1)
    world.sink.found.append(Receipt(load, 1, 1, rows=1))


def recreated(world: World) -> None:
    world.planned("run2")
    world.brokers.ids["t"] = "new"


def expired(world: World) -> None:
    world.planned("run1")
    world.brokers.earliest[P0] = 7


def no_range(world: World) -> None:
    for key in world.store.keys("tidegate.p.range."):
        world.store.delete(key)


def reads(*ends: int) -> Happens:
    return lambda world: world.brokers.next_reads.extend({P0: end} for end in ends)


DROP = f"tidegate ledger drop p {NEXT}"
MORE = {"t": (0, 1), "q": (0,)}
OF_T1: dict[str, Any] = {"ranges": {"t": {"1": [5, 20]}}, "reasons": {"cursor to log end": {"t": [1]}}}
FOR_ANOTHER: Happens = lambda world: world.store.values.update(  # noqa: E731 - as the next one
    {"tidegate.p.accepted.0000000002": encode("accepted", Accepted(seq=9).to_json())}
)
GONE: Happens = lambda world: world.store.delete(CURSOR)  # noqa: E731 - a row of the table
CASES: dict[str, tuple[Callable[[], World], Happens, type[TidegateError], str]] = {
    # a lost cursor is never taken for a beginning
    "only the table is left": (one, lambda w: w.store.values.clear(), CursorLost, f"lake.a.b holds rows of it: .*{REBUILD}"),
    "a later range is left": (one, in_turn(lambda w: w.planned("run2"), GONE), CursorLost, "there is a saved range of batch 2"),
    # nor is a cursor that cannot be read, or that was never where it is
    "the store is away": (one, lambda w: setattr(w.store, "failing", True), StateUnavailable, "away"),
    "no saved value": (one, lambda w: w.store.values.update({CURSOR: "{}"}), StateCorrupt, BROKEN),
    "no fields": (one, lambda w: w.store.values.update({CURSOR: encode("cursor", {})}), StateCorrupt, BROKEN),
    "a negative batch": (one, cursor_is(seq=-1), StateCorrupt, BROKEN),
    "offsets as a list": (one, cursor_is(offsets=[1]), StateCorrupt, BROKEN),
    "another pipeline's": (one, cursor_is(pipeline="q"), StateCorrupt, "cursor of q"),
    "a gap before it": (one, cursor_is(offsets={"t": {"0": 13}}), StateCorrupt, rf"end of batch 1,.*not 10 \(\+3.*{REBUILD}"),
    "an overlap": (one, cursor_is(offsets={"t": {"0": 7}}), StateCorrupt, r"t-0 at 7, not 10 \(-3 offsets\)"),
    "no partition": (one, cursor_is(offsets={}), StateCorrupt, "does not know t-0, expected at 10"),
    "another topic's": (one, cursor_is(topic_ids={"t": "other"}), StateCorrupt, "the topic id other of t, not id"),
    "a batch number of before": (at_end, cursor_is(seq=1), StateCorrupt, f"does not match the end of batch 1.*{REBUILD}"),
    "a retired partition": (two, retired, StateCorrupt, "q-0 at 7, which it should not know"),
    "older than the schedule": (one, put_back, StateCorrupt, f"batch 3 is saved, but the cursor is at batch 1.*{REBUILD}"),
    "older than the table": (one, passed, StateCorrupt, f"the table holds batch 2 .*{REBUILD}"),
    "from before a rebuild": (one, newer, StateCorrupt, "generation 1"),
    # a pending range starts at the cursor, with what was accepted for its batch
    "a range after a gap": (one, pending_is(ranges={"t": {"0": [13, 20]}}), CommitConflict, rf"^{NEXT}.*not 13 \(-3.*{DROP}"),
    "a range that overlaps": (one, pending_is(ranges={"t": {"0": [7, 20]}}), CommitConflict, r"t-0 at 10, not 7 \(\+3"),
    "a range of another partition": (one, pending_is(**OF_T1), CommitConflict, "does not know t-1, expected at 5"),
    "a range of another topic": (one, pending_is(topic_ids={"t": "other"}), CommitConflict, "the topic id id of t, not other"),
    "accepted for another batch": (one, FOR_ANOTHER, StateCorrupt, "accepted for batch 9"),
    # records are read from the topics that the file names, and that are still the same
    "a pending range of another topic": (one, recreated, TopicRecreated, f"batch 2 was planned: .*new.*{DROP}"),
    "another topic": (one, in_turn(lambda w: w.run("run2"), recreated), TopicRecreated, "accept recreated p t"),
    "another topic than the retired one": (two, made_anew, TopicRecreated, "accept recreated p q"),
    "no topic of the pattern": (World, names(pattern="z"), TopicNotFound, "no topic matches"),
    "a topic that never was": (two, names(topics=("t", "q", "typo"), on_deleted="retire"), TopicNotFound, "typo"),
    "a partition that never was": (two, names(assign=MORE), TopicNotFound, "partition t-1 does not exist: topic t has 1"),
    "a partition to retire": (two, names(assign=MORE, on_deleted="retire"), TopicNotFound, "partition t-1 does not exist"),
    "a topic left out": (two, names(topics=("t",)), PartitionsLeftOut, "q-0"),
    "a topic left out by the pattern": (two, names(pattern="t|q", exclude=("q",)), PartitionsLeftOut, "q-0"),
    "a topic not assigned": (two, names(assign={"t": (0,)}), PartitionsLeftOut, "q-0"),
    # a log that ends before the cursor is read again before it is believed
    "a log that moves": (at_end, reads(20, 21, 22), WatermarksUnstable, "and moving"),
    "a log that was cut": (at_end, reads(20, 20, 20), CursorBeyondLog, "t-0"),
    "a first range that retention passed": (World, expired, OffsetsExpired, r"after it was planned.*\[0, 7\).*accept loss p"),
    # the batch of a run that is cleared is committed, and its rows stay
    "cleared: its records are gone": (one, lambda w: w.brokers.earliest.update({P0: 3}), OffsetsExpired, "of this batch stay"),
    "cleared: its topic is another": (one, recreated, TopicRecreated, "batch 1 was planned.*rows stay"),
    "cleared: nothing is left of it": (at_end, pruned, RangeForgotten, "run run1 of p.*keep_ranges: 1000.*tidegate replay p"),
    "cleared: no range is left": (at_end, in_turn(pruned, no_range), RangeForgotten, "run run1 of p"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_refuses(case: str) -> None:
    """By the error's name, what differs and what to do."""
    made, happens, error, words = CASES[case]
    world = made()
    happens(world)
    before = dict(world.store.values)
    with pytest.raises(error, match=words):
        world.plan("run1", ran_at_ms=0) if case.startswith("cleared") else world.plan("next")
    assert world.store.values == before
