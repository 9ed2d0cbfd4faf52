"""When a pipeline that is scheduled by lag has something to do: values in, values out, and the time is an argument.

    watch = Watch(LagSchedule(lag=50_000, max_delay=900))
    watch = watch.observed(ends, now_s)              # at each poll of the brokers
    if watch.wants_cursor(now_s):                    # rarely
        watch = watch.read(cursor, planned_s, now_s)
    if due := watch.due(now_s):                      # an event, and no further one until the cursor has moved
        watch = watch.fired(now_s)

A run takes seconds to minutes, and the lag stays above its threshold until the run has committed. So an event disarms the
watch, and it is armed again by a cursor that has moved. Where a run came to nothing (it failed, or its DAG was paused), the
cursor never moves: `came_to_nothing` says when to ask whether a run is still active, and `rearmed` arms the watch without one.

Nothing here is believed by a run: its plan asks the brokers itself, and skips where there is nothing to read. Times are seconds
of one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tidegate.core.config.pipeline import LagSchedule
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.cursor import Cursor

Reason = Literal["lag", "max_delay", "fault"]
FAULT_S = 60.0
"""How long a fault lasts before a run is started, which fails of it where people look: it may be over with the next answer."""
ABSENT_S = 900.0
"""The same for brokers that do not answer, which usually do again."""
AGAIN_S = 900.0
"""How long after an event that nothing came of there may be another one; `max_delay`, where it is set."""
LEAST_AGAIN_S = 60.0
GRAINS = 16
"""Into how many parts `max_delay` is divided: the time a record has waited is known to one part, and no more marks are kept."""
FIRST_LOOK_S, LONGEST_LOOK_S, GROWTH = 2.0, 30.0, 1.5
"""Pauses between two looks at the cursor while a run is under way."""
IDLE_LOOK_S = 3600.0
"""The same while nothing is: a cursor that was rebuilt or deleted has gone back, and no new record would tell."""


@dataclass(frozen=True)
class Mark:
    """The records below `end`, and not below the mark before, were first seen at `since_s`."""

    since_s: float
    end: int


@dataclass(frozen=True)
class Due:
    """Why a run has to start.

    `lag` is the number of offsets that are unread, `since_s` when the oldest of them was first seen: None where that is not
    known, minus infinity where it was before anything was known of the pipeline.
    """

    reason: Reason
    lag: int
    since_s: float | None


@dataclass(frozen=True, kw_only=True)
class LagEvent:
    """An event that the cursor has not answered yet: when it was, the size of the log at the last look, and the next one."""

    at_s: float
    size: int
    look_s: float
    pause_s: float = FIRST_LOOK_S


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What keeps the log or the cursor from being read.

    `unanswered` is whether the last poll had no answer, `damaged` whether the cursor cannot be understood, `since_s` since when
    it is so, or log and cursor contradict each other, `patience_s` how long it may last before a run is started.
    """

    unanswered: bool = False
    damaged: bool = False
    since_s: float | None = None
    patience_s: float = FAULT_S


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What is known of one pipeline.

    `ends` are the ends of the log as last observed, `cursor` as last read (None: there is none, or it was not read), `known_s`
    since when, by the first cursor, what the first look at the log finds has been unread, `marks` when each partition's unread
    records were first seen (kept only for `max_delay`), `event` what waits for the cursor to move.
    """

    rule: LagSchedule
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    observed_s: float | None = None
    cursor: Cursor | None = None
    read_s: float | None = None
    known_s: float | None = None
    marks: Mapping[TopicPartition, tuple[Mark, ...]] = field(default_factory=dict)
    fault: Fault = Fault()
    event: LagEvent | None = None

    def observed(self, ends: Mapping[TopicPartition, int], now_s: float) -> Watch:
        """After a poll. `ends` has every partition that the pipeline reads, with the offset of the next record to come."""
        marks: dict[TopicPartition, tuple[Mark, ...]] = {}
        if self.rule.max_delay is not None:
            grain_s = self.rule.max_delay / GRAINS
            since_s = now_s if self.ends or self.known_s is None else self.known_s
            for tp, end in ends.items():
                of = self.marks.get(tp, ())
                seen = of[-1].end if of else _offset(self.cursor, tp)
                marks[tp] = _marked(of, end, since_s, grain_s) if end > seen else of
        fault = replace(self.fault, unanswered=False, patience_s=FAULT_S)
        return _judged(replace(self, ends=dict(ends), observed_s=now_s, marks=marks, fault=fault), now_s)

    def faulty(self, now_s: float, patience_s: float = FAULT_S) -> Watch:
        """After a poll without an answer: a topic is missing, the credentials do not cover it, or the brokers are away."""
        fault = replace(self.fault, unanswered=True, patience_s=patience_s)
        return _judged(replace(self, observed_s=now_s, fault=fault), now_s)

    def wants_cursor(self, now_s: float) -> bool:
        """Whether to read the cursor now: at first, before an event, by growing pauses after one, and else now and then."""
        if self.read_s is None:
            return self.observed_s is not None
        if self.event is not None:
            grown = sum(self.ends.values()) - self.event.size
            crossed_again = self.rule.lag is not None and grown >= self.rule.lag
            return crossed_again or now_s >= self.event.look_s or self.came_to_nothing(now_s)
        if self.due(now_s) is not None:
            return self.read_s != self.observed_s
        return now_s - self.read_s >= IDLE_LOOK_S

    def read(self, cursor: Cursor | None, planned_s: float | None, now_s: float, *, damaged: bool = False) -> Watch:
        """After the cursor was read.

        `planned_s` is when the cursor's last batch was planned, where that is known: what is found unread at the first look has
        come since then, at the earliest. A `damaged` cursor cannot be understood; it counts as missing, and as a fault.
        """
        event = self.event
        if event is not None:
            pause_s = min(event.pause_s * GROWTH, LONGEST_LOOK_S)
            moved = _place(cursor) != _place(self.cursor)
            size = sum(self.ends.values())
            event = None if moved else replace(event, size=size, look_s=now_s + event.pause_s, pause_s=pause_s)
        marks = {
            # without marks, what is unread has become so now: the cursor has gone back
            tp: tuple(m for m in of or (Mark(now_s, self.ends[tp]),) if m.end > _offset(cursor, tp))
            for tp, of in self.marks.items()
        }
        known_s = self.known_s
        if known_s is None:
            known_s = -math.inf if cursor is None else now_s if planned_s is None else min(planned_s, now_s)
            marks = {tp: tuple(Mark(known_s, m.end) for m in of) for tp, of in marks.items()}
        fault = replace(self.fault, damaged=damaged)
        read = replace(self, cursor=cursor, read_s=self.observed_s, known_s=known_s, marks=marks, event=event, fault=fault)
        return _judged(read, now_s)

    @property
    def lag(self) -> int:
        """Offsets that are unread. What the cursor does not know is unread from its first offset on."""
        return sum(map(self.lag_of, self.ends))

    def lag_of(self, tp: TopicPartition) -> int:
        """Offsets of a partition that are unread."""
        return max(0, self.ends[tp] - _offset(self.cursor, tp))

    @property
    def since_s(self) -> float | None:
        """When the oldest unread record was first seen; None where nothing is unread, or no `max_delay` asks for it."""
        return min((of[0].since_s for of in self.marks.values() if of and self.read_s is not None), default=None)

    def due(self, now_s: float) -> Due | None:
        """Why a run has to start now; None where none has to, or where one was started already."""
        if self.event is not None or self.read_s is None:
            return None
        lag, since_s = self.lag, self.since_s
        if self.rule.lag is not None and lag >= self.rule.lag:
            return Due("lag", lag, since_s)
        if self.rule.max_delay is not None and since_s is not None and now_s - since_s >= self.rule.max_delay:
            return Due("max_delay", lag, since_s)
        if self.fault.since_s is not None and now_s - self.fault.since_s >= self.fault.patience_s:
            return Due("fault", lag, since_s)
        return None

    def fired(self, now_s: float) -> Watch:
        """After an event."""
        return replace(self, event=LagEvent(at_s=now_s, size=sum(self.ends.values()), look_s=now_s + FIRST_LOOK_S))

    def came_to_nothing(self, now_s: float) -> bool:
        """Whether the last event is so old that its run may have come to nothing.

        Then read the cursor once more, and where it still has not moved, ask whether a run is active.
        """
        again_s = max(LEAST_AGAIN_S, AGAIN_S if self.rule.max_delay is None else self.rule.max_delay)
        return self.event is not None and now_s - self.event.at_s >= again_s

    def rearmed(self) -> Watch:
        """After an event of which nothing has come."""
        return replace(self, event=None)

    def waiting(self, now_s: float) -> Watch:
        """After an event whose run is still active: it is asked for again as late as for a new event."""
        return self if self.event is None else replace(self, event=replace(self.event, at_s=now_s))


def _judged(watch: Watch, now_s: float) -> Watch:
    """With the time of the fault.

    An offset of the cursor lies outside the log where the topic was truncated or deleted, and for a moment where a new leader
    learns its end. A log without partitions is one whose topics do not exist.
    """
    known, fault = {} if watch.cursor is None else watch.cursor.at.offsets, watch.fault
    readable = watch.ends and not (fault.unanswered or fault.damaged)
    if readable and all(offset <= watch.ends.get(tp, -1) for tp, offset in known.items()):
        return replace(watch, fault=replace(fault, since_s=None))
    return watch if fault.since_s is not None else replace(watch, fault=replace(fault, since_s=now_s))


def _marked(marks: tuple[Mark, ...], end: int, now_s: float, grain_s: float) -> tuple[Mark, ...]:
    """With the records that have come since the last mark; they join it while it is younger than a grain."""
    if marks and now_s - marks[-1].since_s < grain_s:
        return (*marks[:-1], Mark(marks[-1].since_s, end))
    return (*marks, Mark(now_s, end))


def _offset(cursor: Cursor | None, tp: TopicPartition) -> int:
    return 0 if cursor is None else cursor.at.offsets.get(tp, 0)


def _place(cursor: Cursor | None) -> tuple[object, ...]:
    """What differs when a cursor has moved."""
    return () if cursor is None else (cursor.generation, cursor.seq, cursor.at.offsets)
