"""All instances of a receiver stop while the buffer of one of them is nearly full."""

from __future__ import annotations

import math

from tidegate.core.counts import check_count
from tidegate.core.errors import RequestError

HIGH, LOW = 0.9, 0.4


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
