"""What a plan refuses: nothing is saved then, and the error says what helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.records import changed, write_of
from tests.unit.world import CURSOR, P0, World, in_turn
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.errors import (
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
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.state.accepted import Accepted
from tidegate.core.state.codec import encode
from tidegate.testing.fakes import FakeBrokers

Q0 = TopicPartition("q", 0)
NEXT = "tidegate.p.range.0000000002"
REBUILD = "tidegate ledger rebuild p"
Happens = Callable[[World], object]


def source(**settings: Any) -> Pipeline:
    return Pipeline("p", Source(**settings), "m:f", Sink("lake.a.b"))


def two(**settings: Any) -> World:
    """A pipeline that has read two topics."""
    world = World(pipeline=source(topics=("t", "q"), on_deleted="retire"), brokers=FakeBrokers({P0: 5, Q0: 7}))
    world.run("run1")
    world.pipeline = source(**settings) if settings else world.pipeline
    return world


def one() -> World:
    """A pipeline that has committed a batch of one topic."""
    world = World()
    world.run("run1")
    return world


def at_end() -> World:
    world = one()
    world.run("run2")
    world.run("run3")
    return world


def cursor_is(**body: Any) -> Happens:
    return lambda world: world.store.values.update({CURSOR: encode("cursor", {**world.cursor.to_json(), **body})})


def pending_is(**body: Any) -> Happens:
    def happens(world: World) -> None:
        planned = world.planned("run2")
        world.store.values[planned.key] = encode("range", {**planned.saved.to_json(), **body})

    return happens


def put_back(world: World, *, keep: int) -> None:
    """The cursor of the batch before is there again, and the table has lost later ones than `keep`."""
    old = world.store.values[CURSOR]
    world.run("run2")
    world.planned("run3")
    world.store.values[CURSOR] = old
    del world.sink.found[keep:]


def passed(world: World) -> None:
    """The table holds a batch that neither cursor nor range knows."""
    old = world.store.values[CURSOR]
    world.store.delete(world.run("run2").key)
    world.store.values[CURSOR] = old


def retired(world: World) -> None:
    del world.brokers.latest[Q0]
    world.run("run2")
    world.ledger.save_cursor(changed(world.cursor, offsets={P0: 5, Q0: 7}))


def made_anew(world: World) -> None:
    del world.brokers.latest[Q0]
    world.run("run2")
    world.brokers.latest, world.brokers.ids["q"] = {P0: 5, Q0: 3}, "new"


def pruned(world: World) -> None:
    """The run's Variable is gone, and so is its receipt."""
    world.store.delete(world.ledger.range_key(1, "run1"))
    world.sink.found = [replace(world.sink.found[-1], parent=world.sink.found[-2].snapshot)]
    world.sink.expired = True


def newer(world: World) -> None:
    load = write_of("p", 1, "r", (OffsetRange("t", 0, 0, 10),), generation=1)
    world.sink.found.append(Receipt(load, 1, 1, 1))


def recreated(world: World, *, loads: bool = False) -> None:
    planned = world.planned("run2")
    world.brokers.ids["t"] = "new"
    if loads:
        world.commit(planned)


def reads(*ends: int) -> Happens:
    return lambda world: world.brokers.next_reads.extend({P0: end} for end in ends)


