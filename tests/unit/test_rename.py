"""Laws of a pipeline that gets another name: on fakes, with kills between all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_admission import PIPELINE, START, World
from tests.unit.world import P0
from tidegate.core.audit.restore import restore
from tidegate.core.config.pipeline import Pipeline, Sink
from tidegate.core.model.errors import RequestError, SinkMisfit, StateUnavailable
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.rename import rename
from tidegate.core.planning.run import commit_batch
from tidegate.core.state.codec import encode
from tidegate.testing.fakes import FakeReader, MemoryStore

NEW = Pipeline("q", replace(START, start="latest"), "m:f", sink=Sink("lake.a.b"), limits=PIPELINE.limits)


def move_owner(sink: FakeReader, old: str, new: str) -> None:
    sink.renamed[old] = new
    sink.owners = sink.owners - {old} | {new}


def renamed(world: World, pipeline: Pipeline = NEW, old: str = "p") -> int:
    return rename(
        old, pipeline, store=world.store, sink=world.sink, move_owner=lambda _, old, new: move_owner(world.sink, old, new)
    )


@pytest.fixture
def world() -> World:
    """Two batches are committed; a third has landed, and its commit was lost."""
    made = World()
    for run_id in ("run1", "run2"):
        made.run(run_id)
    made.load(made.planned("run3"))
    made.sink.owners, made.sink.has_rows = frozenset({"p"}), True
    return made


def test_a_renamed_pipeline_goes_on_where_it_was(world: World) -> None:
    """It adopts what has landed under its old name, reads the next records, and can replay and rebuild all of it."""
    world.pipeline = NEW
    assert "If q is p under a new name, name its file back, or run `tidegate rename p q`" in world.misfit("run4")
    assert renamed(world) == 4
    assert [key for key in world.store.values if key.startswith("tidegate.p.")] == []
    planned = world.planned("run4")
    assert (planned.origin, planned.saved.load.ranges, planned.formerly) == ("adopted", (OffsetRange("t", 0, 40, 50),), ("p",))
    receipt = world.sink.receipts("lake.a.b", "q")[-1]
    _, cursor, _ = commit_batch(NEW, planned.key, receipt, store=world.store)
    assert (cursor.pipeline, cursor.seq, cursor.at.offsets) == ("q", 3, {P0: 50})
    assert world.replayed(batches="1..3") == (OffsetRange("t", 0, 20, 50),)
    world.store.values.clear()
    rebuilt = restore(NEW, store=world.store, sink=world.sink)
    assert (rebuilt.cursor.seq, rebuilt.cursor.at.offsets) == (3, {P0: 50})


@contextmanager
def killed_after(store: MemoryStore, calls: int) -> Iterator[None]:
    """A process that is killed at a call of the store, or in the one after."""
    left = iter(range(calls))

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            if next(left, None) is None:
                raise StateUnavailable("killed")
            return call(*given)

        return called

    with pytest.MonkeyPatch.context() as patch, suppress(StateUnavailable):
        for verb in ("keys", "get", "put", "delete"):
            patch.setattr(store, verb, dying(getattr(store, verb)))
        yield


@pytest.mark.parametrize("dropped", [False, True], ids=["", "its table was dropped"])
def test_a_rename_that_was_killed_is_done_again(world: World, *, dropped: bool) -> None:
    """At whatever call: until the table is moved the new name is refused, and afterwards the old one; nothing is lost.

    Where there is no table, nothing in it says how far the rename has come.
    """
    world.sink.exists = not dropped
    before, table = dict(world.store.values), replace(world.sink)
    done = replace(world, store=replace(world.store, values=dict(before)), sink=replace(table, renamed={}))
    renamed(done)
    for calls in range(60):
        world.store.values, world.sink, finished = dict(before), replace(table, renamed={}), False
        with killed_after(world.store, calls):
            renamed(world)
            finished = True
        if finished:
            break
        if not dropped:
            with pytest.raises(SinkMisfit):
                replace(world, pipeline=PIPELINE if world.sink.renamed else NEW).plan("between")
        if any(key.startswith("tidegate.p.") for key in world.store.values):
            renamed(world)
        assert (world.store.values, world.sink.owners) == (done.store.values, frozenset({"q"}))
    assert calls > 10
    if not dropped:
        assert (renamed(world), world.store.values) == (0, done.store.values)


def test_what_cannot_be_renamed_is_refused_and_nothing_is_changed(world: World) -> None:
    """A name without a ledger, another table, and a new name with saved state of its own, readable or not."""
    before = dict(world.store.values)
    cases: list[tuple[str, set[str], dict[str, str], str]] = [
        ("gone", {"p"}, {}, "no pipeline gone to rename"),
        ("p", {"other"}, {}, "is not one of p"),
        ("p", set(), {"tidegate.q.cursor": "broken"}, r"saved state of its own \(tidegate.q.cursor\)"),
        ("p", set(), {"tidegate.q.cursor": encode("cursor", {"pipeline": "q", "seq": 0})}, "saved state of its own"),
        ("p", set(), {"tidegate.q.range.0000000001.r": "of another time"}, "saved state of its own"),
    ]
    for old, owners, beside, words in cases:
        world.sink.owners, world.store.values = frozenset(owners), {**before, **beside}
        with pytest.raises(RequestError, match=words):
            renamed(world, old=old)
        assert (world.sink.renamed, world.store.values) == ({}, {**before, **beside})


def test_a_name_that_a_pipeline_had_is_not_taken_in_its_table(world: World) -> None:
    renamed(world)
    with pytest.raises(SinkMisfit, match="the rows loaded by pipeline p belong to q"):
        world.plan("run4")


def test_a_rename_that_is_done_once_more_takes_nothing_of_who_has_the_old_name_now(world: World) -> None:
    renamed(world)
    for key in ("cursor", "range.0000000099.run"):
        world.store.values[f"tidegate.p.{key}"] = encode(key.partition(".")[0], {"pipeline": "p", "seq": 7})
    before = dict(world.store.values)
    assert (renamed(world), world.store.values) == (0, before)


def test_a_name_that_led_elsewhere_is_no_new_name(world: World) -> None:
    """What was loaded under it belongs to the one that it led to; back to one's own former name leads a way."""
    renamed(world)
    world.sink.owners = frozenset({"q", "r"})
    world.store.values["tidegate.r.cursor"] = encode("cursor", {"pipeline": "r", "seq": 7})
    with pytest.raises(RequestError, match="p was the name of q when it loaded"):
        renamed(world, replace(NEW, name="p"), old="r")
    world.sink.renamed.pop("p")
    assert renamed(world, replace(NEW, name="p"), old="q") > 0


def test_a_pipeline_is_renamed_whose_table_is_not_there_yet_or_is_of_a_time_before(world: World) -> None:
    """The first has nothing to move in the table, the second all of it."""
    world.sink.exists, world.sink.owners = False, frozenset()
    assert renamed(world) > 0
    world.sink.exists, world.sink.renamed, world.sink.owners = True, {}, frozenset({"p"})
    before = dict(world.store.values)
    assert (renamed(world), world.store.values, world.sink.owners) == (0, before, frozenset({"q"}))
