"""What an operator accepts, so that the schedule goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.core.model.fields import MAPPING, RANGES, SELECTION, TUPLE, Record
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.cursor import Cursor


@dataclass(frozen=True, kw_only=True)
class Accepted(Record):
    """What an operator has accepted for one batch, the one with sequence number `seq`, and for no other.

    `after` is the batch before it, as `Cursor.last` has it: an acceptance counts nothing after another batch of that number.
    `loss` are ranges that retention deleted unread; `recreated` are topics with the id under which they are to start anew;
    `absent` are committed ranges that the table does not hold any more, or that nothing proves it to hold; `gone` is set where
    there is no table any more. `foreign` is the table whose rows without origin are accepted.
    """

    UNREADABLE = ("an acceptance has the wrong shape", "Delete the Variable and accept again")

    seq: int
    loss: tuple[OffsetRange, ...] = field(default=(), metadata=RANGES)
    recreated: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    absent: tuple[OffsetRange, ...] = field(default=(), metadata=SELECTION)
    gone: bool = False
    foreign: str = ""
    after: tuple[int | None, ...] = field(default=(), metadata=TUPLE)

    @property
    def creates(self) -> bool:
        """Whether the batch may create the table."""
        return self.gone or bool(self.absent)

    def follows(self, cursor: Cursor) -> bool:
        """Whether it counts for the batch after the cursor."""
        return (self.seq, self.after) == (cursor.seq + 1, cursor.last)

    def applied_to(self, cursor: Cursor) -> Cursor:
        """The cursor of the batch before: a partition that the table lacks offsets of begins anew, where the cursor is."""
        at = cursor.at
        anew = {r.topic_partition: at.offsets[r.topic_partition] for r in self.absent if r.topic_partition in at.offsets}
        return replace(cursor, at=replace(at, starts={**at.starts, **anew}, foreign=self.foreign or at.foreign))