GONE: Happens = lambda world: world.store.delete(CURSOR)  # noqa: E731 - a row of the table
CASES: dict[str, tuple[Callable[[], World], Happens, type[TidegateError], str]] = {
    # a lost cursor is never taken for a beginning
    "only the table is left": (one, lambda w: w.store.values.clear(), CursorLost, f"rows of it in lake.a.b.*{REBUILD}"),
    "a later range is left": (one, in_turn(lambda w: w.planned("run2"), GONE), CursorLost, "saved range of batch 2"),
    # nor is a cursor that cannot be read, or that was never where it is
    "the store is away": (one, lambda w: setattr(w.store, "failing", True), StateUnavailable, "away"),
    "no saved value": (one, lambda w: w.store.values.update({CURSOR: "{}"}), StateCorrupt, f"^{CURSOR}: .*{REBUILD}"),
    "no fields": (
        one,
        lambda w: w.store.values.update({CURSOR: encode("cursor", {})}),
        StateCorrupt,
        f"^{CURSOR}: .*{REBUILD}",
    ),
    "a negative batch": (one, cursor_is(seq=-1), StateCorrupt, f"^{CURSOR}: .*{REBUILD}"),
    "offsets as a list": (one, cursor_is(offsets=[1]), StateCorrupt, f"^{CURSOR}: .*{REBUILD}"),
    "another pipeline's": (one, cursor_is(pipeline="q"), StateCorrupt, "cursor of q"),
    "a gap before it": (
        one,
        cursor_is(offsets={"t": {"0": 13}}),
        StateCorrupt,
        rf"^{CURSOR}: batch 1 .*13, not 10 \(\+3.*{REBUILD}",
    ),
    "an overlap": (one, cursor_is(offsets={"t": {"0": 7}}), StateCorrupt, r"t-0 at 7, not 10 \(-3 offsets\)"),
    "no partition": (one, cursor_is(offsets={}), StateCorrupt, "does not know t-0, expected at 10"),
    "another topic's": (one, cursor_is(topic_ids={"t": "other"}), StateCorrupt, "the topic id other of t, not id"),
    "a batch number of before": (
        at_end,
        cursor_is(seq=1),
        StateCorrupt,
        f"batch 1 did not lead to where the cursor is.*{REBUILD}",
    ),
    "a retired partition": (two, retired, StateCorrupt, "q-0 at 7, which it should not know"),
    "older than the schedule": (
        one,
        lambda w: put_back(w, keep=1),
        StateCorrupt,
        f"batch 3 is saved, but the cursor is at batch 1.*{REBUILD}",
    ),
    "older than the table": (one, passed, StateCorrupt, f"the table holds batch 2 .*{REBUILD}"),
    "from before a rebuild": (one, newer, StateCorrupt, "generation 1"),
    # a pending range starts at the cursor, with what was accepted for its batch
    "a range after a gap": (
        one,
        pending_is(ranges={"t": {"0": [13, 20]}}),
        CommitConflict,
        rf"^{NEXT}.*t-0 at 10, not 13 \(-3 offsets\).*airflow variables delete {NEXT}",
    ),
    "a range that overlaps": (one, pending_is(ranges={"t": {"0": [7, 20]}}), CommitConflict, r"t-0 at 10, not 7 \(\+3"),
    "a range of another partition": (
        one,
        pending_is(ranges={"t": {"1": [5, 20]}}, reasons={"cursor to log end": {"t": [1]}}),
        CommitConflict,
        "does not know t-1, expected at 5",
    ),
    "a range of another topic": (one, pending_is(topic_ids={"t": "other"}), CommitConflict, "the topic id id of t, not other"),
    "what was accepted for another batch": (
        one,
        lambda w: w.store.values.update({"tidegate.p.accepted.0000000002": encode("accepted", Accepted(9).to_json())}),
        StateCorrupt,
        "accepted for batch 9",
    ),
    # records are read from the topics that the file names, and that are still the same
    "a pending range of a topic that is another": (
        one,
        recreated,
        TopicRecreated,
        f"batch 2 was planned: .*new.*airflow variables delete {NEXT}",
    ),
    "a topic that is another": (one, lambda w: recreated(w, loads=True), TopicRecreated, "accept recreated p t"),
    "a retired topic that is another": (two, made_anew, TopicRecreated, "accept recreated p q"),
    "no topic of the pattern": (lambda: World(pipeline=source(pattern="z")), lambda _: None, TopicNotFound, "no topic matches"),
    "a topic that never existed": (
        lambda: two(topics=("t", "q", "typo"), on_deleted="retire"),
        lambda _: None,
        TopicNotFound,
        "typo",
    ),
    **{
        f"a partition that never existed, {on_deleted}": (
            lambda on_deleted=on_deleted: two(assign={"t": (0, 1), "q": (0,)}, on_deleted=on_deleted),  # type: ignore[misc]
            lambda _: None,
            TopicNotFound,
            "partition t-1 does not exist: topic t has 1 partitions",
        )
        for on_deleted in ("stop", "retire")
    },
    "a topic that is left out": (lambda: two(topics=("t",)), lambda _: None, PartitionsLeftOut, "q-0"),
    "a topic that the pattern leaves out": (
        lambda: two(pattern="t|q", exclude=("q",)),
        lambda _: None,
        PartitionsLeftOut,
        "q-0",
    ),
    "a topic that is not assigned": (lambda: two(assign={"t": (0,)}), lambda _: None, PartitionsLeftOut, "q-0"),
    # a log that ends before the cursor is read again before it is believed
    "a log that moves": (at_end, reads(20, 21, 22), WatermarksUnstable, "and moving"),
    "a log that was cut": (at_end, reads(20, 20, 20), CursorBeyondLog, "t-0"),
    "a first range that retention passed": (
        World,
        in_turn(lambda w: w.planned("run1"), lambda w: w.brokers.earliest.update({P0: 7})),
        OffsetsExpired,
        r"batch 1 of p were deleted after it was planned.*\[0, 7\).*accept loss p",
    ),
}


@pytest.mark.parametrize(("world", "happens", "error", "words"), CASES.values(), ids=CASES)
def test_a_plan_refuses(world: Callable[[], World], happens: Happens, error: type[TidegateError], words: str) -> None:
    """By the error's name, what differs and what to do."""
    made = world()
    happens(made)
    before = dict(made.store.values)
    with pytest.raises(error, match=words):
        made.plan("next")
    assert made.store.values == before


CLEARED: dict[str, tuple[Callable[[], World], Happens, type[TidegateError], str]] = {
    "its records are gone": (
        one,
        lambda w: w.brokers.earliest.update({P0: 3}),
        OffsetsExpired,
        "rows of this batch stay as they",
    ),
    "its topic is another": (one, recreated, TopicRecreated, r"batch 1 was planned.*rows stay"),
    "nothing is left of it": (at_end, pruned, RangeForgotten, r"run run1 of p.*keep_ranges: 1000.*tidegate replay p"),
    "no range is left": (
        at_end,
        in_turn(pruned, lambda w: [w.store.values.pop(key) for key in w.store.keys("tidegate.p.range.")]),
        RangeForgotten,
        "run run1 of p",
    ),
}


@pytest.mark.parametrize(("world", "happens", "error", "words"), CLEARED.values(), ids=CLEARED)
def test_the_plan_of_a_cleared_run_refuses(
    world: Callable[[], World], happens: Happens, error: type[TidegateError], words: str
) -> None:
    """Its batch is committed, and its rows stay."""
    made = world()
    happens(made)
    before = dict(made.store.values)
    with pytest.raises(error, match=words):
        made.plan("run1", ran_at_ms=0)
    assert made.store.values == before
