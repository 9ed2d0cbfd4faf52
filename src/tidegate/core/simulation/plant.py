"""A pipeline in virtual time: the real planner and a rate policy, on a modelled broker and sink.

Records arrive in the partitions of a topic, in turn. Runs are due every interval, one runs at a time, and each takes a + b * n
seconds for the n records of its plan. As with Airflow's `catchup=False`, of the runs that became due during a long one only the
latest is started.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tidegate.core.counts import check_count
from tidegate.core.errors import RequestError
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.rates.checks import MOST_RECORDS, check_interval, check_number
from tidegate.core.rates.control import without_headroom
from tidegate.core.rates.policy import RatePolicy
from tidegate.core.rates.timing import BatchTiming
from tidegate.core.schedule.plan import Plan, RangePolicy, plan_next
from tidegate.core.simulation.steps import Steps
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import records_allowed

SkipReason = Literal["nothing to read", "the run before", "outage"]

MOST_RUNS = 200_000
"""Runs of one simulation."""

MOST_PARTITIONS = 10_000

LEAST_NOISE_FACTOR = 0.2
"""The least of its usual time that noise leaves a run."""


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
class Skipped:
    """A run that was due and loaded nothing, and the lag then: nothing to read, the run before had not ended, or an outage."""

    due_s: float
    reason: SkipReason
    lag: int


@dataclass(frozen=True)
class Trace:
    """What happened: the batches, and the runs that were skipped, each in order."""

    batches: list[PlantBatch] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


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
        partitions: of the topic; records arrive in them in turn.
        limits: the pipeline's own limits, beside the policy's bound.
        catch_up: the next run starts at once when the last one has left records behind.

    Raises:
        ConfigError, RequestError: an argument is out of its bounds.
    """

    interval_s: float
    overhead_s: Steps | float
    record_s: Steps | float
    arrivals: Steps | float
    backlog: int = 0
    noise: float = 0.0
    outages: Sequence[tuple[float, float]] = ()
    partitions: int = 1
    limits: RangePolicy = field(default_factory=RangePolicy)
    catch_up: bool = False

    def __post_init__(self) -> None:
        check_interval(self.interval_s)
        check_count("backlog", self.backlog)
        check_count("partitions", self.partitions, least=1)
        if self.partitions > MOST_PARTITIONS:
            raise RequestError(
                f"partitions: expected at most {MOST_PARTITIONS:,}, got {self.partitions:,}",
                fix="Simulate fewer: a policy's bound is for all of them together",
            )
        check_number("noise", self.noise, most=1, strict=False)
        for steps in (self.overhead_s, self.record_s, self.arrivals):
            Steps.of(steps)

    def run(self, policy: RatePolicy, seconds: float, *, seed: int = 0, first_ms: int = 0) -> Trace:
        """The runs that are due within `seconds`, with noise of that seed; epoch ms begin at `first_ms`.

        Raises:
            RequestError: more than `MOST_RUNS` runs are due.
        """
        check_number("seconds", seconds)
        if seconds > MOST_RUNS * self.interval_s:
            raise RequestError(
                f"{seconds:g} s have more than {MOST_RUNS:,} runs at an interval of {self.interval_s:g} s",
                fix="Simulate a shorter time",
            )
        return _Simulation(self, policy, seed, first_ms).run(seconds)


