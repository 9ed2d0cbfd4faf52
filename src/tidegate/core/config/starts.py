"""Where a pipeline's first batch starts, and durations, as a file states them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from tidegate.core.config.names import TOPIC
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.ranges import TopicPartition, offsets_from_json
from tidegate.core.model.times import epoch_ms

LAST_MS = 253_402_300_799_999  # of the year 9999
MOST_INT32 = 2**31 - 1
MOST_INT64 = 2**63 - 1
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


def seconds_of(value: Any) -> Any:
    """A text such as `15m` in seconds. Any other value as it is: whether it is a number of seconds, the caller finds out."""
    if isinstance(value, str) and DURATION.fullmatch(value):
        seconds = float(value[:-1]) * _SECONDS[value[-1]]
        return int(seconds) if seconds.is_integer() else seconds
    return value
