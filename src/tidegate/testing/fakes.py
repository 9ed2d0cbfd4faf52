"""In-memory ports, for tests. They pass the suites that the adapters pass: `tidegate.testing.contracts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.core.config.layout import Layout
from tidegate.core.config.names import topic_filter
from tidegate.core.load.answer import answer_by_receipt
from tidegate.core.model.errors import (
    BrokerUnavailable,
    KafkaError,
    SinkUnavailable,
    StateUnavailable,
    TidegateError,
    TopicNotFound,
)
from tidegate.core.model.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.model.watermarks import IsolationLevel, Watermarks
from tidegate.core.state.history import NoOrigin, Origins, TableCommit, TableHistory
from tidegate.core.state.jobs import LoadJob, LoadResult, Maintained, MaintenanceJob
from tidegate.core.state.receipt import Observed, Receipt, Write
from tidegate.core.state.rejection import Rejection


@dataclass
class MemoryStore:
    """A dict that counts its calls; while it is `failing`, every call raises StateUnavailable."""

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
        self.values.pop(key, None)


@dataclass(kw_only=True)
class FakeBrokers:
    """A log that a test lets grow: the end of every partition, and its beginning where that is not 0.

    A record's time is its offset, unless `times` has the times of a partition's records, from offset 0 on. `stable` is the last
    stable offset of a partition with an open transaction. The ends of `next_reads` replace `latest`, one at each reading of
    watermarks. `groups` have committed offsets, and those that are `joined` have members. While the brokers are `away`, every
    question raises BrokerUnavailable. `asked` and `settled` count, and `isolation_level` is that of the last question.
    """

    asked, settled, isolation_level = 0, 0, ""

    latest: dict[TopicPartition, int]
    earliest: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    next_reads: list[dict[TopicPartition, int]] = field(default_factory=list)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    times: dict[TopicPartition, list[Any]] = field(default_factory=dict)
    away: bool = False
    retention: dict[str, int] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)

    def watermarks(self, topics: Sequence[str], *, isolation_level: IsolationLevel = "read_uncommitted") -> Watermarks:
        """As the port."""
        self._answer()
        self.asked += 1
        self.isolation_level = isolation_level
        if self.next_reads:
            self.latest = self.next_reads.pop(0)
        ends = {tp: end for tp, end in self.latest.items() if tp.topic in topics}
        missing = set(topics) - {tp.topic for tp in ends}
        if missing:
            raise TopicNotFound(f"topic {min(missing)} does not exist")
        earliest = {tp: self.earliest.get(tp, 0) for tp in ends}
        ids = {topic: self.ids.get(topic, "id") for topic in topics}
        stable = self.stable if isolation_level == "read_committed" else {}
        held_back = {tp: ends[tp] - end for tp, end in stable.items() if tp in ends}
        return Watermarks(earliest, ends | {tp: stable[tp] for tp in held_back}, ids, held_back=held_back)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """As the port."""
        level = self.isolation_level
        ids = dict(self.watermarks(topics).topic_ids)
        self.isolation_level = level
        return ids

    def match_topics(self, pattern: str, exclude: Sequence[str] = ()) -> list[str]:
        """As the port."""
        pick = topic_filter(pattern, exclude)
        self._answer()
        return pick({tp.topic for tp in self.latest})

    def settle(self) -> None:
        """Counted."""
        self.settled += 1

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """As the port."""
        self._answer()
        missing = times.keys() - self.latest.keys()
        if missing:
            raise TopicNotFound(f"there is no partition {min(missing)}")
        return {tp: self._offset_at(tp, time_ms) for tp, time_ms in times.items()}

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """As the port."""
        self._answer()
        if group in self.joined:
            raise KafkaError(f"group {group} has members")
        return dict(self.groups.get(group, {}))

    def _offset_at(self, tp: TopicPartition, time_ms: int) -> int | None:
        held = range(self.earliest.get(tp, 0), self.latest[tp])
        times = self.times.get(tp, range(self.latest[tp]))
        return next((offset for offset in held if (at := times[offset]) is not None and at >= time_ms), None)

    def _answer(self) -> None:
        if self.away:
            raise BrokerUnavailable("no broker answers")

    def next_timestamps(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """As the port."""
        self._answer()
        self.isolation_level = isolation_level
        held = {tp: self.times.get(tp, range(self.latest[tp]))[at : self.latest[tp]] for tp, at in positions.items()}
        return {tp: min(known[:1]) for tp, times in held.items() if (known := [at for at in times if at is not None])}

    def retention_ms(self, topics: Sequence[str]) -> dict[str, int]:
        """As the port."""
        self._answer()
        return {topic: kept for topic, kept in self.retention.items() if topic in topics}


@dataclass(kw_only=True)
class FakeReader:
    """One table: the receipts of its loads, and `others`, the commits of somebody else, in the order of their times.

    A table whose older commits have `expired` keeps no receipt of them but those in `kept`. `origins` and `renamed` are as in
    `TableHistory`; where the origins are `unproved`, some rows have none. While the catalog is `away`, every question raises
    SinkUnavailable.
    """

    found: list[Receipt] = field(default_factory=list)
    others: list[TableCommit] = field(default_factory=list)
    kept: list[Receipt] = field(default_factory=list)
    exists: bool = True
    expired: bool = False
    owners: frozenset[str] = frozenset()
    has_rows: bool = False
    origins: Origins = field(default_factory=Origins)
    renamed: dict[str, str] = field(default_factory=dict)
    laid_out: Layout = field(default_factory=Layout)
    rejected: dict[Rejection, bytes | None] = field(default_factory=dict)
    away: bool = False

    def history(self, table: str, *, expired: bool = False) -> TableHistory:
        """As the port, whatever the table's name."""
        self._answer(table)
        if not self.exists:
            return TableHistory(exists=False)
        found = [*self.kept, *self.found] if expired else self.found
        named = [r.of(pipeline=self.renamed.get(r.load.pipeline, r.load.pipeline)) for r in found]
        loads = [
            TableCommit(r.snapshot, r.committed_at_ms, r.write.to_properties(), rows=r.rows, kept=r.kept, parent=r.parent)
            for r in named
        ]
        commits = sorted([*loads, *self.others], key=lambda commit: commit.committed_at_ms)
        return TableHistory(
            commits=tuple(commits[::-1]),
            complete=not self.expired,
            owners=self.owners,
            renamed=self.renamed,
            has_rows=self.has_rows,
            origins=replace(self.origins, unproved=self.origins.unproved or self.expired),
        )

    def rejections(self, quarantine: str, *, most: int | None = None) -> list[Rejection]:  # noqa: ARG002 - it holds few
        """As the port, whatever the quarantine's name."""
        self._answer(quarantine)
        return list(self.rejected)

    def rejected_values(self, quarantine: str, rejections: Sequence[Rejection]) -> dict[Rejection, bytes | None]:
        """As the port."""
        self._answer(quarantine)
        return {one: self.rejected[one] for one in rejections}

    def broken(self, table: str, ranges: Sequence[OffsetRange], *, most: int) -> list[Rejection]:
        """As the port, of what is rejected, whatever the table's name."""
        within = {r.topic_partition: r for r in ranges}
        return [one for one in self.rejections(table) if one.lies_in(within)][:most]

    def without_origin(self, table: str) -> NoOrigin | None:
        """As the port."""
        self._answer(table)
        if not (self.exists and self.origins.unproved):
            return None
        return "lost" if self.origins.moved else "foreign"

    def layout(self, table: str) -> Layout | None:
        """As the port."""
        self._answer(table)
        return self.laid_out if self.exists else None

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """As the port."""
        return self.history(table, expired=True).receipts(pipeline)

    def _answer(self, table: str) -> None:
        if self.away:
            raise SinkUnavailable(f"the catalog of {table} does not answer")