class _Simulation:
    """One run of a plant: what changes while virtual time passes."""

    def __init__(self, plant: Plant, policy: RatePolicy, seed: int, first_ms: int) -> None:
        self.plant = plant
        self.policy = policy
        self.first_ms = first_ms
        self.overhead, self.record, self.arrivals = (
            Steps.of(value) for value in (plant.overhead_s, plant.record_s, plant.arrivals)
        )
        self.chance = random.Random(seed)  # noqa: S311 - noise of a model, no secret
        self.partitions = [TopicPartition("simulated", partition) for partition in range(plant.partitions)]
        self.earliest = dict.fromkeys(self.partitions, 0)
        self.cursor = Cursor("simulated", offsets=self.earliest)
        self.loaded = 0
        self.state = policy.start()
        self.trace = Trace()

    def run(self, seconds: float) -> Trace:
        """Every run that is due within that time."""
        interval_s = self.plant.interval_s
        slot, free_s, due_s = 1, 0.0, interval_s
        while due_s < seconds:
            batch = self._run_at(due_s, max(due_s, free_s))
            free_s = batch.ended_s if batch else free_s
            passed = int(free_s / interval_s)
            at_once = batch is not None and self.plant.catch_up and batch.lag > batch.records
            following = max(slot, passed) if at_once else max(slot + 1, passed)
            for missed in range(slot + 1, min(following, math.ceil(seconds / interval_s))):
                self.trace.skipped.append(Skipped(missed * interval_s, "the run before", self._lag(missed * interval_s)))
            slot, due_s = following, free_s if at_once else following * interval_s
        return self.trace

    def _run_at(self, due_s: float, started_s: float) -> PlantBatch | None:
        """One run, to its commit; None where it is skipped."""
        if len(self.trace.batches) >= MOST_RUNS:
            raise RequestError(f"the simulation has more than {MOST_RUNS:,} batches", fix="Simulate a shorter time")
        lag = self._lag(started_s)
        if any(since <= started_s < until for since, until in self.plant.outages):
            self.trace.skipped.append(Skipped(due_s, "outage", lag))
            return None
        bound = self.policy.bound(self.state)
        plan = self._plan(started_s, bound)
        if plan.skip is not None:
            self.trace.skipped.append(Skipped(due_s, "nothing to read", lag))
            return None
        took_s = self.overhead.at(started_s) + self.record.at(started_s) * plan.count
        took_s *= max(LEAST_NOISE_FACTOR, self.chance.gauss(1.0, self.plant.noise)) if self.plant.noise else 1.0
        batch = PlantBatch(due_s, started_s, self._committed(started_s, started_s + took_s), plan.count, bound, lag)
        self._commit(plan, batch, took_s)
        return batch

    def _plan(self, now_s: float, bound: int | None) -> Plan:
        return plan_next(
            self.cursor,
            Watermarks(self.earliest, self._ends(now_s)),
            replace(self.plant.limits, bound=bound),
            interval_s=self.plant.interval_s,
            now_ms=self._ms(now_s),
        )

    def _commit(self, plan: Plan, batch: PlantBatch, load_s: float) -> None:
        ends = {r.topic_partition: r.until_offset for r in plan.ranges}
        self.cursor = replace(
            self.cursor,
            seq=self.cursor.seq + 1,
            offsets={**self.cursor.offsets, **ends},
            fired_at_ms=self._ms(batch.started_s),
        )
        self.loaded += batch.records
        timing = BatchTiming.between(
            batch.records,
            None if batch.bound is None else records_allowed(batch.bound, plan.ranges, plan.decisions),
            due_ms=self._ms(batch.due_s),
            started_ms=self._ms(batch.started_s),
            ended_ms=self._ms(batch.ended_s),
            load_s=load_s,
        )
        policy = without_headroom(self.policy) if self.plant.catch_up and plan.remaining else self.policy
        self.state = policy.observe(self.state, timing)
        self.trace.batches.append(batch)

    def _produced(self, second: float) -> int:
        # a sum of floats may miss the whole number that it is by its last digits
        return self.plant.backlog + int(min(self.arrivals.total(0.0, second) + 1e-6, MOST_RECORDS))

    def _lag(self, second: float) -> int:
        return self._produced(second) - self.loaded

    def _ends(self, second: float) -> dict[TopicPartition, int]:
        each, more = divmod(self._produced(second), len(self.partitions))
        return {tp: each + (tp.partition < more) for tp in self.partitions}

    def _ms(self, second: float) -> int:
        return self.first_ms + round(second * 1000)

    def _committed(self, started_s: float, ended_s: float) -> float:
        """When a run between these times commits: what is left at the begin of an outage is done after it."""
        for since, until in self.plant.outages:
            if started_s < since < ended_s:
                return ended_s + until - since
        return ended_s
