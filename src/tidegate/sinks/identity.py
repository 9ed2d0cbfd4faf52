"""Which rows of a table a load replaces: those of its ranges, identified by their records, or those of its batch.

A transform that aggregates makes a row of many records. Such rows have no origin, so they are identified by the batch that made
them: the library adds the column `_batch`, and such a batch is replaced as a whole or not at all.

No other row has an origin (`tidegate.core.model.columns`) outside of its range: the same condition says which rows a load
replaces and which rows it may write, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from tidegate.core.model.columns import BATCH, OFFSET, PARTITION, TOPIC
from tidegate.core.model.errors import SinkMisfit, TransformError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Load
from tidegate.sinks.boxes import Box, boxes_of
from tidegate.sinks.failures import ORIGIN_BROKEN

ORIGIN: dict[str, DataType] = {TOPIC: StringType(), PARTITION: IntegerType(), OFFSET: LongType()}
"""The origin columns and their types."""
LAST_OFFSET = 2**63 - 1
LONGEST_FOLDER = 255
"""Bytes of a folder's name, in most file systems. A topic has 249 at most, none of which is written as several."""


def inside(ranges: Sequence[OffsetRange]) -> Column:
    """True for rows whose origin lies in one of the ranges, false or null for every other row. At least one range."""
    return any_of(
        (F.col(TOPIC) == r.topic)
        & (F.col(PARTITION) == r.partition)
        & (F.col(OFFSET) >= r.from_offset)
        & (F.col(OFFSET) < r.until_offset)
        for r in ranges
    )


def any_of(conditions: Iterable[Column]) -> Column:
    """One condition of several; of none it is false."""
    branches = list(conditions) or [F.lit(False)]
    # A balanced tree: a chain of a thousand ORs is deeper than protobuf and the optimizer's recursion allow.
    while len(branches) > 1:
        pairs = zip(branches[::2], branches[1::2], strict=False)
        branches = [left | right for left, right in pairs] + branches[len(branches) & ~1 :]
    return branches[0]


def reaching(ranges: Sequence[OffsetRange], topic: Column, partition: Column, first: Column, last: Column) -> Column:
    """Whether an offset from `first` to `last` (inclusive) lies in the range of that partition; one range a partition.

    With one offset as both it is the condition of `inside`, as a look-up of the range's bounds by the partition.

    Bounds in arrays are data to the generated code, where bounds in comparisons are part of its text: so the code of one batch
    fits the next, and is compiled once. It also stays one look-up a row, however many partitions there are.
    """
    tables: dict[str, dict[int, OffsetRange]] = {}
    for r in ranges:
        tables.setdefault(r.topic, {})[r.partition] = r
    reached = F.lit(False)
    for name, table in sorted(tables.items()):
        bounds = [table.get(p) for p in range(max(table) + 1)]
        from_offset = F.get(_longs(0 if r is None else r.from_offset for r in bounds), partition)
        until_offset = F.get(_longs(0 if r is None else r.until_offset for r in bounds), partition)
        reached |= (topic == name) & (last >= from_offset) & (first < until_offset)
    return reached


def _longs(numbers: Iterable[int]) -> Column:
    return F.array(*(F.lit(number) for number in numbers)).cast("array<long>")


