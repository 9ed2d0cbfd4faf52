"""Batches in Iceberg tables whose files do not end where a batch does. The laws of batches: `test_sink_laws.py`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from tests.spark.sinks_under_test import SinkUnderTest, expected, held
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob, LoadResult

Load = Callable[[LoadJob], LoadResult]
Batch = Callable[..., LoadJob]


def test_a_batch_that_a_compaction_merged_with_others_is_cut_out_of_them(
    spark: SparkSession, sink: SinkUnderTest, load: Load, batch: Batch, table: str
) -> None:
    """The other batches' rows are kept in the same commit, and do not count as the load's; from then on it is aligned."""
    for seq in (1, 2, 3):
        load(batch(seq))
    name = table.removeprefix("lake.")
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2', 'rewrite-all', 'true'))"
    ).collect()
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
    spark: SparkSession, sink: SinkUnderTest, load: Load, batch: Batch, table: str
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
