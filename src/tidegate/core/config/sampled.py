"""A schema for `parse_json`, made of a few records: types that hold what they have, for a person to correct."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from tidegate.core.config.sinks import ICEBERG_RESERVED
from tidegate.core.model.columns import BATCH, ERROR, ORIGIN_COLUMNS, RAW, REJECT

LARGEST = 2**63 - 1
"""Of a BIGINT."""
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)", re.ASCII)
"""A time with its offset, as `parse_json` reads a TIMESTAMP; without one, a text may mean any time zone."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LEFT_OUT = {"", *ORIGIN_COLUMNS, BATCH, RAW, ERROR, REJECT, *ICEBERG_RESERVED}
"""Names that no field of a table can have: none, Tidegate's own, and those that Spark adds to Iceberg tables."""
Kind = str | dict[str, Any] | list[Any] | None
"""A type: a word of SQL, an object's fields by their names in small letters, that of a list's elements; None: null alone."""
Field = tuple[str, Kind]
"""A field's name, and its type."""


def schema_of(values: Iterable[bytes]) -> list[str] | None:
    """The columns of JSON objects, in the order in which they come, each as SQL; None where they are no objects.

    A field that is once a number and once a text is STRING, which holds both as they were sent. What no table can have is left
    out.
    """
    fields: Kind = None
    try:
        for value in values:
            record = json.loads(value.decode(), parse_constant=_no_json)
            if not isinstance(record, dict):
                return None
            fields = _both(fields, _kind(record))
        columns = [f"{_quoted(name)} {_sql(kind)}" for name, kind in (fields or {}).values()]  # type: ignore[union-attr]
    except (ValueError, RecursionError):  # too deep for any table, too
        return None
    return columns or None


def _no_json(word: str) -> None:
    raise ValueError(word)


def _kind(value: Any) -> Kind:
    if isinstance(value, dict):
        fields: dict[str, Field] = {}
        for name, inner in value.items():
            _add(fields, name, _kind(inner))
        return {key: each for key, each in fields.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        of: Kind = None
        for inner in value:
            of = _both(of, _kind(inner))
        return [of]
    if isinstance(value, str):
        return "TIMESTAMP" if _is_moment(value) else "STRING"
    if type(value) is int and -LARGEST <= value <= LARGEST:
        return "BIGINT"
    return None if value is None else {bool: "BOOLEAN", float: "DOUBLE"}.get(type(value), "STRING")


def _is_moment(text: str) -> bool:
    """Whether it is a time with its offset that `parse_json` reads, of the years 1 to 9999 in UTC."""
    try:
        return bool(MOMENT.fullmatch(text) and datetime.fromisoformat(text).astimezone(UTC))
    except (ValueError, OverflowError):
        return False


def _add(fields: dict[str, Field], name: str, kind: Kind) -> None:
    """Add a field; names of columns differ by more than their case, and the first one stays."""
    known, before = fields.get(name.lower(), (name, None))
    fields[name.lower()] = known, _both(before, kind)


def _both(one: Kind, other: Kind) -> Kind:
    """A type that holds the values of both."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        merged = dict(one)
        for name, kind in other.values():
            _add(merged, name, kind)
        return merged
    if isinstance(one, list) and isinstance(other, list):
        return [_both(one[0], other[0])]
    return "DOUBLE" if {str(one), str(other)} == {"BIGINT", "DOUBLE"} else "STRING"


def _sql(kind: Kind) -> str:
    if isinstance(kind, list):
        return f"ARRAY<{_sql(kind[0])}>"
    if isinstance(kind, dict):
        return f"STRUCT<{', '.join(f'{_quoted(name)}: {_sql(of)}' for name, of in kind.values())}>" if kind else "STRING"
    return kind or "STRING"


def _quoted(name: str) -> str:
    name.encode()  # a half of a character is a ValueError: no file takes it
    return name if NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
