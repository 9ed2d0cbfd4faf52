"""Laws of a schedule that is rebuilt from the table's own commits."""

from __future__ import annotations

import pytest

from tests.unit.loads import P0, receipt, saved
from tidegate.core.model.errors import StateError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.planning.rebuild import rebuild
from tidegate.core.state.cursor import Position
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import MemoryStore


def test_a_table_without_receipts_cannot_rebuild_anything() -> None:
    """A replay alone is no schedule; nor is a batch that says nothing of the partitions beside it."""
    with pytest.raises(StateError, match="begin anew"):
        rebuild("p", [receipt(1, 0, 10, replay="again")])
    with pytest.raises(StateError, match="receipt of batch 2 of p holds no positions"):
        rebuild("p", [receipt(1, 0, 10), receipt(2, 10, 20, beside=None)])


def test_a_rebuilt_cursor_stands_behind_everything_that_the_table_holds() -> None:
    """By batch, not by the time of the commit: a batch may have been done over."""
    begun = Position(starts={P0: 3})
    made = rebuild("p", [receipt(1, 3, 10), receipt(2, 10, 20, beside=begun), receipt(1, 3, 10, attempt="again")], generation=4)
    assert (made.cursor.seq, made.cursor.at.offsets, made.cursor.at.starts) == (2, {P0: 20}, {P0: 3})
    assert (made.cursor.at.topic_ids, made.cursor.generation) == ({"t": "id"}, 5)
    assert made.cursor.receipt is not None
    assert made.cursor.receipt.snapshot == 102
    assert [(s.load.seq, s.load.run_id) for s in made.ranges] == [(1, "run1"), (2, "run2")]
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
    assert (made.cursor.at.offsets, made.cursor.at.topic_ids) == ({P0: 4}, {"t": "new"})


P1 = TopicPartition("t", 1)


def test_a_rebuild_keeps_what_runs_own_and_drops_what_was_never_loaded() -> None:
    """A broken range is written anew, an uncommitted one goes, and one that says otherwise than the receipt of its batch."""
    store = MemoryStore()
    ledger = Ledger(store, "p")
    kept = ledger.save_range(saved(1, 0, 10))
    older = ledger.save_range(saved(1, 0, 7, run_id="of an older numbering"))
    broken = ledger.save_range(saved(2, 10, 20))
    copy = ledger.save_range(saved(2, 10, 20, run_id="other"))
    pending = ledger.save_range(saved(3, 20, 30))
    before = store.values[kept]
    store.values[broken] = store.values[copy] = "{"
    made = rebuild("p", [receipt(1, 0, 10), receipt(2, 10, 20)])
    assert ledger.replace(ledger.listing(), made.cursor, made.ranges, keep=1000) == sorted([copy, older, pending])
    assert store.values[kept] == before
    assert ledger.saved_range(broken).why.decisions[0].from_reason == "rebuilt"
    assert ledger.cursor() == made.cursor
