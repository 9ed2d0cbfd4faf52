"""What an operator accepts, so that the schedule goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.offsets.ranges import OffsetRange, ranges_from_json, ranges_to_json, selection_from_json, selection_to_json
from tidegate.core.state.codec import Shape


@dataclass(frozen=True)
class Accepted:
    """What an operator has accepted for one batch, the one with sequence number `seq`, and for no other.

    `loss` are ranges that retention deleted unread; `recreated` are topics with the id under which they are to start anew;
    `absent` are committed ranges that the table does not hold any more, `gone` is set where there is no table any more.
    """

    seq: int
    loss: tuple[OffsetRange, ...] = ()
    recreated: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[OffsetRange, ...] = ()
    gone: bool = False

    @property
    def creates(self) -> bool:
        """Whether the batch may create the table."""
        return self.gone or bool(self.absent)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seq": self.seq,
            "loss": ranges_to_json(self.loss),
            "recreated": dict(self.recreated),
            "absent": selection_to_json(self.absent),
            "gone": self.gone,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Accepted:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("an acceptance has the wrong shape", "Delete the Variable and accept again"):
            return Accepted(
                value["seq"],
                ranges_from_json(value["loss"]),
                dict(value["recreated"]),
                selection_from_json(value.get("absent", {})),
                value.get("gone", False) is True,
            )
