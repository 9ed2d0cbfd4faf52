"""A pipeline in virtual time: the real planner and a rate policy, on a modelled broker and sink.

Records arrive in the partitions of a topic, in turn. Runs are due every interval, one runs at a time, and each takes a + b * n
seconds for the n records of its plan. As with Airflow's `catchup=False`, of the runs that became due during a long one only the
latest is started.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

from tidegate.core.model.counts import check_count
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import TopicPartition, until_offsets
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.plan import Plan, RangePolicy, plan_next
from tidegate.core.rates.checks import MOST_RECORDS, check_interval, check_number
from tidegate.core.rates.control import without_headroom
from tidegate.core.rates.policy import BatchTiming, RatePolicy
from tidegate.core.state.cursor import Cursor, Pace, Position
from tidegate.core.state.saved_range import records_allowed
from tidegate.simulation.steps import Steps

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
    _: KW_ONLY
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

    @property
    def lags(self) -> list[tuple[float, int]]:
        """Records that waited when each run was planned or skipped, by the second when it was due."""
        due: list[PlantBatch | Skipped] = [*self.batches, *self.skipped]
        return sorted((each.due_s, each.lag) for each in due)


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
    _: KW_ONLY
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

    def run(self, policy: RatePolicy, seconds: float, *, share: float = 1.0, seed: int = 0) -> Trace:
        """The runs that are due within `seconds`; second 0 is the first of the epoch.

        Args:
            policy: the rate policy.
            seconds: of virtual time.
            share: of the policy's bound that a batch gets.
            seed: of the noise.

        Raises:
            RequestError: more than `MOST_RUNS` runs are due.
        """
        check_number("seconds", seconds)
        if seconds > MOST_RUNS * self.interval_s:
            raise RequestError(
                f"{seconds:g} s have more than {MOST_RUNS:,} runs at an interval of {self.interval_s:g} s",
                fix="Simulate a shorter time",
            )
        return Runs(self, policy, share, seed=seed).run(seconds)


class Runs:
    """The runs of a plant, one after the other, and what changes with them.

    Args:
        plant: the pipeline.
        policy: its rate policy.
        share: of its bound that a batch gets.
        seed: of the noise.
    """

    def __init__(self, plant: Plant, policy: RatePolicy, share: float, *, seed: int) -> None:
        self.plant = plant
        self.policy = policy
        self.share = share
        self.overhead, self.record, self.arrivals = (
            Steps.of(value) for value in (plant.overhead_s, plant.record_s, plant.arrivals)
        )
        self.chance = random.Random(seed)  # noqa: S311 - noise of a model, no secret
        self.partitions = [TopicPartition("simulated", partition) for partition in range(plant.partitions)]
        self.earliest = dict.fromkeys(self.partitions, 0)
        self.loaded = 0
        self.cursor = Cursor(
            pipeline="simulated", seq=0, at=Position(offsets=self.earliest), pace=Pace(rate_state=policy.start())
        )
        self.trace = Trace()
        self._slot, self._free_s, self._due_s = 1, 0.0, plant.interval_s

    def run(self, seconds: float) -> Trace:
        """Every run that is due within that time."""
        while self._due_s < seconds:
            self._step(seconds)
        return self.trace

    def _step(self, seconds: float) -> None:
        """The next run, to its commit. `seconds` is when the simulation ends."""
        interval_s, slot = self.plant.interval_s, self._slot
        batch = self._run_at(self._due_s, max(self._due_s, self._free_s))
        self._free_s = batch.ended_s if batch else self._free_s
        passed = int(self._free_s / interval_s)
        at_once = batch is not None and self.plant.catch_up and batch.lag > batch.records
        following = max(slot, passed) if at_once else max(slot + 1, passed)
        for missed in range(slot + 1, min(following, math.ceil(seconds / interval_s))):
            self.trace.skipped.append(Skipped(missed * interval_s, "the run before", self._lag(missed * interval_s)))
        self._slot, self._due_s = following, self._free_s if at_once else following * interval_s

    def _watermarks(self, second: float) -> Watermarks:
        """Of the topic at that time."""
        each, more = divmod(self._produced(second), len(self.partitions))
        return Watermarks(self.earliest, {tp: each + (tp.partition < more) for tp in self.partitions})

    def _run_at(self, due_s: float, started_s: float) -> PlantBatch | None:
        """One run, to its commit; None where it is skipped."""
        if len(self.trace.batches) >= MOST_RUNS:
            raise RequestError(f"the simulation has more than {MOST_RUNS:,} batches", fix="Simulate a shorter time")
        lag = self._lag(started_s)
        if any(since <= started_s < until for since, until in self.plant.outages):
            self.trace.skipped.append(Skipped(due_s, "outage", lag))
            return None
        bound = self.policy.bound(self.cursor.pace.rate_state)
        if bound is not None and self.share < 1:
            bound = max(1, round(bound * self.share))
        plan = self._plan(started_s, bound)
        if plan.skip is not None:
            self.trace.skipped.append(Skipped(due_s, "nothing to read", lag))
            return None
        took_s = self.overhead.at(started_s) + self.record.at(started_s) * plan.count
        took_s *= max(LEAST_NOISE_FACTOR, self.chance.gauss(1.0, self.plant.noise)) if self.plant.noise else 1.0
        batch = PlantBatch(
            due_s, started_s, self._committed(started_s, started_s + took_s), records=plan.count, bound=bound, lag=lag
        )
        self._commit(plan, batch, took_s)
        return batch

    def _plan(self, now_s: float, bound: int | None) -> Plan:
        return plan_next(
            self.cursor,
            self._watermarks(now_s),
            replace(self.plant.limits, bound=bound),
            interval_s=self.plant.interval_s,
            now_ms=self._ms(now_s),
        )

    def _commit(self, plan: Plan, batch: PlantBatch, load_s: float) -> None:
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
        before = self.cursor
        self.cursor = replace(
            before,
            seq=before.seq + 1,
            at=replace(before.at, offsets={**before.at.offsets, **until_offsets(plan.ranges)}),
            pace=replace(before.pace, rate_state=policy.observe(before.pace.rate_state, timing)),
            fired_at_ms=self._ms(batch.started_s),
            remaining=plan.remaining,
        )
        self.trace.batches.append(batch)

    def _produced(self, second: float) -> int:
        # a sum of floats may miss the whole number that it is by its last digits
        return self.plant.backlog + int(min(self.arrivals.total(0.0, second) + 1e-6, MOST_RECORDS))

    def _lag(self, second: float) -> int:
        return self._produced(second) - self.loaded

    @staticmethod
    def _ms(second: float) -> int:
        return round(second * 1000)

    def _committed(self, started_s: float, ended_s: float) -> float:
        """When a run between these times commits: what is left at the begin of an outage is done after it."""
        for since, until in self.plant.outages:
            if started_s < since < ended_s:
                return ended_s + until - since
        return ended_s
