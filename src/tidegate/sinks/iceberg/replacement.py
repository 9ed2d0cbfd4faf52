"""What a replacement has to write beside its own rows, found by looking at the table's data files.

Iceberg replaces data files as a whole. Where the range or the batch is new, or ends where files end, an overwrite of it is all
there is to do. Where it goes through files (a replay that is not aligned to old batches, or after compaction merged files), the
overwrite is widened to boxes that hold these files as a whole (`tidegate.sinks.boxes`), and writes their other rows again
(docs/adr/0004-replacement.md). Each commit is refused when anything in its boxes has changed since the load's `lookup`: a load
that was late replaces no newer rows, and the rows to keep may be read from the table as it is, with the columns it has now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.core.load.lookup import Lookup
from tidegate.sinks.boxes import Bounds, Box, cut_boxes, hull
from tidegate.sinks.identity import Identity, any_of


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The boxes to write anew, as of a snapshot, and how many of their rows are to be kept.

    It holds as long as no commit after `snapshot` changes anything in the boxes; None is the table before its first commit.
    Without boxes it adds rows and replaces none, and holds as long as no commit adds a row to the table. `last` says that the
    table holds no later row either.
    """

    snapshot: int | None
    boxes: tuple[Box, ...] = ()
    kept: int = 0
    last: bool = False


def find_free(spark: SparkSession, table: str, identity: Identity, lookup: Lookup) -> Cut | None:
    """The cut of a load that adds rows; None where the table may have held rows of the identity at `lookup.head`.

    No round trip after a commit that says that there are no later rows than its own, otherwise two, and three where there are.
    Iceberg reads no data file whose bounds rule the rows out. A snapshot is read by the columns of its time: where it lacks one
    that identifies a row, a column may have been renamed since, and nothing is known.
    """
    if lookup.head is None or (lookup.last is not None and identity.follows(lookup.last.load)):
        return Cut(snapshot=lookup.head, last=True)
    held = spark.read.option("versionAsOf", str(lookup.head)).table(table)
    if not {*identity.columns} <= {name.lower() for name in held.columns}:
        return None
    for rows, last in ((identity.since(), True), (identity.inside(), False)):
        if not held.where(rows).select(*identity.columns).take(1):
            return Cut(snapshot=lookup.head, last=last)
    return None


def find_cut(spark: SparkSession, table: str, identity: Identity, snapshot: int | None) -> Cut:
    """What of the table, as of a snapshot, has to be written anew to replace an identity: its own boxes, where no file is cut.

    One round trip where it touches no file or whole files; about four, and a count of the kept rows, where it cuts.
    """
    files = spark.table(f"{table}.data_files").where(_may_touch(identity)).select(*_bounds(identity))
    if snapshot is not None and cut_boxes(identity.boxes, map(_box, files.collect())):
        boxes = _closed(spark, table, snapshot, identity)
        if boxes:
            return Cut(snapshot=snapshot, boxes=boxes, kept=_kept(spark, table, identity, boxes).count())
    return Cut(snapshot=snapshot, boxes=identity.boxes)


def kept_rows(spark: SparkSession, table: str, identity: Identity, cut: Cut) -> DataFrame:
    """The rows of the boxes that are not of the identity; those before a range or batch apart from the others."""
    kept = _kept(spark, table, identity, cut.boxes)
    return kept.where(identity.before()).union(kept.where(_not(identity.before(), identity)))


def in_boxes(identity: Identity, boxes: Sequence[Box]) -> Column:
    """True for rows that lie in one of the boxes; an open bound is no condition."""
    return any_of(_in_box(identity, box) for box in boxes)


def _in_box(identity: Identity, box: Box) -> Column:
    conditions = []
    for name, (first, last) in zip(identity.columns, box.columns, strict=True):
        if first is not None and first == last:
            conditions.append(F.col(name) == first)
            continue
        if first is not None:
            conditions.append(F.col(name) >= first)
        if last is not None:
            conditions.append(F.col(name) <= last)
    return reduce(Column.__and__, conditions) if conditions else F.lit(True)


def _kept(spark: SparkSession, table: str, identity: Identity, boxes: Sequence[Box]) -> DataFrame:
    return spark.table(table).where(in_boxes(identity, boxes) & _not(identity.inside(), identity))


def _not(condition: Column, identity: Identity) -> Column:
    """True where a condition on the identity is not true, also where that is null. Iceberg can prune files by it."""
    return ~condition | any_of(F.col(name).isNull() for name in identity.columns)


def _closed(spark: SparkSession, table: str, snapshot: int, identity: Identity) -> tuple[Box, ...]:
    """The boxes at that snapshot. One round trip for the places of the identity, more where files hold several places."""
    files = spark.read.option("versionAsOf", str(snapshot)).table(f"{table}.data_files")
    schema = files.schema
    partition = schema["partition"].dataType if "partition" in schema.names else None
    fields = partition.names if isinstance(partition, StructType) else []
    # What a file is partitioned by is exact where its bounds are missing, or where bounds of text were cut.
    known = [F.col("partition")[name] if name in fields else F.lit(None) for name in identity.columns]
    reach = hull(identity.boxes)
    while True:
        rows = files.where(_within(identity, reach)).select(*_bounds(identity), *known).collect()
        bounds = 3 * len(known)
        boxes = cut_boxes(identity.boxes, (_box(file[:bounds], file[bounds:]) for file in rows))
        if not boxes or reach.holds(hull(boxes)):
            return boxes
        reach = hull(boxes)


def _metric(column: str, name: str) -> Column:
    return F.col("readable_metrics")[column][name]


def _bounds(identity: Identity) -> list[Column]:
    return [_metric(column, name) for column in identity.columns for name in ("lower_bound", "upper_bound", "null_value_count")]


def _box(bounds_of_file: Sequence[Any], known: Sequence[Any] = ()) -> Box:
    """A data file's box of its bounds, and of the values that it is partitioned by where they are known."""
    bounds: list[Bounds] = []
    for at in range(0, len(bounds_of_file), 3):
        lower, upper, nulls = bounds_of_file[at : at + 3]
        bounds.append((None, None) if nulls is None or nulls else (lower, upper))
    for at, value in enumerate(known):
        if value is not None:
            bounds[at] = (value, value)
    return Box(tuple(bounds))


def _may_touch(identity: Identity) -> Column:
    """Files whose bounds touch the identity, and all whose bounds do not name one place and what they hold in it."""
    lower = {name: _metric(name, "lower_bound") for name in identity.columns}
    upper = {name: _metric(name, "upper_bound") for name in identity.columns}
    *place, last = identity.columns
    known = lower[last] <= upper[last]
    for name in place:
        known &= lower[name] == upper[name]
    for name in identity.columns:
        known &= _metric(name, "null_value_count") == 0
    return identity.touching(lower, upper) | ~F.coalesce(known, F.lit(False))


def _within(identity: Identity, reach: Box) -> Column:
    """Files that may hold rows of those places, whatever the last column says."""
    conditions = []
    for name, (first, last) in zip(identity.columns, reach.columns, strict=True):
        if first is not None:
            conditions.append(F.coalesce(_metric(name, "upper_bound") >= first, F.lit(True)))
        if last is not None:
            conditions.append(F.coalesce(_metric(name, "lower_bound") <= last, F.lit(True)))
    return reduce(Column.__and__, conditions) if conditions else F.lit(True)
