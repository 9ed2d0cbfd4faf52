"""How a new Iceberg table is laid out: the SQL that creates it, and whether its columns can be laid out so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from tidegate.core.config.layout import Layout, PartitionField, SortField, sql_text
from tidegate.core.model.errors import SinkMisfit
from tidegate.formats.columns import quoted
from tidegate.sinks.columns import sql_type
from tidegate.sinks.iceberg.receipts import quoted as table_name

VARIANTS = 3
"""The version of Iceberg's format from which on it has VARIANT."""
_TIMES = ("timestamp", "timestamp_ntz")
_TAKEN = {
    "years": ("date", *_TIMES),
    "months": ("date", *_TIMES),
    "days": ("date", *_TIMES),
    "hours": _TIMES,
    "bucket": ("tinyint", "smallint", "int", "bigint", "decimal", "date", *_TIMES, "string", "binary"),
    "truncate": ("tinyint", "smallint", "int", "bigint", "decimal", "string", "binary"),
}
"""The types, as Spark writes them, that each transform of the Iceberg table spec (Partition Transforms) takes."""


def create_table(table: str, schema: StructType, layout: Layout, own: Iterable[str], properties: Mapping[str, str]) -> str:
    """The SQL that creates a table, without the order of its rows; all columns of the schema may be null.

    `own` are partition fields that the table has in any case. `properties` are what it has beside those of the layout, which
    take precedence.
    """
    columns = ", ".join(f"{quoted(f.name)} {sql_type(f.dataType)}" for f in schema.fields)
    fields = ", ".join([*(PartitionField.parse(one).sql for one in layout.partition_by), *own])
    # A task that writes into many partitions keeps one file open at a time, of rows that it has sorted by partition.
    open_files = {"write.spark.fanout.enabled": "false"} if layout.partition_by else {}
    # fields of a VARIANT become columns of the file, so that a query of one reads no others
    shredded = {"write.parquet.shred-variants": "true"} if layout.format_version >= VARIANTS else {}
    held = {**properties, **open_files, **shredded, **layout.properties, "format-version": str(layout.format_version)}
    listed = ", ".join(f"{sql_text(key)} = {sql_text(value)}" for key, value in held.items())
    by = f" PARTITIONED BY ({fields})" if fields else ""
    return f"CREATE TABLE {table_name(table)} ({columns}) USING iceberg{by} TBLPROPERTIES ({listed})"


def check_layout(schema: StructType, layout: Layout, *, table: str, transform: str) -> None:
    """Refuse a layout by columns that the rows lack, or whose types cannot be laid out so. Raises SinkMisfit: it names them."""
    faults = []
    for text, column, takes in (
        *((text, (of := PartitionField.parse(text)).column, _TAKEN.get(of.transform)) for text in layout.partition_by),
        *((text, SortField.parse(text).column, None) for text in layout.sort_by),
    ):
        kind = _type_of(schema, column)
        if kind is None:
            faults.append(f"{text}: there is no column {column}")
        elif isinstance(kind, (StructType, ArrayType, MapType, VariantType)):
            faults.append(f"{text}: {column} is a {kind.typeName()}")
        elif takes is not None and not kind.simpleString().startswith(takes):
            faults.append(f"{text}: {column} is {kind.simpleString()}, expected {', '.join(takes)}")
    if faults:
        raise SinkMisfit(
            f"table {table} cannot be laid out as the pipeline's file says, by transform {transform}: {'; '.join(faults)}",
            fix="Correct sink.partition_by and sink.sort_by, or let the transform make such columns; then clear the load task "
            "and the tasks after it",
            table=table,
        )


def _type_of(schema: StructType, column: str) -> DataType | None:
    """The type of a column or of a field inside it; names are compared without case."""
    of: DataType = schema
    for part in column.lower().split("."):
        inner = {f.name.lower(): f.dataType for f in of.fields} if isinstance(of, StructType) else {}
        if part not in inner:
            return None
        of = inner[part]
    return of
