"""What the core asks of the world. Each port has one production adapter, and tests may bring their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.planning import Watermarks
from tidegate.receipts import Receipt


class StateStore(Protocol):
    """Keys and texts, as Airflow Variables have them: no compare-and-set, no transaction."""

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`. Raises StateUnavailable: the listing failed."""

    def get(self, key: str) -> str:
        """The value of a key that `keys` has listed. Raises StateUnavailable: it cannot be read (missing included)."""

    def put(self, key: str, value: str, description: str) -> None:
        """Write the value. Raises StateUnavailable: whether it was written is unknown."""

    def delete(self, key: str) -> None:
        """Remove the key. Raises StateUnavailable: whether it was removed is unknown."""


class Brokers(Protocol):
    """What Kafka holds."""

    def watermarks(self, topics: Sequence[str]) -> Watermarks:
        """Of every partition of the topics. Raises KafkaError: a subclass says why."""


class SinkHistory(Protocol):
    """What a table's own commits say."""

    def has_receipts(self, table: str, pipeline: str) -> bool:
        """Whether the table holds a load of the pipeline; False when there is no such table. Raises SinkUnavailable."""

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline in the table, oldest commit first. Raises SinkUnavailable."""
