"""The table of a batch's life, held against what the code does."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.records import cursor_of, write_of
from tidegate.core.audit.rebuild import rebuild
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.errors import ReceiptMismatch
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.schedule.lifecycle import TRANSITIONS, Event, State, page, state_of
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

DOCS = Path(__file__).parents[2] / "docs" / "lifecycle.md"
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(10))
TABLE = {(t.state, t.event): t.then for t in TRANSITIONS}


class FirstBatch:
    """Batch 1 of a pipeline, and every event that its own run can cause."""

    def __init__(self) -> None:
        self.store, self.sink = MemoryStore(), FakeReader()
        self.brokers = FakeBrokers({TopicPartition("t", 0): 25})
        self.ledger = Ledger(self.store, "p")

    def plan(self) -> None:
        found = plan_batch(PIPELINE, "run", Request(), store=self.store, brokers=self.brokers, sink=self.sink, now_ms=1)
        assert isinstance(found, Planned)

    def load(self) -> None:
        saved = self.ledger.saved_range(self.ledger.range_key(1, "run"))
        landed = self._receipt()  # what a load looks up, and hands on unless the batch is to be done over
        if landed is None or self.state is State.COMMITTED:
            beside = saved.after.beside(saved.load.nonempty, saved.load.topic_ids)
            load = write_of(
                "p", 1, "run", saved.load.nonempty, "v", "a", saved.load.topic_ids, saved.load.generation, beside=beside
            )
            self.sink.found.append(Receipt(load, 1 + len(self.sink.found), 1, 10))

    def commit(self) -> None:
        try:
            commit_batch(PIPELINE, self.ledger.range_key(1, "run"), self._receipt(), store=self.store)
        except ReceiptMismatch:
            assert self._receipt() is None

    def rebuild(self) -> None:
        if self.sink.found:
            made = rebuild("p", self.sink.found)
            self.ledger.replace(self.ledger.listing(), made.cursor, made.ranges, keep=1000)
        else:
            self.ledger.replace(self.ledger.listing(), cursor_of("p", generation=1), (), keep=1000)

    def _receipt(self) -> Receipt | None:
        return self.sink.found[-1] if self.sink.found else None

    @property
    def state(self) -> State:
        listing = self.ledger.listing()
        cursor = self.ledger.cursor() if listing.has_cursor else cursor_of("p")
        return state_of(saved=bool(listing.of_seq(1)), landed=bool(self.sink.found), committed=cursor.seq >= 1)


@given(st.lists(st.sampled_from(Event), max_size=12))
def test_every_event_does_in_every_state_what_the_table_says(events: list[Event]) -> None:
    """In any order, as often as anybody likes; what is not in the table cannot be done."""
    batch = FirstBatch()
    for event in events:
        then = TABLE.get((batch.state, event))
        if then is not None:
            getattr(batch, event.value)()
            assert batch.state is then


def test_the_table_names_each_event_of_a_state_once_and_never_leads_back_without_a_rebuild() -> None:
    """What is loaded or committed stays so."""
    assert len(TABLE) == len(TRANSITIONS)
    order = list(State)
    assert all(order.index(t.then) >= order.index(t.state) for t in TRANSITIONS if t.event is not Event.REBUILD)


def test_the_docs_show_this_table() -> None:
    """`make docs` writes it."""
    assert DOCS.read_text(encoding="utf-8") == page()
