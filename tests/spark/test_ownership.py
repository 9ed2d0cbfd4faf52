"""Laws of whose table it is, on real tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

import tidegate.spark.load
import tidegate.spark.ownership
from tidegate.core.errors import SinkMisfit
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.load.receipt import OWNER
from tidegate.spark.iceberg_sink import IcebergTable
from tidegate.spark.ownership import OWNED

Load = Callable[[LoadJob], LoadResult]
Job = Callable[..., LoadJob]


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row["id"] for row in spark.table(table).select("id").collect())


def snapshots(spark: SparkSession, table: str) -> int:
    return spark.table(f"{table}.snapshots").count()


def owners(spark: SparkSession, table: str) -> set[str]:
    keys = {row["key"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    return {key.removeprefix(OWNER) for key in keys if key.startswith(OWNER)}


def test_a_table_belongs_to_the_pipeline_that_made_it(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Another one is refused before anything is written, whatever it reads, and the message names both and the setting."""
    load(job(0, 10))
    assert owners(spark, table) == {"orders"}
    commits = snapshots(spark, table)
    for others in (job(0, 10), job(10, 20, seq=7), replace(job(20, 25), redo=True)):
        with pytest.raises(SinkMisfit, match="orders") as caught:
            load(replace(others, pipeline="visits"))
        assert "visits" in caught.value.message
    assert "sink.shared_with" in caught.value.fix
    assert snapshots(spark, table) == commits
    assert owners(spark, table) == {"orders"}
    assert ids(spark, table) == list(range(10))


def test_pipelines_that_share_a_table_both_own_it(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """The second is made an owner by its first load; from then on neither is asked again."""
    load(job(0, 10))
    visits = replace(job(10, 20), pipeline="visits", shared_with=("orders",))
    load(visits)
    assert owners(spark, table) == {"orders", "visits"}
    load(replace(job(20, 25, seq=1), shared_with=("visits",)))
    assert ids(spark, table) == list(range(25))
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders and visits, not to other"):
        load(replace(job(25, 30), pipeline="other", shared_with=("orders",)))


def test_rows_of_another_owner_are_not_replaced(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Sharing is for pipelines that read different partitions: what the other loaded is refused, before anything is written."""
    load(job(0, 10))
    load(replace(job(10, 20), pipeline="visits", shared_with=("orders",)))
    commits = snapshots(spark, table)
    with pytest.raises(SinkMisfit, match=r"holds rows of orders-0 \[10, 15\) by pipeline visits, which a load of orders would"):
        load(replace(job(5, 15, seq=1), shared_with=("visits",)))
    with pytest.raises(SinkMisfit, match=r"holds rows of orders-0 \[9, 10\) by pipeline orders, which a load of visits would"):
        load(replace(job(9, 11, seq=1), pipeline="visits", shared_with=("orders",)))
    assert snapshots(spark, table) == commits


def test_a_commit_that_was_rolled_back_is_in_nobodys_way(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """The table holds nothing of it."""
    first = load(job(0, 10))
    load(replace(job(10, 20), pipeline="visits", shared_with=("orders",)))
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.removeprefix('lake.')}', {first.receipt.snapshot})").collect()
    load(replace(job(10, 20, seq=1), shared_with=("visits",)))
    assert ids(spark, table) == list(range(20))


def test_a_table_of_an_older_version_belongs_to_whoever_its_receipts_name(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner goes on and is written down; a stranger is refused."""
    with monkeypatch.context() as older:
        older.setattr("tidegate.spark.iceberg_sink.OWNED", "tidegate.unknown")
        load(job(0, 10))
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{OWNER}orders')")
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, not to visits"):
        load(replace(job(10, 20), pipeline="visits"))
    assert owners(spark, table) == set()
    load(job(10, 20, seq=1))
    assert owners(spark, table) == {"orders"}


def test_an_owner_is_known_after_its_receipts_have_expired(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """By the table's property: somebody compacts the table and expires all other snapshots."""
    load(job(0, 10))
    load(job(10, 20, seq=1))
    name = table.removeprefix("lake.")
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))").collect()
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    ).collect()
    assert snapshots(spark, table) == 1
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, not to visits"):
        load(replace(job(20, 25), pipeline="visits"))
    load(job(20, 25, seq=2))
    assert ids(spark, table) == list(range(25))


def test_a_table_that_nobody_owns_is_taken_by_the_first_load(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Made by a user, with the columns that the transform makes."""
    load(job(0, 1))
    copy = f"{table}_copy"
    spark.sql(f"CREATE TABLE {copy} USING iceberg AS SELECT * FROM {table} WHERE false")  # noqa: S608 - a test's own table
    load(replace(job(0, 10), table=copy))
    assert owners(spark, copy) == {"orders"}
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, not to visits"):
        load(replace(job(10, 20), table=copy, pipeline="visits"))


def test_a_table_of_batches_is_never_shared(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Whatever the job says, and also when the receipts are gone."""
    load(replace(job(0, 10, seq=1, transform="shapes:counted"), identity="batch"))
    commits = snapshots(spark, table)
    visits = replace(
        job(10, 20, seq=2, transform="shapes:counted"), identity="batch", pipeline="visits", shared_with=("orders",)
    )
    with pytest.raises(SinkMisfit, match="is pipeline orders's, whose batches have the same numbers as those of visits"):
        load(visits)
    assert snapshots(spark, table) == commits


def test_two_pipelines_that_make_one_table_at_once_are_told_apart(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the table made by the other meanwhile looks whose it is."""
    real = IcebergTable.create

    def create(self: IcebergTable, *given: object) -> bool:
        monkeypatch.setattr(IcebergTable, "create", real)
        load(replace(job(10, 20), pipeline="visits"))
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(IcebergTable, "create", create)
    with pytest.raises(SinkMisfit, match="belongs to pipeline visits, not to orders"):
        load(job(0, 10))
    assert ids(spark, table) == list(range(10, 20))


def test_the_properties_are_read_only_where_no_recent_commit_says_who_owns_the_table(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule's next batch and a redo cost no more round trips than before."""
    load(job(0, 10))
    summaries = [row["summary"] for row in spark.table(f"{table}.snapshots").collect()]
    assert [summary[OWNED] for summary in summaries if "tidegate.pipeline" in summary] == ["true"]
    asked: list[str] = []
    real = tidegate.spark.ownership._named

    def named(session: SparkSession, name: str) -> set[str]:
        asked.append(name)
        return real(session, name)

    monkeypatch.setattr(tidegate.spark.ownership, "_named", named)
    load(job(10, 20, seq=1))
    load(job(0, 10, redo=True))
    assert asked == []
    load(job(20, 25, seq=7))
    assert asked == [table]
