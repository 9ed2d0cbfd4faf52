"""How much an instance of a receiver takes in, by how the pipeline does that loads its topic.

Four policies, each within the receiver's own maximum of records/s:

static     nothing but that maximum.
rate       the records/s that the pipeline can load, shared by the instances. From Spark's `RateController`.
watermark  nothing while the topic's backlog, or the buffer of any instance, is above its high mark. From Storm.
credit     as many records as the topic's backlog has places left. From Flink's credit-based flow control.

Nobody hands out credits: every instance reads the same log and the same cursor, and computes its own. Where several share the
places that are free, each takes its part of half of them, and what it has on its way counts as taken. What the others have on
their way is not in the log yet; it takes for granted that they have as much. So together they reach the whole in steps, and
hardly pass it while they read about equally often: in simulations, by less than a hundredth.

What is known grows old. An instance that has heard nothing for a time, and one that has not heard anything yet, takes in
records at a safe rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.core.model.watermarks import Watermarks, other_topics
from tidegate.core.rates.control import RateControl
from tidegate.core.state.cursor import Cursor
from tidegate_receivers.config.receiver import ReceiverBackpressure
from tidegate_receivers.rules.limits import HIGH, LOW, RateLimiter, WatermarkThrottle

SAFE_RATE = 100.0
"""Records/s of an instance that has heard nothing for `SILENCE_S`, where its file says nothing else."""
SILENCE_S = 30.0
"""Seconds after which what was heard does not count any more, nor a flag of another instance."""
BACKLOG = "backlog"
"""What raises a flag in the place of an instance: the records that wait in the topic."""
FULL = 1_000_000
"""A full buffer, where its share is counted as a whole number."""
LEAST_SHARE = 0.1
"""Of what the pipeline loads, however much it has left behind: with nothing to load, its policy would learn nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What one look at the pipeline and at the other instances has found.

    Args:
        lag: records of the topic that the pipeline has not loaded.
        rate: records/s that it can load; None: nothing bounds its batches.
        instances: how many share that, at least 1; while leases overlap, those of both.
        buffers: of each instance, the used share of its buffer from 0 to 1, and how old (seconds) that is.
    """

    lag: int
    rate: float | None = None
    instances: int = 1
    buffers: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taken:
    """What an instance had taken in when it looked: records since its start, and those of them without an end yet."""

    stored: int
    in_flight: int


class Throttle:
    """What one instance may take in now: how many records, and how soon.

    Args:
        stated: the policy and its settings, as a receiver's file states them.
        max_rate: records/s that it never exceeds; None: no maximum.

    Raises:
        RequestError: `max_rate` is negative or NaN, or the marks or the silence of `stated` are what no file may hold.
    """

    def __init__(self, stated: ReceiverBackpressure, max_rate: float | None) -> None:
        self._policy = stated.policy
        self._max_backlog = stated.max_backlog or 1
        self._safe_rate = SAFE_RATE if stated.safe_rate is None else stated.safe_rate
        self._silence_s = SILENCE_S if stated.silence is None else stated.silence
        self._limiter = RateLimiter(max_rate)
        self._flags = WatermarkThrottle(stated.high or HIGH, stated.low or LOW, self._silence_s)
        self._rate = math.inf  # what follows from what was heard: records/s, and
        self._until = math.inf  # so many records may have been stored since the start
        self._heard_s = -math.inf
        self._stored = self._ended = 0
        self.heard: Heard | None = None
        """What was heard last; None: nothing yet."""

    @property
    def taken(self) -> Taken:
        """What the instance has taken in; ask before a look begins."""
        return Taken(self._stored, self._stored - self._ended)

    def hear(self, heard: Heard, taken: Taken, now_s: float) -> None:
        """Take note of what a look has found that began when the instance had `taken` so much."""
        self.heard, self._heard_s = heard, now_s
        if self._policy == "rate":
            self._rate = math.inf if heard.rate is None else heard.rate / heard.instances
        elif self._policy == "watermark":
            self._flags.report(BACKLOG, heard.lag + taken.in_flight, self._max_backlog, now_s=now_s)
            for instance, (share, age_s) in heard.buffers.items():
                self._flags.report(instance, round(share * FULL), FULL, now_s=now_s - age_s)
        elif self._policy == "credit":
            self._until = taken.stored + max(0, self._share(heard) - taken.in_flight)

    def _share(self, heard: Heard) -> int:
        """The instance's part of the places that are free."""
        count, free = heard.instances, max(0, self._max_backlog - heard.lag)
        if count == 1:
            return free
        # of few places each takes one, while there is one for all or nothing waits at all; where there are less, it takes none
        return max(free // (2 * count), free >= min(count, self._max_backlog))

    def is_deaf(self, now_s: float) -> bool:
        """Whether what was heard is too old to go by."""
        return self._policy != "static" and now_s - self._heard_s >= self._silence_s

    def limit(self, now_s: float) -> float:
        """Records/s, in force now; `math.inf`: no limit."""
        self._limiter.update(self._safe_rate if self.is_deaf(now_s) else self._rate)
        return self._limiter.limit

    def room(self, now_s: float) -> float:
        """How many records may be stored now, whatever the rate; not above 0: none, `math.inf`: any number."""
        if self.is_deaf(now_s):
            return math.inf if self._safe_rate else 0
        return 0 if self._flags.throttled(now_s) else self._until - self._stored

    def delay_s(self, now_s: float) -> float:
        """Seconds until the rate allows the next records, as `RateLimiter.delay_s`."""
        self.limit(now_s)
        return self._limiter.delay_s(now_s)

    def acquire(self, records: int, now_s: float) -> float:
        """Reserve the next turn of the rate, as `RateLimiter.acquire`."""
        self.limit(now_s)
        return self._limiter.acquire(records, now_s)

    def stored(self, records: int) -> None:
        """So many records were taken in."""
        self._stored += records

    def ended(self, records: int) -> None:
        """So many of them are acknowledged, or given up."""
        self._ended += records


def records_behind(cursor: Cursor | None, watermarks: Watermarks) -> int:
    """The retained records that a pipeline has not loaded.

    All of them count in partitions that it has not begun to read, and of a topic that was created anew since.

    Args:
        cursor: the pipeline's; None: it has not loaded anything.
        watermarks: of the partitions of the topic that it reads.
    """
    offsets, anew = ({}, {}) if cursor is None else (cursor.at.offsets, other_topics(cursor.at.topic_ids, watermarks.topic_ids))
    return sum(
        max(0, end - max(watermarks.earliest[tp], 0 if tp.topic in anew else offsets.get(tp, 0)))
        for tp, end in watermarks.latest.items()
    )


def loadable_rate(control: RateControl | None, most: int | None, cursor: Cursor | None, interval_s: float) -> float | None:
    """The records/s that a pipeline can load beside what it has left behind; None: nothing bounds its batches.

    Spark publishes the rate of its estimator as it is, since a batch there takes all that was received. A batch of ours leaves
    behind what is above its bound, so that is taken off, down to a tenth.

    Args:
        control: its rate policy.
        most: the most records of a batch by its limits.
        cursor: with the policy's state; None: the pipeline has not loaded anything.
        interval_s: seconds between its runs.
    """
    bound = None if control is None else control.bound({} if cursor is None else cursor.pace.rate_state)
    bounds = [records for records in (None if bound is None else bound.records, most) if records is not None]
    if not bounds:
        return None
    left = 0 if cursor is None else cursor.remaining
    return max(min(bounds) - left, LEAST_SHARE * min(bounds)) / interval_s
