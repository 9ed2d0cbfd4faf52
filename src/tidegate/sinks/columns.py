"""Whether a table can have, and has, the columns of the rows to write, and how it gets them where the contract says so.

The same for every sink that keeps a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    NumericType,
    StructType,
)

from tidegate.core.config.layout import sql_text
from tidegate.core.config.pipeline import Contract
from tidegate.core.model.columns import BATCH, ERROR, ORIGIN_COLUMNS, RAW, ColumnChange
from tidegate.core.model.errors import SinkMisfit, TransformError
from tidegate.core.state.jobs import LoadJob
from tidegate.formats.columns import quoted


def check_schema(schema: StructType, *, reserved: Collection[str], unknown: Collection[str], transform: str) -> None:
    """Refuse rows that no table of the sink can hold.

    `reserved` are names that the sink has itself, `unknown` first words of types, as Spark writes them, that it cannot hold.

    Raises TransformError: two columns of one struct have one name but for its case, the sink has a column of that name itself,
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
            cast = f'cast it to another type, such as F.col("{path}").cast("string")'
            is_variant = of.simpleString() == "variant"
            raise TransformError(
                f"transform {transform} makes {path} a {of.simpleString()}, which the table cannot hold",
                fix=f"Set sink.format_version to 3, or {cast}" if is_variant else f"{cast[0].upper()}{cast[1:]}",
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


KeptAs = Callable[[DataType], DataType]
"""What a sink keeps of a type that is no struct, list or map."""


class Difference(NamedTuple):
    """One column, or field inside one, that rows have otherwise than their table.

    `path` has `element` for what is in a list and `value` for what is in a map, as SQL names them. `held` is its type in the
    table, None where it has none; `made` its type in the rows, None where they have none, and the table requires a value.
    """

    path: tuple[str, ...]
    held: DataType | None
    made: DataType | None

    @property
    def name(self) -> str:
        """As people write it."""
        return ".".join(self.path)

    @property
    def sql(self) -> str:
        """As SQL has it."""
        return ".".join(map(quoted, self.path))

    @property
    def is_own(self) -> bool:
        """Whether it is one of Tidegate's columns, whose type is fixed."""
        return self.path[0].lower() in (*ORIGIN_COLUMNS, BATCH)

    def can_be(self, kept_as: KeptAs) -> bool:
        """Whether a table can change by it, without a change of what it holds."""
        return self.held is None or self.made is None or _is_wider(kept_as(self.made), kept_as(self.held))

    @property
    def change(self) -> ColumnChange:
        """What a change of the table's column is, for those who are told of it."""
        if self.made is None:
            return ColumnChange(self.name, str(_text(self.held)), str(_text(self.held)))
        return ColumnChange(self.name, _text(self.held), str(_text(self.made)))


def _text(of: DataType | None) -> str | None:
    return None if of is None else of.simpleString()


def _differences(held: DataType, made: DataType, kept_as: KeptAs, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """How rows do not fit what a table holds; names are compared without case.

    A column that the rows lack is written as null, and a type that the table's column can hold is cast to it: neither is a
    difference.
    """
    if isinstance(held, StructType) and isinstance(made, StructType):
        theirs, ours = ({f.name.lower(): f for f in of.fields} for of in (held, made))
        for name, f in ours.items():
            if name in theirs:
                yield from _differences(theirs[name].dataType, f.dataType, kept_as, (*path, theirs[name].name))
            else:
                yield Difference((*path, f.name), None, f.dataType)
        for name, f in theirs.items():
            if not f.nullable and name not in ours:
                yield Difference((*path, f.name), f.dataType, None)
    elif isinstance(held, ArrayType) and isinstance(made, ArrayType):
        yield from _differences(held.elementType, made.elementType, kept_as, (*path, "element"))
    elif (
        isinstance(held, MapType) and isinstance(made, MapType) and _kept(held.keyType, kept_as) == _kept(made.keyType, kept_as)
    ):
        yield from _differences(held.valueType, made.valueType, kept_as, (*path, "value"))
    elif _kept(held, kept_as) != _kept(made, kept_as):
        found = Difference(path, held, made)
        if found.is_own or not _is_wider(kept_as(held), kept_as(made)):
            yield found


def _kept(of: DataType, kept_as: KeptAs) -> object:
    """A type to be compared, without nullability."""
    if isinstance(of, StructType):
        return [(f.name.lower(), _kept(f.dataType, kept_as)) for f in of.fields]
    if isinstance(of, ArrayType):
        return ["array", _kept(of.elementType, kept_as)]
    if isinstance(of, MapType):
        return ["map", _kept(of.keyType, kept_as), _kept(of.valueType, kept_as)]
    return kept_as(of).simpleString()


def agreed(held: StructType, made: StructType, job: LoadJob, *, kept_as: KeptAs) -> list[Difference]:
    """The differences by which a table has to change before it takes the rows, as the job's contract has it.

    Raises SinkMisfit: the contract refuses some, or no table can change so. It names them all, the first offset, and the
    choices.
    """
    to_change: list[Difference] = []
    refused: list[Difference] = []
    for one in _differences(held, made, kept_as):
        rule = job.contract.columns if one.held is None else job.contract.types
        if _is_judged(one, job.contract):
            continue
        keeps_type = rule == "quarantine" and (one.made is not None or len(one.path) > 1)
        if one.is_own or not one.can_be(kept_as) or rule == "freeze" or keeps_type:
            refused.append(one)
        elif rule != "discard":
            to_change.append(one)
    if refused:
        new = [one for one in refused if one.held is None]
        others = [one for one in refused if one.held is not None]
        faults = [_fault_of(one) for one in others]
        fixes = [_fix_of(one, job.table, can_be=one.can_be(kept_as)) for one in others]
        if new:
            faults.append(f"it has no column {', '.join(one.name for one in new)}")
            fixes.append(_fix_of_new(new, _once(held, made, new[0], kept_as), job.table))
        fix, since, again = "; ".join(fixes), "", ""
        for first in job.load.nonempty[:1]:  # none where nothing is loaded yet
            since = f", from offset {first.from_offset} of {first.topic_partition} on"
            again = "; then clear the load task and the tasks after it"
        raise SinkMisfit(
            f"table {job.table} does not fit transform {job.transform}{since}: {'; '.join(faults)}",
            fix=f"{fix[0].upper()}{fix[1:]}{again}",
            table=job.table,
            columns=", ".join(one.name for one in (*others, *new)),
        )
    return to_change


def _is_judged(one: Difference, contract: Contract) -> bool:
    """Whether the contract asks of each record whether it fits a column, instead of refusing or changing the column.

    Of numbers alone, and not of fields inside a column: what a text or a time is as another type depends on who casts it.
    """
    if one.is_own or one.held is None or len(one.path) > 1:
        return False
    if one.made is None:
        return contract.missing == "quarantine"
    are_numbers = isinstance(one.held, NumericType) and isinstance(one.made, NumericType)
    return contract.types == "quarantine" and are_numbers


def misfit(held: StructType, made: StructType, contract: Contract, *, kept_as: KeptAs) -> Column | None:
    """Why a record does not fit the table, as text; null where it fits. None where the contract rejects no record.

    A number fits a type that can hold it exactly; of FLOAT and DOUBLE, one that is neither infinite there nor 0, if it is not.
    """
    reasons = []
    for one in _differences(held, made, kept_as):
        if one.held is not None and one.made is not None and _is_judged(one, contract):
            value = F.col(one.sql)
            cast = value.try_cast(one.held)
            fits = cast.isNotNull()
            if isinstance(one.held, (FloatType, DoubleType)):
                is_same = (F.abs(value) == float("inf")) | (F.abs(cast) < float("inf")) | F.isnan(cast)
                fits &= is_same & ((cast != 0) | (value == 0))
            else:
                fits &= cast.try_cast(one.made).eqNullSafe(value)
                # which a cast of the least that is too great makes fit
                if isinstance(one.made, (FloatType, DoubleType)) and isinstance(one.held, LongType):
                    fits &= value < float(2**63)
            # without the value, which the record has: or each would be a reason of its own
            reasons.append(F.when(value.isNotNull() & ~fits, F.lit(f"{one.name} does not fit {sql_type(one.held)}")))
    names = {name.lower() for name in made.names}
    for f in held.fields if contract.missing == "quarantine" else ():
        if not f.nullable and f.name not in ORIGIN_COLUMNS:
            is_missing = F.col(quoted(f.name)).isNull() if f.name.lower() in names else F.lit(True)
            reasons.append(F.when(is_missing, F.lit(f"no value of {f.name}, which the table requires")))
    return F.coalesce(*reasons) if reasons else None


def _once(held: StructType, made: StructType, new: Difference, kept_as: KeptAs) -> list[str]:
    """The columns that a new one may have been before: of its type, and not made any more."""
    names = {RAW, ERROR, *(f.name.lower() for f in made.fields)}
    return [
        f.name
        for f in held.fields
        if new.made is not None and f.name.lower() not in names and _kept(f.dataType, kept_as) == _kept(new.made, kept_as)
    ]


def _fault_of(one: Difference) -> str:
    if one.made is None:
        return f"it requires a value of {one.name}, which is not made"
    return f"{one.name} is {_text(one.held)} there and {_text(one.made)} here"


def _fix_of(one: Difference, table: str, *, can_be: bool) -> str:
    if one.is_own:
        return f"write to a new table, since {one.name} is Tidegate's own column, and a {_text(one.made)}"
    if not can_be:
        return f"cast {one.name} in the transform, or write to a new table"
    (statement,) = alterations(table, [one])
    instead = f"let the transform make {one.name}" if one.made is None else f"cast {one.name} in the transform"
    return f"run {statement}, or {instead}, or set contract.types to widen"


def _fix_of_new(new: Sequence[Difference], once: Sequence[str], table: str) -> str:
    (fix,) = alterations(table, new)
    if once and len(new) == 1:
        rename = f"ALTER TABLE {table} RENAME COLUMN {quoted(once[0])} TO {new[0].sql}"
        fix += f", or, if it is {once[0]} under a new name, run {rename} instead"
    return f"run {fix}, or set contract.columns to evolve or discard"


def alterations(table: str, found: Iterable[Difference], *, comment: str | None = None) -> list[str]:
    """The SQL that ends these differences: one statement for the columns to add, and one for those that change.

    `comment` is that of each column that is added.
    """
    said = "" if comment is None else f" COMMENT {sql_text(comment)}"
    added, changed = [], []
    for one in found:
        if one.held is None and one.made is not None:
            added.append(f"{one.sql} {sql_type(one.made)}{said}")
        else:
            changed.append(f"{one.sql} {'DROP NOT NULL' if one.made is None else f'TYPE {sql_type(one.made)}'}")
    statements = [f"ALTER TABLE {table} ADD COLUMNS ({', '.join(added)})"] if added else []
    return [*statements, f"ALTER TABLE {table} ALTER COLUMN {', '.join(changed)}"] if changed else statements


def fitted(rows: DataFrame, held: StructType, *, kept_as: KeptAs) -> DataFrame:
    """The rows with the types that their table has, and without what it does not have.

    Fields inside of structs, lists and maps go by name too; those that the rows lack are null.
    """
    made = {f.name.lower(): f for f in rows.schema.fields}
    pairs = [(made[f.name.lower()], f) for f in held.fields if f.name.lower() in made]
    # none is made of them where the contract has rejected every record
    required = [f for f in held.fields if not f.nullable and f.name.lower() not in made]
    if (
        not required
        and len(pairs) == len(made)
        and all(_kept(m.dataType, kept_as) == _kept(h.dataType, kept_as) for m, h in pairs)
    ):
        return rows
    columns = [_fitted(F.col(quoted(m.name)), m.dataType, h.dataType, kept_as).alias(h.name) for m, h in pairs]
    return rows.select(*columns, *(F.lit(None).cast(f.dataType).alias(f.name) for f in required))


def _fitted(value: Column, made: DataType, held: DataType, kept_as: KeptAs) -> Column:
    if _kept(made, kept_as) == _kept(held, kept_as):
        return value
    if isinstance(made, StructType) and isinstance(held, StructType):
        ours = {f.name.lower(): f for f in made.fields}
        fields = [
            _fitted(value.getField(ours[f.name.lower()].name), ours[f.name.lower()].dataType, f.dataType, kept_as)
            if f.name.lower() in ours
            else F.lit(None).cast(f.dataType)
            for f in held.fields
        ]
        return F.when(value.isNotNull(), F.struct(*(one.alias(f.name) for one, f in zip(fields, held.fields, strict=True))))
    if isinstance(made, ArrayType) and isinstance(held, ArrayType):
        return F.transform(value, lambda one: _fitted(one, made.elementType, held.elementType, kept_as))
    if isinstance(made, MapType) and isinstance(held, MapType):
        return F.transform_values(value, lambda _, one: _fitted(one, made.valueType, held.valueType, kept_as))
    return value.try_cast(held)  # what does not fit is refused, or rejected; a constant would fail before that


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
