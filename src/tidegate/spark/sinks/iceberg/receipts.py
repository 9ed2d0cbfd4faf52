"""The receipts in an Iceberg table's snapshots, read through Spark, and the offsets that the files of a commit hold.

A receipt is in a snapshot's summary (`tidegate.iceberg.summary`). Which commits the table's current state descends from is in
its `history`, and the bounds of each data file are in its `entries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.iceberg.summary import OWNED, receipt_in
from tidegate.spark.origin import ORIGIN, inside

ADDED = 1
"""Iceberg's status of a manifest entry whose file was added by the commit that wrote the manifest."""


def carries(properties: Mapping[str, str]) -> Column:
    """Whether a snapshot has these properties; at least one."""
    return reduce(Column.__and__, (F.col("summary")[key] == value for key, value in properties.items()))


def receipts_where(spark: SparkSession, table: str, condition: Column) -> list[tuple[Receipt, bool]]:
    """Receipts of snapshots that fulfil a condition, and whether each says that its pipeline owns the table; oldest first.

    One round trip, no shuffle, no join.

    Raises:
        StateCorrupt: one of them is broken.
    """
    snapshots = spark.table(f"{table}.snapshots").where(condition)
    rows = snapshots.select("snapshot_id", F.unix_millis("committed_at").alias("committed_at_ms"), "summary").collect()
    receipts = []
    for row in rows:
        summary, at_ms = row["summary"], row["committed_at_ms"]
        receipt = receipt_in(summary, snapshot=row["snapshot_id"], committed_at_ms=at_ms)
        if receipt is not None:
            receipts.append((receipt, summary.get(OWNED) == "true"))
    return sorted(receipts, key=lambda receipt: receipt[0].committed_at_ms)


def is_current(spark: SparkSession, table: str, receipt: Receipt) -> bool:
    """Whether the receipt's commit is an ancestor of the table's current state, and not rolled back. One round trip."""
    history = spark.table(f"{table}.history")
    return bool(history.where((F.col("snapshot_id") == receipt.snapshot) & F.col("is_current_ancestor")).take(1))


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
