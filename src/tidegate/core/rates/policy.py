"""Rate policies: how many records the next batch may hold, learned from what earlier batches took.

A batch smaller than its bound shows how little arrived, not what the pipeline can do. If it counted, a quiet night would lower
the bound to a fraction of the capacity, and the next burst would meet it. So such a batch changes nothing, unless its run
took longer than the interval.

Each check of a setting raises a ConfigError that names the setting, the value and the fix.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from tidegate.core.model.counts import check_count, check_limits, is_whole
from tidegate.core.model.errors import ConfigError, RequestError

MOST_RECORDS = 2**63 - 1
"""Kafka's offsets are 64-bit integers."""
INITIAL_RATE = 1000.0
"""Records/s of a first batch, where the settings do not say: a few seconds of work for the slowest sink measured."""
MOST_RATE = 1e9
"""Records/s beyond every pipeline: no bound is higher, and a saved one that is higher is not believed."""
MOST_SECONDS = 366 * 24 * 3600
"""Of an interval, and of a run."""


def check_interval(seconds: object) -> None:
    """The time between runs, above 0 and at most 366 days."""
    check_number("interval_s", seconds, most=MOST_SECONDS)


def check_number(name: str, value: object, *, most: float = math.inf, strict: bool = True) -> None:
    """A finite number above 0 (`strict`) or from it, and at most `most`."""
    if not is_number(value) or not (0 < value <= most if strict else 0 <= value <= most):  # type: ignore[operator]
        limit = "" if most == math.inf else f", at most {most:,.10g}"
        expected = f"a number {'above' if strict else 'of at least'} 0{limit}"
        raise ConfigError(f"{name}: expected {expected}, got {value!r}", fix=f"Set {name} to {expected}", setting=name)


def check_records(name: str, value: object) -> None:
    """A whole number of records from 1."""
    if not is_whole(value, 1, MOST_RECORDS):
        expected = "a whole number of records from 1 to 2^63 - 1"
        raise ConfigError(f"{name}: expected {expected}, got {value!r}", fix=f"Set {name} to {expected}", setting=name)


