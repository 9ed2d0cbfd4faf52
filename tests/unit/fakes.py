"""In-memory ports. Their real counterparts have integration tests of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.errors import StateUnavailable
from tidegate.planning import Watermarks
from tidegate.ranges import TopicPartition
from tidegate.receipts import Receipt


@dataclass
class MemoryStore:
    """A dict that can be told to fail, and counts its calls."""

    values: dict[str, str] = field(default_factory=dict)
    failing: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)

    def _note(self, verb: str, key: str) -> None:
        self.calls.append((verb, key))
        if self.failing:
            raise StateUnavailable("the store is away")

    def keys(self, prefix: str) -> list[str]:
        self._note("keys", prefix)
        return sorted(k for k in self.values if k.startswith(prefix))

    def get(self, key: str) -> str:
        self._note("get", key)
        if key not in self.values:
            raise StateUnavailable(f"{key} cannot be read")
        return self.values[key]

    def put(self, key: str, value: str, description: str) -> None:
        self._note("put", key)
        self.values[key] = value

    def delete(self, key: str) -> None:
        self._note("delete", key)
        del self.values[key]


@dataclass
class FakeBrokers:
    """A log that a test lets grow."""

    latest: dict[TopicPartition, int]
    earliest: dict[TopicPartition, int] = field(default_factory=dict)
    asked: int = 0

    def watermarks(self, topics: Sequence[str]) -> Watermarks:
        self.asked += 1
        here = {tp: end for tp, end in self.latest.items() if tp.topic in topics}
        return Watermarks({tp: self.earliest.get(tp, 0) for tp in here}, here, dict.fromkeys(topics, "id"))


@dataclass
class FakeHistory:
    """Receipts that a test puts in."""

    found: list[Receipt] = field(default_factory=list)

    def has_receipts(self, table: str, pipeline: str) -> bool:
        return bool(self.receipts(table, pipeline))

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        return [r for r in self.found if r.load.pipeline == pipeline]
