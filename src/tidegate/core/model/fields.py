"""How the fields of saved state become JSON: each is stated once, in the metadata of its dataclass field.

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)

A field without metadata is JSON already, and every value has each field. Keys are the fields' names, or those that `named`
states, in the order of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, cast

from tidegate.core.model.errors import StateCorrupt, TidegateError
from tidegate.core.model.ranges import (
    offsets_from_json,
    offsets_to_json,
    ranges_from_json,
    ranges_to_json,
    selection_from_json,
    selection_to_json,
)

T = TypeVar("T")


class Shape:
    """A `with` block that reads a value's fields: a missing field, or one of another type, becomes one `StateCorrupt`.

    Its message is `fault`, with the cause; `fix` is its fix.
    """

    def __init__(self, fault: str, fix: str) -> None:
        self._fault = fault
        self._fix = fix

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Raises StateCorrupt: a field is missing, or of another type."""
        misread = isinstance(error, (KeyError, ValueError, TypeError, AttributeError, TidegateError))
        if misread and not isinstance(error, StateCorrupt):
            raise StateCorrupt(f"{self._fault} ({error!r})", fix=self._fix) from error


def form(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    """The metadata of a field that `write` makes JSON, and `read` reads again."""
    return {"write": write, "read": read}


def named(key: str) -> dict[str, Any]:
    """The metadata of a field whose value has another key. To be joined with a form by `|`."""
    return {"key": key}


def each(item: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a tuple whose items have this form."""
    return form(lambda items: [item["write"](i) for i in items], lambda items: tuple(item["read"](i) for i in items))


def held(kind: type[Any]) -> dict[str, Any]:
    """The metadata of a field with a record of this kind, whose fields are written beside those of the record that holds it."""
    return {"held": kind}


def nested(kind: type[Any]) -> dict[str, Any]:
    """The metadata of a field with a dataclass of this kind, whose fields are an object of their own."""
    return form(fields_to_json, lambda value: fields_from_json(kind, value))


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
    written: dict[str, Any] = {}
    for f in fields(value):
        of = getattr(value, f.name)
        written |= fields_to_json(of) if "held" in f.metadata else {_key(f): f.metadata.get("write", _as_it_is)(of)}
    return written


def fields_from_json(kind: type[T], value: Mapping[str, Any]) -> T:
    """The inverse of `fields_to_json`; keys that are not fields are ignored.

    Raises KeyError: a field is missing. RequestError, ValueError, TypeError, AttributeError: a field has another shape.
    """
    return kind(**{f.name: _read(f, value) for f in fields(cast("Any", kind))})


class Record:
    """A dataclass that is JSON by its fields.

    `UNREADABLE` is what is wrong with a value that is none of its kind, and how that is repaired, for the error.
    """

    __slots__ = ()
    UNREADABLE: ClassVar[tuple[str, str]]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return fields_to_json(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateCorrupt: the value is not what it makes."""
        with Shape(*cls.UNREADABLE):
            return fields_from_json(cls, value)


def _read(field: Field[Any], value: Mapping[str, Any]) -> Any:
    if "held" in field.metadata:
        return fields_from_json(field.metadata["held"], value)
    return field.metadata.get("read", _as_it_is)(value[_key(field)])


def _key(field: Field[Any]) -> str:
    key: str = field.metadata.get("key", field.name)
    return key


def _as_it_is(value: Any) -> Any:
    return value
