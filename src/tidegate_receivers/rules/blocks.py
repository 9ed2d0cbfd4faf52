"""Records gather in a buffer of bounded bytes and leave it in blocks.

From Spark's `BlockGenerator`, with two differences. The buffer is bounded in bytes, since a record of 1 MB is not one line.
And a block keeps its bytes until it is released, so what waits and what is on its way to Kafka are bounded together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

MEMORY_BYTES = 512
"""What a record takes beside its key and value while it waits: objects, headers and Kafka client's own copy of both,
roughly."""


def least_buffer_bytes(max_record_bytes: int) -> int:
    """Bytes of a buffer with room for two of the longest records: one that is on its way, and the one that is read."""
    return 2 * (max_record_bytes + MEMORY_BYTES)


@dataclass(frozen=True, slots=True)
class RecordBlock(Generic[T]):
    """Items in the order in which they came; `records` and `size` (bytes) are their sums."""

    items: tuple[T, ...]
    records: int
    size: int


class BlockBuffer(Generic[T]):
    """A buffer that is cut into blocks, by time or by size.

    A block holds all that has gathered: while the block before it is on its way, it may grow beyond `block_bytes`, up to
    `capacity`. So few large blocks go where Kafka is slow, and many small ones where it is fast.

    Args:
        interval_s: seconds after which a block is due, from its first item on.
        block_bytes: a block of this size is due at once.
        capacity: bytes that all items may take, until their block is released.
    """

    def __init__(self, interval_s: float, block_bytes: int, capacity: int) -> None:
        self.capacity = capacity
        self._interval_s = interval_s
        self._block_bytes = block_bytes
        self._items: list[T] = []
        self._records = 0
        self._waiting = 0
        self._used = 0
        self._due_s = math.inf

    @property
    def used(self) -> int:
        """Bytes of items that wait, and of blocks that are not released."""
        return self._used

    @property
    def due_s(self) -> float:
        """When the next block is due, s; `-math.inf`: now, `math.inf`: there is none."""
        return -math.inf if self._waiting >= self._block_bytes else self._due_s

    def has_room(self, size: int) -> bool:
        """Whether an item of so many bytes may be added now."""
        return self._used + size <= self.capacity

    def add(self, item: T, *, records: int, size: int, now_s: float, prompt: bool = False) -> None:
        """Put an item behind the others, where there is room for it.

        Args:
            item: what to add.
            records: how many it holds.
            size: bytes that it takes.
            now_s: seconds of a monotonic clock.
            prompt: somebody waits for it, so its block is due at once.
        """
        self._items.append(item)
        self._records += records
        self._waiting += size
        self._used += size
        self._due_s = min(self._due_s, now_s if prompt else now_s + self._interval_s)

    def cut(self, now_s: float = math.inf) -> RecordBlock[T] | None:
        """The next block, if it is due at `now_s` (s); None otherwise. Without a time: whatever waits."""
        if not self._items or self.due_s > now_s:
            return None
        block = RecordBlock(tuple(self._items), self._records, self._waiting)
        self._items, self._records, self._waiting, self._due_s = [], 0, 0, math.inf
        return block

    def release(self, block: RecordBlock[T]) -> None:
        """The bytes of a block that has left for good are free again. Call it once for each block."""
        self._used -= block.size