@dataclass(frozen=True)
class ByOrigin:
    """The rows of the records of these ranges; one range a partition, at least one of them not empty."""

    ranges: Sequence[OffsetRange]
    columns: ClassVar[Mapping[str, DataType]] = ORIGIN

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """Topic and partition; without a topic whose folder would have a longer name than file systems take."""
        topic, partition, _ = ORIGIN
        longest = max(len(f"{topic}={r.topic}") for r in self.ranges)
        return (topic, partition) if longest <= LONGEST_FOLDER else (partition,)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The rows as boxes over `columns`; at least one."""
        return boxes_of(self.ranges)

    def inside(self) -> Column:
        """True for these rows, false or null for every other row."""
        return inside(self.ranges)

    def before(self) -> Column:
        """True for rows that come before these ones in their place: lower offsets of the same partitions."""
        return inside([OffsetRange(r.topic, r.partition, 0, r.from_offset) for r in self.ranges])

    def since(self) -> Column:
        """True for these rows, and for those that come after them in their places, also where it has a place and no rows."""
        return inside([OffsetRange(r.topic, r.partition, r.from_offset, LAST_OFFSET) for r in self.ranges])

    def follows(self, load: Load) -> bool:
        """Whether all these rows come after those of a load, in its places.

        Each range, also one without offsets, begins at or after the end of the load's range of that partition.
        """
        ends = {r.topic_partition: r.until_offset for r in load.ranges}
        return all(ends.get(r.topic_partition, LAST_OFFSET) <= r.from_offset for r in self.ranges)

    def touching(self, lower: Mapping[str, Column], upper: Mapping[str, Column]) -> Column:
        """Whether rows between bounds of `columns`, in one place, may be among these ones.

        The generated code is the same for every batch, so that Spark compiles it once; see `reaching`.
        """
        topic, partition, offset = ORIGIN
        return reaching(self.ranges, lower[topic], lower[partition], lower[offset], upper[offset])

    def check(self, schema: StructType, transform: str) -> StructType:
        """The schema of the rows to write, by that of the rows that the transform makes, which carry the origin columns.

        Raises TransformError: it drops one or makes it of another type, or makes the library's own column.
        """
        types = {f.name: f.dataType for f in schema.fields}
        for name, expected in ORIGIN.items():
            if name not in types:
                raise TransformError(
                    f"transform {transform} drops the origin column {name}",
                    fix=f"Select {', '.join(ORIGIN)} too: each row carries the origin of its record",
                    transform=transform,
                    column=name,
                )
            if types[name] != expected:
                raise TransformError(
                    f"transform {transform} makes {name} a {types[name].simpleString()}, it is a {expected.simpleString()}",
                    fix=f"Carry {', '.join(ORIGIN)} through unchanged",
                    transform=transform,
                    column=name,
                )
        _check_no_batch(schema, transform)
        return schema

    def check_kind(self, held: Sequence[str], table: str) -> None:
        """Refuse a table of batches, and one without the columns, which must not be added where they were renamed.

        Raises SinkMisfit: it is one.
        """
        if BATCH in held:
            raise _other_kind(table, "batch", "origin")
        missing = [name for name in ORIGIN if name not in held]
        if missing:
            raise SinkMisfit(
                f"table {table} has no column {' and no '.join(missing)}",
                fix="Run `tidegate plan` of the pipeline, which names the SQL that repairs it; write trials to a new table",
                table=table,
                columns=", ".join(missing),
            )

    def marked(self, rows: DataFrame) -> DataFrame:
        """The rows that the transform made, as they are written: one whose origin is not in the ranges fails the job."""
        topic, partition, offset = (F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in ORIGIN)
        message = F.concat(F.lit(f"{ORIGIN_BROKEN} "), topic, F.lit("-"), partition, F.lit(" at offset "), offset)
        broken = F.raise_error(message).cast("long")
        offset = F.col(OFFSET)
        listed = reaching(self.ranges, F.col(TOPIC), F.col(PARTITION), offset, offset)
        return rows.withColumn(OFFSET, F.when(listed, offset).otherwise(broken))


@dataclass(frozen=True)
class ByBatch:
    """The rows that one batch made. Its methods say what those of `ByOrigin` say."""

    batch: int
    columns: ClassVar[Mapping[str, DataType]] = {BATCH: LongType()}

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """Nothing: there would be thousands. Each commit writes files of its own, so their bounds tell batches apart."""
        return ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The batch."""
        return (Box(((self.batch, self.batch),)),)

    def inside(self) -> Column:
        """By the batch alone."""
        return F.col(BATCH) == self.batch

    def before(self) -> Column:
        """Earlier batches."""
        return F.col(BATCH) < self.batch

    def since(self) -> Column:
        """Also later batches."""
        return F.col(BATCH) >= self.batch

    def follows(self, load: Load) -> bool:
        """The batch is a later one."""
        return load.batch is not None and load.batch < self.batch

    def touching(self, lower: Mapping[str, Column], upper: Mapping[str, Column]) -> Column:
        """The batch lies between them."""
        return (lower[BATCH] <= self.batch) & (upper[BATCH] >= self.batch)

    def check(self, schema: StructType, transform: str) -> StructType:
        """The library adds the batch's number, so the transform must not make such a column."""
        _check_no_batch(schema, transform)
        return StructType([*schema.fields, StructField(BATCH, LongType())])

    def check_kind(self, held: Sequence[str], table: str) -> None:
        """Refuse a table whose rows have no batch."""
        if BATCH not in held:
            raise _other_kind(table, "origin", "batch")

    def marked(self, rows: DataFrame) -> DataFrame:
        """With the number of this batch."""
        return rows.withColumn(BATCH, F.lit(self.batch).cast("long"))


Identity: TypeAlias = ByOrigin | ByBatch
"""What a load replaces. `columns` are those that identify a row, with their types."""


def identity_of(job: LoadJob) -> Identity:
    """What a job replaces."""
    batch = job.load.batch
    return ByOrigin(job.load.ranges) if batch is None else ByBatch(batch)


def _check_no_batch(schema: StructType, transform: str) -> None:
    if any(f.name.lower() == BATCH for f in schema.fields):
        raise TransformError(
            f"transform {transform} makes a column {BATCH}, which is Tidegate's own",
            fix="Give it another name; a pipeline with `identity: batch` gets the number of its batch there",
            transform=transform,
            column=BATCH,
        )


def _other_kind(table: str, held_by: str, asked_for: str) -> SinkMisfit:
    return SinkMisfit(
        f"the rows of table {table} are identified by their {held_by}, but this pipeline declares `identity: {asked_for}`",
        fix=f"Write to a new table, or set `identity: {held_by}`",
        table=table,
    )
