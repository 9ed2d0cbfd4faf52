"""What a replacement has to write beside its own rows, found by looking at the table's data files.

Iceberg replaces data files as a whole. Where the range is new, or ends where files end, an overwrite of the range is all there
is to do. Where it goes through files (a replay that is not aligned to old batches, or after compaction merged files), the
overwrite is widened to boxes that hold these files as a whole (`tidegate.cutting`), and writes their other rows again.

Rules:
- The rows to keep are what the table held when it was looked at; the commit is refused when anything in the boxes has changed
  since. So they may be read from the table as it is, with the columns it has now.
- Kept rows from before and after the range come to lie in different files: the same range is aligned from then on.
- A file that does not say what it holds (bounds not kept, or nulls in the origin columns) may hold anything: its whole Kafka
  partition is written anew, or the whole table where its partitioning does not say the partition either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.cutting import Box, cut_boxes, hull
from tidegate.ranges import OffsetRange
from tidegate.spark.origin import ORIGIN, any_of, inside, reaching


@dataclass(frozen=True)
class Cut:
    """A replacement that goes through data files: the boxes to write anew, and how many of their rows are to be kept.

    It holds as long as no commit after `snapshot` changes anything in the boxes.
    """

    snapshot: int
    boxes: tuple[Box, ...]
    kept: int


def find_cut(spark: SparkSession, table: str, ranges: Sequence[OffsetRange]) -> Cut | None:
    """What of the table has to be written anew beside the ranges; None where an overwrite of the ranges does.

    One round trip where the ranges touch no file or whole files; about five, and a count of the kept rows, where they cut.

    Args:
        spark: any session with the table's catalog.
        table: its name, `catalog.namespace.table`; it exists.
        ranges: what is to be replaced, one range a partition; at least one is not empty.
    """
    files = spark.table(f"{table}.data_files").where(_may_touch(ranges)).select(*_bounds())
    if not cut_boxes(ranges, map(_box, files.collect())):
        return None
    head = spark.table(f"{table}.refs").where("name = 'main'").select("snapshot_id").collect()
    if not head:
        return None
    (snapshot,) = head[0]
    boxes = _closed(spark, table, snapshot, ranges)
    return Cut(snapshot, boxes, _kept(spark, table, ranges, boxes).count()) if boxes else None


def kept_rows(spark: SparkSession, table: str, ranges: Sequence[OffsetRange], cut: Cut) -> DataFrame:
    """The rows of the boxes that are not in the ranges; those before a range apart from the others."""
    kept = _kept(spark, table, ranges, cut.boxes)
    before = inside([OffsetRange(r.topic, r.partition, 0, r.from_offset) for r in ranges])
    return kept.where(before).union(kept.where(_not(before)))


def in_boxes(boxes: Sequence[Box]) -> Column:
    """True for rows whose origin lies in one of the boxes; an open bound asks for nothing. At least one box."""
    return any_of(_in_box(box) for box in boxes)


def _in_box(box: Box) -> Column:
    asked = []
    for name, (first, last) in zip(ORIGIN, box.columns, strict=True):
        if first is not None and first == last:
            asked.append(F.col(name) == first)
            continue
        if first is not None:
            asked.append(F.col(name) >= first)
        if last is not None:
            asked.append(F.col(name) <= last)
    return reduce(Column.__and__, asked) if asked else F.lit(True)


def _kept(spark: SparkSession, table: str, ranges: Sequence[OffsetRange], boxes: Sequence[Box]) -> DataFrame:
    return spark.table(table).where(in_boxes(boxes) & _not(inside(ranges)))


def _not(condition: Column) -> Column:
    """True where a condition on the origin is not true, also where the origin is null. Iceberg can prune files by it."""
    return ~condition | any_of(F.col(name).isNull() for name in ORIGIN)


def _closed(spark: SparkSession, table: str, snapshot: int, ranges: Sequence[OffsetRange]) -> tuple[Box, ...]:
    """The boxes at that snapshot. One round trip for the partitions of the ranges, more where files hold several partitions."""
    files = spark.read.option("versionAsOf", str(snapshot)).table(f"{table}.data_files")
    schema = files.schema
    partition = schema["partition"].dataType if "partition" in schema.names else None
    fields = partition.names if isinstance(partition, StructType) else []
    # What a file is partitioned by is exact where its bounds are missing, or where bounds of text were cut.
    known = [F.col("partition")[name] if name in fields else F.lit(None) for name in ORIGIN]
    reach = hull([Box.of(r) for r in ranges if r.count])
    while True:
        found = files.where(_within(reach)).select(*_bounds(), *known[:2]).collect()
        boxes = cut_boxes(ranges, map(_box, found))
        if not boxes or reach.holds(hull(boxes)):
            return boxes
        reach = hull(boxes)


def _metric(column: str, name: str) -> Column:
    return F.col("readable_metrics")[column][name]


def _bounds() -> list[Column]:
    return [_metric(column, name) for column in ORIGIN for name in ("lower_bound", "upper_bound", "null_value_count")]


def _box(file: Row) -> Box:
    """A data file's box of its bounds, and of topic and partition where they are known."""
    values = tuple(file)
    bounds = []
    for at in range(len(ORIGIN)):
        lower, upper, nulls = values[3 * at : 3 * at + 3]
        bounds += [None, None] if nulls is None or nulls else [lower, upper]
    for at, known in enumerate(values[9:]):
        if known is not None:
            bounds[2 * at : 2 * at + 2] = [known, known]
    return Box(*bounds)


def _may_touch(ranges: Sequence[OffsetRange]) -> Column:
    """Files whose bounds touch the ranges, and all that do not say which one Kafka partition and which offsets they hold.

    The same text for every batch, so that what is compiled for it once is used again; `reaching` sees to that.
    """
    topic, partition, offset = ORIGIN
    lower = {name: _metric(name, "lower_bound") for name in ORIGIN}
    upper = {name: _metric(name, "upper_bound") for name in ORIGIN}
    told = (lower[topic] == upper[topic]) & (lower[partition] == upper[partition]) & (lower[offset] <= upper[offset])
    for name in ORIGIN:
        told &= _metric(name, "null_value_count") == 0
    touching = reaching(ranges, lower[topic], lower[partition], lower[offset], upper[offset])
    return touching | ~F.coalesce(told, F.lit(False))


def _within(reach: Box) -> Column:
    """Files that may hold rows of those topics and partitions, whatever the offset."""
    asked = []
    for name, (first, last) in zip(ORIGIN, reach.columns, strict=True):
        if first is not None:
            asked.append(F.coalesce(_metric(name, "upper_bound") >= first, F.lit(True)))
        if last is not None:
            asked.append(F.coalesce(_metric(name, "lower_bound") <= last, F.lit(True)))
    return reduce(Column.__and__, asked) if asked else F.lit(True)
