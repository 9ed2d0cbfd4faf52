"""Batches whose rows have no single origin: they are known by their batch, and replaced as a whole."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tidegate.core.errors import RequestError, SinkMisfit, TableLost, TransformError
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.load.receipt import Observed
from tidegate.core.offsets.ranges import OffsetRange

Load = Callable[[LoadJob], LoadResult]
Batch = Callable[..., LoadJob]
Rows = dict[int, list[tuple[int, int, int]]]


@pytest.fixture
def batch(job: Callable[..., LoadJob]) -> Batch:
    """`batch(3)` is batch 3: offsets [20, 30)."""

    def make(seq: int, *, transform: str = "counted", redo: bool = False) -> LoadJob:
        made = job(seq * 10 - 10, seq * 10, seq=seq, transform=f"shapes:{transform}", redo=redo)
        return replace(made, identity="batch")

    return make


def held(spark: SparkSession, table: str) -> Rows:
    """Parity, records and their sum, by batch."""
    found: Rows = {}
    for row in spark.table(table).orderBy("_batch", "parity").collect():
        found.setdefault(row["_batch"], []).append((row["parity"], row["n"], row["total"]))
    return found


def expected(*seqs: int) -> Rows:
    """What `counted` makes of whole batches."""
    ids = {seq: range(seq * 10 - 10, seq * 10) for seq in seqs}
    return {seq: [(0, 5, sum(here[::2])), (1, 5, sum(here[1::2]))] for seq, here in ids.items()}


def snapshots(spark: SparkSession, table: str) -> int:
    return spark.table(f"{table}.snapshots").count()


def test_a_batch_done_over_leaves_one_copy_and_its_neighbours(
    spark: SparkSession, load: Load, batch: Batch, table: str
) -> None:
    """Found when it landed, replaced when it is redone, also by code that makes fewer rows, or by several at once."""
    first = load(batch(1))
    assert first.observed == Observed(records=10, rows=2, bytes=100, first_last=None)
    assert (first.receipt.rows, first.receipt.load.batch) == (2, 1)
    assert LoadResult.from_json(first.to_json()) == first
    load(batch(2))
    again = load(batch(1))
    assert again.landed_before
    assert (again.receipt, again.observed) == (first.receipt, Observed(None, None, None, None))
    load(batch(2, redo=True))
    assert held(spark, table) == expected(1, 2)
    assert load(batch(1, transform="counted_odd")).receipt.rows == 1
    assert held(spark, table) == {**expected(2), 1: expected(1)[1][1:]}
    # a task that was given up still runs while its successor does the batch, and the schedule goes on
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(load, [batch(1, redo=True), batch(1, redo=True), batch(3)]))
    assert held(spark, table) == expected(1, 2, 3)


def test_a_batch_of_other_ranges_is_never_taken_for_loaded(
    spark: SparkSession, load: Load, batch: Batch, job: Callable[..., LoadJob], table: str
) -> None:
    """A late plan may write a shorter range over a batch; rows that count more records would be counted twice by the next."""
    longer = replace(job(0, 20, seq=1, transform="shapes:counted"), identity="batch")
    assert load(longer).observed.records == 20
    shorter = load(batch(1))
    assert not shorter.landed_before
    assert held(spark, table) == expected(1)
    load(replace(job(10, 30, seq=2, transform="shapes:counted"), identity="batch"))
    assert sum(n for rows in held(spark, table).values() for _, n, _ in rows) == 30


def test_a_later_load_does_not_create_the_table(spark: SparkSession, load: Load, batch: Batch, table: str) -> None:
    """It held earlier batches, and would hold this one alone."""
    with pytest.raises(TableLost, match="is gone, which held earlier batches"):
        load(replace(batch(2), create=False))
    assert not spark.catalog.tableExists(table)


def test_a_batch_that_a_compaction_merged_with_others_is_cut_out_of_them(
    spark: SparkSession, load: Load, batch: Batch, table: str
) -> None:
    """The other batches' rows are kept in the same commit, and do not count as the load's; from then on it is aligned."""
    for seq in (1, 2, 3):
        load(batch(seq))
    name = table.removeprefix("lake.")
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2', 'rewrite-all', 'true'))"
    ).collect()
    assert spark.table(f"{table}.data_files").count() == 1
    commits = snapshots(spark, table)
    result = load(batch(2, transform="counted_odd", redo=True))
    assert (result.receipt.rows, result.receipt.kept, result.observed.rows) == (1, 4, 1)
    assert held(spark, table) == {**expected(1, 3), 2: expected(2)[2][1:]}
    result = load(batch(2, redo=True))
    assert (result.receipt.rows, result.receipt.kept) == (2, 0)
    assert held(spark, table) == expected(1, 2, 3)
    assert snapshots(spark, table) == commits + 2


def test_a_batch_without_a_record_leaves_its_receipt(spark: SparkSession, load: Load, batch: Batch, table: str) -> None:
    """Nothing to aggregate, in the log or by the transform: no row, the commit says so, and what was read is known."""
    load(batch(1))
    result = load(batch(5))
    assert result.observed == Observed(records=0, rows=0, bytes=0)
    assert result.receipt.rows == 0
    assert load(replace(batch(5), redo=True)).receipt.rows == 0
    dropped = load(batch(2, transform="counted_none"))
    assert dropped.observed == Observed(records=10, rows=0, bytes=10 * len(b'k{"id": 10}'))
    assert held(spark, table) == expected(1)


def test_a_chunk_of_a_replay_replaces_the_batch_that_it_names(
    spark: SparkSession, load: Load, batch: Batch, table: str
) -> None:
    """Not the batch of its own number; and it has to name one."""
    for seq in (1, 2):
        load(batch(seq))
    result = load(replace(batch(2, transform="counted_odd"), seq=1, replay="again", batch=2))
    assert (result.receipt.load.seq, result.receipt.load.batch) == (1, 2)
    assert held(spark, table) == {**expected(1), 2: expected(2)[2][1:]}
    with pytest.raises(RequestError, match="which batch it replaces"):
        replace(batch(2), seq=1, replay="again")


def test_a_table_of_batches_belongs_to_one_pipeline_and_to_batches(
    spark: SparkSession, load: Load, batch: Batch, table: str
) -> None:
    """The batches of another pipeline have the same numbers; rows known in the other way cannot be replaced in this one."""
    load(batch(1))
    commits = snapshots(spark, table)
    with pytest.raises(SinkMisfit, match="is pipeline orders's, whose batches have the same numbers as those of visits"):
        load(replace(batch(2), pipeline="visits"))
    with pytest.raises(SinkMisfit, match="are known by their batch, and this pipeline says `identity: origin`"):
        load(replace(batch(2, transform="plain"), identity="origin"))
    with pytest.raises(TransformError, match="makes a column _batch"):
        load(batch(2, transform="numbered"))
    assert snapshots(spark, table) == commits
    other = replace(batch(2, transform="plain"), identity="origin", table=f"{table}_by_origin")
    load(other)
    with pytest.raises(SinkMisfit, match="are known by their origin, and this pipeline says `identity: batch`"):
        load(replace(batch(2), table=other.table))


def test_a_table_of_others_that_says_nothing_of_its_files_is_replaced_right(
    spark: SparkSession, load: Load, batch: Batch, table: str
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
    assert held(spark, table) == expected(1, 2)
