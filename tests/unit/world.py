"""One pipeline with its ports in memory: its batches are planned, loaded and committed without Airflow, Kafka or Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.records import changed, write_of, write_of_load
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.model.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.planning.commit import leads_to
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Receipt, Write
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

P0, Q0 = TopicPartition("t", 0), TopicPartition("q", 0)
PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), limits=Limits(10))
CURSOR = "tidegate.p.cursor"
W = TypeVar("W")


def in_turn(*steps: Callable[[W], object]) -> Callable[[W], object]:
    """What happens to a world, as one step."""
    return lambda world: [step(world) for step in steps]


def planned_on(cursor: Cursor, saved: SavedRange) -> SavedRange:
    """The range with where it leads from this cursor, as its plan says."""
    return changed(saved, beside=leads_to(cursor, saved).beside(saved.load.ranges, saved.load.topic_ids))


def source(**settings: Any) -> Pipeline:
    return Pipeline("p", Source(**settings), "m:f", sink=Sink("lake.a.b"))


class OnPorts:
    """Has the ports of one pipeline, and its cursor."""

    store: MemoryStore
    brokers: FakeBrokers
    sink: FakeReader

    @property
    def ports(self) -> dict[str, Any]:
        """As functions of the schedule take them."""
        return {"store": self.store, "brokers": self.brokers, "sink": self.sink}

    @property
    def cursor(self) -> Cursor:
        return self.ledger.cursor()

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.store, "p")


@dataclass
class World(OnPorts):
    """One pipeline with its ports, and so many committed batches.

    Each plan is `step_ms` after what was before it, each commit of the table `landing_ms`.
    """

    store: MemoryStore = field(default_factory=MemoryStore)
    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers(latest={P0: 25}))
    sink: FakeReader = field(default_factory=FakeReader)
    pipeline: Pipeline = PIPELINE
    now_ms: int = 0
    step_ms: int = 1
    landing_ms: int = 0
    version: str = "v"
    snapshots: int = 0
    committed: int = 0
    record_bytes: float | None = None

    def __post_init__(self) -> None:
        for n in range(self.committed):
            self.run(f"run{n + 1}")

    def plan(self, run_id: str, *, save: bool = True, **asked: Any) -> Planned | Skip:
        self.now_ms += self.step_ms
        return plan_batch(self.pipeline, run_id, Request(**asked), **self.ports, now_ms=self.now_ms, save=save)

    def planned(self, run_id: str, **asked: Any) -> Planned:
        found = self.plan(run_id, **asked)
        assert isinstance(found, Planned)
        return found

    def land(self, write: Write) -> Receipt:
        """The table's newest commit."""
        self.now_ms += self.landing_ms
        self.snapshots += 1
        receipt = Receipt(write, self.snapshots, self.now_ms, rows=total_count(write.load.ranges))
        self.sink.found.append(receipt)
        self.sink.exists = True
        return receipt

    def load(self, planned: Planned) -> Receipt | None:
        """The newest receipt of the range; the table gets one where it has none, or where the batch is done over."""
        load = planned.saved.load
        there = [r for r in self.sink.found if r.load.task == load.task and r.covers(load.nonempty)]
        if there or not load.nonempty:
            return there[-1] if there else None
        beside = planned.saved.after.beside(load.nonempty, load.topic_ids)
        batch = load.seq if self.pipeline.identity == "batch" else None
        return self.land(write_of_load(load, self.version, load.run_id, beside=beside, batch=batch))

    def commit(self, planned: Planned, **known: Any) -> bool:
        known = {"record_bytes": self.record_bytes, **known}
        return commit_batch(self.pipeline, planned.key, self.load(planned), store=self.store, **known)[2]

    def run(self, run_id: str) -> Planned:
        planned = self.planned(run_id)
        self.commit(planned)
        return planned

    def run_of(self, records: int, run_id: str) -> Planned:
        """A batch of records that have just come."""
        self.brokers.latest[P0] += records
        return self.run(run_id)

    def replay(self, *ranges: OffsetRange, batch: int | None = None) -> None:
        """A replay's commit."""
        self.land(write_of("p", 0, "again", ranges, "v", "x", {"t": "id"}, replay="again", batch=batch))

    def drop(self) -> None:
        self.sink.found.clear()
        self.sink.exists = False
