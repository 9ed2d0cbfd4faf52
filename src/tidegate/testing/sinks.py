"""A second kind of sink: writer, reader and maintenance over lists of rows, which keep the laws of the real ones.

A test adds it by `KINDS["memory"] = MEMORY` (`tidegate.core.config.sinks`). Then a pipeline file may say `sink.kind: memory`,
and the tables are those in `TABLES` of the process.

Not part of `tidegate.testing.fakes`: this port speaks of DataFrames, so importing it imports pyspark.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from tidegate.core.config.sinks import Replaces, SinkKind
from tidegate.core.load.lookup import Lookup, check_owners, check_rows, in_the_way, own
from tidegate.core.model.errors import SinkUnavailable
from tidegate.core.model.ranges import OffsetRange, TopicPartition, without
from tidegate.core.state.history import NoOrigin, TableCommit, TableHistory
from tidegate.core.state.jobs import LoadJob, Maintained, MaintenanceJob
from tidegate.core.state.receipt import PIPELINE, Receipt, Write
from tidegate.core.state.rejection import Rejection, load_of
from tidegate.sinks.boxes import Box
from tidegate.sinks.columns import agreed, alterations, fitted, misfit
from tidegate.sinks.identity import ORIGIN, ByOrigin, Identity
from tidegate.sinks.port import Phases, Prepared

Row = Mapping[str, Any]


@dataclass(frozen=True)
class MemoryCommit:
    """One commit, and all rows that the table holds after it."""

    made: TableCommit
    rows: tuple[Row, ...]


@dataclass(kw_only=True)
class MemoryTable:
    """A table: its columns, the pipelines that own it, and the commits that its current state descends from, oldest first."""

    schema: StructType
    owners: set[str]
    commits: list[MemoryCommit] = field(default_factory=list)
    last_snapshot: int = 0
    lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def rows(self) -> tuple[Row, ...]:
        """What it holds now."""
        return self.commits[-1].rows if self.commits else ()

    def commit(self, properties: Mapping[str, str], rows: tuple[Row, ...], *, made: int, kept: int = 0) -> TableCommit:
        """A commit after which the table holds these rows; its load has made so many, and written `kept` older ones again."""
        parent = self.commits[-1].made.snapshot if self.commits else None
        self.last_snapshot += 1
        at_ms = time.time_ns() // 1_000_000
        commit = TableCommit(self.last_snapshot, at_ms, {**properties}, rows=made, kept=kept, parent=parent)
        self.commits.append(MemoryCommit(commit, rows))
        return commit

    def roll_back(self, snapshot: int) -> None:
        """Make a commit the current state again; later ones have not landed then."""
        while self.commits and self.commits[-1].made.snapshot != snapshot:
            self.commits.pop()

    @property
    def history(self) -> TableHistory:
        """What its commits say, newest first."""
        return TableHistory(
            commits=tuple(commit.made for commit in reversed(self.commits)),
            complete=not self.commits or self.commits[0].made.parent is None,
            owners=frozenset(self.owners),
            has_rows=bool(self.rows),
        )


TABLES: dict[str, MemoryTable] = {}
"""The tables of this process, by name."""


@dataclass(frozen=True)
class MemorySink:
    """The port for one table of `tables`, which several writers may share. `collect` brings all rows into this process."""

    tables: dict[str, MemoryTable]
    name: str

    def lookup(self, job: LoadJob) -> Lookup:
        """As the port."""
        table = self.tables.get(self.name)
        if table is None:
            return Lookup(exists=False)
        loads = (commit for commit in table.history.commits if PIPELINE in commit.properties)
        newest_first = [own(commit.receipt(), job) for commit in loads]
        return Lookup(
            exists=True,
            landed=next((r for r in newest_first if r.load.task == job.load.task), None),
            owns=job.load.pipeline in table.owners,
            others=tuple(r for r in newest_first if in_the_way(r, job)),
        )

    def prepare(self, schema: StructType, identity: Identity, job: LoadJob, lookup: Lookup) -> Prepared:
        """As the port; columns change, and no field inside one."""
        table = self.tables.setdefault(self.name, MemoryTable(schema=schema, owners={job.load.pipeline}))
        check_rows(job, lookup.others)
        check_owners(job, table.owners, lookup.others)
        identity.check_kind([f.name.lower() for f in table.schema.fields], self.name)
        changes = agreed(table.schema, schema, job, kept_as=_as_it_is)
        now = {f.name: f.dataType for f in table.schema.fields} | {one.name: one.made or one.held for one in changes}
        table.schema = StructType([StructField(name, of) for name, of in now.items() if of is not None])
        table.owners.add(job.load.pipeline)
        unfit = misfit(table.schema, schema, job.contract, kept_as=_as_it_is)
        return Prepared(partial(fitted, held=table.schema, kept_as=_as_it_is), tuple(one.change for one in changes), unfit)

    def changes(self, schema: StructType, job: LoadJob) -> list[str]:
        """As the port."""
        held = self.tables[self.name].schema if self.name in self.tables else schema
        return alterations(self.name, agreed(held, schema, job, kept_as=_as_it_is))

    def replace(
        self,
        rows: Callable[[], DataFrame],
        identity: Identity,
        write: Write,
        lookup: Lookup,  # noqa: ARG002 - it sees all rows, whatever is in the way
        *,
        again: bool,  # noqa: ARG002
        phases: Phases,
    ) -> Receipt:
        """As the port. Commits come one after the other, so none gets in the way of another."""
        table = self.tables[self.name]
        with phases("write", "reading Kafka and writing the table"):
            new_rows = [row.asDict() for row in rows().collect()]
            with table.lock:
                kept = tuple(row for row in table.rows if not _is_of(row, identity))
                new = tuple({name: row.get(name) for name in table.schema.names} for row in new_rows)
                commit = table.commit(write.to_properties(), (*kept, *new), made=len(new))
        with phases("receipt", "reading the receipt of the commit"):
            return commit.receipt()

    def set_aside(self, records: DataFrame, identity: Identity, job: LoadJob, attempt: str) -> None:  # noqa: ARG002
        """As the port."""
        aside = self._quarantine(job)
        aside.schema, mine = records.schema, ByOrigin(job.load.ranges)
        new = tuple(row.asDict() for row in records.collect())
        held = tuple(row for row in aside.rows if row["attempt"] != attempt or not _is_of(row, mine))
        aside.commit({}, (*held, *new), made=len(new))

    def held_aside(self, origins: DataFrame, job: LoadJob) -> int:
        """As the port."""
        held = {tuple(row[name] for name in ORIGIN) for row in self._quarantine(job).rows}
        return sum(tuple(row[name] for name in ORIGIN) in held for row in origins.collect())

    def sweep(self, receipt: Receipt, job: LoadJob) -> tuple[OffsetRange, ...]:
        """As the port."""
        aside, attempt = self._quarantine(job), receipt.write.attempt
        of_range = [row for row in aside.rows if _is_of(row, ByOrigin(receipt.load.ranges))]
        landed = [c.receipt() for c in self.tables[self.name].history.commits]
        on_top = [other for other in landed if other.snapshot > receipt.snapshot]
        replaced = [r for other in on_top for r in other.load.ranges]
        tries = {row["attempt"] for row in of_range if row["load"] == load_of(receipt.load)} - {attempt}
        dead = (tries | {other.write.attempt for other in landed if other.snapshot < receipt.snapshot}).difference(
            other.write.attempt for other in on_top
        )
        first = self.tables[self.name].commits[0].made
        dead |= {row["attempt"] for row in of_range if row["added_at"].timestamp() * 1000 < first.committed_at_ms} - {attempt}
        gone = [row for row in of_range if row["attempt"] in dead]
        if replaced:
            gone += [row for row in of_range if row["attempt"] == attempt and _is_of(row, ByOrigin(replaced))]
        kept = tuple(row for row in aside.rows if row not in gone)
        if kept != aside.rows:
            aside.commit({}, kept, made=0)
        if sum(row["attempt"] == attempt for row in of_range) >= (receipt.write.quarantined or 0):
            return ()
        return without(receipt.load.ranges, replaced)

    def _quarantine(self, job: LoadJob) -> MemoryTable:
        return self.tables.setdefault(job.quarantined, MemoryTable(schema=StructType(), owners=set()))

    def offsets_of(self, receipt: Receipt) -> dict[TopicPartition, tuple[int, int]] | None:
        """As the port."""
        if receipt.load.batch is not None:
            return None
        topic, partition, offset = ORIGIN
        ranges = {r.topic_partition: r for r in receipt.load.ranges}
        offsets: dict[TopicPartition, list[int]] = {}
        for row in self._rows_of(receipt):
            r = ranges.get(TopicPartition(row[topic], row[partition]))
            if r and r.from_offset <= row[offset] < r.until_offset:
                offsets.setdefault(r.topic_partition, []).append(row[offset])
        return {topic_partition: (min(seen), max(seen)) for topic_partition, seen in offsets.items()}

    def count_of(self, receipt: Receipt, identity: Identity, column: str) -> int:
        """As the port."""
        return sum(_is_of(row, identity) and row[column] is not None for row in self._rows_of(receipt))

    def _rows_of(self, receipt: Receipt) -> tuple[Row, ...]:
        (rows,) = (commit.rows for commit in self.tables[self.name].commits if commit.made.snapshot == receipt.snapshot)
        return rows


def _as_it_is(of: DataType) -> DataType:
    return of


def _is_of(row: Row, identity: Identity) -> bool:
    place = Box(tuple((row[name], row[name]) for name in identity.columns))
    return any(box.touches(place) for box in identity.boxes)


@dataclass(frozen=True)
class MemoryReader:
    """The port `SinkReader` over `tables`. While the catalog is `away`, every question raises SinkUnavailable."""

    tables: Mapping[str, MemoryTable] = field(default_factory=lambda: TABLES)
    away: bool = False

    def history(self, table: str, *, expired: bool = False) -> TableHistory:  # noqa: ARG002 - no commit is kept elsewhere
        """As the port."""
        if self.away:
            raise SinkUnavailable(f"the catalog of {table} does not answer")
        held = self.tables.get(table)
        return TableHistory(exists=False) if held is None else held.history

    def without_origin(self, table: str) -> NoOrigin | None:
        """As the port: only loads write here."""
        self.history(table)
        return None

    def layout(self, table: str) -> None:
        """As the port."""
        self.history(table)

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """As the port."""
        return self.history(table).receipts(pipeline)

    def rejections(self, quarantine: str, *, most: int | None = None) -> list[Rejection]:  # noqa: ARG002 - it holds few
        """As the port."""
        self.history(quarantine)
        names = (*ORIGIN, *Rejection._fields[3:])
        return [Rejection(*(row[name] for name in names)) for row in self._aside(quarantine)]

    def rejected_values(self, quarantine: str, rejections: Sequence[Rejection]) -> dict[Rejection, bytes | None]:
        """As the port."""
        held = {tuple(row[name] for name in ORIGIN): row["value"] for row in self._aside(quarantine)}
        return {one: held.get((one.topic, one.partition, one.offset)) for one in rejections}

    def broken(self, table: str, ranges: Sequence[OffsetRange], *, most: int) -> list[Rejection]:
        """As the port, of a quarantine."""
        within = {r.topic_partition: r for r in ranges}
        return [one for one in self.rejections(table) if one.lies_in(within)][:most]

    def _aside(self, quarantine: str) -> tuple[Row, ...]:
        rows = self.tables[quarantine].rows if quarantine in self.tables else ()
        return tuple(row for row in rows if "rejected_by" in row)


def writer(spark: SparkSession, table: str) -> MemorySink:  # noqa: ARG001 - rows come with their session
    """The writer of a table of this process."""
    return MemorySink(TABLES, table)


def maintain(spark: SparkSession, job: MaintenanceJob) -> Maintained:  # noqa: ARG001
    """There is nothing to do."""
    return Maintained(job.step)


MEMORY = SinkKind(
    "memory",
    Replaces.ANY_RANGE,
    re.compile(".+"),
    table_form="any text",
    reader=f"{__name__}:MemoryReader",
    writer=f"{__name__}:writer",
    maintain=f"{__name__}:maintain",
)
