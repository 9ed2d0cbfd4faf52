"""A pipeline in virtual time: a modelled broker and sink, on which rate policies can be tried without waiting.

Records arrive, runs are due every interval, one runs at a time, and each takes a + b * n seconds for its n records. As with
Airflow's `catchup=False`, of the runs that became due during a long one only the latest is started.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.core.rates.policy import RatePolicy
from tidegate.core.rates.timing import BatchTiming


@dataclass(frozen=True, slots=True)
class Steps:
    """A number that changes at given times, such as an arrival rate or a cost: each value holds until the next one begins.

    Args:
        values: (from second, value), in order, the first from 0.
    """

    values: Sequence[tuple[float, float]]

    @staticmethod
    def of(value: Steps | float) -> Steps:
        """Itself, or a number that never changes."""
        return value if isinstance(value, Steps) else Steps([(0.0, value)])

    def at(self, second: float) -> float:
        """The value at that time."""
        return [value for since, value in self.values if since <= second][-1]

    def total(self, since: float, until: float) -> float:
        """The sum over that time, such as records of an arrival rate."""
        ends = [*(begin for begin, _ in self.values[1:]), float("inf")]
        spans = zip(self.values, ends, strict=True)
        return sum(max(0.0, min(end, until) - max(begin, since)) * value for (begin, value), end in spans)


@dataclass(frozen=True, slots=True)
class PlantBatch:
    """One committed batch: seconds of virtual time, and records that waited when it was planned (`lag`)."""

    due_s: float
    started_s: float
    ended_s: float
    records: int
    bound: int | None
    lag: int

    @property
    def run_s(self) -> float:
        """How long the run took, without the wait before."""
        return self.ended_s - self.started_s


@dataclass(frozen=True, slots=True)
class Plant:
    """The modelled pipeline.

    Args:
        interval_s: seconds between runs.
        overhead_s: `a`, seconds of a run that do not depend on its records.
        record_s: `b`, seconds of each record.
        arrivals: records/s that are produced.
        backlog: records that wait at the beginning.
        noise: relative standard deviation of a run's time.
        outages: (from second, until second) in which nothing can be committed: a run that meets one ends after it, or is not
            started and skipped.
    """

    interval_s: float
    overhead_s: Steps | float
    record_s: Steps | float
    arrivals: Steps | float
    backlog: int = 0
    noise: float = 0.0
    outages: Sequence[tuple[float, float]] = ()

    def run(self, policy: RatePolicy, seconds: float, *, seed: int = 0, first_ms: int = 0) -> list[PlantBatch]:
        """The batches that are due within `seconds`, with noise of that seed; epoch ms begin at `first_ms`."""
        overhead, record, arrivals = (Steps.of(value) for value in (self.overhead_s, self.record_s, self.arrivals))
        chance = random.Random(seed)  # noqa: S311 - noise of a model, no secret
        state, batches, loaded, free_s, slot = policy.start(), list[PlantBatch](), 0, 0.0, 0
        while (slot := max(slot + 1, int(free_s / self.interval_s))) * self.interval_s < seconds:
            due_s = slot * self.interval_s
            started_s = max(due_s, free_s)
            lag = self.backlog + int(arrivals.total(0.0, started_s)) - loaded
            if lag <= 0 or any(since <= started_s < until for since, until in self.outages):
                continue
            bound = policy.bound(state)
            records = lag if bound is None else min(lag, bound)
            took_s = overhead.at(started_s) + record.at(started_s) * records
            took_s *= max(0.2, chance.gauss(1.0, self.noise)) if self.noise else 1.0
            ended_s = self._committed(started_s, started_s + took_s)
            timing = BatchTiming.between(
                records,
                bound,
                due_ms=first_ms + round(due_s * 1000),
                started_ms=first_ms + round(started_s * 1000),
                ended_ms=first_ms + round(ended_s * 1000),
                load_s=took_s,
            )
            state = policy.observe(state, timing)
            batches.append(PlantBatch(due_s, started_s, ended_s, records, bound, lag))
            loaded, free_s = loaded + records, ended_s
        return batches

    def _committed(self, started_s: float, ended_s: float) -> float:
        """When a run between these times commits: what is left at the begin of an outage is done after it."""
        for since, until in self.outages:
            if started_s < since < ended_s:
                return ended_s + until - since
        return ended_s
