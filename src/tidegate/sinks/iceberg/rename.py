"""The one write of PyIceberg: an Iceberg table's owner gets another name, by its properties."""

from __future__ import annotations

from tidegate.core.model.errors import SinkUnavailable
from tidegate.sinks.iceberg.history import load_table
from tidegate.sinks.iceberg.summary import renaming


def move_owner(table: str, old: str, new: str) -> None:
    """Make `new` an owner of the table in the place of `old`, and what `old` has loaded its own.

    One commit of the table, without a snapshot. Where there is no such table, nothing happens.

    Raises:
        SinkUnavailable: the catalog does not answer, or PyIceberg cannot write this table; the fix is the SQL that does.
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
