"""The receipts and the owners of an Iceberg table, read through Spark, and the offsets that the files of a commit hold.

A receipt is in a snapshot's summary (`tidegate.sinks.iceberg.summary`). Which commits the table's current state descends from
is in its `history`, and the bounds of each data file are in its `entries`.

How a table names its owners, and who is one where it names none, is in docs/adr/0008-owners-of-a-table.md. Properties take two
round trips to read, so they are read only where no recent commit of the pipeline says that they name it (`OWNED`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.load.lookup import Lookup, check_owners, check_rows
from tidegate.core.model.errors import SinkMisfit, StateError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import ATTEMPT, PIPELINE, PREFIX, Receipt
from tidegate.sinks.iceberg.summary import COMMITS_OF, OWNER, commits_table, owners_in, quarantine_of, receipt_in
from tidegate.sinks.identity import ORIGIN, any_of, inside

AT = "committed_at_ms"
Found = tuple[Receipt, Mapping[str, str]]
ADDED = 1
"""Iceberg's status of a manifest entry whose file was added by the commit that wrote the manifest."""


def carries(properties: Mapping[str, str]) -> Column:
    """Whether a snapshot has these properties; at least one."""
    return reduce(Column.__and__, (F.col("summary")[key] == value for key, value in properties.items()))


def head_and_receipts(spark: SparkSession, table: str, condition: Column) -> tuple[int | None, list[Found]]:
    """The table's current snapshot, and the receipts of `receipts_where`. One round trip, no shuffle, no join."""
    of_snapshots = {AT: "long", "summary": "map<string, string>", "parent_id": "long"}
    none = [F.lit(None).cast(kind).alias(name) for name, kind in of_snapshots.items()]
    main = spark.table(f"{table}.refs").where("name = 'main'").select("snapshot_id", *none)
    rows = main.union(_snapshots(spark, table, condition)).collect()
    head = next((row["snapshot_id"] for row in rows if row["summary"] is None), None)
    return head, _receipts(spark, table, (row for row in rows if row["summary"] is not None))


def receipts_where(spark: SparkSession, table: str, condition: Column) -> list[Found]:
    """Receipts of snapshots that fulfil a condition, each with the summary that it is in; oldest first.

    One round trip, no shuffle, no join.

    Raises StateCorrupt, StateNewer: one of them is broken, or of a newer version, and its commit was not rolled back.
    """
    return _receipts(spark, table, _snapshots(spark, table, condition).collect())


def _snapshots(spark: SparkSession, table: str, condition: Column) -> DataFrame:
    snapshots = spark.table(f"{table}.snapshots").where(condition)
    return snapshots.select("snapshot_id", F.unix_millis("committed_at").alias(AT), "summary", "parent_id")


def _receipts(spark: SparkSession, table: str, rows: Iterable[Row]) -> list[Found]:
    receipts = []
    for row in rows:
        summary, at_ms = row["summary"], row[AT]
        try:
            receipt = receipt_in(summary, snapshot=row["snapshot_id"], committed_at_ms=at_ms, parent=row["parent_id"])
        except StateError:
            if is_current(spark, table, row["snapshot_id"]):
                raise
            continue
        if receipt is not None:
            receipts.append((receipt, summary))
    return sorted(receipts, key=lambda receipt: receipt[0].committed_at_ms)


def is_current(spark: SparkSession, table: str, snapshot: int) -> bool:
    """Whether a commit is an ancestor of the table's current state, and not rolled back. Two round trips.

    That state is read: Iceberg removes the files of a commit that it refuses, even if the commit in the way is the same one,
    which landed unanswered and was repeated.
    """
    spark.table(f"{table}.manifests").select("path").take(1)
    history = spark.table(f"{table}.history")
    return bool(history.where((F.col("snapshot_id") == snapshot) & F.col("is_current_ancestor")).take(1))


def landed_of(spark: SparkSession, table: str, attempts: Iterable[str]) -> set[str]:
    """Those of these attempts that have made a commit of the table, also one that has expired or was rolled back."""
    if not (wanted := list(attempts)):
        return set()
    of, commits = F.col("summary")[ATTEMPT].alias("attempt"), commits_table(table)
    made = spark.table(f"{table}.snapshots").select(of)
    if spark.catalog.tableExists(commits) and f"{COMMITS_OF}{table}" in property_keys(spark, commits):
        made = made.union(spark.table(commits).select(of))
    return {row["attempt"] for row in made.where(F.col("attempt").isin(wanted)).collect()}


def began_at(spark: SparkSession, table: str) -> datetime | None:
    """When the first commit of the table was made; None where it has expired. One round trip."""
    first = spark.table(f"{table}.snapshots").where("parent_id IS NULL").agg(F.max("committed_at")).collect()
    began: datetime | None = first[0][0]
    return began


def head_and_parents(spark: SparkSession, table: str) -> tuple[int | None, dict[int | None, int | None]]:
    """The table's current snapshot, and the parent of each snapshot that it keeps. Two round trips.

    In this order: what others commit or expire meanwhile is in what is read later, or was read before.
    """
    head = spark.table(f"{table}.refs").where("name = 'main'").select("snapshot_id").collect()
    parents: dict[int | None, int | None] = dict(spark.table(f"{table}.snapshots").select("snapshot_id", "parent_id").collect())
    return (head[0]["snapshot_id"] if head else None), parents


