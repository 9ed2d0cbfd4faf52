"""Maintenance of an Iceberg table by Iceberg's own procedures: compact, keep the commits, expire, remove orphans.

Rules (docs/adr/0020-table-maintenance.md):
- All ancestors of the current state that are old enough are kept in the table of commits, not only those that expire: commits
  that others make meanwhile push more of them out. A run that stops between the two leaves commits that are in both places,
  where the table's own count.
- Compaction changes no row. It fails where a load replaced its files meanwhile, and gives way; a load that it got in the way of
  looks at the table anew (module `replacement`).
- Orphans are looked for in the table's data folder alone, and only where the settings say so: it may hold files of another
  table, of a namespace below the table's name or of one that was renamed, which look like orphans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.config.layout import sql_text
from tidegate.core.config.pipeline import DATA_PATH, Maintenance
from tidegate.core.maintenance.expiry import Snapshot, to_expire
from tidegate.core.model.columns import BATCH, ORIGIN_COLUMNS
from tidegate.core.model.errors import SinkMisfit, some
from tidegate.core.model.times import EPOCH
from tidegate.core.state.jobs import Maintained, MaintenanceJob
from tidegate.sinks.failures import first_line
from tidegate.sinks.iceberg.quarantine import check_own
from tidegate.sinks.iceberg.receipts import head_and_parents, quoted
from tidegate.sinks.iceberg.summary import COMMITS_OF, COMPACTED_BYTES, COMPACTED_FILES, commits_table, owners_in

PARTIAL_COMMITS = 10
"""Commits of one compaction: a load that gets in the way of one leaves the others."""
FAILED = "{:,} files could not be merged; Spark's log says why. The next run tries again"
GAP = (
    "Commits from before the oldest one that is known are in neither table: somebody else expired them, or the table of "
    "commits was dropped, or is left under the name that the table had. Then copy its rows (INSERT INTO … SELECT)"
)
KEEPS_ALL = "The table has the property gc.enabled=false, which forbids to remove files: nothing was done"
LOST = "Loads replaced files meanwhile. The next run merges what is left"
UNSAID = "It could not be written into the table's properties how many files are left, by which later advice counts: {}"
COMMIT = ("snapshot_id", "parent_id", "committed_at", "operation", "summary")


def maintain(spark: SparkSession, job: MaintenanceJob) -> Maintained:
    """Do one step of the maintenance of a table that exists. To do it again does no harm.

    Raises SinkMisfit: the table belongs to other pipelines, its rows have no identity of ours, or the name of its table of
    commits or of its quarantine is taken. Exception: what Spark raises, which `tidegate.spark.errors` translates; the table
    holds the same rows.
    """
    table = job.table
    properties = _properties(spark, table)
    owners = owners_in(properties)
    if job.pipeline not in owners:
        named = some(sorted(owners)) if owners else "nobody"
        raise SinkMisfit(
            f"table {table} belongs to {named}, by its properties, and not to {job.pipeline}",
            fix="Correct sink.table, or let the pipeline load a batch before its table is maintained",
            table=table,
        )
    done = _of_table(spark, job, properties)
    aside = job.quarantine
    if aside is None or not spark.catalog.tableExists(aside):
        return done
    check_own(spark, aside, table)
    return replace(done, counts={**done.counts, **_of_quarantine(spark, aside, job)})


def _of_table(spark: SparkSession, job: MaintenanceJob, properties: Mapping[str, str]) -> Maintained:
    table, keep = job.table, job.maintenance
    if job.step == "compact":
        return _compact(spark, table, keep, properties)
    if properties.get("gc.enabled") == "false":
        return Maintained(job.step, warning=KEEPS_ALL)
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


def _of_quarantine(spark: SparkSession, quarantine: str, job: MaintenanceJob) -> dict[str, int]:
    """The same step for a quarantine, whose commits carry no receipts to keep."""
    keep = job.maintenance
    if job.step == "compact":
        return {"quarantine_files_merged": compact(spark, quarantine, keep)["rewritten_data_files_count"]}
    if job.step == "expire":
        before_ms = job.now_ms - int(keep.keep * 1000)
        return {"quarantine_snapshots_expired": expire(spark, quarantine, before_ms, keep.keep_snapshots)}
    if keep.keep_orphans is None:
        return {}
    return {"quarantine_files_removed": remove_orphans(spark, quarantine, job.now_ms - int(keep.keep_orphans * 1000))}


def _compact(spark: SparkSession, table: str, keep: Maintenance, properties: Mapping[str, str]) -> Maintained:
    """Merge files; where all that can be merged is, say in the table's properties how many are left."""
    known = {row["snapshot_id"] for row in _rows(spark, table, "snapshots", "snapshot_id")}
    before, _ = _sizes(spark, table)
    done = compact(spark, table, keep)
    after, size = _sizes(spark, table)
    files, failed = done["rewritten_data_files_count"], done["failed_data_files_count"]
    counts = {"files_before": before, "files_after": after, "bytes_rewritten": int(done["rewritten_bytes_count"])}
    if failed:
        return Maintained("compact", counts, FAILED.format(failed))
    # a load that replaces files lets a part of the compaction give way, and nothing counts that
    others = F.col("summary")["deleted-data-files"].isNotNull() & (F.col("operation") != "replace")
    since = spark.table(f"{quoted(table)}.snapshots").where(others).select("snapshot_id").collect()
    if {row["snapshot_id"] for row in since} - known:
        return Maintained("compact", counts, LOST)
    said = {COMPACTED_FILES: str(before - files + done["added_data_files_count"]), COMPACTED_BYTES: str(size)}
    if files >= keep.max_files or said.items() <= properties.items():
        return Maintained("compact", counts)
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in said.items())
    try:
        spark.sql(f"ALTER TABLE {quoted(table)} SET TBLPROPERTIES ({listed})")
    except Exception as error:  # noqa: BLE001 - the files are merged, whatever becomes of the advice
        return Maintained("compact", counts, UNSAID.format(first_line(str(error))))
    return Maintained("compact", counts)


