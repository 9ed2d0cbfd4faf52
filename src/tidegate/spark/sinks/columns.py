"""Whether a table has the columns of the rows to write. The same for every sink that keeps a schema."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import DataType, StructType

from tidegate.core.errors import SinkMisfit


def check_columns(
    held: StructType, new: StructType, *, kept_as: Callable[[DataType], object], table: str, transform: str
) -> None:
    """Refuse rows that a table has no columns for. Columns that the rows lack are written as null.

    Args:
        held: the table's columns.
        new: the columns of the rows to write; names are compared without case.
        kept_as: what the sink keeps of a type: two types fit where it answers the same for both.
        table: its name.
        transform: what makes the rows.

    Raises:
        SinkMisfit: a column has another type than in the table, or is not in it. The fix of the second is a statement of SQL.
    """
    types = {f.name.lower(): f.dataType for f in held.fields}
    unknown = [f for f in new.fields if f.name.lower() not in types]
    changed = [f for f in new.fields if f not in unknown and kept_as(f.dataType) != kept_as(types[f.name.lower()])]
    if changed:
        differences = ", ".join(
            f"{f.name} is {types[f.name.lower()].simpleString()} there and {f.dataType.simpleString()} here" for f in changed
        )
        raise SinkMisfit(
            f"table {table} does not fit transform {transform}: {differences}",
            fix="Cast the column in the transform, or write to a new table",
            table=table,
            columns=", ".join(f.name for f in changed),
        )
    if unknown:
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in unknown)
        names = ", ".join(f.name for f in unknown)
        raise SinkMisfit(
            f"table {table} has no column {names}, which transform {transform} makes",
            fix=f"Run ALTER TABLE {table} ADD COLUMNS ({columns}), then clear the load task",
            table=table,
            columns=names,
        )
