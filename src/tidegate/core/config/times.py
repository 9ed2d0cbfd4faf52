"""Times as users write and read them, and where a pipeline's first batch starts.

Pure: the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, cast

from tidegate.core.config.names import TOPIC
from tidegate.core.counts import is_whole
from tidegate.core.errors import TidegateError
from tidegate.core.offsets.ranges import TopicPartition, offsets_from_json

EPOCH, MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
LAST_MS = 253_402_300_799_999  # of the year 9999
MOST_INT32 = 2**31 - 1
MOST_INT64 = 2**63 - 1
CLOCKS_APART_MS = 60_000
"""How far the clocks of two writers may differ; Iceberg refuses a commit that is older than the last one by more."""
DURATION = re.compile(r"^[0-9]{1,8}(\.[0-9]{1,3})?(s|m|h|d)$")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class StartTime:
    """A start that is not an offset yet: the first record at or after a time (epoch ms)."""

    timestamp_ms: int


@dataclass(frozen=True)
class StartOffsets:
    """A start at explicit offsets; partitions that are not named start at their earliest."""

    offsets: Mapping[TopicPartition, int]


Start = Literal["earliest", "latest"] | StartTime | StartOffsets


def start_of(value: Any) -> Start | None:
    """The start that a YAML value means; None where it means none."""
    if value in ("earliest", "latest"):
        return cast("Start", value)
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    (kind, what), *_ = value.items()
    try:
        if kind == "timestamp":
            timestamp_ms = epoch_ms(what)
            return StartTime(timestamp_ms) if 0 <= timestamp_ms <= LAST_MS else None
        if kind == "offsets":
            offsets = offsets_from_json(what)
            return StartOffsets(offsets) if all(map(_is_position, offsets, offsets.values())) else None
    except (ValueError, TypeError, AttributeError, OverflowError, TidegateError):
        return None
    return None


def _is_position(tp: TopicPartition, offset: int) -> bool:
    return bool(TOPIC.fullmatch(tp.topic)) and tp.partition <= MOST_INT32 and offset <= MOST_INT64


def past(at_ms: int | None, now_ms: int) -> int | None:
    """A saved time, at most now. None for a later one, which a clock wrote that ran ahead: whoever waits for it waits for ever.

    Args:
        at_ms: what was saved, epoch ms; None where it is not known.
        now_ms: the time, epoch ms.
    """
    return min(at_ms, now_ms) if is_whole(at_ms, 0, now_ms + CLOCKS_APART_MS) else None


def seconds_of(value: Any) -> Any:
    """A text such as `15m` in seconds. Any other value as it is: whether it is a number of seconds, the caller finds out."""
    if isinstance(value, str) and DURATION.fullmatch(value):
        seconds = float(value[:-1]) * _SECONDS[value[-1]]
        return int(seconds) if seconds.is_integer() else seconds
    return value


def epoch_ms(value: Any) -> int:
    """A time as epoch ms: an integer of epoch ms, an ISO 8601 text, or a date or time of YAML. Without a zone it is UTC.

    Raises:
        ValueError, TypeError: it is none of these.
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
