"""Maintenance of Iceberg tables: rows and receipts stay, replays and readers go on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Load
from tidegate.core.config.maintenance import DAY_S, Maintenance
from tidegate.core.errors import SinkMisfit
from tidegate.core.load.job import LoadJob
from tidegate.core.maintenance.job import Maintained, MaintenanceJob, Step
from tidegate.iceberg.history import IcebergReader
from tidegate.spark.sinks.iceberg.maintenance import GAP, compact, expire, has_gap, keep_commits, maintain, remove_orphans

Job = Callable[..., LoadJob]
LATER_S = 10 * DAY_S
AGED = Maintenance(keep_snapshots=1, keep_orphans=LATER_S + 3 * DAY_S)
"""At `later_ms`, snapshots are old and files are not: Iceberg compares files with the real time."""


@pytest.fixture
def loaded(spark: SparkSession, load: Load, job: Job, table: str) -> str:
    """A table of six batches of four offsets; the files of each are its own."""
    for seq in range(6):
        load(job(seq * 4, seq * 4 + 4, seq=seq))
    assert files(spark, table) >= 6
    return table


def files(spark: SparkSession, table: str) -> int:
    return spark.table(f"{table}.data_files").count()


def offsets(spark: SparkSession, table: str) -> list[int]:
    return sorted(row["_kafka_offset"] for row in spark.table(table).select("_kafka_offset").collect())


def maintained(spark: SparkSession, table: str) -> dict[str, Maintained]:
    """All steps, at a time when all that exists now is old."""
    jobs = (MaintenanceJob("orders", table, step, later_ms(), AGED) for step in get_args(Step))
    return {job.step: maintain(spark, job) for job in jobs}


def later_ms() -> int:
    """A time at which all that exists now is old."""
    return time.time_ns() // 1_000_000 + LATER_S * 1000


@pytest.mark.parametrize("span", [(0, 24), (4, 8), (6, 15)])
def test_a_replay_after_compaction_leaves_one_copy(
    spark: SparkSession, loaded: str, load: Load, job: Job, span: tuple[int, int]
) -> None:
    """Over all, over one old batch, and through old batches; compaction itself changes no row."""
    assert compact(spark, loaded, Maintenance())[0] > 0
    assert files(spark, loaded) == 1
    assert offsets(spark, loaded) == list(range(24))
    load(replace(job(*span, seq=0), replay="again"))
    assert offsets(spark, loaded) == list(range(24))


def test_the_schedule_goes_on_after_maintenance(
    spark: SparkSession, loaded: str, load: Load, job: Job, reader: IcebergReader
) -> None:
    """All receipts are still read, oldest first; a batch whose snapshot has expired is loaded again, to the same rows."""
    before = reader.receipts(loaded, "orders")
    done = maintained(spark, loaded)
    assert (done["compact"].counts["files_after"], done["expire"].warning) == (1, None)
    assert done["expire"].counts["snapshots_expired"] >= 6
    assert spark.table(f"{loaded}.snapshots").count() == 1
    assert reader.receipts(loaded, "orders") == before
    load(job(20, 24, seq=5))
    load(job(24, 28, seq=6))
    assert offsets(spark, loaded) == list(range(28))
    assert [r.load.seq for r in reader.receipts(loaded, "orders")] == [0, 1, 2, 3, 4, 5, 5, 6]


def test_maintenance_that_stopped_before_expiry_is_done_again_without_harm(
    spark: SparkSession, loaded: str, reader: IcebergReader
) -> None:
    """Commits that are kept twice count once, and a second run keeps none anew."""
    before = reader.receipts(loaded, "orders")
    assert keep_commits(spark, loaded, later_ms()) >= 6
    assert reader.receipts(loaded, "orders") == before
    assert keep_commits(spark, loaded, later_ms()) == 0
    assert expire(spark, loaded, later_ms(), 2) >= 4
    assert reader.receipts(loaded, "orders") == before


def test_commits_that_were_kept_and_then_rolled_back_do_not_count(
    spark: SparkSession, loaded: str, reader: IcebergReader
) -> None:
    """The parents lead past them, also when their snapshots are gone."""
    receipts = reader.receipts(loaded, "orders")
    keep_commits(spark, loaded, later_ms())
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{loaded.partition('.')[2]}', {receipts[3].snapshot})").collect()
    expire(spark, loaded, later_ms(), 1)
    assert [r.load.seq for r in reader.receipts(loaded, "orders")] == [0, 1, 2, 3]


def test_files_that_cannot_be_merged_are_reported(spark: SparkSession, loaded: str, load: Load, job: Job) -> None:
    """The run succeeds, since the others were merged; rows are as before, but for those of the lost file."""
    lost = spark.table(f"{loaded}.data_files").select("file_path").orderBy("file_path").first()
    assert lost is not None
    Path(lost["file_path"].removeprefix("file:")).unlink()
    done = maintain(spark, MaintenanceJob("orders", loaded, "compact", later_ms(), AGED))
    assert done.warning is not None
    assert "files could not be merged" in done.warning


def test_a_lost_table_of_commits_is_reported(spark: SparkSession, loaded: str, reader: IcebergReader) -> None:
    """What is left counts, and the next run says that something is missing."""
    maintained(spark, loaded)
    spark.sql(f"DROP TABLE {loaded}_commits")
    assert reader.receipts(loaded, "orders") == []
    assert maintained(spark, loaded)["expire"].warning == GAP
    assert has_gap(spark, loaded)


def test_nothing_expires_where_the_name_of_the_table_of_commits_is_taken(spark: SparkSession, loaded: str) -> None:
    """By a table of somebody else, which stays as it is."""
    spark.sql(f"CREATE TABLE {loaded}_commits (id INT) USING iceberg")
    held = spark.table(f"{loaded}.snapshots").count()
    with pytest.raises(SinkMisfit):
        maintained(spark, loaded)
    assert spark.table(f"{loaded}.snapshots").count() >= held


def test_only_old_files_of_the_data_folder_are_orphans(spark: SparkSession, loaded: str) -> None:
    """A new file may be one that a load is writing, and what lies beside the folder may be another table's."""
    [location] = spark.sql(f"DESCRIBE TABLE EXTENDED {loaded}").where("col_name = 'Location'").collect()
    folder = Path(location["data_type"].removeprefix("file:"))
    old, new, beside = folder / "data" / "old.parquet", folder / "data" / "new.parquet", folder / "other" / "data.parquet"
    beside.parent.mkdir()
    for file in (old, new, beside):
        file.write_bytes(b"x")
    for file in (old, beside):
        os.utime(file, (1, 1))
    assert remove_orphans(spark, loaded, time.time_ns() // 1_000_000 - 3 * DAY_S * 1000) == 1
    assert (old.exists(), new.exists(), beside.exists()) == (False, True, True)
    assert offsets(spark, loaded) == list(range(24))