@dataclass
class FakeRunner:
    """A Spark whose transforms make one row of each offset, of 100 bytes, and whose commits are a `FakeReader`'s receipts."""

    sink: FakeReader = field(default_factory=FakeReader)
    lost: int = 0
    stopped: int = 0

    def run(self, job: LoadJob) -> LoadResult:
        """As the port."""
        receipts = self.sink.receipts(job.table, job.load.pipeline)
        if landed := answer_by_receipt(replace(job, attempt=None), receipts, {"lookup": 0.1}):
            return landed
        if job.refused is not None:
            raise TidegateError.from_dict(job.refused)
        attempt = job.attempt or f"attempt {len(self.sink.found) + 1}"
        write = Write(job.load, f"{job.transform}@1", attempt)
        rows = total_count(job.load.ranges)
        receipt = Receipt(write, len(self.sink.found) + 1, 1, rows=rows)
        self.sink.found.append(receipt)
        first_last = {r.topic_partition: (r.from_offset, r.until_offset - 1) for r in job.load.nonempty}
        return LoadResult(receipt, Observed(rows, rows, 100 * rows, first_last=first_last), {"write": 0.1})

    def maintain(self, job: MaintenanceJob) -> Maintained:
        """As the port: there is nothing to do."""
        return Maintained(job.step)

    def stop(self) -> None:
        """Counted."""
        self.stopped += 1
