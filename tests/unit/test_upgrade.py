"""Laws of an upgrade: a later version reads what is saved, and an earlier one leaves alone what a later one has saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.records import load_job, newer_version, write_of
from tests.unit.world import PIPELINE, World
from tidegate.core.audit.restore import restore
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.model.columns import ColumnChange
from tidegate.core.model.errors import StateNewer
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.accept import accept_table
from tidegate.core.planning.rename import rename
from tidegate.core.planning.run import commit_batch
from tidegate.core.planning.trust import misfit_of
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.advice import Resources
from tidegate.core.rates.control import RateBound
from tidegate.core.state.codec import FORMAT
from tidegate.core.state.cursor import Accepted, Cursor, LastCommit, Pace, Position
from tidegate.core.state.history import TableCommit
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Load, Receipt, Write
from tidegate.core.state.saved_range import Decision, SavedRange, Why
from tidegate.core.state.saved_replay import SavedReplay
from tidegate.testing.fakes import FakeRunner, MemoryStore

# ---- what 0.1 has saved: a value that does not change any more, with what it means

SAVED = json.loads(Path(__file__).with_name("saved_by_0_1.json").read_text(encoding="utf-8"))
O0, O1, CLICKS = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 7)
RUN = "scheduled__2026-11-28T00:00:00+00:00"
RANGES = (OffsetRange("orders", 0, 10, 20), OffsetRange("orders", 1, 0, 5))
IDS = {"orders": "Zm9v"}
BESIDE = Position(offsets={CLICKS: 40}, topic_ids={"clicks": "YmFy"}, starts={O0: 4}, former={O1: 90}, foreign="lake.x")
TIMING = BatchTiming(15, None, 2, 3, 4, 5)
CURSOR = Cursor(
    pipeline="orders",
    seq=3,
    generation=1,
    at=replace(BESIDE, offsets={O0: 20, CLICKS: 40}),
    receipt=LastCommit(99, parent=98, committed_at_ms=5, batch=3),
    head=8,
    fired_at_ms=6,
    remaining=7,
    announced=(3_600_000, 7_200_000),
    pace=Pace(rate_state={"rate": 2.5}, record_bytes=70.5, timing=TIMING, timings=(TIMING,), cores=(4,)),
)
BATCH = Load(pipeline="orders", seq=4, generation=1, run_id=RUN, ranges=RANGES, topic_ids=IDS, beside=BESIDE)
RANGE = SavedRange(
    load=BATCH,
    planned_at_ms=9,
    why=Why(
        decisions=(Decision(O0, "cursor", "max_records"), Decision(O1, "new partition", "log end")),
        limits={"max_records": 15},
        rate=RateBound("pid", 15, terms={"proportional": 0.5}, reset="a new policy", limiting=True, applied=False),
        adopted_from="manual__before",
    ),
    jumped={O0: 1},
    retired=(CLICKS,),
    remaining=6,
    head=100,
    resources=Resources(2, 4, 8, reason="15 records"),
)
ACCEPTED = Accepted(seq=4, loss=RANGES, recreated=IDS, absent=RANGES, gone=True, foreign="lake.x", after=(6, 99))
REPLAY = SavedReplay(
    load=Load(pipeline="orders", seq=0, run_id=RUN, ranges=(), topic_ids=IDS, replay="again"),
    chunks=(RANGES, (OffsetRange("orders", 0, 20, 29),)),
    table="lake.shop.orders_trial",
    transform="m:f",
    planned_at_ms=12,
    request={"batches": [1, 2]},
    lost=RANGES,
    resumes=("other",),
    parallel=2,
    batches=(1, 2),
)
CHANGES = (ColumnChange("a.b", None, "int"), ColumnChange("c", "int", "bigint"))
WRITES = {
    "batch": Write(replace(BATCH, dedupe=Dedupe(5, "id"), batch=4), "m:f@1", "attempt", CHANGES, quarantined=3),
    "chunk": Write(replace(REPLAY.chunk(0), batch=None), "m:f@1", "attempt"),
}


def found(properties: dict[str, str]) -> Write | None:
    """What a commit with these properties is the receipt of."""
    read = Receipt.from_properties(properties, snapshot=9, committed_at_ms=1, rows=15)
    return None if read is None else read.write


def test_what_0_1_has_saved_means_what_it_meant() -> None:
    """Its keys too. Receipts without a format, of before the first release, are as those of 0.1."""
    ledger = Ledger(MemoryStore(SAVED["variables"]), "orders")
    listing = ledger.listing()
    assert ledger.cursor() == CURSOR
    assert [ledger.saved_range(r.key) for r in listing.ranges] == [RANGE]
    assert [ledger.accepted_for(seq) for seq in listing.accepted] == [ACCEPTED]
    assert [ledger.saved_replay(r.key) for r in listing.replays] == [REPLAY]
    assert {name: found(properties) for name, properties in SAVED["receipts"].items()} == WRITES
    without = {name: {k: v for k, v in of.items() if k != "tidegate.format"} for name, of in SAVED["receipts"].items()}
    assert {name: found(properties) for name, properties in without.items()} == WRITES


def test_who_changes_what_is_saved_raises_its_format() -> None:
    """Where this fails: raise `FORMAT` of the codec, read format 2 as before, and add a file of what is saved from now on."""
    store = MemoryStore()
    ledger = Ledger(store, "orders")
    ledger.save_cursor(CURSOR)
    ledger.save_range(RANGE)
    ledger.save_accepted(ACCEPTED)
    ledger.save_replay(REPLAY, "0123abcd", ledger.listing(), keep=1)
    assert readable(store.values) == readable(SAVED["variables"])
    assert {name: write.to_properties() for name, write in WRITES.items()} == SAVED["receipts"]


def readable(values: dict[str, str]) -> dict[str, str]:
    """Without the packed copies, which a library packs in its own way."""
    return {key: value.rpartition(" ")[0] for key, value in values.items()}


# ---- an earlier version beside a later one, or in its place again

REFUSED = f"has format {FORMAT + 1}, and the Tidegate that runs here knows formats up to {FORMAT}: a newer version"


def never(*_: str) -> None:
    pytest.fail("the table is not moved")


Step = Callable[[World], object]
OF_STATE: dict[str, Step] = {
    "plans": lambda world: world.plan("older"),
    "plans its run": lambda world: world.plan("newer"),
    "commits": lambda world: commit_batch(PIPELINE, world.ledger.listing().ranges[-1].key, None, store=world.store),
    "accepts": lambda world: accept_table(PIPELINE, store=world.store, sink=world.sink),
    "rebuilds": lambda world: restore(PIPELINE, store=world.store, sink=world.sink, accept_gaps=True),
    "renames": lambda world: rename("p", replace(PIPELINE, name="q"), store=world.store, sink=world.sink, move_owner=never),
}


@pytest.mark.parametrize("older", OF_STATE.values(), ids=OF_STATE)
@pytest.mark.parametrize("commits", [False, True], ids=["planned", "committed"])
def test_what_a_later_version_has_saved_is_neither_read_nor_replaced(older: Step, *, commits: bool) -> None:
    """No try again helps, `tidegate check` says it too, and the later version goes on as if nobody had asked."""
    world = World(committed=1)
    with newer_version():
        planned = world.planned("newer")
        if commits:
            world.commit(planned)
    before, found = dict(world.store.values), list(world.sink.found)
    with pytest.raises(StateNewer, match=REFUSED) as refused:
        older(world)
    assert not refused.value.retryable
    assert isinstance(misfit_of(PIPELINE, world.store, world.sink), StateNewer)
    assert (world.store.values, world.sink.found) == (before, found)
    with newer_version():
        world.commit(planned)
        assert (world.cursor.seq, world.run("after").saved.load.seq) == (2, 3)


@pytest.mark.parametrize("replay", [None, "again"], ids=["batch", "replay"])
def test_what_a_later_version_has_loaded_is_never_taken_for_not_loaded(replay: str | None) -> None:
    """Also where the Variables are those of before, by a backup: neither a plan, nor a rebuild, nor a load goes on."""
    world = World(committed=1)
    ranges = (OffsetRange("t", 0, 10, 20),)
    with newer_version():
        properties = write_of("p", 2, "newer", ranges, topic_ids={"t": "id"}, replay=replay).to_properties()
    world.sink.others.append(TableCommit(9, 9, properties, rows=10))
    before = dict(world.store.values)
    for older in (
        partial(world.plan, "older"),
        partial(restore, PIPELINE, store=world.store, sink=world.sink, accept_gaps=True),
        partial(FakeRunner(world.sink).run, load_job("p", 2, "older", ranges, "m:f", "lake.a.b", {}, replay=replay)),
    ):
        with pytest.raises(StateNewer, match=f"the receipt in snapshot 9 {REFUSED}"):
            older()
    assert (world.store.values, len(world.sink.found)) == (before, 1)


def test_the_way_back_begins_where_the_later_version_has_loaded_nothing() -> None:
    """docs/life.md: the table is rolled back, the Variables are deleted, and the schedule follows from the receipts."""
    world = World(committed=1)
    with newer_version():
        world.run("newer")
    world.sink.found.pop()
    world.store.values.clear()
    restore(PIPELINE, store=world.store, sink=world.sink)
    again = world.run("older").saved.load
    assert (again.seq, again.ranges) == (2, (OffsetRange("t", 0, 10, 20),))
