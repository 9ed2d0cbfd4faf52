"""Maintenance of Iceberg tables: rows and receipts stay, replays and readers go on."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import SparkSession

from tests.records import changed
from tests.spark.conftest import PARTS, Job, Load
from tests.spark.sinks_under_test import files_of, found, offsets_in, summaries
from tidegate.core.config.pipeline import Maintenance, Step
from tidegate.core.config.schedules import DAY_S
from tidegate.core.model.errors import SinkMisfit
from tidegate.core.state.jobs import Maintained, MaintenanceJob
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.sinks.iceberg.maintenance import GAP, KEEPS_ALL, compact, expire, has_gap, keep_commits, maintain, remove_orphans
from tidegate.spark import submit

LATER_S = 10 * DAY_S
AGED = Maintenance(keep_snapshots=1, keep_orphans=LATER_S + 3 * DAY_S)
"""At `later_ms`, snapshots are old and files are not: Iceberg compares files with the real time."""


@pytest.fixture
def loaded(load: Load, job: Job, table: str) -> str:
    """A table of two batches of twelve offsets, each of three files: Iceberg compacts no fewer than five."""
    for seq in range(2):
        load(changed(job(seq * 12, seq * 12 + 12, seq=seq), kafka_options={PARTS: "3"}))
    assert len(files_of(table)) == 6
    return table


def maintained(spark: SparkSession, table: str) -> dict[str, Maintained]:
    """All steps, at a time when all that exists now is old."""
    jobs = (MaintenanceJob("orders", table, step, now_ms=later_ms(), maintenance=AGED) for step in get_args(Step))
    return {job.step: maintain(spark, job) for job in jobs}


def later_ms() -> int:
    """A time at which all that exists now is old."""
    return time.time_ns() // 1_000_000 + LATER_S * 1000


@pytest.mark.parametrize("span", [(0, 24), (6, 15)])
def test_a_replay_after_compaction_leaves_one_copy(
    spark: SparkSession, loaded: str, load: Load, job: Job, span: tuple[int, int]
) -> None:
    """Over all, and through old batches; compaction itself changes no row."""
    assert compact(spark, loaded, Maintenance())["rewritten_bytes_count"] > 0
    assert len(files_of(loaded)) == 1
    assert offsets_in(loaded) == list(range(24))
    load(changed(job(*span, seq=0), replay="again"))
    assert offsets_in(loaded) == list(range(24))


def test_the_schedule_goes_on_after_maintenance(
    spark: SparkSession, loaded: str, load: Load, job: Job, reader: IcebergReader
) -> None:
    """All receipts are still read, oldest first; a batch whose snapshot has expired is loaded again, to the same rows."""
    before = reader.receipts(loaded, "orders")
    assert reader.history(loaded).files.compacted == (0, 0)
    done = maintained(spark, loaded)
    assert reader.history(loaded).files.compacted[0] == 1
    assert (done["compact"].counts["files_after"], done["expire"].warning) == (1, None)
    assert done["expire"].counts["snapshots_expired"] >= 2
    assert len(summaries(loaded)) == 1
    assert reader.receipts(loaded, "orders") == before
    load(job(12, 24, seq=1))
    load(job(24, 28, seq=2))
    assert offsets_in(loaded) == list(range(28))
    assert [r.load.seq for r in reader.receipts(loaded, "orders")] == [0, 1, 1, 2]


def test_only_a_whole_compaction_says_how_many_files_cannot_be_merged(
    spark: SparkSession, loaded: str, reader: IcebergReader
) -> None:
    """One that its bound has stopped leaves files for the next run; rewritten manifests merge no files."""
    spark.sql(f"CALL lake.system.rewrite_manifests('{loaded.partition('.')[2]}')").collect()
    assert reader.history(loaded).files.compacted == (0, 0)
    bounded = MaintenanceJob("orders", loaded, "compact", now_ms=later_ms(), maintenance=Maintenance(max_files=5))
    left = maintain(spark, bounded).counts["files_after"]
    assert left == len(files_of(loaded)) < 5
    assert reader.history(loaded).files.compacted == (0, 0)
    maintain(spark, replace(bounded, maintenance=Maintenance()))
    assert reader.history(loaded).files.compacted[0] == left


def test_maintenance_that_stopped_before_expiry_is_done_again_without_harm(
    spark: SparkSession, loaded: str, reader: IcebergReader
) -> None:
    """Commits that are kept twice count once, and a second run keeps none anew."""
    before = reader.receipts(loaded, "orders")
    assert keep_commits(spark, loaded, later_ms()) >= 2
    assert reader.receipts(loaded, "orders") == before
    assert keep_commits(spark, loaded, later_ms()) == 0
    assert expire(spark, loaded, later_ms(), 1) >= 1
    assert reader.receipts(loaded, "orders") == before


def test_commits_that_were_kept_and_then_rolled_back_do_not_count(
    spark: SparkSession, loaded: str, reader: IcebergReader
) -> None:
    """The parents lead past them, also when their snapshots are gone."""
    receipts = reader.receipts(loaded, "orders")
    keep_commits(spark, loaded, later_ms())
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{loaded.partition('.')[2]}', {receipts[0].snapshot})").collect()
    expire(spark, loaded, later_ms(), 1)
    assert [r.load.seq for r in reader.receipts(loaded, "orders")] == [0]


def test_the_table_of_another_pipeline_is_left_alone(spark: SparkSession, loaded: str) -> None:
    """A file may name the wrong table, whose snapshots are not its own."""
    snapshots = len(summaries(loaded))
    for step in get_args(Step):
        with pytest.raises(SinkMisfit, match="belongs to orders, by its properties, and not to visits"):
            maintain(spark, MaintenanceJob("visits", loaded, step, now_ms=later_ms(), maintenance=AGED))
    assert len(summaries(loaded)) == snapshots


def test_a_table_that_forbids_to_remove_files_is_compacted_and_nothing_else(
    spark: SparkSession, loaded: str, reader: IcebergReader
) -> None:
    """The other steps say so, and do not fail."""
    spark.sql(f"ALTER TABLE {loaded} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    assert not reader.history(loaded).files.may_expire
    snapshots = len(summaries(loaded))
    done = maintained(spark, loaded)
    assert done["compact"].counts["bytes_rewritten"] > 0
    assert [done[step].warning for step in ("expire", "remove_orphans")] == [KEEPS_ALL, KEEPS_ALL]
    assert len(summaries(loaded)) > snapshots


def test_a_rollback_can_be_undone_after_maintenance(spark: SparkSession, loaded: str, reader: IcebergReader) -> None:
    """The newest snapshots that it left behind stay, as the newest of the current state do."""
    receipts = reader.receipts(loaded, "orders")
    name = loaded.partition(".")[2]
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {receipts[0].snapshot})").collect()
    job = MaintenanceJob("orders", loaded, "expire", now_ms=later_ms(), maintenance=Maintenance(keep_snapshots=1))
    maintain(spark, job)
    spark.sql(f"CALL lake.system.set_current_snapshot('{name}', {receipts[-1].snapshot})").collect()
    assert offsets_in(loaded) == list(range(24))


def test_a_tag_keeps_its_snapshot(spark: SparkSession, loaded: str, reader: IcebergReader) -> None:
    """However old it is."""
    first = reader.receipts(loaded, "orders")[0].snapshot
    spark.sql(f"ALTER TABLE {loaded} CREATE TAG audited AS OF VERSION {first}")
    compact(spark, loaded, Maintenance())
    assert expire(spark, loaded, later_ms(), 1) >= 1
    assert found(loaded).snapshot_by_id(first)


def test_a_table_whose_properties_may_not_be_written_is_compacted(
    spark: SparkSession, loaded: str, reader: IcebergReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step ends well, and says what it could not note."""
    real = SparkSession.sql

    def refuse(session: SparkSession, text: str) -> object:
        if text.startswith("ALTER"):
            raise PermissionError("no right to alter tables")
        return real(session, text)

    monkeypatch.setattr(SparkSession, "sql", refuse)
    done = maintain(spark, MaintenanceJob("orders", loaded, "compact", now_ms=later_ms(), maintenance=Maintenance()))
    assert done.counts["files_after"] == 1
    assert "no right to alter tables" in (done.warning or "")
    assert reader.history(loaded).files.compacted == (0, 0)


