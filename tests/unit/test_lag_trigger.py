"""Laws of when a pipeline that is scheduled by lag has something to do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import cursor_of
from tidegate.core.config.pipeline import LagSchedule
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.planning.lag_trigger import (
    ABSENT_S,
    AGAIN_S,
    FAULT_S,
    GRAINS,
    LEAST_AGAIN_S,
    LONGEST_LOOK_S,
    Due,
    Mark,
    Watch,
)
from tidegate.core.state.cursor import Cursor

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def cursor(seq: int = 1, **offsets: int) -> Cursor:
    return cursor_of("p", seq, {A: offsets.get("a", 0), B: offsets.get("b", 0)})


def armed(rule: LagSchedule, at: Cursor | None = None, *, now_s: float = 0.0) -> Watch:
    """A watch that has seen an idle log and read the cursor."""
    known = at or cursor()
    return Watch(rule=rule).observed(known.at.offsets, now_s).read(known, now_s, now_s)


BY_LAG = LagSchedule(lag=100)
BY_TIME = LagSchedule(max_delay=900)


def test_a_run_starts_when_all_partitions_together_lag_by_the_threshold() -> None:
    """Not one record earlier. New partitions count from the poll that finds them, from their first record on."""
    watch = armed(BY_LAG)
    assert watch.observed({A: 60, B: 39}, 1).due(1) is None
    assert watch.observed({A: 60, B: 40}, 1).due(1) == Due("lag", 100, None)
    assert watch.observed({A: 0, B: 0, TopicPartition("t", 2): 100}, 7).due(7) == Due("lag", 100, None)


def test_an_idle_log_never_starts_a_run_and_asks_for_the_cursor_once_an_hour() -> None:
    """Whatever the schedule, and however long it is idle."""
    watch, reads = Watch(rule=LagSchedule(1, 1)), 0
    for minute in range(600):
        watch = watch.observed({A: 5, B: 7}, minute * 60)
        if watch.wants_cursor(minute * 60):
            reads += 1
            watch = watch.read(cursor(a=5, b=7), 0, minute * 60)
        assert watch.due(minute * 60) is None
    assert reads == 10


@pytest.mark.parametrize("back", [None, cursor(2)], ids=["deleted", "rebuilt"])
def test_a_cursor_that_has_gone_back_starts_a_run_though_no_record_comes(back: Cursor | None) -> None:
    """By lag at the next look at it; the delay counts from there."""
    by_lag, by_time = (armed(rule, cursor(a=100)).observed({A: 100, B: 0}, 3600) for rule in (BY_LAG, BY_TIME))
    assert by_lag.wants_cursor(3600)
    assert by_lag.read(back, 0, 3600).due(3600) == Due("lag", 100, None)
    by_time = by_time.read(back, 0, 3600)
    assert (by_time.due(4499), by_time.due(4500)) == (None, Due("max_delay", 100, 3600))


def test_after_an_event_the_cursor_is_looked_at_by_growing_pauses() -> None:
    """And at each poll that finds another threshold of records, which a run that has ended would have to be followed for."""
    watch = armed(BY_LAG).observed({A: 100, B: 0}, 0).fired(0)
    looks = []
    for second in range(600):
        watch = watch.observed({A: 150, B: 0}, second)
        if watch.wants_cursor(second):
            looks.append(second)
            watch = watch.read(cursor(), 0, second)
    pauses = [after - before for before, after in pairwise(looks)]
    assert pauses == sorted(pauses)
    assert (looks[0], max(pauses), len(looks) < 30) == (2, LONGEST_LOOK_S, True)
    again = watch.observed({A: 250, B: 0}, 601)
    assert again.wants_cursor(601)
    assert not again.read(cursor(), 0, 601).observed({A: 349, B: 0}, 602).wants_cursor(602)


def test_an_event_of_which_nothing_comes_may_be_repeated() -> None:
    """Its run failed, or its DAG was paused: the cursor is read once more, and the caller asks whether a run is active."""
    watch = armed(BY_LAG).observed({A: 100, B: 0}, 0).fired(0)
    assert not watch.came_to_nothing(AGAIN_S - 1)
    assert watch.came_to_nothing(AGAIN_S)
    watch = replace(watch, event=watch.event and replace(watch.event, look_s=math.inf))
    assert not watch.wants_cursor(AGAIN_S - 1)
    assert watch.wants_cursor(AGAIN_S)
    assert watch.read(cursor(2), 0, AGAIN_S).event is None
    assert watch.waiting(AGAIN_S).due(AGAIN_S) is None
    assert not watch.waiting(AGAIN_S).came_to_nothing(AGAIN_S + 1)
    assert watch.rearmed().due(AGAIN_S) == Due("lag", 100, None)
    assert not watch.rearmed().came_to_nothing(math.inf)
    assert watch.rearmed().waiting(0) == watch.rearmed()


@pytest.mark.parametrize(("max_delay", "again_s"), [(1, LEAST_AGAIN_S), (120, 120), (7200, 7200)])
def test_events_are_repeated_as_seldom_as_the_longest_delay(max_delay: float, again_s: float) -> None:
    """Not more often than each minute."""
    watch = armed(LagSchedule(max_delay=max_delay)).fired(0)
    assert not watch.came_to_nothing(again_s - 1)
    assert watch.came_to_nothing(again_s)


def test_after_a_restart_what_is_unread_counts_from_the_plan_of_the_last_batch() -> None:
    """It has come since then: a run may start early, and never late."""
    first = Watch(rule=BY_TIME).observed({A: 5, B: 0}, 1000)
    assert first.wants_cursor(1000)
    assert first.due(1000) is None
    assert first.read(cursor(), 100, 1000).due(1000) == Due("max_delay", 5, 100)
    assert first.read(cursor(), 101, 1000).due(1000) is None
    assert first.read(cursor(), 101, 1000).since_s == 101
    assert first.read(cursor(), 5000, 1000).since_s == 1000  # planned in the future: a clock was set back
    assert first.read(cursor(), None, 1000).since_s == 1000
    assert first.read(cursor(a=5), 100, 1000).since_s is None


def test_a_fault_before_the_first_look_at_the_log_changes_nothing_of_this() -> None:
    """Brokers may start later than the trigger."""
    faulty = Watch(rule=BY_TIME).faulty(1000)
    assert faulty.read(cursor(), 100, 1000).observed({A: 5, B: 0}, 1005).since_s == 100
    assert faulty.read(None, None, 1000).observed({A: 1}, 1005).due(1005) == Due("max_delay", 1, -math.inf)
    later = faulty.read(cursor(), 100, 1000).observed({A: 0, B: 0}, 1005).observed({A: 5, B: 0}, 1010)
    assert later.since_s == 1010


@pytest.mark.parametrize(
    ("rule", "records", "due"),
    [
        *[(BY_LAG, 99, None), (BY_LAG, 100, Due("lag", 100, None))],
        *[(BY_TIME, 1, Due("max_delay", 1, -math.inf)), (BY_TIME, 0, None)],
    ],
)
def test_a_pipeline_that_never_ran_waits_for_its_lag_and_for_no_delay(rule: LagSchedule, records: int, due: Due | None) -> None:
    """All that the log has is unread; an empty log starts no run. Nothing is due before the first poll has read the cursor."""
    assert not Watch(rule=rule).wants_cursor(0)
    watch = Watch(rule=rule).observed({A: records}, 0)
    assert watch.wants_cursor(0)
    assert (watch.due(math.inf), watch.since_s) == (None, None)
    assert watch.read(None, None, 0).due(0) == due


KNOWN, ENDS = cursor(a=10), ({A: 9, B: 0}, {B: 0}, dict[TopicPartition, int]())


@pytest.mark.parametrize(
    ("watch", "patience_s", "mended"),
    [
        # it does not hold the cursor; a new leader may not know its end yet
        *[(armed(BY_LAG, KNOWN).observed(ends, 5).observed(ends, 20), FAULT_S, KNOWN.at.offsets) for ends in ENDS],
        # it has no partitions: a pattern matches no topic, or names are all missing and retired
        (Watch(rule=BY_LAG).observed({}, 5).read(None, None, 5), FAULT_S, {A: 1}),
        # it cannot be read, where a wait mends nothing; its brokers are away, after long
        (armed(BY_LAG).faulty(5).faulty(30), FAULT_S, {A: 0, B: 0}),
        (armed(BY_LAG).faulty(5, ABSENT_S), ABSENT_S, {A: 0, B: 0}),
    ],
    ids=["truncated", "a partition is gone", "the topic is gone", "no partitions", "unreadable", "away"],
)
def test_a_log_at_fault_starts_a_run_that_says_so(watch: Watch, patience_s: float, mended: dict[TopicPartition, int]) -> None:
    """After a while, and not if it was mended meanwhile."""
    assert (watch.due(5 + patience_s - 1), watch.due(5 + patience_s)) == (None, Due("fault", 0, None))
    assert watch.cursor is None or watch.wants_cursor(5 + patience_s)
    assert watch.observed(mended, 60).due(math.inf) is None


def test_a_fault_ends_with_what_shows_the_log_and_begins_anew() -> None:
    """A later cursor that the log holds, or a poll; the cursor is what it was for a fault."""
    for ends, since_s in zip(ENDS, (None, 5, 5), strict=True):
        watch = armed(BY_LAG, KNOWN).observed(ends, 5)
        assert watch.read(cursor(2, a=9 if ends else 0), 5, 6).fault.since_s == since_s
    watch = armed(BY_LAG).faulty(5)
    assert watch.read(cursor(), 0, 5 + FAULT_S).due(5 + FAULT_S) == Due("fault", 0, None)
    again = armed(BY_LAG).faulty(5, ABSENT_S).observed({A: 0, B: 0}, 64).faulty(70)
    assert again.due(70 + FAULT_S) == Due("fault", 0, None)


def test_a_cursor_that_is_damaged_starts_a_run_that_says_so() -> None:
    """However short the log is; one that was repaired ends the fault."""
    watch = Watch(rule=BY_LAG).observed({A: 1}, 5).read(None, None, 5, damaged=True).observed({A: 2}, 5 + FAULT_S)
    assert watch.due(5 + FAULT_S) == Due("fault", 2, None)
    assert watch.wants_cursor(5 + FAULT_S)
    assert watch.read(cursor_of("p", 1, {A: 1}), 0, 70).due(math.inf) is None


def test_the_marks_of_a_partition_are_few() -> None:
    """A mark is early by a grain at most, and never late."""
    watch = armed(BY_TIME)
    for second in range(900):
        watch = watch.observed({A: second + 1, B: 0}, second)
    assert len(watch.marks[A]) <= GRAINS + 1
    assert watch.marks[A][0] == Mark(0, 57)
    seen = [watch.read(cursor(2, a=offset), 0, 900).since_s for offset in range(900)]
    assert all(since is not None and offset - 900 / GRAINS <= since <= offset for offset, since in enumerate(seen))


Polls = list[tuple[float, int, int]]


@st.composite
def steps(draw: st.DrawFn) -> Polls:
    """Polls: seconds since the one before, records since then in each partition."""
    return draw(st.lists(st.tuples(st.floats(0.1, 120), st.integers(0, 80), st.integers(0, 80)), min_size=1, max_size=60))


def played(rule: LagSchedule, polls: Polls, run_s: float, most: int) -> Iterator[tuple[str, float, Watch]]:
    """What happens to a pipeline whose runs take so long and so many records of a partition at most."""
    watch, now_s, ends, at = Watch(rule=rule), 0.0, {A: 0, B: 0}, cursor(0)
    running: tuple[float, Cursor] | None = None
    for passed_s, a, b in polls:
        now_s += passed_s
        ends = {A: ends[A] + a, B: ends[B] + b}
        if running is not None and running[0] <= now_s:
            at, running = running[1], None
        watch = watch.observed(ends, now_s)
        if watch.wants_cursor(now_s):
            watch = watch.read(at, 0, now_s)
            yield "read", now_s, watch
        if watch.due(now_s) is not None:
            watch = watch.fired(now_s)
            yield "event", now_s, watch
            if running is None:
                read = {tp: min(end, at.at.offsets[tp] + most) for tp, end in ends.items()}
                running = now_s + run_s, cursor_of("p", at.seq + 1, read)
        yield "poll", now_s, watch


@given(steps(), st.floats(0, 300), st.integers(1, 100), st.integers(1, 200), st.one_of(st.none(), st.floats(1, 300)))
def test_no_event_follows_another_unless_the_cursor_has_moved(
    polls: Polls, run_s: float, most: int, lag: int, max_delay: float | None
) -> None:
    """So a million records during one run make two events at most: one before, one after it."""
    last: Watch | None = None
    for what, _, watch in played(LagSchedule(lag, max_delay), polls, run_s, most):
        if what == "event":
            assert last is None or watch.cursor != last.cursor
            last = watch


@given(steps(), st.integers(1, 200), st.floats(1, 300))
def test_nothing_waits_longer_than_the_longest_delay_while_runs_are_short(polls: Polls, lag: int, max_delay: float) -> None:
    """At each poll after which no event is under way, no record is older, and the lag is below the threshold."""
    arrived: dict[int, float] = {}
    for what, now_s, watch in played(LagSchedule(lag, max_delay), polls, 0.0, 10**9):
        if what != "poll":
            continue
        for offset in range(watch.ends[A]):
            arrived.setdefault(offset, now_s)
        if watch.event is None and watch.cursor is not None:
            unread = [arrived[o] for o in range(watch.cursor.at.offsets[A], watch.ends[A])]
            assert all(now_s - since < max_delay for since in unread)
            assert watch.lag < lag
