"""What tests look at in a sink, beside its port (one class for each adapter), and what they find in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Summary
from pyspark.sql import SparkSession

from tidegate.core.config.sinks import ICEBERG
from tidegate.core.state.receipt import Receipt
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.summary import owners_in
from tidegate.testing import sinks
from tidegate.testing.sinks import MEMORY

either_sink = pytest.mark.parametrize("sink", ["iceberg", "memory"], indirect=True)
"""Of a test: once for each sink."""
in_memory = pytest.mark.parametrize("sink", ["memory"], indirect=True)
"""Of a test whose law is the load's, whatever the sink: it costs half."""
Batches = dict[int, list[tuple[int, int, int]]]


class SinkUnderTest(Protocol):
    """A sink as a test sees it. `kind` is its name; `steps` are the phases of a write that only this sink has.

    `writes_whole_files` says that older rows beside a range may be written again, and are counted as kept.
    """

    kind: ClassVar[str]
    steps: ClassVar[frozenset[str]]
    writes_whole_files: ClassVar[bool]

    def exists(self, table: str) -> bool:
        """Whether there is such a table."""

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What the table holds."""

    def commits(self, table: str) -> int:
        """How many commits the table keeps."""

    def roll_back(self, table: str, receipt: Receipt) -> None:
        """Make a receipt's commit the table's current state again."""

    def drop(self, table: str) -> None:
        """There is no such table any more."""

    def owners(self, table: str) -> set[str]:
        """The pipelines that own the table."""


@dataclass(frozen=True)
class Iceberg:
    """Tables of the catalog `lake`. PyIceberg reads them, at a fifth of what a job of Spark costs."""

    spark: SparkSession
    kind: ClassVar[str] = ICEBERG.name
    steps: ClassVar[frozenset[str]] = frozenset({"look"})
    writes_whole_files: ClassVar[bool] = True

    def exists(self, table: str) -> bool:
        return self.spark.catalog.tableExists(table)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = found(table).scan().to_arrow().to_pylist()
        return rows

    def commits(self, table: str) -> int:
        return len(found(table).snapshots())

    def roll_back(self, table: str, receipt: Receipt) -> None:
        name = table.removeprefix("lake.")
        self.spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {receipt.snapshot})").collect()

    def drop(self, table: str) -> None:
        self.spark.sql(f"DROP TABLE {table} PURGE")

    def owners(self, table: str) -> set[str]:
        return owners_in(row["key"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {table}").collect())


@dataclass(frozen=True)
class Memory:
    """Lists of rows in this process."""

    kind: ClassVar[str] = MEMORY.name
    steps: ClassVar[frozenset[str]] = frozenset()
    writes_whole_files: ClassVar[bool] = False

    def exists(self, table: str) -> bool:
        return table in sinks.TABLES

    def rows(self, table: str) -> list[dict[str, Any]]:
        held = sinks.TABLES[table]
        return [{name: row.get(name) for name in held.schema.names} for row in held.rows]

    def commits(self, table: str) -> int:
        return len(sinks.TABLES[table].commits)

    def roll_back(self, table: str, receipt: Receipt) -> None:
        sinks.TABLES[table].roll_back(receipt.snapshot)

    def drop(self, table: str) -> None:
        del sinks.TABLES[table]

    def owners(self, table: str) -> set[str]:
        return sinks.TABLES[table].owners


def found(table: str) -> Table:
    """What PyIceberg finds."""
    loaded = load_table(table)
    assert loaded is not None
    return loaded


def summaries(table: str) -> list[Summary]:
    """Of the table's commits, oldest first."""
    return [snapshot.summary for snapshot in found(table).snapshots() if snapshot.summary]


def offsets_in(table: str) -> list[int]:
    """The column `_kafka_offset`, sorted."""
    return sorted(found(table).scan(selected_fields=("_kafka_offset",)).to_arrow()["_kafka_offset"].to_pylist())


def files_of(table: str) -> list[str]:
    """The data files that the table consists of, sorted."""
    return sorted(task.file.file_path for task in found(table).scan().plan_files())


def compact_all(spark: SparkSession, table: str) -> None:
    """Write all data files of a table of the catalog `lake` anew."""
    name = table.removeprefix("lake.")
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))").collect()


def ids(sink: SinkUnderTest, table: str) -> list[int]:
    """The column `id`, sorted."""
    return sorted(row["id"] for row in sink.rows(table))


def held(sink: SinkUnderTest, table: str) -> Batches:
    """Parity, records and their sum, by batch."""
    batches: Batches = {}
    for row in sorted(sink.rows(table), key=lambda row: (row["_batch"], row["parity"])):
        batches.setdefault(row["_batch"], []).append((row["parity"], row["n"], row["total"]))
    return batches


def expected(*seqs: int) -> Batches:
    """What `counted` makes of whole batches."""
    ids_of = {seq: range(seq * 10 - 10, seq * 10) for seq in seqs}
    return {seq: [(0, 5, sum(those[::2])), (1, 5, sum(those[1::2]))] for seq, those in ids_of.items()}
