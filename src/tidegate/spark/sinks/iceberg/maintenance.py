"""Maintenance of an Iceberg table by Iceberg's own procedures: compact, keep the commits, expire, remove orphans.

Rules:
- A snapshot is expired after its commit is in the table of commits (`<table>_commits`), receipt and parent included. All
  ancestors of the current state that are old enough are kept, not only those that expire: commits that others make meanwhile
  push more of them out. A run that stops between the two leaves commits that are in both places, where the table's own count.
- Compaction changes no row. It fails where a load replaced its files meanwhile, and gives way; a load that it got in the way of
  looks at the table anew (module `replacement`).
- Orphans are looked for in the table's data folder alone, and only where the settings say so: it may hold files of another
  table, of a namespace below the table's name or of one that was renamed, which look like orphans.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.config.maintenance import Maintenance
from tidegate.core.config.times import EPOCH
from tidegate.core.errors import SinkMisfit, some
from tidegate.core.load.columns import BATCH, ORIGIN_COLUMNS
from tidegate.core.maintenance.job import Maintained, MaintenanceJob
from tidegate.iceberg.summary import COMMITS_OF, COMPACTED_FILES, commits_table, owners_in

PARTIAL_COMMITS = 10
"""Commits of one compaction: a load that gets in the way of one leaves the others."""
FAILED = "{:,} files could not be merged; Spark's log says why. The next run tries again"
GAP = (
    "Commits from before the oldest one that is known are in neither table: somebody else expired them, or the table of "
    "commits was dropped"
)
COMMIT = ("snapshot_id", "parent_id", "committed_at", "operation", "summary")


def maintain(spark: SparkSession, job: MaintenanceJob) -> Maintained:
    """Do one step of the maintenance of a table that exists. To do it again does no harm.

    Args:
        spark: any session with the table's catalog.
        job: the step.

    Raises:
        SinkMisfit: the table belongs to other pipelines, its rows have no identity of ours, its properties forbid to remove
            files, or the name of its table of commits is taken. Nothing was expired.
        Exception: what Spark raises, which `tidegate.spark.errors` translates; the table holds the same rows.
    """
    table, keep = job.table, job.maintenance
    properties = _properties(spark, table)
    owners = owners_in(properties)
    if job.pipeline not in owners:
        named = some(sorted(owners)) if owners else "nobody"
        raise SinkMisfit(
            f"table {table} belongs to {named}, by its properties, and not to {job.pipeline}",
            fix="Correct sink.table, or let the pipeline load a batch before its table is maintained",
            table=table,
        )
    if job.step != "compact" and properties.get("gc.enabled") == "false":
        raise SinkMisfit(
            f"{table} has the property gc.enabled=false, which forbids to remove files",
            fix="Set it to true, or leave out the section `maintenance`",
            table=table,
        )
    if job.step == "compact":
        before = _files(spark, table)
        done = compact(spark, table, keep)
        after = _files(spark, table)
        # What is left of a whole compaction cannot be merged. Of any other, the next run merges more.
        if done.failed == 0 and done.files < keep.max_files and properties.get(COMPACTED_FILES) != str(after):
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{COMPACTED_FILES}' = '{after}')")
        counts = {"files_before": before, "files_after": after, "bytes_rewritten": done.size}
        return Maintained(job.step, counts, FAILED.format(done.failed) if done.failed else None)
    if job.step == "expire":
        before_ms = job.now_ms - int(keep.keep * 1000)
        kept = keep_commits(spark, table, before_ms)
        expired = expire(spark, table, before_ms, keep.keep_snapshots)
        counts = {"commits_kept": kept, "snapshots_expired": expired}
        return Maintained(job.step, counts, GAP if has_gap(spark, table) else None)
    removed = 0
    if keep.keep_orphans is not None:
        removed = remove_orphans(spark, table, job.now_ms - int(keep.keep_orphans * 1000))
    return Maintained(job.step, {"files_removed": removed})


class Compacted(NamedTuple):
    """The files that one compaction merged, their bytes, and those that could not be merged.

    Those that a load has replaced meanwhile are in neither.
    """

    files: int
    size: int
    failed: int


def compact(spark: SparkSession, table: str, keep: Maintenance) -> Compacted:
    """Merge small files along the columns that identify rows."""
    held = spark.table(table).columns
    order = [name for name in (ORIGIN_COLUMNS if {*ORIGIN_COLUMNS} <= {*held} else (BATCH,)) if name in held]
    if not order:
        raise SinkMisfit(f"the rows of {table} have neither origin nor batch", fix="Maintain it by other means", table=table)
    options = {
        "target-file-size-bytes": keep.target_file_bytes,
        "max-files-to-rewrite": keep.max_files,
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": PARTIAL_COMMITS,
        "partial-progress.max-failed-commits": PARTIAL_COMMITS,
    }
    listed = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    (done,) = _call(
        spark, table, "rewrite_data_files", f"strategy => 'sort', sort_order => '{', '.join(order)}', options => map({listed})"
    )
    return Compacted(
        *(int(done[name]) for name in ("rewritten_data_files_count", "rewritten_bytes_count", "failed_data_files_count"))
    )


def keep_commits(spark: SparkSession, table: str, before_ms: int) -> int:
    """Write the commits from before a time that the current state descends from to the table of commits. One commit."""
    commits = commits_table(table)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {commits} (snapshot_id BIGINT, parent_id BIGINT, committed_at TIMESTAMP, "
        f"operation STRING, summary MAP<STRING, STRING>) USING iceberg TBLPROPERTIES ('{COMMITS_OF}' = '{table}')"
    )
    if _properties(spark, commits).get(COMMITS_OF) != table:
        raise SinkMisfit(
            f"table {commits} is not the table of commits of {table}; nothing was expired",
            fix=f"Rename it: the name is needed for what expired snapshots said. Where both tables were renamed together, set "
            f"its property {COMMITS_OF} to the new name",
            table=commits,
        )
    lineage = spark.table(f"{table}.history").where("is_current_ancestor").select("snapshot_id")
    old = spark.table(f"{table}.snapshots").where(F.col("committed_at") < F.lit(_time(before_ms)))
    new = old.join(lineage, "snapshot_id", "left_semi").join(spark.table(commits), "snapshot_id", "left_anti").select(*COMMIT)
    count = new.count()
    if count:
        new.coalesce(1).writeTo(commits).append()
    return count


def expire(spark: SparkSession, table: str, before_ms: int, keep: int) -> int:
    """Expire the snapshots from before a time, but the newest `keep`; how many. Only after `keep_commits` of the same time."""
    held = spark.table(f"{table}.snapshots").select("snapshot_id").collect()
    _call(spark, table, "expire_snapshots", f"older_than => TIMESTAMP '{_time(before_ms)}', retain_last => {keep}")
    left = spark.table(f"{table}.snapshots").select("snapshot_id").collect()
    return len({*held} - {*left})


def remove_orphans(spark: SparkSession, table: str, before_ms: int) -> int:
    """Remove files of the table's data folder that no snapshot names, and that are older than a time; how many.

    None of a table without rows, which may have no such folder.
    """
    if not _files(spark, table):
        return 0
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").where("col_name = 'Location'").collect()
    folder = _properties(spark, table).get("write.data.path", f"{described[0]['data_type']}/data")
    quoted = folder.replace("\\", "\\\\").replace("'", "\\'")
    return len(
        _call(spark, table, "remove_orphan_files", f"older_than => TIMESTAMP '{_time(before_ms)}', location => '{quoted}'")
    )


def has_gap(spark: SparkSession, table: str) -> bool:
    """Whether a commit that the current state descends from is neither in the table nor in its table of commits."""
    # From the newest to the oldest: what others commit or expire meanwhile is in what is read later, or was read before.
    head: Any = next(iter(spark.table(f"{table}.refs").where("name = 'main'").select("snapshot_id").collect()), [None])[0]
    parents: dict[int, int | None] = dict(spark.table(f"{table}.snapshots").select("snapshot_id", "parent_id").collect())
    parents |= dict(spark.table(commits_table(table)).select("snapshot_id", "parent_id").collect())
    while head in parents:
        head = parents[head]
    return head is not None


def _properties(spark: SparkSession, table: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def _files(spark: SparkSession, table: str) -> int:
    return spark.table(f"{table}.data_files").count()


def _call(spark: SparkSession, table: str, procedure: str, arguments: str) -> list[Row]:
    catalog, _, identifier = table.partition(".")
    return spark.sql(f"CALL {catalog}.system.{procedure}(table => '{identifier}', {arguments})").collect()


def _time(ms: int) -> datetime:
    """The time with its zone: sessions have any."""
    return EPOCH.astimezone(UTC) + timedelta(milliseconds=ms)
