"""Laws of a schedule that is rebuilt from the table's own commits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loads import P0, receipt, saved
from tidegate.core.audit.rebuild import rebuild
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.errors import StateError
from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.cursor import Cursor, Positions
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore


def test_a_table_without_receipts_cannot_rebuild_anything() -> None:
    """A replay alone is no schedule."""
    with pytest.raises(StateError, match="begin anew"):
        rebuild("p", [receipt(1, 0, 10, replay="again")])


def test_a_rebuilt_cursor_stands_behind_everything_that_the_table_holds() -> None:
    """By batch, not by the time of the commit: a batch may have been done over."""
    made = rebuild("p", [receipt(1, 3, 10), receipt(2, 10, 20), receipt(1, 3, 10, attempt="again")], generation=4)
    assert (made.cursor.seq, made.cursor.offsets, made.cursor.starts) == (2, {P0: 20}, {P0: 3})
    assert (made.cursor.topic_ids, made.cursor.generation) == ({"t": "id"}, 5)
    assert made.cursor.receipt is not None
    assert made.cursor.receipt["snapshot"] == 102
    assert [(s.seq, s.run_id) for s in made.ranges] == [(1, "run1"), (2, "run2")]
    assert made.notes == ()


def test_what_receipts_leave_open_is_told() -> None:
    """Batches without a receipt, offsets that were skipped or loaded twice, and topics created again."""
    made = rebuild("p", [receipt(2, 0, 10), receipt(3, 15, 20), receipt(4, 18, 19), receipt(5, 2, 4, topic_ids={"t": "new"})])
    assert [note.split(":")[0].split(" have")[0] for note in made.notes] == [
        "batches 1 to 1",
        "batch 3",
        "batch 4",
        "batch 5",
    ]
    assert (made.cursor.offsets, made.cursor.starts, made.cursor.topic_ids) == ({P0: 4}, {P0: 2}, {"t": "new"})


PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(10))


@given(st.lists(st.tuples(st.integers(0, 25), st.booleans()), min_size=1, max_size=8))
def test_a_schedule_rebuilt_after_its_variables_were_lost_goes_on_where_it_was(steps: list[tuple[int, bool]]) -> None:
    """With all of its history that held records; a range that never reached the table is planned again."""
    store, sink, brokers = MemoryStore(), FakeReader(), FakeBrokers({P0: 7})
    ports: dict[str, Any] = {"store": store, "brokers": brokers, "sink": sink}
    for n, (growth, dies) in enumerate(steps):
        brokers.latest[P0] += growth
        found = plan_batch(PIPELINE, f"run{n}", Request(), **ports, now_ms=n)
        if isinstance(found, Planned) and not (dies and n):
            load = LoadId("p", found.saved.seq, f"run{n}", found.saved.to_load, "v", f"a{n}", found.saved.topic_ids)
            sink.found.append(Receipt(load, n + 1, n, 1))
            commit_batch(PIPELINE, found.key, sink.found[-1], store=store)
    before = Ledger(store, "p").cursor()
    store.values.clear()
    made = rebuild("p", sink.found)
    ledger = Ledger(store, "p")
    ledger.replace(ledger.listing(), made.cursor, made.ranges, keep=1000)
    after = ledger.cursor()
    assert (after.seq, after.offsets, after.starts, after.topic_ids) == (
        before.seq,
        before.offsets,
        before.starts,
        before.topic_ids,
    )
    brokers.latest[P0] += 1
    assert isinstance(plan_batch(PIPELINE, "next", Request(), **ports, now_ms=99), Planned)


def test_a_rebuild_keeps_what_runs_own_and_drops_what_was_never_loaded() -> None:
    """A broken range is written anew, an uncommitted one goes."""
    store = MemoryStore()
    ledger = Ledger(store, "p")
    kept = ledger.save_range(saved(1, 0, 10))
    broken = ledger.save_range(saved(2, 10, 20))
    copy = ledger.save_range(saved(2, 10, 20, run_id="other"))
    pending = ledger.save_range(saved(3, 20, 30))
    before = store.values[kept]
    store.values[broken] = store.values[copy] = "{"
    made = rebuild("p", [receipt(1, 0, 10), receipt(2, 10, 20)])
    assert ledger.replace(ledger.listing(), made.cursor, made.ranges, keep=1000) == sorted([copy, pending])
    assert store.values[kept] == before
    assert ledger.saved_range(broken).decisions[0].from_reason == "rebuilt"
    assert ledger.cursor() == made.cursor


P1 = TopicPartition("t", 1)


def test_a_rebuilt_cursor_knows_partitions_that_were_silent() -> None:
    """The newest receipt tells their positions; what it does not name was retired."""
    silent = Positions({P1: 70}, {"t": "id"})
    made = rebuild(
        "p", [receipt(1, 0, 10, ranges=(OffsetRange("u", 0, 0, 5),), topic_ids={"u": "x"}), receipt(2, 10, 20, others=silent)]
    )
    assert made.whole
    assert (made.cursor.offsets, made.cursor.starts) == ({P0: 20, P1: 70}, {P0: 10, P1: 70})
    assert made.cursor.topic_ids == {"t": "id"}
    assert made.ranges[1].others == silent


def test_receipts_of_older_versions_are_completed_by_saved_ranges_and_by_an_operator() -> None:
    """In this order. The result is marked as incomplete evidence (`whole` is false)."""
    fixed = saved(1, 0, 10, ranges=(OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 70, 70), OffsetRange("t", 2, 5, 5)))
    retiring = saved(2, 10, 20, retired=(TopicPartition("t", 2),))
    made = rebuild(
        "p", [receipt(2, 10, 20)], saved=[retiring, fixed, saved(3, 20, 30)], positions={P0: 1, TopicPartition("t", 3): 8}
    )
    assert not made.whole
    assert made.cursor.offsets == {P0: 20, P1: 70, TopicPartition("t", 3): 8}
    assert made.cursor.starts == {P0: 0, P1: 70, TopicPartition("t", 3): 8}


def test_a_cursor_of_a_former_topic_tells_nothing_of_the_new_one() -> None:
    """Its offsets are other records."""
    former = Cursor("p", 1, {P0: 5}, {"t": "former"}, starts={P0: 0})
    assert rebuild("p", [receipt(2, 10, 20)], before=former).cursor.starts == {P0: 10}
