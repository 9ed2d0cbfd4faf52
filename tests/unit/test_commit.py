"""Laws of moving the cursor, of a batch's life, and of a schedule that is rebuilt from the table's own commits."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.batches import TRANSITIONS, BatchEvent
from tests.records import changed, cursor_of, range_of, write_of, write_of_load
from tests.unit.loads import P0, receipt, saved
from tests.unit.world import PIPELINE, World, planned_on
from tidegate.core.model.errors import CommitConflict, ReceiptMismatch, StateError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.commit import moved
from tidegate.core.planning.rebuild import rebuild
from tidegate.core.planning.run import commit_batch
from tidegate.core.state.cursor import Cursor, Position
from tidegate.core.state.ledger import Ledger, range_key
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import MemoryStore
from tidegate.views.entries import BatchState, state_of

P1 = TopicPartition("t", 1)
RANGES = (OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 0, 4))
WHY = (Decision(P0, "cursor", "log end"), Decision(P1, "new partition", "log end"))
CURSOR = cursor_of("p", 3, {P0: 5})
PLANNED = planned_on(CURSOR, range_of("p", 4, "run", RANGES, WHY, {"t": "id"}, {}, 0))
RECEIPT = Receipt(write_of("p", 4, "run", RANGES, "v", "a"), 1, 1, rows=8)
OTHERS = {"seq": 3, "pipeline": "q", "replay": "again"}


@pytest.mark.parametrize(
    ("cursor", "receipt", "error"),
    [
        (cursor_of("p", 2, {P0: 5}), RECEIPT, CommitConflict),  # a batch is missing in between
        (cursor_of("p", 3, {P0: 6}), RECEIPT, CommitConflict),  # same batch, another offset
        (cursor_of("p", 3, {P0: 5, P1: 1}), RECEIPT, CommitConflict),  # the new partition is known already, elsewhere
        (cursor_of("p", 4, {P0: 9, P1: 3}), RECEIPT, CommitConflict),  # another range was committed as this batch
        (cursor_of("p", 0, {}), RECEIPT, CommitConflict),
        (CURSOR, None, ReceiptMismatch),
        (CURSOR, changed(RECEIPT, ranges=(OffsetRange("t", 0, 5, 8), RANGES[1])), ReceiptMismatch),  # too short
        *((CURSOR, changed(RECEIPT, **{of: other}), ReceiptMismatch) for of, other in OTHERS.items()),
    ],
)
def test_another_cursor_is_a_conflict_and_a_receipt_that_does_not_cover_the_range_commits_nothing(
    cursor: Cursor, receipt: Receipt | None, error: type[Exception]
) -> None:
    """A zombie loses to the requirement."""
    with pytest.raises(error, match="batch"):
        moved(cursor, PLANNED, receipt)


def test_a_commit_remembers_what_a_former_topic_left() -> None:
    """Until its new records have replaced the old rows."""
    cursor = cursor_of("p", 4, {P0: 120}, {"t": "old"})
    for seq, start, until, reason, former in ((5, 0, 30, "recreated", {P0: 120}), (6, 30, 120, "cursor", {})):
        ranges, why = (OffsetRange("t", 0, start, until),), (Decision(P0, reason, "log end"),)  # type: ignore[arg-type]
        read = range_of("p", seq, "run", ranges, why, {"t": "new"}, jumped={P0: 120} if reason == "recreated" else {})
        cursor = moved(cursor, planned_on(cursor, read), Receipt(write_of("p", seq, "run", ranges), 1, 1, rows=1))
        assert (cursor.at.starts, cursor.at.former) == ({P0: 0}, former)
        assert Cursor.from_json(cursor.to_json()) == cursor


# ---- a batch's life

TABLE = {(t.state, t.event): t.then for t in TRANSITIONS}


class FirstBatch(World):
    """Batch 1 of a pipeline, and every event that its own run can cause."""

    @property
    def state(self) -> BatchState:
        listing = self.ledger.listing()
        committed = listing.has_cursor and self.cursor.seq >= 1
        return state_of(saved=bool(listing.of_seq(1)), landed=bool(self.sink.found), committed=committed)

    def happens(self, event: BatchEvent) -> None:
        key, landed = range_key(self.ledger.pipeline, 1, "run"), self.sink.found[-1] if self.sink.found else None
        match event:
            case BatchEvent.PLAN:
                self.planned("run")
            case BatchEvent.LOAD if landed is None or self.state is BatchState.COMMITTED:
                read = self.ledger.saved_range(key)
                self.land(write_of_load(read.load, beside=read.after.beside(read.load.nonempty, read.load.topic_ids)))
            case BatchEvent.COMMIT:
                with suppress(*([ReceiptMismatch] if landed is None else [])):
                    commit_batch(PIPELINE, key, landed, store=self.store)
            case BatchEvent.REBUILD:
                made = rebuild("p", self.sink.found) if landed else None
                cursor, ranges = (made.cursor, made.ranges) if made else (cursor_of("p", generation=1), ())
                self.ledger.replace(self.ledger.listing(), cursor, ranges, keep=1000)


@given(st.lists(st.sampled_from(BatchEvent), max_size=12))
def test_every_event_does_in_every_state_what_the_table_says(events: list[BatchEvent]) -> None:
    """In any order, as often as anybody likes; what is not in the table cannot be done."""
    batch = FirstBatch()
    for event in events:
        then = TABLE.get((batch.state, event))
        if then is not None:
            batch.happens(event)
            assert batch.state is then


def test_the_table_names_each_event_of_a_state_once_and_never_leads_back_without_a_rebuild() -> None:
    """What is loaded or committed stays so."""
    order = list(BatchState)
    assert len(TABLE) == len(TRANSITIONS)
    assert all(order.index(t.then) >= order.index(t.state) for t in TRANSITIONS if t.event is not BatchEvent.REBUILD)


# ---- a rebuilt schedule


@pytest.mark.parametrize(
    ("receipts", "words"),
    [
        ([receipt(1, 0, 10, replay="again")], "begin anew"),
        ([receipt(1, 0, 10), receipt(2, 10, 20, beside=None)], "receipt of batch 2 of p holds no positions"),
    ],
)
def test_a_table_without_receipts_that_lead_on_cannot_rebuild_anything(receipts: list[Receipt], words: str) -> None:
    """A replay alone is no schedule; nor is a batch that says nothing of the partitions beside it."""
    with pytest.raises(StateError, match=words):
        rebuild("p", receipts)


def test_a_rebuilt_cursor_stands_behind_everything_that_the_table_holds() -> None:
    """By batch, not by the time of the commit: a batch may have been done over."""
    begun = Position(starts={P0: 3})
    made = rebuild("p", [receipt(1, 3, 10), receipt(2, 10, 20, beside=begun), receipt(1, 3, 10, attempt="again")], generation=4)
    assert made.cursor.at == Position(offsets={P0: 20}, topic_ids={"t": "id"}, starts={P0: 3})
    assert (made.cursor.seq, made.cursor.generation, made.notes) == (2, 5, ())
    assert made.cursor.receipt is not None
    assert made.cursor.receipt.snapshot == 102
    assert [(s.load.seq, s.load.run_id) for s in made.ranges] == [(1, "run1"), (2, "run2")]


def test_what_receipts_leave_open_is_told() -> None:
    """Batches without a receipt, offsets that were skipped or loaded twice, and topics created again."""
    made = rebuild("p", [receipt(2, 0, 10), receipt(3, 15, 20), receipt(4, 18, 19), receipt(5, 2, 4, topic_ids={"t": "new"})])
    told = [note.split(":")[0].split(" have")[0] for note in made.notes]
    assert told == ["batches 1 to 1", "batch 3", "batch 4", "batch 5"]
    assert (made.cursor.at.offsets, made.cursor.at.topic_ids) == ({P0: 4}, {"t": "new"})


def test_a_rebuild_keeps_what_runs_own_and_drops_what_was_never_loaded() -> None:
    """A broken range is written anew, an uncommitted one goes, and one that says otherwise than the receipt of its batch."""
    store = MemoryStore()
    ledger = Ledger(store, "p")
    kept, older = ledger.save_range(saved(1, 0, 10)), ledger.save_range(saved(1, 0, 7, run_id="of an older numbering"))
    broken, copy = ledger.save_range(saved(2, 10, 20)), ledger.save_range(saved(2, 10, 20, run_id="other"))
    pending = ledger.save_range(saved(3, 20, 30))
    before = store.values[kept]
    store.values[broken] = store.values[copy] = "{"
    made = rebuild("p", [receipt(1, 0, 10), receipt(2, 10, 20)])
    assert ledger.replace(ledger.listing(), made.cursor, made.ranges, keep=1000) == sorted([copy, older, pending])
    assert store.values[kept] == before
    assert ledger.saved_range(broken).why.decisions[0].from_reason == "rebuilt"
    assert ledger.cursor() == made.cursor
