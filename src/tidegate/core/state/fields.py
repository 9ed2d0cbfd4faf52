"""How the fields of saved state become JSON: each is stated once, in the metadata of its dataclass field.

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    generation: int = field(default=0, metadata=LATER)

A field without metadata is JSON already, and every value has it. Keys are the fields' names, or those that `named` states, in
the order of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar, cast

from tidegate.core.offsets.ranges import (
    offsets_from_json,
    offsets_to_json,
    ranges_from_json,
    ranges_to_json,
    selection_from_json,
    selection_to_json,
)

T = TypeVar("T")

LATER = {"later": True}
"""A field that values of older versions lack; they are read with its default. To be joined with another form by `|`."""


def form(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    """The metadata of a field that `write` makes JSON, and `read` reads again."""
    return {"write": write, "read": read}


def named(key: str) -> dict[str, Any]:
    """The metadata of a field whose value has another key. To be joined with a form by `|`."""
    return {"key": key}


def each(item: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a tuple whose items have this form."""
    return form(lambda items: [item["write"](i) for i in items], lambda items: tuple(item["read"](i) for i in items))


def optional(known: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a field that has this form, or is None."""
    return form(
        lambda value: None if value is None else known["write"](value),
        lambda value: None if value is None else known["read"](value),
    )


OFFSETS = form(offsets_to_json, offsets_from_json)
RANGES = form(ranges_to_json, ranges_from_json)
"""Ranges, one of a partition at most."""
SELECTION = form(selection_to_json, selection_from_json)
"""Ranges, any number of a partition."""
MAPPING = form(dict, dict)
TUPLE = form(list, tuple)
"""Of items that are JSON already."""


def fields_to_json(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, JSON-ready."""
    return {_key(f): f.metadata.get("write", _as_it_is)(getattr(value, f.name)) for f in fields(value)}


def fields_from_json(kind: type[T], value: Mapping[str, Any]) -> T:
    """The inverse of `fields_to_json`; keys that are not fields are ignored.

    Raises:
        KeyError: a field is missing that values of every version have.
        RequestError, ValueError, TypeError, AttributeError: a field has another shape.
    """
    return kind(
        **{
            f.name: f.metadata.get("read", _as_it_is)(value[_key(f)])
            for f in fields(cast("Any", kind))
            if _key(f) in value or "later" not in f.metadata
        }
    )


def _key(field: Field[Any]) -> str:
    key: str = field.metadata.get("key", field.name)
    return key


def _as_it_is(value: Any) -> Any:
    return value
