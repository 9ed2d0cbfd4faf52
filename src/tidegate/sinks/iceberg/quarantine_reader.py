"""The records in a quarantine, read by PyIceberg."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.core.audit.quarantine import Rejection
from tidegate.core.model.columns import OFFSET, ORIGIN_COLUMNS, PARTITION, TOPIC
from tidegate.core.model.errors import SinkMisfit
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.summary import QUARANTINE_OF


def read_rejections(table: str) -> list[Rejection]:
    """Every record in a quarantine; none where there is no such table.

    Raises:
        SinkUnavailable: the catalog does not answer.
        SinkMisfit: the table is no quarantine.
    """
    loaded = load_table(table)
    if loaded is None:
        return []
    if not any(key.startswith(QUARANTINE_OF) for key in loaded.properties):
        raise SinkMisfit(f"table {table} is no quarantine", fix="Name another one in quarantine.table", table=table)
    columns = (*ORIGIN_COLUMNS, "rejected_by", "reason", "attempt")
    rows = loaded.scan(selected_fields=columns).to_arrow()
    return [Rejection(*row) for row in zip(*(rows[name].to_pylist() for name in columns), strict=True)]


def read_values(table: str, rejections: Sequence[Rejection]) -> dict[Rejection, bytes | None]:
    """The values of some records in quarantine, each of which is read by its offset."""
    loaded = load_table(table)
    values: dict[Rejection, bytes | None] = {}
    if loaded is None:
        return values
    for one in rejections:
        of = f"{TOPIC} == '{one.topic}' and {PARTITION} == {one.partition} and {OFFSET} == {one.offset}"
        values[one] = next(iter(loaded.scan(row_filter=of, selected_fields=("value",)).to_arrow()["value"].to_pylist()), None)
    return values
