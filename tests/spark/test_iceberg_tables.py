"""How an Iceberg table keeps its owners, by properties, receipts and few round trips; and batches cut out of its files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

import tidegate.sinks.iceberg.receipts
import tidegate.spark.load
from tests.records import changed
from tests.spark.conftest import Job, Load
from tests.spark.sinks_under_test import SinkUnderTest, compact_all, expected, held, ids
from tidegate.core.model.errors import SinkMisfit
from tidegate.core.model.ranges import OffsetRange
from tidegate.sinks.iceberg.summary import OWNED, OWNER
from tidegate.sinks.iceberg.table import IcebergTable


def test_a_table_of_an_older_version_belongs_to_whoever_its_receipts_name(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner goes on and is written down; a stranger is refused."""
    with monkeypatch.context() as older:
        older.setattr("tidegate.sinks.iceberg.table.OWNED", "tidegate.unknown")
        load(job(0, 10))
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{OWNER}orders')")
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, not to visits"):
        load(changed(job(10, 20), pipeline="visits"))
    assert sink.owners(table) == set()
    load(job(10, 20, seq=1))
    assert sink.owners(table) == {"orders"}


def test_an_owner_is_known_after_its_receipts_have_expired(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str
) -> None:
    """By the table's property: somebody compacts the table and expires all other snapshots."""
    load(job(0, 10))
    load(job(10, 20, seq=1))
    name = table.removeprefix("lake.")
    compact_all(spark, table)
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    ).collect()
    assert sink.commits(table) == 1
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, not to visits"):
        load(changed(job(20, 25), pipeline="visits"))
    load(job(20, 25, seq=2))
    assert ids(sink, table) == list(range(25))


def test_a_table_that_nobody_owns_is_taken_by_the_first_load(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str
) -> None:
    """Made by a user, with the columns that the transform makes."""
    load(job(0, 1))
    copy = f"{table}_copy"
    spark.sql(f"CREATE TABLE {copy} USING iceberg AS SELECT * FROM {table} WHERE false")  # noqa: S608 - a test's own table
    load(replace(job(0, 10), table=copy))
    assert sink.owners(copy) == {"orders"}
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, not to visits"):
        load(changed(job(10, 20), table=copy, pipeline="visits"))


def test_two_pipelines_that_make_one_table_at_once_are_told_apart(
    sink: SinkUnderTest, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the table made by the other meanwhile looks whose it is."""
    real = IcebergTable.create

    def create(self: IcebergTable, *given: object) -> bool:
        monkeypatch.setattr(IcebergTable, "create", real)
        load(changed(job(10, 20), pipeline="visits"))
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(IcebergTable, "create", create)
    with pytest.raises(SinkMisfit, match="belongs to pipeline visits, not to orders"):
        load(job(0, 10))
    assert ids(sink, table) == list(range(10, 20))


def test_the_properties_are_read_only_where_no_recent_commit_says_who_owns_the_table(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule's next batch and a redo cost no more round trips than before."""
    load(job(0, 10))
    summaries = [row["summary"] for row in spark.table(f"{table}.snapshots").collect()]
    assert [summary[OWNED] for summary in summaries if "tidegate.pipeline" in summary] == ["true"]
    asked: list[str] = []
    real = tidegate.sinks.iceberg.receipts._named

    def named(session: SparkSession, name: str) -> set[str]:
        asked.append(name)
        return real(session, name)

    monkeypatch.setattr(tidegate.sinks.iceberg.receipts, "_named", named)
    load(job(10, 20, seq=1))
    load(job(0, 10, redo=True))
    assert asked == []
    load(job(20, 25, seq=7))
    assert asked == [table]


def test_a_batch_that_a_compaction_merged_with_others_is_cut_out_of_them(
    spark: SparkSession, sink: SinkUnderTest, load: Load, batch: Job, table: str
) -> None:
    """The other batches' rows are kept in the same commit, and do not count as the load's; from then on it is aligned."""
    for seq in (1, 2, 3):
        load(batch(seq))
    compact_all(spark, table)
    assert spark.table(f"{table}.data_files").count() == 1
    commits = sink.commits(table)
    result = load(batch(2, transform="counted_odd", redo=True))
    assert (result.receipt.rows, result.receipt.kept, result.observed.rows) == (1, 4, 1)
    assert held(sink, table) == {**expected(1, 3), 2: expected(2)[2][1:]}
    result = load(batch(2, redo=True))
    assert (result.receipt.rows, result.receipt.kept) == (2, 0)
    assert held(sink, table) == expected(1, 2, 3)
    assert sink.commits(table) == commits + 2


def test_a_table_of_others_that_says_nothing_of_its_files_is_replaced_right(
    spark: SparkSession, sink: SinkUnderTest, load: Load, batch: Job, table: str
) -> None:
    """No bounds kept, another partitioning, a row of no batch: more is written anew, and nothing is lost."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.tests")
    spark.sql(
        f"CREATE TABLE {table} (parity INT, n LONG, total LONG, _batch LONG) USING iceberg PARTITIONED BY (parity)"
        " TBLPROPERTIES ('write.metadata.metrics.default' = 'none')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (0, 1, 1, NULL)")  # noqa: S608 - a test's own table
    for seq in (1, 2):
        load(batch(seq))
    result = load(batch(1, redo=True))
    assert result.receipt.load.ranges == (OffsetRange("orders", 0, 0, 10),)
    assert (result.receipt.rows, result.receipt.kept) == (2, 3)
    nobodys = [row for row in spark.table(table).collect() if row["_batch"] is None]
    assert len(nobodys) == 1
    spark.sql(f"DELETE FROM {table} WHERE _batch IS NULL")  # noqa: S608 - a test's own table
    assert held(sink, table) == expected(1, 2)
