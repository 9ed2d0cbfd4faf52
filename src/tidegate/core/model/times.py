"""Times as users write and read them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from tidegate.core.model.counts import is_whole

EPOCH, MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
CLOCKS_APART_MS = 60_000
"""How far the clocks of two writers may differ; Iceberg refuses a commit that is older than the last one by more."""


def past(at_ms: int | None, now_ms: int) -> int | None:
    """A saved time. None for one after now, which a clock wrote that ran ahead: whoever waits for it waits for ever."""
    return min(at_ms, now_ms) if is_whole(at_ms, 0, now_ms + CLOCKS_APART_MS) else None


def epoch_ms(value: Any) -> int:
    """A time as epoch ms: an integer of epoch ms, an ISO 8601 text, or a date or time of YAML. Without a zone it is UTC.

    Raises ValueError, TypeError: it is none of these.
    """
    if is_whole(value):
        return int(value)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // MS
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day, tzinfo=UTC) - EPOCH) // MS
    raise TypeError(value)


def utc(at_ms: int) -> str:
    """The inverse of `epoch_ms`, for people: ISO 8601, to the second, or to the millisecond where it has some."""
    try:
        at = EPOCH + at_ms * MS
    except OverflowError:  # no year has it
        return f"{at_ms} (epoch ms)"
    return at.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")
