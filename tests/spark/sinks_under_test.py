"""What tests look at in a sink, beside its port (one class for each adapter), and what they find in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pyspark.sql import SparkSession

from tidegate.core.config.sinks import ICEBERG
from tidegate.core.state.receipt import Receipt
from tidegate.sinks.iceberg.summary import owners_in
from tidegate.testing import sinks
from tidegate.testing.sinks import MEMORY

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

    def owners(self, table: str) -> set[str]:
        """The pipelines that own the table."""


@dataclass(frozen=True)
class Iceberg:
    """Tables of the catalog `lake`."""

    spark: SparkSession
    kind: ClassVar[str] = ICEBERG.name
    steps: ClassVar[frozenset[str]] = frozenset({"look"})
    writes_whole_files: ClassVar[bool] = True

    def exists(self, table: str) -> bool:
        return self.spark.catalog.tableExists(table)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.spark.table(table).collect()]

    def commits(self, table: str) -> int:
        return self.spark.table(f"{table}.snapshots").count()

    def roll_back(self, table: str, receipt: Receipt) -> None:
        name = table.removeprefix("lake.")
        self.spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {receipt.snapshot})").collect()

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
        return [dict(row) for row in sinks.TABLES[table].rows]

    def commits(self, table: str) -> int:
        return len(sinks.TABLES[table].commits)

    def roll_back(self, table: str, receipt: Receipt) -> None:
        sinks.TABLES[table].roll_back(receipt.snapshot)

    def owners(self, table: str) -> set[str]:
        return sinks.TABLES[table].owners


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