def is_number(value: object) -> bool:
    """Whether the value is a finite number that a float can hold, and no bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond every float
        return False


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """How many records a batch had, and how long it took.

    Raises RequestError: a number is negative or not whole, or the bound is below 1.

    Args:
        records: offsets of the batch's ranges; the topic may hold fewer records, where it has gaps.
        bound: the most records that the policy allowed the batch; None where it did not limit the batch.
        run_ms: from the start of its run until it was committed, without the wait before; ms.
        load_ms: of the Spark job; ms.
        scheduling_delay_ms: from when the run was due until it started; ms.
        ended_at_ms: when it was committed; epoch ms.
    """

    records: int
    bound: int | None
    run_ms: int
    load_ms: int
    scheduling_delay_ms: int
    ended_at_ms: int

    def __post_init__(self) -> None:
        check_limits({"bound": self.bound})
        for name, value in asdict(self).items():
            if name != "bound":
                check_count(name, value)

    @staticmethod
    def between(
        records: int, bound: int | None, *, due_ms: int, started_ms: int, ended_ms: int, load_s: float, idle_ms: int = 0
    ) -> BatchTiming:
        """The timing of a run between these times (epoch ms), which two clocks may have measured: no span is negative.

        `idle_ms` is how long it waited in between, which does not count.
        """
        return BatchTiming(
            records,
            bound,
            run_ms=max(0, ended_ms - started_ms - idle_ms),
            load_ms=max(0, round(load_s * 1000)),
            scheduling_delay_ms=max(0, started_ms - due_ms),
            ended_at_ms=ended_ms,
        )

    def waiting_for(self, before: BatchTiming | None) -> BatchTiming:
        """With the scheduling delay of a run that became due while the batch before was at work: until that ended. Else 0.

        A run that waits while its DAG is paused, or that somebody dates back, is late for no reason that a smaller batch mends.
        """
        waited_ms = 0
        started_ms = self.ended_at_ms - self.run_ms
        due_ms = started_ms - self.scheduling_delay_ms
        if before is not None and before.ended_at_ms - before.run_ms <= due_ms:
            waited_ms = min(started_ms, before.ended_at_ms) - due_ms
        return replace(self, scheduling_delay_ms=max(0, waited_ms))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @staticmethod
    def from_json(value: object) -> BatchTiming | None:
        """The inverse of `to_json`; None for anything else, since no batch depends on what an earlier one took."""
        try:
            return BatchTiming(**{f.name: value[f.name] for f in fields(BatchTiming)})  # type: ignore[index]
        except (RequestError, LookupError, TypeError):
            return None


FULL_PERCENT = 95
"""A batch with this share of its bound is full: the bound is shared out among partitions by rounding down."""
LATEST_MS = 2**42
"""The year 2109, in epoch ms: a later time is a fault of a clock, and is not remembered."""
DAY_MS = 86_400_000
TIMES = ("ended_at_ms", "ahead_ms")
"""The times in a state."""


class RatePolicy(ABC):
    """Decides the most records of the next batch.

    A policy object keeps nothing between calls. Its state is strict JSON, which the caller saves with the cursor. A state that
    the policy cannot read counts as `start()`, whatever it holds: no saved value makes a batch endless, empty or unbounded.
    """

    @abstractmethod
    def start(self) -> dict[str, Any]:
        """The state before the first batch."""

    def reads(self, state: Mapping[str, Any]) -> bool:
        """Whether the state is one that this policy has made, so that it does not count as `start()`."""
        return state == self.start()

    def terms(self, state: Mapping[str, Any]) -> dict[str, float]:  # noqa: ARG002 - for policies that learn more than a bound
        """What the bound is computed from, by name and unit, for people; empty where nothing is learned."""
        return {}

    @abstractmethod
    def bound(self, state: Mapping[str, Any]) -> int | None:
        """The most records of the next batch, at least 1; None: no bound."""

    @abstractmethod
    def observe(self, state: Mapping[str, Any], timing: BatchTiming) -> dict[str, Any]:
        """The state after a committed batch; `state` itself stays as it is.

        Only batches of the schedule are observed: no replays, backfills, cleared, skipped or failed runs.
        """


class LearningPolicy(RatePolicy):
    """A policy whose bound follows the batches that reached it.

    The state has `policy`, `bound`, `ended_at_ms` of the last batch that counted, `ahead_ms` (see `_order`), and what the
    policy adds. It is flat, so that a copy of it shares nothing with it.
    """

    name: ClassVar[str]
    interval_s: float

    def start(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            "policy": self.name,
            "bound": self._first_bound(),
            "ended_at_ms": None,
            "ahead_ms": None,
            **self._nothing_learned(),
        }

    def reads(self, state: Mapping[str, Any]) -> bool:
        """As the base class says. Before anything is learned, the bound is the first one."""
        nothing = self._nothing_learned()
        try:
            known = state["policy"] == self.name and is_whole(state["bound"], 1, self._most())
            in_time = all(state[time] is None or is_whole(state[time], 0, LATEST_MS) for time in TIMES)
            if nothing and all(state[key] == value for key, value in nothing.items()):
                return bool(known and in_time and state["bound"] == self._first_bound())
            return known and in_time and self._plausible(state)
        except (LookupError, TypeError):
            return False

    def bound(self, state: Mapping[str, Any]) -> int | None:
        """As the base class says; never None."""
        return int(self._believed(state)["bound"])

    def observe(self, state: Mapping[str, Any], timing: BatchTiming) -> dict[str, Any]:
        """As the base class says. Equal for a batch that does not count, or that ended no later than the last one."""
        known = self._believed(state)
        order = self._order(known, timing.ended_at_ms)
        if order is None or not counts(timing, self.interval_s):
            return known
        learned = self._learn(known, timing)
        return {**known, **order, **learned} if learned else known

    @abstractmethod
    def _first_bound(self) -> int:
        """The bound before anything is learned."""

    def _nothing_learned(self) -> dict[str, Any]:
        """The policy's own part of the state before the first batch."""
        return {}

    def _plausible(self, state: Mapping[str, Any]) -> bool:  # noqa: ARG002 - for policies that have a part of their own
        """Whether what was learned can be believed, by the policy's own part of a saved state."""
        return True

    @abstractmethod
    def _learn(self, known: dict[str, Any], timing: BatchTiming) -> dict[str, Any]:
        """What changes in the state by a batch that counts; empty: nothing."""

    def _most(self) -> int:
        return max(self._first_bound(), whole_records(MOST_RATE * self.interval_s))

    def _whole_bound(self, exact: float, records: int) -> int:
        """A bound in whole records, after a batch of `records`.

        Rounding never hides a change of 5 %: otherwise a bound of 1 that should be 1.4 stays at 1 for ever.
        """
        bound = whole_records(exact)
        if exact >= 1.05 * records:
            bound = max(bound, records + 1)
        elif exact <= 0.95 * records:
            bound = min(bound, records - 1)
        return min(max(bound, 1), self._most())

    def _believed(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state as a dict of its own, or the start where it is not one that this policy made."""
        start = self.start()
        return {key: state[key] for key in start} if self.reads(state) else start

    def _order(self, known: Mapping[str, Any], ended_at_ms: int) -> dict[str, Any] | None:
        """The times to remember after a batch that ended then; None where it is no later than one that counted already.

        A clock that runs far ahead for a while must not silence all batches after it. So a time that is more than a day, or ten
        intervals, beyond the last one is remembered apart, as `ahead_ms`: batches count that are later than either.
        """
        last, ahead = known["ended_at_ms"], known["ahead_ms"]
        leap = max(DAY_MS, math.ceil(10_000 * self.interval_s))
        if ended_at_ms > LATEST_MS:
            return {}
        if last is not None and ended_at_ms <= last:
            return None
        if last is None or ended_at_ms - last <= leap:
            return {"ended_at_ms": ended_at_ms, "ahead_ms": None}
        if ahead is not None and ahead - leap <= ended_at_ms <= ahead:
            return None
        return {"ahead_ms": ended_at_ms}


def counts(timing: BatchTiming, interval_s: float) -> bool:
    """The gate: whether a batch shows what the pipeline can do. It was full, or its run took longer than the interval."""
    measured = all(0 < value <= MOST_RECORDS for value in (timing.records, timing.run_ms)) and (
        timing.scheduling_delay_ms <= MOST_RECORDS
    )
    full = timing.bound is not None and 100 * timing.records >= FULL_PERCENT * timing.bound
    return measured and (full or timing.run_ms > 1000 * interval_s)


def whole_records(exact: float) -> int:
    """The nearest whole number of records, at least 1 and no more than an offset can count."""
    return max(1, round(exact)) if exact < MOST_RECORDS else MOST_RECORDS