def compact(spark: SparkSession, table: str, keep: Maintenance) -> Row:
    """Merge small files along the columns that identify rows, or in the order that the table has itself.

    It gives what Iceberg's procedure counts, without files that gave way.
    """
    held = spark.table(quoted(table)).columns
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
    # a table that has an order of its own is merged by that, so that its readers keep what they have of it
    by = "" if "sort-order" in _properties(spark, table) else f"sort_order => '{', '.join(order)}', "
    (done,) = _call(spark, table, "rewrite_data_files", f"strategy => 'sort', {by}options => map({listed})")
    return done


def keep_commits(spark: SparkSession, table: str, before_ms: int) -> int:
    """Write the commits from before a time that the current state descends from to the table of commits. One commit."""
    commits = commits_table(table)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {quoted(commits)} (snapshot_id BIGINT, parent_id BIGINT, committed_at TIMESTAMP, "
        f"operation STRING, summary MAP<STRING, STRING>) USING iceberg TBLPROPERTIES ('{COMMITS_OF}{table}' = 'true', "
        "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '20')"
    )
    if f"{COMMITS_OF}{table}" not in _properties(spark, commits):
        raise SinkMisfit(
            f"table {commits} is not the table of commits of {table}; nothing was expired",
            fix=f"Rename it: the name is needed for what expired snapshots said. Where both tables were renamed together, set "
            f"its property {COMMITS_OF}{table} to true",
            table=commits,
        )
    lineage = spark.table(f"{quoted(table)}.history").where("is_current_ancestor").select("snapshot_id")
    old = spark.table(f"{quoted(table)}.snapshots").where(F.col("committed_at") < F.lit(_time(before_ms)))
    new = (
        old.join(lineage, "snapshot_id", "left_semi")
        .join(spark.table(quoted(commits)), "snapshot_id", "left_anti")
        .select(*COMMIT)
    )
    count = new.count()
    if count:
        new.coalesce(1).writeTo(quoted(commits)).append()
    return count


def expire(spark: SparkSession, table: str, before_ms: int, keep: int) -> int:
    """Expire snapshots from before a time, as `to_expire` says; how many. Only after `keep_commits` of the same time."""
    at = ((F.unix_micros("committed_at") / 1000).cast("long")).alias("at")
    held = [
        Snapshot(*row) for row in spark.table(f"{quoted(table)}.snapshots").select("snapshot_id", "parent_id", at).collect()
    ]
    refs = _rows(spark, table, "refs", "name", "type", "snapshot_id")
    branches = {row["name"]: row["snapshot_id"] for row in refs if row["type"] == "BRANCH"}
    tags = {row["snapshot_id"] for row in refs if row["type"] != "BRANCH"}
    ids = to_expire(held, branches, tags, before_ms=before_ms, keep=keep)
    if ids:
        # from a time before all, so that Iceberg takes these and no others
        listed = ", ".join(f"{each}L" for each in ids)
        _call(spark, table, "expire_snapshots", f"older_than => TIMESTAMP '{_time(0)}', snapshot_ids => ARRAY({listed})")
    left = {row["snapshot_id"] for row in _rows(spark, table, "snapshots", "snapshot_id")}
    return len({snapshot.id for snapshot in held} - left)


def remove_orphans(spark: SparkSession, table: str, before_ms: int) -> int:
    """Remove files of the table's data folder that no snapshot names, and that are older than a time; how many.

    None of a table without rows, which may have no such folder.
    """
    files, _ = _sizes(spark, table)
    if not files:
        return 0
    # what is said of the table itself comes last, behind columns that may be named the same
    *_, described = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted(table)}").where("col_name = 'Location'").collect()
    folder = _properties(spark, table).get(DATA_PATH, f"{described['data_type']}/data")
    arguments = f"older_than => TIMESTAMP '{_time(before_ms)}', location => {sql_text(folder)}"
    return len(_call(spark, table, "remove_orphan_files", arguments))


def has_gap(spark: SparkSession, table: str) -> bool:
    """Whether a commit that the current state descends from is neither in the table nor in its table of commits."""
    head, parents = head_and_parents(spark, quoted(table))
    # after those of the table: a commit that expires meanwhile is in both
    parents |= dict(spark.table(quoted(commits_table(table))).select("snapshot_id", "parent_id").collect())
    while head in parents:
        head = parents[head]
    return head is not None


def _properties(spark: SparkSession, table: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {quoted(table)}").collect()}


def _sizes(spark: SparkSession, table: str) -> tuple[int, int]:
    """The data files of the current state, and their bytes."""
    files = spark.table(f"{quoted(table)}.data_files").agg(F.count(F.lit(1)), F.coalesce(F.sum("file_size_in_bytes"), F.lit(0)))
    count, size = files.collect()[0]
    return count, size


def _rows(spark: SparkSession, table: str, of: str, *columns: str) -> list[Row]:
    """Columns of one of a table's metadata tables."""
    return spark.table(f"{quoted(table)}.{of}").select(*columns).collect()


def _call(spark: SparkSession, table: str, procedure: str, arguments: str) -> list[Row]:
    catalog, _, identifier = table.partition(".")
    return spark.sql(f"CALL `{catalog}`.system.{procedure}(`table` => '{quoted(identifier)}', {arguments})").collect()


def _time(ms: int) -> datetime:
    """The time with its zone: sessions have any."""
    return EPOCH.astimezone(UTC) + timedelta(milliseconds=ms)