def test_an_empty_table_has_nothing_to_maintain(spark: SparkSession, loaded: str) -> None:
    """It may have no data folder yet. And nothing is removed that the settings do not name."""
    empty = f"{loaded}_empty"
    spark.sql(f"CREATE TABLE {empty} USING iceberg TBLPROPERTIES ('tidegate.owner.orders' = 'true') AS TABLE {loaded} LIMIT 0")
    for step in get_args(Step):
        done = maintain(spark, MaintenanceJob("orders", empty, step, now_ms=later_ms(), maintenance=AGED))
        assert done.counts.get("files_removed", 0) == 0
    assert maintain(spark, MaintenanceJob("orders", loaded, "remove_orphans", now_ms=later_ms())).counts == {"files_removed": 0}


def test_files_that_cannot_be_merged_are_reported(spark: SparkSession, loaded: str) -> None:
    """The run succeeds, since the others were merged; rows are as before, but for those of the lost file."""
    Path(files_of(loaded)[0].removeprefix("file:")).unlink()
    done = maintain(spark, MaintenanceJob("orders", loaded, "compact", now_ms=later_ms(), maintenance=AGED))
    assert done.warning is not None
    assert "files could not be merged" in done.warning


def test_a_lost_table_of_commits_is_reported(spark: SparkSession, loaded: str, reader: IcebergReader) -> None:
    """What is left counts, and the next run says that something is missing."""
    maintained(spark, loaded)
    spark.sql(f"DROP TABLE {loaded}_commits")
    assert reader.receipts(loaded, "orders") == []
    assert maintained(spark, loaded)["expire"].warning == GAP
    assert has_gap(spark, loaded)


