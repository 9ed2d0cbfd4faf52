"""Tables through PyIceberg: how one is loaded, whatever types it has, and the one write, of its owner.

The catalog is PyIceberg's own (`.pyiceberg.yaml`, or `PYICEBERG_CATALOG__<NAME>__*` in the environment), under the name that
Spark gives it: the first part of `catalog.namespace.table`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from tidegate.core.model.errors import SinkUnavailable
from tidegate.sinks.iceberg.summary import renaming

if TYPE_CHECKING:
    from pyiceberg.table import Table

INNER = {"element", "key", "value"}
"""The parts of a list and a map that are types. Their models do not ask the function that fields ask."""


@cache
def _let_unknown_types_be() -> None:
    """Make PyIceberg hold types that it does not know (VARIANT, and whatever comes), and leave out columns of them in files.

    What is read of a table are its snapshots and the origin columns. Without this, one column of such a type, at any depth,
    keeps PyIceberg from reading the table's metadata at all, and then its data files.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyiceberg import types  # noqa: PLC0415
    from pyiceberg.io import pyarrow as files  # noqa: PLC0415

    iceberg_type: Any = types.IcebergType
    known, to_schema = iceberg_type.handle_primitive_type, files.pyarrow_to_schema

    @cache
    def unread(name: str) -> Any:
        """A class has one instance."""
        made: Any = type(name, (types.UnknownType,), {})
        return made.model_construct(root=name)

    @wraps(known)
    def handle(value: Any, handler: Any) -> Any:
        try:
            return known(value, handler)
        except ValueError:
            if not isinstance(value, str):
                raise
            return unread(value)

    def made(init: Any) -> Any:
        @wraps(init)
        def of_parts(self: Any, *args: Any, **parts: Any) -> None:
            inner = {name: handle(part, None) for name, part in parts.items() if name in INNER and isinstance(part, str)}
            init(self, *args, **{**parts, **inner})

        return of_parts

    @wraps(to_schema)
    def readable(schema: Any, *args: Any, **kwargs: Any) -> Any:
        """The parts of a VARIANT have no ids of fields; a file in which nothing has is another case, and PyIceberg's own."""
        with_ids = [f for f in schema if files.visit_pyarrow(pa.schema([f]), files._HasIds())]  # noqa: SLF001
        return to_schema(pa.schema(with_ids) if with_ids else schema, *args, **kwargs)

    iceberg_type.handle_primitive_type = staticmethod(handle)
    kinds: tuple[Any, ...] = (types.ListType, types.MapType)
    for kind in kinds:
        kind.__init__ = made(kind.__init__)
    files.pyarrow_to_schema = readable


def load_table(name: str) -> Table | None:
    """The PyIceberg table of `catalog.namespace.table`; None when there is none. Raises SinkUnavailable."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - slow to import, and most runs need none of it
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError  # noqa: PLC0415

    catalog, _, identifier = name.partition(".")
    _let_unknown_types_be()
    with answering(name):
        try:
            return load_catalog(catalog).load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


@contextmanager
def answering(name: str) -> Iterator[None]:
    """Whatever PyIceberg raises inside is a catalog or a storage that does not answer."""
    catalog = name.partition(".")[0]
    try:
        yield
    except Exception as error:
        raise SinkUnavailable(
            f"the catalog of {name} cannot be read: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            fix=f"Configure it for PyIceberg under the name {catalog} (PYICEBERG_CATALOG__{catalog.upper()}__URI) and start it",
            table=name,
        ) from error


def purge(name: str) -> bool:
    """Drop a table, and remove its files; whether there was one. Raises SinkUnavailable."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - as above

    if load_table(name) is None:
        return False
    catalog, _, identifier = name.partition(".")
    with answering(name):
        load_catalog(catalog).purge_table(identifier)
    return True


def move_owner(table: str, old: str, new: str) -> None:
    """Make `new` an owner of the table in the place of `old`, and what `old` has loaded its own.

    One commit of the table, without a snapshot. Where there is no such table, nothing happens.

    Raises SinkUnavailable: the catalog does not answer, or PyIceberg cannot write this table; the fix is the SQL that does.
    """
    loaded = load_table(table)
    changes, dropped = renaming({} if loaded is None else loaded.properties, old, new)
    try:
        if loaded is not None:
            with loaded.transaction() as change:
                change.set_properties(changes)
                change.remove_properties(*dropped)
    except Exception as error:
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in changes.items())
        keys = ", ".join(f"'{key}'" for key in dropped)
        why = next(iter(str(error).splitlines()), "")
        raise SinkUnavailable(
            f"the owner of table {table} was not changed: {type(error).__name__}: {why}",
            fix=f"Run ALTER TABLE {table} SET TBLPROPERTIES ({pairs})"
            + (f" and ALTER TABLE {table} UNSET TBLPROPERTIES ({keys})" if keys else "")
            + "; then rename once more",
            table=table,
        ) from error
