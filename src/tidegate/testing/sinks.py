"""A sink in memory: `SinkWriter` over lists of rows. It keeps the same laws as the adapters of real sinks.

Not part of `tidegate.testing.fakes`: this port speaks of DataFrames, so importing it imports pyspark.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from tidegate.core.config.sinks import Replaces, SinkKind
from tidegate.core.load.lookup import Lookup, check_owners, check_rows, in_the_way, own
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Receipt, Write
from tidegate.sinks.boxes import Box
from tidegate.sinks.columns import check_columns
from tidegate.sinks.identity import Identity
from tidegate.sinks.origin import ORIGIN
from tidegate.sinks.port import Phases

Row = Mapping[str, Any]


@dataclass(frozen=True)
class MemoryCommit:
    """One commit: its receipt, and all rows that the table holds after it."""

    receipt: Receipt
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

    def roll_back(self, snapshot: int) -> None:
        """Make a commit the current state again; later ones have not landed then."""
        while self.commits and self.commits[-1].receipt.snapshot != snapshot:
            self.commits.pop()


@dataclass(frozen=True)
class MemorySink:
    """The port for one table of `tables`, which several writers may share. `collect` brings all rows into this process."""

    tables: dict[str, MemoryTable]
    name: str
    kind: ClassVar[SinkKind] = SinkKind("memory", Replaces.ANY_RANGE, re.compile(".+"), table_form="any text")

    def lookup(self, job: LoadJob) -> Lookup:
        """As the port."""
        table = self.tables.get(self.name)
        if table is None:
            return Lookup(exists=False)
        newest_first = [own(commit.receipt, job) for commit in reversed(table.commits)]
        return Lookup(
            exists=True,
            landed=next((r for r in newest_first if r.load.task == job.load.task), None),
            owns=job.load.pipeline in table.owners,
            others=tuple(r for r in newest_first if in_the_way(r, job)),
        )

    def prepare(self, schema: StructType, identity: Identity, job: LoadJob, lookup: Lookup) -> None:
        """As the port."""
        table = self.tables.setdefault(self.name, MemoryTable(schema=schema, owners={job.load.pipeline}))
        check_rows(job, lookup.others)
        check_owners(job, table.owners, lookup.others)
        identity.check_kind([f.name.lower() for f in table.schema.fields], self.name)
        check_columns(table.schema, schema, kept_as=DataType.simpleString, table=self.name, transform=job.transform)
        table.owners.add(job.load.pipeline)

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
                names = table.schema.names
                kept = tuple(row for row in table.rows if not _is_of(row, identity))
                parent = table.commits[-1].receipt.snapshot if table.commits else None
                table.last_snapshot += 1
                receipt = Receipt(write, table.last_snapshot, time.time_ns() // 1_000_000, rows=len(new_rows), parent=parent)
                new = tuple({name: row.get(name) for name in names} for row in new_rows)
                table.commits.append(MemoryCommit(receipt, (*kept, *new)))
        with phases("receipt", "reading the receipt of the commit"):
            return receipt

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
        (rows,) = (commit.rows for commit in self.tables[self.name].commits if commit.receipt.snapshot == receipt.snapshot)
        return rows


def _is_of(row: Row, identity: Identity) -> bool:
    place = Box(tuple((row[name], row[name]) for name in identity.columns))
    return any(box.touches(place) for box in identity.boxes)
