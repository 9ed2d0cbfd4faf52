"""A schema for `parse_json`, made of a few records: types that hold what they have, for a person to correct."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.core.model.columns import BATCH, ORIGIN_COLUMNS

LARGEST = 2**63 - 1
"""Of a BIGINT."""
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)")
"""A time with its offset, as `parse_json` reads a TIMESTAMP; without one, a text may mean any time zone."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OURS = {*ORIGIN_COLUMNS, BATCH, "_raw", "_error", "_reject"}
"""Columns that a table has of Tidegate."""
Kind = str | dict[str, Any] | list[Any] | None
"""A type: a word of SQL, the types of an object's fields, that of a list's elements; None: of null alone."""


def schema_of(values: Iterable[bytes | None]) -> list[str] | None:
    """The columns of JSON objects, in the order in which they come, each as SQL; None where they are no objects.

    Records without a value are left out. A field that is once a number and once a text is STRING, which holds both as they
    were sent.
    """
    fields: Kind = None
    for value in values:
        if value is None:
            continue
        try:
            record = json.loads(value)
        except (ValueError, RecursionError):
            return None
        if not isinstance(record, dict):
            return None
        fields = _both(fields, _kind(record))
    if not isinstance(fields, dict):
        return None
    return [f"{_quoted(name)} {_sql(kind)}" for name, kind in fields.items() if name.lower() not in OURS] or None


def _kind(value: Any) -> Kind:
    if isinstance(value, dict):
        fields: dict[str, Kind] = {}
        for name, inner in value.items():  # names of columns differ by more than their case
            known = next((each for each in fields if each.lower() == name.lower()), name)
            fields[known] = _both(fields.get(known), _kind(inner))
        return fields
    if isinstance(value, list):
        of: Kind = None
        for inner in value:
            of = _both(of, _kind(inner))
        return [of]
    if isinstance(value, str) and MOMENT.fullmatch(value):
        return "TIMESTAMP"
    if type(value) is int and -LARGEST <= value <= LARGEST:
        return "BIGINT"
    return None if value is None else {bool: "BOOLEAN", float: "DOUBLE"}.get(type(value), "STRING")


def _both(one: Kind, other: Kind) -> Kind:
    """A type that holds the values of both."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        merged = dict(one)
        for name, kind in other.items():
            known = next((each for each in merged if each.lower() == name.lower()), name)
            merged[known] = _both(merged.get(known), kind)
        return merged
    if isinstance(one, list) and isinstance(other, list):
        return [_both(one[0], other[0])]
    return "DOUBLE" if {str(one), str(other)} == {"BIGINT", "DOUBLE"} else "STRING"


def _sql(kind: Kind) -> str:
    if isinstance(kind, list):
        return f"ARRAY<{_sql(kind[0])}>"
    if isinstance(kind, Mapping):
        return f"STRUCT<{', '.join(f'{_quoted(name)}: {_sql(of)}' for name, of in kind.items())}>" if kind else "STRING"
    return kind or "STRING"


def _quoted(name: str) -> str:
    return name if NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
