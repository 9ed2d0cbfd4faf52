"""At most so many records a second, at a limit that changes at run time."""

from __future__ import annotations

import math

from tidegate.core.counts import check_count
from tidegate.core.errors import RequestError


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
