"""Laws of the hours that are announced: each once when it is complete, and again when its rows change."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import cursor_of, range_of
from tidegate.core.audit.hours import read_until, times_by_ends
from tidegate.core.config.pipeline import Announce, Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, CursorBeyondLog
from tidegate.core.model.fields import fields_from_json, fields_to_json
from tidegate.core.model.hours import (
    DAY_MS,
    HOUR_MS,
    LOOK_BACK_DAYS,
    MOST_KEYS,
    PERIODS,
    Announcement,
    Span,
    Times,
    announcement,
    complete_until,
    end_of,
    key_of,
    look_back,
    next_span,
    spans,
)
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Assigned
from tidegate.core.state.cursor import Cursor
from tidegate.testing.fakes import FakeBrokers

NOON = 1_767_268_800_000
"""2026-01-01, 12:00 UTC."""
GRACE_MS = 900_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)

periods = st.sampled_from([*PERIODS.values()])
times_ms = st.integers(0, 100 * DAY_MS)


def hours_of(*at_ms: int) -> tuple[Span, ...]:
    return tuple(spans(sorted({at // HOUR_MS for at in at_ms}), 1))


@given(st.lists(st.tuples(times_ms, times_ms), min_size=1, max_size=20), times_ms, periods)
def test_batches_announce_every_period_once_and_in_order(batches: list[tuple[int, int]], first_ms: int, period_ms: int) -> None:
    """Whatever the completeness of each, by the clock: no period twice, none left out, never back."""
    batches = [(now_ms, min(now_ms, complete_ms)) for now_ms, complete_ms in sorted(batches)]
    span: Span | None = None
    announced: list[Span] = []
    for now_ms, complete_ms in batches:
        span = next_span(span, first_ms, complete_ms, now_ms=now_ms, period_ms=period_ms)
        assert span is not None
        announced.append(span)
    for (_, until), (begin, _) in pairwise(announced):
        assert until == begin
    assert all(begin <= until and begin % period_ms == until % period_ms == 0 for begin, until in announced)
    assert announced[-1][1] <= max(announced[0][1], *(complete for _, complete in batches))


TEN = NOON - 2 * HOUR_MS
MIDNIGHT = NOON - 12 * HOUR_MS


@pytest.mark.parametrize(
    ("before", "first_ms", "complete_ms", "now_ms", "period_ms", "found"),
    [
        # the first batch begins with its earliest record; one of the far future begins now, so that it keeps nothing back
        (None, TEN + 7, NOON, NOON + 5, HOUR_MS, (TEN, NOON)),
        (None, NOON + 1, TEN, NOON + 5, HOUR_MS, (NOON, NOON)),
        (None, NOON + 900 * DAY_MS, NOON, NOON + 5, HOUR_MS, (NOON, NOON)),
        (None, None, NOON, NOON + 5, HOUR_MS, None),  # no record has a timestamp
        # a clock ran ahead: the hours that it announced are announced again when they are complete
        ((NOON, NOON + 9 * HOUR_MS), None, NOON + HOUR_MS, NOON + HOUR_MS + 5, HOUR_MS, (NOON + HOUR_MS, NOON + HOUR_MS)),
        # from hours to days, the day of the last hour is announced whole
        ((0, NOON), None, NOON + DAY_MS, NOON, DAY_MS, (MIDNIGHT, MIDNIGHT + DAY_MS)),
    ],
)
def test_what_is_announced_begins_where_it_ended(
    before: Span | None, first_ms: int | None, complete_ms: int, now_ms: int, period_ms: int, found: Span | None
) -> None:
    """No gap, whatever was before. An end of the future is not believed, though two clocks differ by a little."""
    assert next_span(before, first_ms, complete_ms, now_ms=now_ms, period_ms=period_ms) == found
    assert end_of((NOON, NOON + HOUR_MS), NOON + HOUR_MS - 5) == NOON + HOUR_MS


@given(st.integers(0, 10**13), st.integers(0, DAY_MS), st.lists(st.none() | st.integers(0, 10**13)))
def test_all_is_read_until_the_next_record_or_by_the_clock(now_ms: int, grace_ms: int, next_ms: list[int | None]) -> None:
    """Nothing that is unread is earlier; a record of the future moves nothing beyond now."""
    until = complete_until(now_ms, grace_ms, next_ms)
    assert until <= now_ms
    assert all(until <= at for at in next_ms if at is not None)
    if None in next_ms or not next_ms:
        assert until <= now_ms - grace_ms


@given(st.lists(st.lists(times_ms, max_size=60), max_size=3), times_ms, times_ms, periods)
def test_keys_are_those_of_the_span_and_of_late_records_and_nothing_is_dropped_silently(
    loads: list[list[int]], begin: int, length: int, period_ms: int
) -> None:
    """Of one load or several, against a model that counts every period; what does not fit is in `left`."""
    begin, until = (at // period_ms * period_ms for at in (begin, begin + length))
    times = [Times(min(records, default=None), hours_of(*records)) for records in loads]
    said = announcement((begin, until), times, now_ms=200 * DAY_MS, period_ms=period_ms)
    late = {at // period_ms * period_ms for records in loads for at in records}
    expected = sorted({*range(begin, until, period_ms), *(at for at in late if at < begin)})
    assert list(said.keys) == [key_of(at) for at in expected[-MOST_KEYS:]]
    left = [at for first, last in said.left for at in range(first, last, period_ms)]
    assert left == expected[:-MOST_KEYS]
    assert ("Not announced" in str(said)) == bool(left)


def test_keys_are_as_airflows_mappers_read_them() -> None:
    """Without a zone; also those of days."""
    late = [Times(None, hours_of(NOON - n * HOUR_MS)) for n in (1, 2)]

    def keys(begin: int, times: list[Times], period_ms: int) -> tuple[str, ...]:
        return announcement((begin, NOON), times, now_ms=NOON, period_ms=period_ms).keys

    assert keys(NOON - HOUR_MS, [], HOUR_MS) == ("2026-01-01T11:00:00",)
    assert keys(NOON, late, HOUR_MS) == ("2026-01-01T10:00:00", "2026-01-01T11:00:00")
    assert keys(NOON - DAY_MS, [], DAY_MS) == ("2025-12-31T00:00:00",)
    assert (Announce("day", 1.5).period_ms, Announce("day", 1.5).grace_ms) == (DAY_MS, 1500)
    assert Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b")).hours_asset == "tidegate/p/hours"


def test_a_task_says_what_it_announces() -> None:
    """And at most five stretches that it does not; of records older than a year only from when on."""
    of: dict[str, int] = {"now_ms": NOON, "period_ms": HOUR_MS}
    assert announcement(None, [Times(1, ((1, 2),))], **of) == Announcement()
    old = announcement((NOON, NOON), [Times(NOON), Times(5), Times(None)], **of)
    assert old.left == ((0, look_back(NOON)),)
    assert announcement((NOON - 50 * HOUR_MS, NOON), [], **of).left == ((NOON - 50 * HOUR_MS, NOON - 48 * HOUR_MS),)
    many = Announcement((), tuple((n * HOUR_MS, (n + 1) * HOUR_MS) for n in range(0, 16, 2)))
    told = {
        "none": Announcement(),
        "2026-01-01T10:00:00 to 2026-01-01T11:00:00, 2 in all": announcement((TEN, NOON), [], **of),
        "none. Not announced: 1970-01-01T00:00:00Z until 2024-12-31T00:00:00Z (a task announces 48 at most, none older": old,
        "none. Not announced: 3 stretches before, and 1970-01-01T06:00:00Z until 1970-01-01T07:00:00Z; ": many,
    }
    assert [words for words, said in told.items() if not str(said).startswith(words)] == []


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=8), st.integers(0, 100), st.integers(0, 100))
def test_all_hours_between_two_records_may_have_some(stretches: list[Span], since: int, until: int) -> None:
    """In the window alone; in tenths of an hour."""
    tenth = HOUR_MS // 10
    window = since * tenth, until * tenth
    times = Times.between([(a * tenth, b * tenth) for a, b in stretches], window)
    inside = {t for a, b in stretches for t in range(min(a, b), max(a, b) + 1) if since <= t < until}
    hours = {hour for first, last in times.hours for hour in range(first, last)}
    assert {t // 10 for t in inside} <= hours <= {*range(since // 10, until // 10 + 1)}
    assert times.first_ms == min((min(ends) * tenth for ends in stretches), default=None)


@given(st.none() | times_ms, st.lists(times_ms))
def test_times_travel_as_json(first_ms: int | None, at_ms: list[int]) -> None:
    times = Times(first_ms, hours_of(*at_ms))
    assert fields_from_json(Times, json.loads(json.dumps(fields_to_json(times)))) == times


def test_the_window_is_a_year_and_never_before_the_epoch() -> None:
    assert [look_back(at) for at in (NOON, DAY_MS)] == [MIDNIGHT - LOOK_BACK_DAYS * DAY_MS, 0]


def asked(brokers: FakeBrokers, cursor: Cursor, *, remaining: int = 1, assign: Assigned = None) -> int:
    saved = range_of("p", 1, "r", (), (), {}, {}, NOON, remaining=remaining)
    rest: Any = {"level": "read_committed", "assign": assign, "grace_ms": GRACE_MS, "now_ms": NOON + 1000}
    return read_until(saved, cursor, lambda: brokers, **rest)


def test_a_batch_that_read_to_the_end_asks_nothing() -> None:
    """The log ended there when it was planned, not when it is committed."""
    away = FakeBrokers(latest={P0: 9}, away=True)
    assert asked(away, cursor_of("p", 1, {P0: 9}), remaining=0) == NOON - GRACE_MS
    with pytest.raises(BrokerUnavailable):
        asked(away, cursor_of("p", 1, {P0: 8}))


def test_what_waits_says_until_when_everything_is_read() -> None:
    """By the next unread record; one of the year 2099 that was read harms nothing, and one that is not read little."""
    early, late = NOON - 5 * HOUR_MS, NOON + 10 * 365 * DAY_MS
    brokers = FakeBrokers(latest={P0: 4, P1: 2}, times={P0: [early, late, early + 7, NOON], P1: [early, early]})
    assert asked(brokers, cursor_of("p", 1, {P0: 2, P1: 2})) == early + 7
    assert asked(brokers, cursor_of("p", 1, {P0: 3, P1: 2})) == NOON + 1000 - GRACE_MS
    assert asked(brokers, cursor_of("p", 1, {P0: 1}), assign={"t": (0,)}) == NOON + 1000
    # a partition that was added since
    assert asked(brokers, cursor_of("p", 1, {P0: 3})) == early
    assert asked(brokers, cursor_of("p", 1, {P0: 3}), assign={"t": (0,)}) == NOON
    assert brokers.isolation_level == "read_committed"
    with pytest.raises(CursorBeyondLog):
        asked(brokers, cursor_of("p", 1, {P0: 5}))


def test_the_times_of_a_load_that_lost_them_are_those_between_its_ends() -> None:
    """Of ranges that are still in the log; empty ones say nothing."""
    brokers = FakeBrokers(latest={P0: 4, P1: 0}, times={P0: [NOON + n * HOUR_MS for n in (0, 1, 3, 9)]})
    known = Times(NOON + HOUR_MS, hours_of(*(NOON + n * HOUR_MS for n in (1, 2, 3))))
    for bounds, times in (((1, 3), known), ((7, 9), Times(None))):
        ranges = [OffsetRange("t", 0, *bounds), OffsetRange("t", 1, 0, 0)]
        assert times_by_ends(ranges, brokers, level="read_committed", window=(0, NOON + 30 * HOUR_MS)) == times


@given(st.lists(st.none() | st.integers(0, 30), min_size=1, max_size=12), st.lists(st.integers(0, 12), min_size=2, unique=True))
def test_every_range_of_a_partition_counts_to_its_last_record(hours: list[int | None], bounds: list[int]) -> None:
    """Also where a marker of a transaction comes after it. None: such a marker."""
    at = [None if hour is None else NOON + hour * HOUR_MS for hour in hours]
    ranges = [OffsetRange("t", 0, *pair) for pair in pairwise(sorted(min(n, len(hours)) for n in bounds))][::2]
    brokers = FakeBrokers(latest={P0: len(hours)}, times={P0: at})
    found = times_by_ends(ranges, brokers, level="read_committed", window=(0, NOON + 40 * HOUR_MS))
    for r in ranges:
        held = [time for time in at[r.from_offset : r.until_offset] if time is not None]
        last_ones = held[-1:] if not any(time is not None for time in at[r.until_offset :]) else []
        for time in (*held[:1], *last_ones):
            assert any(first <= time // HOUR_MS < until for first, until in found.hours)
