"""What bounds the records of an instance: a buffer of bytes, so many records a second, and flags that stop all instances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.core.model.counts import check_count
from tidegate.core.model.errors import RequestError

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


HIGH, LOW = 0.9, 0.4
"""Shares of a capacity at which a flag goes up, and at which it goes down."""


class RateLimiter:
    """Spaces the blocks of one instance of a receiver so that they keep to a limit.

    From Spark's `RateLimiter`. Time without records is not saved up: after a pause the limit is the same as before.

    Args:
        max_rate: records/s that no update exceeds. None or 0: no maximum.
        initial_rate: records/s until the first update; cut to the maximum. None: the maximum. 0: nothing until then.

    Raises:
        RequestError: a rate is negative or NaN.
    """

    def __init__(self, max_rate: float | None = None, initial_rate: float | None = None) -> None:
        for name, rate in (("max_rate", max_rate), ("initial_rate", initial_rate)):
            if rate is not None and not rate >= 0:  # NaN too
                raise RequestError(f"{name}: expected records/s from 0, got {rate!r}", fix="Pass a rate of at least 0, or None")
        self._max_rate = float(max_rate or math.inf)
        self._limit = self._max_rate if initial_rate is None else min(float(initial_rate), self._max_rate)
        self._last_s = -math.inf  # when the last block starts; it may be in the future
        self._last_records = 0

    @property
    def limit(self) -> float:
        """Records/s, in force now; `math.inf`: no limit."""
        return self._limit

    def update(self, rate: float) -> None:
        """Set the limit, or the maximum where `rate` (records/s) is above it. A rate of 0 or less, or NaN, changes nothing."""
        if rate > 0:
            self._limit = min(float(rate), self._max_rate)

    def delay_s(self, now_s: float) -> float:
        """Seconds that a block would wait if it asked now; nothing is reserved. `now_s` as for `acquire`."""
        if not self._limit:
            return math.inf
        return max(0.0, self._last_s + self._last_records / self._limit - now_s)

    def acquire(self, records: int, now_s: float) -> float:
        """Seconds to wait before the next block may go; `math.inf`: it may not, and has to be asked for again after an update.

        A block waits until the block before it has taken its share of time, its records / limit. So a changed limit holds at
        once, and a block larger than the limit is let through, at the cost of the one after it.

        Args:
            records: how many the block has, at least 1.
            now_s: seconds of a monotonic clock.

        Raises:
            RequestError: a number is out of its bounds; nothing is changed.
        """
        check_count("records", records, least=1)
        if not math.isfinite(now_s):
            raise RequestError(f"now_s: expected seconds, got {now_s!r}", fix="Pass the time of a monotonic clock")
        if not self._limit:
            return math.inf
        start_s = max(now_s, self._last_s + self._last_records / self._limit)
        if start_s < math.inf:
            self._last_s, self._last_records = start_s, records
        return start_s - now_s


class WatermarkThrottle:
    """The flags of a receiver's instances, of which one is enough to stop them all.

    From Storm's back-pressure: an instance raises its flag when its buffer reaches the high mark and lowers it at the low mark;
    between the marks it stays as it is. A flag whose owner has died expires.

    Args:
        high: share of the capacity at which a flag goes up.
        low: share of the capacity at which it goes down.
        expiry_s: seconds after the last report of an instance at which its flag goes down by itself.

    Raises:
        RequestError: not 0 ≤ low < high ≤ 1, or `expiry_s` is not above 0.
    """

    def __init__(self, high: float = HIGH, low: float = LOW, expiry_s: float = 30.0) -> None:
        if not 0 <= low < high <= 1:
            raise RequestError(
                f"marks: expected 0 ≤ low < high ≤ 1, got low {low!r}, high {high!r}", fix="Pass shares of the capacity"
            )
        if not expiry_s > 0:
            raise RequestError(f"expiry_s: expected seconds above 0, got {expiry_s!r}", fix="Pass a time above 0")
        self._high = high
        self._low = low
        self._expiry_s = expiry_s
        self._reported_s: dict[str, float] = {}  # the last report of each instance whose flag is up

    def report(self, instance: str, used: int, capacity: int, *, now_s: float) -> None:
        """How full the buffer of an instance is.

        Args:
            instance: whose buffer.
            used: records or bytes in it; it may exceed the capacity.
            capacity: in the same unit, above 0.
            now_s: seconds of one clock for all instances.

        Raises:
            RequestError: a number is out of its bounds; nothing is changed.
        """
        check_count("used", used)
        check_count("capacity", capacity, least=1)
        self._forget_expired(now_s)
        if used <= math.floor(self._low * capacity):
            self._reported_s.pop(instance, None)
        elif instance in self._reported_s or used >= math.floor(self._high * capacity):
            self._reported_s[instance] = now_s

    def throttled(self, now_s: float) -> bool:
        """Whether every instance of the receiver has to stop.

        Args:
            now_s: seconds of the clock that reports use.

        Raises:
            RequestError: the time is not a finite number.
        """
        self._forget_expired(now_s)
        return bool(self._reported_s)

    def _forget_expired(self, now_s: float) -> None:
        if not math.isfinite(now_s):
            raise RequestError(f"now_s: expected seconds, got {now_s!r}", fix="Pass the time of the clock that reports use")
        self._reported_s = {
            instance: reported_s for instance, reported_s in self._reported_s.items() if now_s - reported_s < self._expiry_s
        }
