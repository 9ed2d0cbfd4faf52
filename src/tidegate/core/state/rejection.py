"""A record that loads have set aside, and the table that holds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidegate.core.model.columns import ORIGIN_COLUMNS
from tidegate.core.model.errors import SinkMisfit
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.receipt import Load, Write

COLUMNS = (
    *(*ORIGIN_COLUMNS, "timestamp", "key", "value", "headers"),
    *("rejected_by", "reason", "transform", "load", "attempt", "added_at"),
)
"""Of a quarantine: a record as it is in the log, and what its load says of it."""


def load_of(load: Load) -> str:
    """What a quarantine says of the load that has set a record aside; the same for every attempt at it."""
    return f"{load.named} of {load.pipeline}"


class Rejection(NamedTuple):
    """A record in quarantine: where it is in the log, what has rejected it and why, in which attempt at which load."""

    topic: str
    partition: int
    offset: int
    rejected_by: str
    reason: str
    attempt: str
    load: str = ""
    transform: str = ""

    def is_of(self, write: Write) -> bool:
        """Whether a write has set it aside, or another attempt at its load by the same transform, which rejects the same."""
        return self.attempt == write.attempt or (self.load, self.transform) == (load_of(write.load), write.transform)

    @property
    def topic_partition(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)

    def lies_in(self, ranges: Mapping[TopicPartition, OffsetRange]) -> bool:
        """Whether the range of its partition holds it."""
        r = ranges.get(self.topic_partition)
        return r is not None and r.from_offset <= self.offset < r.until_offset

    @property
    def place(self) -> str:
        """In words."""
        return f"{self.topic_partition} at {self.offset}"


def check_quarantine(quarantine: str, of: Collection[str], columns: Collection[str], table: str | None = None) -> None:
    """Refuse a table that is no quarantine, or not of this table, or lacks a column.

    `of` are the tables whose quarantine it says that it is. Raises SinkMisfit.
    """
    missing = [name for name in COLUMNS if name not in columns]
    if not of or (table is not None and [*of] != [table]):
        held = f"the quarantine of {', '.join(of)}" if of else "no quarantine"
        raise SinkMisfit(
            f"table {quarantine} is {held}{'' if table is None else f', and cannot be that of {table}'}",
            fix="Name another one in quarantine.table; then clear the load task and the tasks after it",
            table=quarantine,
        )
    if missing:
        raise SinkMisfit(
            f"the quarantine {quarantine} has no column {' and no '.join(missing)}",
            fix="Give it its columns again, or name another one in quarantine.table; then clear the load task",
            table=quarantine,
        )
