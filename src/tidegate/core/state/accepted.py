"""What an operator accepts, so that the schedule goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.state.codec import Shape
from tidegate.core.state.fields import LATER, MAPPING, RANGES, SELECTION, fields_from_json, fields_to_json


@dataclass(frozen=True)
class Accepted:
    """What an operator has accepted for one batch, the one with sequence number `seq`, and for no other.

    `loss` are ranges that retention deleted unread; `recreated` are topics with the id under which they are to start anew;
    `absent` are committed ranges that the table does not hold any more, `gone` is set where there is no table any more.
    """

    seq: int
    loss: tuple[OffsetRange, ...] = field(default=(), metadata=RANGES)
    recreated: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    absent: tuple[OffsetRange, ...] = field(default=(), metadata=SELECTION | LATER)
    gone: bool = field(default=False, metadata=LATER)

    @property
    def creates(self) -> bool:
        """Whether the batch may create the table."""
        return self.gone or bool(self.absent)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return fields_to_json(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Accepted:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("an acceptance has the wrong shape", "Delete the Variable and accept again"):
            return fields_from_json(Accepted, value)
