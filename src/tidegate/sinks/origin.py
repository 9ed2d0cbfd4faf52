"""The origin of a row (`tidegate.core.model.columns`), and the rule that no row may leave its range.

The same condition says which rows a load replaces and which rows it may write, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType

from tidegate.core.model.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.model.errors import TransformError
from tidegate.core.model.ranges import OffsetRange
from tidegate.sinks.failures import ORIGIN_BROKEN

ORIGIN: dict[str, DataType] = {TOPIC: StringType(), PARTITION: IntegerType(), OFFSET: LongType()}
"""The origin columns and their types."""


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


def guard_origin(rows: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The same rows; a row whose origin is null or outside the ranges fails the job when it is written."""
    topic, partition, offset = (F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in ORIGIN)
    message = F.concat(F.lit(f"{ORIGIN_BROKEN} "), topic, F.lit("-"), partition, F.lit(" at offset "), offset)
    broken = F.raise_error(message).cast("long")
    offset = F.col(OFFSET)
    listed = reaching(ranges, F.col(TOPIC), F.col(PARTITION), offset, offset)
    return rows.withColumn(OFFSET, F.when(listed, offset).otherwise(broken))


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


def check_origin_columns(schema: StructType, transform: str) -> None:
    """Refuse a transform's output that does not carry the origin columns with their types.

    Raises:
        TransformError: one of them is missing, or of another type.
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
