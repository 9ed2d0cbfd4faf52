"""The Iceberg sink: replace the rows of a range in one commit that carries its receipt, and find that receipt again.

Rules:
- A table is partitioned by the origin's topic and partition, so a data file holds rows of one Kafka partition, and a batch
  that ends where earlier ones did replaces whole files. What else may be in the way is `tidegate.spark.replacement`'s.
- A table of batches (`tidegate.spark.identity`) is not partitioned, and belongs to one pipeline: the batches of another have
  the same numbers. Whose any table is: `tidegate.spark.ownership`.
- A receipt counts when its commit is an ancestor of the table's current state: a commit that was rolled back holds no rows.
- Receipts live in snapshots. `write.metadata.*` prunes old metadata files, which repeat them; snapshots are not expired.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import islice

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CharType,
    DataType,
    IntegerType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from tidegate.core.errors import ReceiptMismatch, ReceiptMissing, SinkMisfit
from tidegate.core.load.job import LoadJob
from tidegate.core.load.receipt import KEPT, OWNER, PREFIX, LoadId, Receipt, task_properties
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.spark.errors import condition_of
from tidegate.spark.identity import Identity
from tidegate.spark.origin import ORIGIN, inside
from tidegate.spark.ownership import OWNED, Looked, by_others, in_the_way
from tidegate.spark.replacement import Cut, find_cut, in_boxes, kept_rows

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A task reads one Kafka partition, or a piece of one, so it writes one file of one partition: no shuffle, no sort.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Receipts are snapshots: plain expire_snapshots keeps as many as the schedule keeps ranges.
    "history.expire.min-snapshots-to-keep": "1000",
    "commit.retry.num-retries": "10",
}
ADDED = 1
"""Iceberg's status of a manifest entry whose file was added by the commit that wrote the manifest."""
NOT_FOUND = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")


