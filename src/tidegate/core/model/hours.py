"""Hours (or days) of event time, the timestamp of a record, and which of them a task announces. Times are epoch ms.

A batch announces the hours that are complete with it and were not before; empty ones too, since whoever sums up a day waits
for all of its hours. An hour is complete when the next record of each partition is later, and where a partition has no next
record, by the clock. A record that comes later, and a replay, announce its hour again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.core.model.counts import is_whole
from tidegate.core.model.fields import TUPLE, each
from tidegate.core.model.times import past, utc

Every = Literal["hour", "day"]
Span = tuple[int, int]
"""A stretch of time, half-open, epoch ms."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PERIODS: Mapping[Every, int] = {"hour": HOUR_MS, "day": DAY_MS}
"""The length of what is announced, ms."""
MOST_KEYS = 48
"""Each key is an event, and costs the transaction that ends its task several ms, in which Airflow waits for locks."""
LOOK_BACK_DAYS = 366
"""The hours of older records are not looked at one by one: a sender that writes nonsense must not fill Spark's driver."""


def floored(at_ms: int, period_ms: int) -> int:
    """When the period of a time begins."""
    return at_ms // period_ms * period_ms


def look_back(now_ms: int) -> int:
    """From when on a load looks at the hours of its records."""
    return max(0, floored(now_ms, DAY_MS) - LOOK_BACK_DAYS * DAY_MS)


def key_of(at_ms: int) -> str:
    """The partition key of the period that begins then, as Airflow's mappers of times read it. UTC."""
    return utc(at_ms).removesuffix("Z")


@dataclass(frozen=True, slots=True)
class Times:
    """The timestamps of the records of a load.

    `first_ms` is the earliest; None where no record has one. `hours` are the hours that have records, as far as they were
    looked at (`reading.hours` of the job), as stretches of numbers from the epoch on.
    """

    first_ms: int | None
    hours: tuple[Span, ...] = field(default=(), metadata=each(TUPLE))

    @staticmethod
    def between(stretches: Iterable[Span], window: Span) -> Times:
        """What is certain to hold the times of records of which only the first and the last of each range are known.

        They come in either order; `window` is where hours are looked at.
        """
        since_ms, until_ms = window
        known = [(min(ends), max(ends)) for ends in stretches]
        inside = [(max(first, since_ms) // HOUR_MS, -(-min(last + 1, until_ms) // HOUR_MS)) for first, last in known]
        return Times(min((first for first, _ in known), default=None), tuple(inside))


def complete_until(now_ms: int, grace_ms: int, next_ms: Iterable[int | None]) -> int:
    """The time before which no partition has an unread record, as far as can be known.

    A record may be written to the log `grace_ms` after its timestamp; `next_ms` is the timestamp of each partition's next
    record.
    """
    return min((now_ms - grace_ms if at is None else min(at, now_ms) for at in next_ms), default=now_ms - grace_ms)


def end_of(announced: Span, now_ms: int) -> int:
    """Until when the hours were announced; now, where a clock that ran ahead announced hours that are still to come."""
    return now_ms if past(announced[1], now_ms) is None else announced[1]


def next_span(before: Span | None, first_ms: int | None, complete_ms: int, *, now_ms: int, period_ms: int) -> Span | None:
    """From when until when the periods are that a batch announces; None where there is nothing to begin with.

    The first batch, which has none `before` it, begins with its earliest timestamp, or now where that is later; everything is
    read until `complete_ms`.
    """
    if before is not None:
        begin = floored(end_of(before, now_ms), period_ms)
    elif first_ms is not None:
        begin = floored(min(first_ms, now_ms), period_ms)
    else:
        return None
    return begin, max(begin, floored(complete_ms, period_ms))


@dataclass(frozen=True)
class Announcement:
    """What a task announces: the keys, oldest first, at most `MOST_KEYS`; and `left`, the periods that it could not."""

    keys: tuple[str, ...] = ()
    left: tuple[Span, ...] = ()

    def __str__(self) -> str:
        """What is announced, and what is not, for people."""
        said = f"{self.keys[0]} to {self.keys[-1]}, {len(self.keys)} in all" if self.keys else "none"
        if not self.left:
            return said
        named = "; ".join(f"{utc(begin)} until {utc(until)}" for begin, until in self.left[-5:])
        more = f"{len(self.left) - 5} stretches before, and " if len(self.left) > 5 else ""
        why = f"a task announces {MOST_KEYS} at most, none older than a year"
        return f"{said}. Not announced: {more}{named} ({why}): see `tidegate announce`"


def announcement(span: Span | None, times: Sequence[Times], *, now_ms: int, period_ms: int) -> Announcement:
    """What a task announces: the periods of a span, and of earlier ones those that have records in the `times` of its loads.

    The span has complete periods that were not announced before; an empty one is of a replay. None: nothing was ever announced.
    """
    if span is None:
        return Announcement()
    begin, until = (floored(at, period_ms) for at in span)
    newest = range(max(begin, until - MOST_KEYS * period_ms), until, period_ms)
    hours = {hour for t in times for first, last in t.hours for hour in range(first, last)}
    late = {at for hour in hours if (at := floored(hour * HOUR_MS, period_ms)) < begin}
    chosen = sorted({*late, *newest})[-MOST_KEYS:]
    left = [*spans(sorted(late.difference(chosen)), period_ms)]
    first_ms = min((t.first_ms for t in times if t.first_ms is not None), default=begin)
    looked_at = min(look_back(now_ms), begin)
    if first_ms < looked_at:
        left.insert(0, (floored(first_ms, period_ms), looked_at))
    if begin < newest.start:
        left.append((begin, newest.start))
    return Announcement(tuple(map(key_of, chosen)), tuple(left))


def spans(starts: Iterable[int], step: int) -> list[Span]:
    """Sorted starts of periods as the longest stretches."""
    found: list[Span] = []
    for at in starts:
        begin, until = found.pop() if found and found[-1][1] == at else (at, at)
        found.append((begin, until + step))
    return found


def span_from_json(value: Any) -> Span | None:
    """A span that was saved as a list; None for anything else, since no batch depends on it."""
    if isinstance(value, list) and len(value) == 2 and all(map(is_whole, value)) and value[0] <= value[1]:
        return value[0], value[1]
    return None
