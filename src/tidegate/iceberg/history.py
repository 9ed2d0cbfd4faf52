"""Receipts read from an Iceberg table's snapshots.

The catalog is PyIceberg's own (`.pyiceberg.yaml`, or `PYICEBERG_CATALOG__<NAME>__*` in the environment), under the name that
Spark gives it: the first part of `catalog.namespace.table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import SinkUnavailable
from tidegate.receipts import PREFIX, Receipt

if TYPE_CHECKING:
    from pyiceberg.table import Table


class IcebergHistory:
    """The `SinkHistory` port over PyIceberg. PyIceberg is imported by the first call, not before: it is seldom needed."""

    def has_receipts(self, table: str, pipeline: str) -> bool:
        """Whether a snapshot of the table is a load of the pipeline; False when there is no such table.

        Raises:
            SinkUnavailable: the catalog is not configured here, or does not answer.
        """
        return bool(self.receipts(table, pipeline))

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline that the table still knows, oldest commit first; none when there is no such table.

        Raises:
            SinkUnavailable: the catalog is not configured here, or does not answer.
            StateCorrupt: a receipt is there, but broken.
        """
        found = load_table(table)
        if found is None:
            return []
        receipts = []
        for snapshot in sorted(found.metadata.snapshots, key=lambda s: s.sequence_number or 0):
            summary = {} if snapshot.summary is None else {**snapshot.summary.additional_properties}
            if summary.get(f"{PREFIX}pipeline") == pipeline:
                receipt = Receipt.from_properties(summary, snapshot=snapshot.snapshot_id, committed_at_ms=snapshot.timestamp_ms)
                if receipt is not None:
                    receipts.append(receipt)
        return receipts


def load_table(name: str) -> Table | None:
    """The PyIceberg table of `catalog.namespace.table`; None when there is no such table.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
    """
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - slow to import, and most runs need none of it
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError  # noqa: PLC0415

    catalog, _, identifier = name.partition(".")
    try:
        return load_catalog(catalog).load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        raise SinkUnavailable(
            f"the catalog of {name} cannot be read: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            fix=f"Configure it for PyIceberg under the name {catalog} (PYICEBERG_CATALOG__{catalog.upper()}__URI) and start it",
            table=name,
        ) from error