def on_top_of(spark: SparkSession, table: str, receipt: Receipt) -> list[Receipt] | None:
    """The receipts of the commits that the table's current state has on top of this one's. Two round trips, or three.

    None where it does not descend from that, or so long ago that a commit in between has expired.
    """
    at, parents = head_and_parents(spark, table)
    newer: list[int | None] = []
    while at in parents and at != receipt.snapshot:
        newer.append(at)
        at = parents[at]
    if at != receipt.snapshot:
        return None
    return [found for found, _ in receipts_where(spark, table, F.col("snapshot_id").isin(newer))] if newer else []


def offsets_added(spark: SparkSession, table: str, snapshot: int) -> dict[TopicPartition, tuple[int, int]] | None:
    """The first and last offset of each partition in the files that a commit added. One round trip.

    Read from the manifests: which files the commit added, and the bounds of the origin columns in each. No data file is
    opened, so it costs as much for a million rows as for one. None where the table does not keep those bounds in full, or a
    file mixes partitions (a table that somebody else made); without rows there are none to keep, and the answer is empty.
    """
    entries = spark.read.option("versionAsOf", str(snapshot)).table(f"{table}.entries")
    bounds = [
        F.col("readable_metrics")[column][f"{side}_bound"].alias(f"{side}{column}")
        for column in ORIGIN
        for side in ("lower", "upper")
    ]
    # A commit that merges manifests carries over older files; each entry names the commit that added its file.
    added = entries.where((F.col("snapshot_id") == snapshot) & (F.col("status") == ADDED))
    offsets: dict[TopicPartition, tuple[int, int]] = {}
    for file in added.select(*bounds).collect():
        topic, last_topic, partition, last_partition, first, last = bounds_of_file = tuple(file)
        if None in bounds_of_file or topic != last_topic or partition != last_partition:
            return None
        topic_partition = TopicPartition(topic, partition)
        before = offsets.get(topic_partition, (first, last))
        offsets[topic_partition] = (min(first, before[0]), max(last, before[1]))
    return offsets


def offsets_read(spark: SparkSession, table: str, receipt: Receipt) -> dict[TopicPartition, tuple[int, int]]:
    """The first and last offset of each partition's rows in a receipt's ranges, as of its commit. Reads the origin columns."""
    topic, partition, offset = ORIGIN
    rows = spark.read.option("versionAsOf", str(receipt.snapshot)).table(table).where(inside(receipt.load.ranges))
    bounds = rows.groupBy(topic, partition).agg(F.min(offset), F.max(offset)).collect()
    return {TopicPartition(row[0], row[1]): (row[2], row[3]) for row in bounds}


def quoted(table: str) -> str:
    """A table's name, or the part of one, as SQL takes it."""
    return ".".join(f"`{part}`" for part in table.split("."))


def property_keys(spark: SparkSession, table: str) -> set[str]:
    """The keys of a table's properties. One round trip."""
    return {row["key"] for row in spark.sql(f"SHOW TBLPROPERTIES {quoted(table)}").collect()}


def by_others(job: LoadJob) -> Column:
    """Whether a snapshot is one of another pipeline whose rows the load could replace, as far as its summary shows."""
    summary = F.col("summary")
    of_another = ~summary[PIPELINE].isin(*job.names)
    if job.load.batch is not None:
        return of_another
    ranges = summary[f"{PREFIX}ranges"]
    return of_another & any_of(F.contains(ranges, F.lit(f'"{topic}":')) for topic in sorted({r.topic for r in job.load.ranges}))


def check_owner(spark: SparkSession, job: LoadJob, lookup: Lookup) -> bool:
    """Refuse a table that belongs to other pipelines, or their rows. True where the pipeline has yet to be made an owner.

    No round trip where a recent commit says that the pipeline owns the table. Otherwise two, and one more for a table that
    names no owner.

    Raises SinkMisfit: the table, or rows that the load would replace, are another pipeline's.
    """
    check_rows(job, lookup.others)
    named = set() if lookup.owns else _named(spark, job.table)
    check_owners(job, named or ({job.load.pipeline} if lookup.owns else _loaded(spark, job.table)), lookup.others)
    return not lookup.owns and job.load.pipeline not in named


def add_owner(spark: SparkSession, job: LoadJob) -> None:
    """Make the pipeline an owner of its table."""
    spark.sql(f"ALTER TABLE {quoted(job.table)} SET TBLPROPERTIES ('{OWNER}{job.load.pipeline}' = 'true')")


def _named(spark: SparkSession, table: str) -> set[str]:
    """The pipelines that the table's properties name. Raises SinkMisfit: it is a quarantine."""
    keys = property_keys(spark, table)
    if quarantine_of(keys):
        raise SinkMisfit(f"table {table} is a quarantine, and takes no rows", fix="Name another table", table=table)
    return owners_in(keys)


def _loaded(spark: SparkSession, table: str) -> set[str]:
    """The pipelines that the table's receipts name."""
    pipeline = F.col("summary")[PIPELINE].alias("pipeline")
    rows = spark.table(f"{table}.snapshots").select(pipeline).where("pipeline IS NOT NULL").distinct().collect()
    return {row["pipeline"] for row in rows}