@dataclass(frozen=True)
class IcebergTable:
    """One table of a Spark catalog, by its name `catalog.namespace.table`. Holds nothing but names; every call asks Spark."""

    spark: SparkSession
    name: str

    def look_up(self, job: LoadJob) -> Looked:
        """What the table's receipts say of this load.

        One round trip, and one more for each receipt of the same batch, or that is in the way, down to the newest that counts.

        Raises:
            StateCorrupt: the receipt is there, but broken.
        """
        mine = _carries(task_properties(job.pipeline, job.seq, job.replay))
        before = _carries(task_properties(job.pipeline, job.seq - 1, job.replay))
        try:
            found = self._receipts(mine | before | by_others(job))
        except AnalysisException as error:
            if condition_of(error).startswith(NOT_FOUND):
                return Looked(exists=False)
            raise
        ours = [r for r, _ in reversed(found) if r.load.pipeline == job.pipeline]
        others = [r for r, _ in reversed(found) if r.load.pipeline != job.pipeline and in_the_way(r, job)]
        return Looked(
            exists=True,
            landed=next(
                (r for r in ours if (r.load.seq, r.load.replay) == (job.seq, job.replay) and self._is_current(r)), None
            ),
            owns=any(owned for r, owned in found if r.load.pipeline == job.pipeline),
            others=tuple(islice((r for r in others if self._is_current(r)), 1)),
        )

    def receipt_of_attempt(self, load: LoadId) -> Receipt:
        """The receipt of exactly this write. One round trip.

        Raises:
            ReceiptMissing: no commit carries it.
            ReceiptMismatch: it does not cover the load's ranges.
        """
        found = [receipt for receipt, _ in self._receipts(_carries({f"{PREFIX}attempt": load.attempt}))]
        if not found:
            raise ReceiptMissing(
                f"table {self.name} holds no commit of attempt {load.attempt}",
                fix="Clear the load task: it replaces the same rows",
                table=self.name,
                attempt=load.attempt,
            )
        receipt = found[-1]
        if not receipt.covers(load.ranges):
            raise ReceiptMismatch(
                f"snapshot {receipt.snapshot} of {self.name} does not cover the range of batch {load.seq}",
                fix="Clear the load task: it replaces the whole range",
                table=self.name,
                snapshot=receipt.snapshot,
            )
        return receipt

    def create(self, schema: StructType, identity: Identity, owner: str) -> bool:
        """Create the table, and its namespace, for rows of this schema, as the pipeline's own.

        False where somebody else has just done so.
        """
        nullable = StructType([StructField(f.name, f.dataType) for f in schema.fields])
        namespace = self.name.rpartition(".")[0]
        try:
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(f'`{part}`' for part in namespace.split('.'))}")
        except Exception:
            if not self.spark.catalog.databaseExists(namespace):
                raise
        try:
            writer = self.spark.createDataFrame([], nullable).writeTo(self.name).using("iceberg")
            # Bounds of text columns are cut to 16 characters by default, and those of the hundredth column not kept at all;
            # a replacement relies on exact ones.
            exact = {f"write.metadata.metrics.column.{name}": "full" for name in identity.columns}
            for key, value in {**TABLE_PROPERTIES, **exact, f"{OWNER}{owner}": "true"}.items():
                writer = writer.tableProperty(key, value)
            if identity.partitioned_by:
                writer = writer.partitionedBy(*map(F.col, identity.partitioned_by))
            writer.create()
        except Exception:
            if not self.spark.catalog.tableExists(self.name):
                raise
            return False
        return True

    def check_fits(self, schema: StructType, identity: Identity, transform: str) -> None:
        """Refuse rows that the table has no columns for. One round trip. Columns the rows lack are written as null.

        Raises:
            SinkMisfit: a column is new, or has another type than in the table, or its rows are known in another way.
        """
        held = {f.name.lower(): f.dataType for f in self.spark.table(self.name).schema.fields}
        identity.check_kind(list(held), self.name)
        new = [f for f in schema.fields if f.name.lower() not in held]
        changed = [f for f in schema.fields if f not in new and _shape(f.dataType) != _shape(held[f.name.lower()])]
        if changed:
            told = ", ".join(
                f"{f.name} is {held[f.name.lower()].simpleString()} there and {f.dataType.simpleString()} here" for f in changed
            )
            raise SinkMisfit(
                f"table {self.name} does not fit transform {transform}: {told}",
                fix="Cast the column in the transform, or write to a new table",
                table=self.name,
                columns=", ".join(f.name for f in changed),
            )
        if new:
            columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in new)
            raise SinkMisfit(
                f"table {self.name} has no column {', '.join(f.name for f in new)}, which transform {transform} makes",
                fix=f"Run ALTER TABLE {self.name} ADD COLUMNS ({columns}), then clear the load task",
                table=self.name,
                columns=", ".join(f.name for f in new),
            )

    def find_cut(self, wanted: Identity) -> Cut | None:
        """What has to be written anew beside what is wanted, where that goes through data files. See `replacement.find_cut`."""
        return find_cut(self.spark, self.name, wanted)

    def replace(self, rows: DataFrame, wanted: Identity, load: LoadId, cut: Cut | None = None) -> None:
        """Replace all rows that are wanted with `rows`, in one commit that carries the load's receipt.

        Args:
            rows: the new rows, all of them such as are wanted.
            wanted: what is replaced.
            load: the receipt.
            cut: what `find_cut` found just now.

        Raises:
            Exception: Spark's. `translate` makes it a `SinkConflict` where the data files are not, or no longer, as `cut` has
                them; nothing is written then.
        """
        properties, condition = {**load.to_properties(), OWNED: "true"}, wanted.inside()
        if cut is not None:
            properties[KEPT] = str(cut.kept)
            rows = kept_rows(self.spark, self.name, wanted, cut).unionByName(rows, allowMissingColumns=True)
            condition = in_boxes(wanted, cut.boxes)
        writer = rows.writeTo(self.name)
        for key, value in properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        if cut is not None:
            writer = writer.option("isolation-level", "serializable").option("validate-from-snapshot-id", str(cut.snapshot))
        writer.overwrite(condition)

    def offsets_of(self, receipt: Receipt) -> dict[TopicPartition, tuple[int, int]] | None:
        """The first and last offset (both inclusive) of each partition that the load wrote. One round trip, none for a batch's.

        Read from the manifests: which files the commit added, and the bounds of the origin columns in each. No data file is
        opened, so it costs as much for a million rows as for one. None where the table does not keep those bounds in full, or a
        file mixes partitions (a table that somebody else made); without rows there are none to keep, and the answer is empty.

        A commit that kept older rows holds them in its files too, so there the rows of the ranges are read instead, as of that
        commit: origin columns only. (The guard of origins lets a load write no others.) None for rows that have no origin.
        """
        if receipt.load.batch is not None:
            return None
        if receipt.kept:
            return self._offsets_inside(receipt)
        entries = self.spark.read.option("versionAsOf", str(receipt.snapshot)).table(f"{self.name}.entries")
        bounds = [
            F.col("readable_metrics")[column][f"{side}_bound"].alias(f"{side}{column}")
            for column in ORIGIN
            for side in ("lower", "upper")
        ]
        # A commit that merges manifests carries over older files; each entry names the commit that added its file.
        added = entries.where((F.col("snapshot_id") == receipt.snapshot) & (F.col("status") == ADDED))
        found: dict[TopicPartition, tuple[int, int]] = {}
        for file in added.select(*bounds).collect():
            topic, last_topic, partition, last_partition, first, last = bounds_of_file = tuple(file)
            if None in bounds_of_file or topic != last_topic or partition != last_partition:
                return None
            where = TopicPartition(topic, partition)
            before = found.get(where, (first, last))
            found[where] = (min(first, before[0]), max(last, before[1]))
        return found

    def _offsets_inside(self, receipt: Receipt) -> dict[TopicPartition, tuple[int, int]]:
        topic, partition, offset = ORIGIN
        rows = self.spark.read.option("versionAsOf", str(receipt.snapshot)).table(self.name).where(inside(receipt.load.ranges))
        found = rows.groupBy(topic, partition).agg(F.min(offset), F.max(offset)).collect()
        return {TopicPartition(row[0], row[1]): (row[2], row[3]) for row in found}

    def _receipts(self, wanted: Column) -> list[tuple[Receipt, bool]]:
        """Receipts of the snapshots that are wanted, and whether each says that its pipeline owns the table; oldest first.

        One round trip, no shuffle, no join.
        """
        snapshots = self.spark.table(f"{self.name}.snapshots").where(wanted)
        found = snapshots.select("snapshot_id", F.unix_millis("committed_at").alias("committed_at_ms"), "summary").collect()
        receipts = []
        for row in found:
            summary, at_ms = row["summary"], row["committed_at_ms"]
            receipt = Receipt.from_properties(summary, snapshot=row["snapshot_id"], committed_at_ms=at_ms)
            if receipt is not None:
                receipts.append((receipt, summary.get(OWNED) == "true"))
        return sorted(receipts, key=lambda receipt: receipt[0].committed_at_ms)

    def _is_current(self, receipt: Receipt) -> bool:
        """Whether the receipt's commit is an ancestor of the table's current state, and not rolled back. One round trip."""
        history = self.spark.table(f"{self.name}.history")
        return bool(history.where((F.col("snapshot_id") == receipt.snapshot) & F.col("is_current_ancestor")).take(1))


def _carries(properties: Mapping[str, str]) -> Column:
    """Whether a snapshot has these properties; at least one."""
    return reduce(Column.__and__, (F.col("summary")[key] == value for key, value in properties.items()))


def _shape(held: DataType) -> object:
    """A type as Iceberg keeps it: without nullability, lengths of texts, and integers shorter than 32 bits."""
    if isinstance(held, StructType):
        return [(f.name.lower(), _shape(f.dataType)) for f in held.fields]
    if isinstance(held, ArrayType):
        return ["array", _shape(held.elementType)]
    if isinstance(held, MapType):
        return ["map", _shape(held.keyType), _shape(held.valueType)]
    if isinstance(held, (ByteType, ShortType)):
        return IntegerType().simpleString()
    if isinstance(held, (CharType, VarcharType)):
        return StringType().simpleString()
    return held.simpleString()
