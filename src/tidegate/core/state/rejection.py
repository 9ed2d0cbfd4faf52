"""A record that loads have set aside."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.core.model.ranges import TopicPartition


class Rejection(NamedTuple):
    """A record in quarantine: where it is in the log, what has rejected it and why, in which attempt to load it."""

    topic: str
    partition: int
    offset: int
    rejected_by: str
    reason: str
    attempt: str

    @property
    def topic_partition(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def place(self) -> str:
        """In words."""
        return f"{self.topic_partition} at {self.offset}"
