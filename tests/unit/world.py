"""One pipeline with its ports in memory: its batches are planned, loaded and committed without Airflow, Kafka or Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

from tests.records import changed, write_of
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.rates import BatchTiming
from tidegate.core.schedule.commit import leads_to
from tidegate.core.schedule.plan import Skip
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

P0 = TopicPartition("t", 0)
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(10))


def receipt_of(saved: SavedRange, snapshot: int = 1) -> Receipt | None:
    """What a load of this range leaves in the sink."""
    beside = saved.after.beside(saved.load.nonempty, saved.load.topic_ids)
    load = write_of(
        "p",
        saved.load.seq,
        saved.load.run_id,
        saved.load.nonempty,
        "v",
        "a",
        saved.load.topic_ids,
        saved.load.generation,
        beside=beside,
    )
    return Receipt(load, snapshot, 1000 * snapshot, 1) if saved.load.nonempty else None


def planned_on(cursor: Cursor, saved: SavedRange) -> SavedRange:
    """The range with where it leads from this cursor, as its plan says."""
    return changed(saved, beside=leads_to(cursor, saved).beside(saved.load.ranges, saved.load.topic_ids))


class Ports(TypedDict):
    """As functions of the schedule take them."""

    store: MemoryStore
    brokers: FakeBrokers
    sink: FakeReader


class OnPorts:
    """Has the ports of one pipeline, and its cursor."""

    store: MemoryStore
    brokers: FakeBrokers
    sink: FakeReader

    @property
    def ports(self) -> Ports:
        return {"store": self.store, "brokers": self.brokers, "sink": self.sink}

    @property
    def cursor(self) -> Cursor:
        return Ledger(self.store, "p").cursor()


@dataclass
class World(OnPorts):
    """One pipeline with its ports."""

    store: MemoryStore = field(default_factory=MemoryStore)
    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers({P0: 25}))
    sink: FakeReader = field(default_factory=FakeReader)
    pipeline: Pipeline = PIPELINE
    now_ms: int = 0

    def plan(self, run_id: str, request: Request = Request()) -> Planned | Skip:  # noqa: B008 - frozen
        self.now_ms += 1
        return plan_batch(self.pipeline, run_id, request, **self.ports, now_ms=self.now_ms)

    def planned(self, run_id: str) -> Planned:
        found = self.plan(run_id)
        assert isinstance(found, Planned)
        return found

    def load(self, planned: Planned) -> Receipt | None:
        """The newest receipt of the range; the table gets one where it has none."""
        there = [r for r in self.sink.found if r.load.seq == planned.saved.load.seq and r.covers(planned.saved.load.nonempty)]
        made = there[-1] if there else receipt_of(planned.saved, len(self.sink.found) + 1)
        self.sink.found += [made] if made is not None and not there else []
        return made

    def commit(self, planned: Planned, timing: BatchTiming | None = None) -> bool:
        return commit_batch(self.pipeline, planned.key, self.load(planned), store=self.store, timing=timing)[2]

    def run(self, run_id: str) -> Planned:
        planned = self.planned(run_id)
        self.commit(planned)
        return planned
