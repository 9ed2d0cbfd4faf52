"""In-memory ports, for tests. The adapters of the same ports have integration tests of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.core.audit.table import TableCommit, TableHistory
from tidegate.core.errors import StateUnavailable, TopicNotFound
from tidegate.core.events import Committed, Replayed
from tidegate.core.load.answer import answer_by_receipt
from tidegate.core.load.cutting import Box
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.load.receipt import LoadId, Observed, Receipt
from tidegate.core.offsets.ranges import TopicPartition, total_count
from tidegate.core.schedule.plan import Watermarks


@dataclass
class MemoryStore:
    """A dict that can be told to fail, and counts its calls."""

    values: dict[str, str] = field(default_factory=dict)
    failing: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)

    def _note(self, verb: str, key: str) -> None:
        self.calls.append((verb, key))
        if self.failing:
            raise StateUnavailable("the store is away")

    def keys(self, prefix: str) -> list[str]:
        """As the port."""
        self._note("keys", prefix)
        return sorted(k for k in self.values if k.startswith(prefix))

    def get(self, key: str) -> str:
        """As the port."""
        self._note("get", key)
        if (value := self.values.get(key)) is None:
            raise StateUnavailable(f"{key} cannot be read")
        return value

    def put(self, key: str, value: str, description: str) -> None:  # noqa: ARG002 - the port has it
        """As the port; the description is not kept."""
        self._note("put", key)
        self.values[key] = value

    def delete(self, key: str) -> None:
        """As the port."""
        self._note("delete", key)
        del self.values[key]


@dataclass
class FakeBrokers:
    """A log that a test lets grow."""

    latest: dict[TopicPartition, int]
    earliest: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    next_reads: list[dict[TopicPartition, int]] = field(default_factory=list)
    asked: int = 0
    settled: int = 0
    isolation_level: str = ""

    def watermarks(self, topics: Sequence[str], *, isolation_level: str = "read_uncommitted") -> Watermarks:
        """As the port."""
        self.asked += 1
        self.isolation_level = isolation_level
        if self.next_reads:
            self.latest = self.next_reads.pop(0)
        here = {tp: end for tp, end in self.latest.items() if tp.topic in topics}
        missing = set(topics) - {tp.topic for tp in here}
        if missing:
            raise TopicNotFound(f"topic {min(missing)} does not exist")
        return Watermarks(
            {tp: self.earliest.get(tp, 0) for tp in here}, here, {topic: self.ids.get(topic, "id") for topic in topics}
        )

    def match_topics(self, pattern: str, exclude: Sequence[str] = ()) -> list[str]:
        """As the port."""
        topics = {tp.topic for tp in self.latest}
        return sorted(t for t in topics if re.fullmatch(pattern, t) and not any(re.fullmatch(e, t) for e in exclude))

    def settle(self) -> None:
        """Counted."""
        self.settled += 1

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """A record's time is its offset."""
        return {tp: time_ms if time_ms < self.latest[tp] else None for tp, time_ms in times.items()}


@dataclass
class FakeReader:
    """Receipts that a test puts in, as the commits of a table; `others` are commits of nobody, after the receipts.

    A table whose older commits have `expired` keeps no receipt of them.
    """

    found: list[Receipt] = field(default_factory=list)
    others: list[TableCommit] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    exists: bool = True
    expired: bool = False
    owners: frozenset[str] = frozenset()

    def history(self, table: str) -> TableHistory:  # noqa: ARG002 - there is one table
        """The newest commit first."""
        ours = [
            TableCommit(
                r.snapshot,
                r.committed_at_ms,
                {**r.load.to_properties(), "added-records": str(r.rows + r.kept), "tidegate.kept": str(r.kept)},
            )
            for r in self.found
        ]
        commits = tuple([*ours, *self.others][::-1])
        return TableHistory(commits if self.exists else (), exists=self.exists, complete=not self.expired, owners=self.owners)

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """The oldest commit first."""
        return self.history(table).receipts(pipeline)

    def files(self, table: str, *, by_batch: bool = False) -> list[Box]:  # noqa: ARG002 - there is one table
        """What a test says."""
        return self.boxes


@dataclass
class FakeRunner:
    """A Spark whose transforms make one row of each offset, of 100 bytes, and whose commits are a `FakeReader`'s receipts."""

    sink: FakeReader = field(default_factory=FakeReader)
    lost: int = 0
    stopped: int = 0

    def run(self, job: LoadJob) -> LoadResult:
        """As the port."""
        receipts = self.sink.receipts(job.table, job.pipeline)
        if landed := answer_by_receipt(replace(job, attempt=None), receipts, {"lookup": 0.1}):
            return landed
        attempt = job.attempt or f"attempt {len(self.sink.found) + 1}"
        load = LoadId(
            job.pipeline,
            job.seq,
            job.run_id,
            job.ranges,
            f"{job.transform}@1",
            attempt,
            job.topic_ids,
            job.generation,
            job.replay,
            job.batch_replaced,
            job.others,
        )
        rows = total_count(job.ranges)
        receipt = Receipt(load, len(self.sink.found) + 1, 1, rows)
        self.sink.found.append(receipt)
        first_last = {r.topic_partition: (r.from_offset, r.until_offset - 1) for r in job.ranges if r.count}
        return LoadResult(receipt, Observed(rows, rows, 100 * rows, first_last), {"write": 0.1})

    def stop(self) -> None:
        """Counted."""
        self.stopped += 1


@dataclass
class MemoryEvents:
    """What happened, in order."""

    happened: list[Committed | Replayed] = field(default_factory=list)

    def committed(self, event: Committed) -> None:
        """As the port."""
        self.happened.append(event)

    def replayed(self, event: Replayed) -> None:
        """As the port."""
        self.happened.append(event)
