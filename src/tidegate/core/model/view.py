"""The JSON of views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, cast

from tidegate.core.model.ranges import TopicPartition


class View:
    """A dataclass that is JSON by its fields, and by the properties that `ALSO` names.

    What it holds is JSON already, or has a `to_json`. A partition becomes a `topic` and a `partition`.
    """

    __slots__ = ()
    ALSO: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        shown: dict[str, Any] = {}
        for name in (*(f.name for f in fields(cast("Any", self))), *self.ALSO):
            value = getattr(self, name)
            shown |= value._asdict() if isinstance(value, TopicPartition) else {name: _plain(value)}
        return shown


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
