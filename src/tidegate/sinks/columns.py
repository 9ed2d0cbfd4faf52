"""Whether a table can have, and has, the columns of the rows to write. The same for every sink that keeps a schema."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

from tidegate.core.model.columns import BATCH, ORIGIN_COLUMNS
from tidegate.core.model.errors import SinkMisfit, TransformError
from tidegate.formats.columns import quoted


def check_schema(schema: StructType, *, reserved: Collection[str], unknown: Collection[str], transform: str) -> None:
    """Refuse rows that no table of the sink can hold.

    `reserved` are names that the sink has itself, `unknown` first words of types, as Spark writes them, that it cannot hold.

    Raises:
        TransformError: two columns of one struct have one name but for its case, the sink has a column of that name itself,
            or it cannot hold a type.
    """
    for field in schema.fields:
        if field.name in reserved:
            raise TransformError(
                f"transform {transform} makes a column {field.name}, which is a metadata column of the table",
                fix="Give it another name",
                transform=transform,
                column=field.name,
            )
    seen: dict[str, str] = {}
    for path, of in _columns(schema, ""):
        other = seen.setdefault(path.lower(), path)
        if other is not path:
            twice = f"the column {path} twice" if other == path else f"columns {other} and {path}, which differ by case only"
            raise TransformError(
                f"transform {transform} makes {twice}",
                fix="Rename one of them (`parse_json` makes _raw and _error, and keeps the origin columns)",
                transform=transform,
                column=path,
            )
        if of.simpleString().startswith(tuple(unknown)):
            raise TransformError(
                f"transform {transform} makes {path} a {of.simpleString()}, which the table cannot hold",
                fix=f'Cast it to another type, such as F.col("{path}").cast("string")',
                transform=transform,
                column=path,
            )


def _columns(of: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    """Each column and each field and element inside of it, by its path."""
    inner: list[tuple[str, DataType]] = []
    if isinstance(of, StructType):
        inner = [(f.name, f.dataType) for f in of.fields]
    elif isinstance(of, ArrayType):
        inner = [("element", of.elementType)]
    elif isinstance(of, MapType):
        inner = [("key", of.keyType), ("value", of.valueType)]
    for name, kind in inner:
        here = f"{path}.{name}" if path else name
        yield here, kind
        yield from _columns(kind, here)


def check_columns(
    held: StructType, new: StructType, *, kept_as: Callable[[DataType], object], table: str, transform: str
) -> None:
    """Refuse rows whose columns are not among those `held` by a table. Those that the rows lack are written as null.

    Names are compared without case. Two types fit where `kept_as`, what the sink keeps of a type, is the same for both.

    Raises:
        SinkMisfit: columns have another type than in the table, or are not in it, or the table requires some that the rows
            lack. It names them all, each with its fix, a statement of SQL where there is one.
    """
    types = {f.name.lower(): f.dataType for f in held.fields}
    made = {f.name.lower() for f in new.fields}
    unknown = [f for f in new.fields if f.name.lower() not in types]
    changed = [f for f in new.fields if f not in unknown and kept_as(f.dataType) != kept_as(types[f.name.lower()])]
    lacking = [f for f in held.fields if not f.nullable and f.name.lower() not in made]
    faults: list[str] = []
    fixes: list[str] = []
    for f in changed:
        old = types[f.name.lower()]
        faults.append(f"{f.name} is {old.simpleString()} there and {f.dataType.simpleString()} here")
        fixes.append(_fix_of(f, old, table))
    if unknown:
        faults.append(f"it has no column {', '.join(f.name for f in unknown)}")
        fix = f"run ALTER TABLE {table} ADD COLUMNS ({', '.join(f'{quoted(f.name)} {sql_type(f.dataType)}' for f in unknown)})"
        renamed = [f for f in held.fields if f.name.lower() not in made and kept_as(f.dataType) == kept_as(unknown[0].dataType)]
        if len(unknown) == 1 and renamed:
            rename = f"ALTER TABLE {table} RENAME COLUMN {quoted(renamed[0].name)} TO {quoted(unknown[0].name)}"
            fix += f", or, if it is {renamed[0].name} under a new name, run {rename} instead"
        fixes.append(fix)
    for f in lacking:
        faults.append(f"it requires a value of {f.name}, which is not made")
        fixes.append(f"run ALTER TABLE {table} ALTER COLUMN {quoted(f.name)} DROP NOT NULL, or let the transform make {f.name}")
    if faults:
        fix = "; ".join(fixes)
        raise SinkMisfit(
            f"table {table} does not fit transform {transform}: {'; '.join(faults)}",
            fix=f"{fix[0].upper()}{fix[1:]}; then clear the load task and the tasks after it",
            table=table,
            columns=", ".join(f.name for f in (*changed, *unknown, *lacking)),
        )


def _fix_of(new: StructField, old: DataType, table: str) -> str:
    if new.name.lower() in (*ORIGIN_COLUMNS, BATCH):
        return f"write to a new table, since {new.name} is Tidegate's own column, and a {new.dataType.simpleString()}"
    if _is_wider(new.dataType, old):
        wider = f"ALTER TABLE {table} ALTER COLUMN {quoted(new.name)} TYPE {sql_type(new.dataType)}"
        return f"run {wider}, or cast {new.name} in the transform"
    return f"cast {new.name} in the transform, or write to a new table"


def sql_type(of: DataType) -> str:
    """A type as SQL takes it, whatever the names of its fields."""
    if isinstance(of, StructType):
        return f"struct<{', '.join(f'{quoted(f.name)}: {sql_type(f.dataType)}' for f in of.fields)}>"
    if isinstance(of, ArrayType):
        return f"array<{sql_type(of.elementType)}>"
    if isinstance(of, MapType):
        return f"map<{sql_type(of.keyType)}, {sql_type(of.valueType)}>"
    return of.simpleString()


def _is_wider(new: DataType, old: DataType) -> bool:
    """Whether a table may give a column the new type, without a change of what it holds."""
    if isinstance(new, DecimalType) and isinstance(old, DecimalType):
        return new.scale == old.scale and new.precision > old.precision
    return (old.simpleString(), new.simpleString()) in {("int", "bigint"), ("float", "double")}
