"""The clock, and waiting for something outside this process."""

from __future__ import annotations

import time
from collections.abc import Callable


def now_ms() -> int:
    """The time, epoch ms."""
    return time.time_ns() // 1_000_000


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.1) -> bool:
    """Whether the condition became true within the time; it is asked at least once."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True