def test_a_table_is_renamed_together_with_its_table_of_commits(spark: SparkSession, loaded: str, reader: IcebergReader) -> None:
    """All receipts stay once the property names the table again, and maintenance goes on."""
    before = reader.receipts(loaded, "orders")
    maintained(spark, loaded)
    renamed = f"{loaded}_renamed"
    for suffix in ("", "_commits"):
        spark.sql(f"ALTER TABLE {loaded}{suffix} RENAME TO {renamed.partition('.')[2]}{suffix}")
    with pytest.raises(SinkMisfit, match="not the table of commits"):
        maintained(spark, renamed)
    spark.sql(f"ALTER TABLE {renamed}_commits SET TBLPROPERTIES ('tidegate.commits-of.{renamed}' = 'true')")
    assert maintained(spark, renamed)["expire"].warning is None
    assert reader.receipts(renamed, "orders") == before


def test_nothing_expires_where_the_name_of_the_table_of_commits_is_taken(
    spark: SparkSession, loaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a table of somebody else, which stays as it is. The driver of spark-submit says so in its answer, as what it did."""
    spark.sql(f"CREATE TABLE {loaded}_commits (id INT) USING iceberg")
    held = len(summaries(loaded))
    monkeypatch.setattr(submit, "classic_session", lambda _: nullcontext(spark))
    order, answer = tmp_path / "job.json", tmp_path / "result.json"
    answers = {}
    for step in get_args(Step):
        order.write_text(json.dumps(MaintenanceJob("orders", loaded, step, now_ms=later_ms(), maintenance=AGED).to_json()))
        failed = submit.main(["--job", str(order), "--result", str(answer), "--spark-jobs", str(tmp_path)])
        answers[step] = json.loads(answer.read_text())
        assert failed == (step == "expire")
    assert answers["expire"]["error"]["error"] == "SinkMisfit"
    assert Maintained.from_json(answers["compact"]).counts["files_before"] >= 6
    assert len(summaries(loaded)) >= held


def test_orphans_are_looked_for_where_the_table_says_that_its_files_are(
    spark: SparkSession, loaded: str, tmp_path: Path
) -> None:
    """Also in a folder whose name has quotes and blanks, and not where a column has the name of what says so."""
    folder = tmp_path / "bob's lake"
    columns = "`Location` STRING, `# Detailed Table Information` STRING, Name STRING"
    spark.sql(f'CREATE TABLE {loaded}_there ({columns}) USING iceberg LOCATION "{folder}"')
    spark.sql(f"INSERT INTO {loaded}_there VALUES ('a', 'b', 'c')")  # noqa: S608 - a name made here
    orphan = folder / "data" / "old.parquet"
    orphan.write_bytes(b"x")
    os.utime(orphan, (1, 1))
    assert remove_orphans(spark, f"{loaded}_there", time.time_ns() // 1_000_000 - 3 * DAY_S * 1000) == 1
    assert not orphan.exists()
    assert spark.table(f"{loaded}_there").count() == 1


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
    assert offsets_in(loaded) == list(range(24))
