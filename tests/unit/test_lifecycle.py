"""The table of a batch's life, held against what the code does."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tests.records import cursor_of, write_of_load
from tests.unit.world import PIPELINE, World
from tidegate.core.model.errors import ReceiptMismatch
from tidegate.core.planning.lifecycle import TRANSITIONS, BatchEvent, BatchState, state_of
from tidegate.core.planning.rebuild import rebuild
from tidegate.core.planning.run import commit_batch

TABLE = {(t.state, t.event): t.then for t in TRANSITIONS}


class FirstBatch(World):
    """Batch 1 of a pipeline, and every event that its own run can cause."""

    @property
    def state(self) -> BatchState:
        listing = self.ledger.listing()
        committed = listing.has_cursor and self.cursor.seq >= 1
        return state_of(saved=bool(listing.of_seq(1)), landed=bool(self.sink.found), committed=committed)

    def happens(self, event: BatchEvent) -> None:
        key, landed = self.ledger.range_key(1, "run"), self.sink.found[-1] if self.sink.found else None
        match event:
            case BatchEvent.PLAN:
                self.planned("run")
            case BatchEvent.LOAD if landed is None or self.state is BatchState.COMMITTED:
                saved = self.ledger.saved_range(key)
                self.land(write_of_load(saved.load, beside=saved.after.beside(saved.load.nonempty, saved.load.topic_ids)))
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
    assert len(TABLE) == len(TRANSITIONS)
    order = list(BatchState)
    assert all(order.index(t.then) >= order.index(t.state) for t in TRANSITIONS if t.event is not BatchEvent.REBUILD)
