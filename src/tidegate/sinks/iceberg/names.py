"""Names of tables in SQL: any part of one may be a word that SQL reserves."""

from __future__ import annotations


def quoted(table: str) -> str:
    """A table's name, or the part of one, as SQL takes it."""
    return ".".join(f"`{part}`" for part in table.split("."))
