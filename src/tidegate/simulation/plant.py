"""A pipeline in virtual time: the real planner and a rate policy, on a modelled broker and sink.

Records arrive in the partitions of a topic, in turn. Runs are due every interval, one runs at a time, and each takes a + b * n
seconds for the n records of its plan. As with Airflow's `catchup=False`, of the runs that became due during a long one only the
latest is started. Arrivals and costs may change at given times (`Steps`), such as a load that a file has.
"""

from __future__ import annotations

import csv
import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Literal

from tidegate.core.model.counts import check_count
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import TopicPartition, until_offsets
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.plan import Plan, RangePolicy, plan_next
from tidegate.core.rates.control import without_headroom
from tidegate.core.rates.policy import (
    MOST_RATE,
    MOST_RECORDS,
    MOST_SECONDS,
    BatchTiming,
    RatePolicy,
    check_interval,
    check_number,
    is_number,
)
from tidegate.core.state.cursor import Cursor, Pace, Position
from tidegate.core.state.saved_range import records_allowed

COLUMNS = ("second", "records_per_s")
"""Of a CSV with a load."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A number such as an arrival rate or a cost: each value holds until the next one begins, the last one for ever.

    The values are (from second, value), in order, the first from 0. Raises RequestError: the times do not begin with 0 or do
    not grow, or a number is negative or not finite.
    """

    values: Sequence[tuple[float, float]]
    _begins: list[float] = field(init=False, repr=False, compare=False)
    _sums: list[float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.values)
        object.__setattr__(self, "_begins", [begin for begin, _ in self.values])
        areas = ((until - since) * value for (since, value), (until, _) in pairwise(self.values))
        object.__setattr__(self, "_sums", list(accumulate(areas, initial=0.0)))

    @staticmethod
    def of(value: Steps | float) -> Steps:
        """Itself, or a number that never changes."""
        return value if isinstance(value, Steps) else Steps([(0.0, value)])

    def at(self, second: float) -> float:
        """The value at that time."""
        return self.values[self._step(second)][1]

    def total(self, since: float, until: float) -> float:
        """The sum over that time, such as records of an arrival rate."""
        return self._until(until) - self._until(since)

    def during(self, since: float, until: float, factor: float) -> Steps:
        """The same number, times `factor` from one second to another."""
        begins = sorted({begin for begin, _ in self.values} | {since, until})
        return Steps([(begin, self.at(begin) * (factor if since <= begin < until else 1.0)) for begin in begins])

    def _step(self, second: float) -> int:
        return max(0, bisect_right(self._begins, second) - 1)

    def _until(self, second: float) -> float:
        """The sum from 0."""
        step = self._step(second)
        begin, value = self.values[step]
        return self._sums[step] + (second - begin) * value


def _check(values: Sequence[tuple[float, float]]) -> None:
    if not values or values[0][0] != 0:
        raise RequestError("a number in steps begins at second 0", fix="Give (second, value) from second 0 on")
    last = -1.0
    for second, value in values:
        if not (is_number(second) and second > last):
            raise RequestError(f"second {second!r} is not after second {last:g}", fix="Give the steps in order of their times")
        if not is_number(value) or value < 0:
            raise RequestError(f"at second {second:g}: expected a number from 0, got {value!r}", fix="Give numbers from 0")
        last = second


def read_load(lines: Iterable[str], *, name: str) -> Steps:
    """The arrival rate of a CSV with the columns `second` and `records_per_s`, further ones ignored.

    Each row's rate holds from its second on, until the next row; the first row is at second 0, seconds grow. `name` is that of
    the file, for errors. Raises RequestError: the file is empty or not such a CSV; names the line and what is wrong with it.
    """
    rows = csv.DictReader(lines, skipinitialspace=True, restval="")
    try:
        missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
        if missing:
            raise _refused(name, 1, f"the column {missing[0]} is missing; the first line names the columns")
        steps: list[tuple[float, float]] = []
        for row in rows:
            line = rows.line_num
            second = _number(row[COLUMNS[0]], COLUMNS[0], MOST_SECONDS, name, line)
            rate = _number(row[COLUMNS[1]], COLUMNS[1], MOST_RATE, name, line)
            if not steps and second != 0:
                raise _refused(name, line, f"the first second is {second:g}, not 0")
            if steps and second <= steps[-1][0]:
                raise _refused(name, line, f"second {second:g} is not after second {steps[-1][0]:g}")
            steps.append((second, rate))
    except csv.Error as error:
        raise _refused(name, rows.line_num + 1, str(error)) from error
    if not steps:
        raise _refused(name, 1, "there is no row after the names of the columns")
    return Steps(steps)


def _number(text: str, column: str, most: float, name: str, line: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise _refused(name, line, f"{column}: expected a number from 0 to {most:,.10g}, got {text!r}")
    return number


def _refused(name: str, line: int, problem: str) -> RequestError:
    return RequestError(
        f"{name}, line {line}: {problem}",
        fix="Write a CSV with the columns second,records_per_s: 0,1000 and, from second 600 on, 600,20000",
        file=name,
        line=line,
    )


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
    """The modelled pipeline. Raises ConfigError, RequestError: an argument is out of its bounds.

    A run of n records takes `overhead_s` + `record_s` * n seconds, with `noise` as the relative standard deviation. `arrivals`
    are records/s that are produced, in the partitions of a topic in turn, and `backlog` those that wait at the beginning. In
    `outages` (from second, until second) nothing can be committed: a run that meets one ends after it, or is not started and
    skipped. `limits` are the pipeline's own, beside the policy's bound. With `catch_up` the next run starts at once when the
    last one has left records behind.
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

        A batch gets a `share` of the policy's bound; `seed` is that of the noise. Raises RequestError: more than `MOST_RUNS`
        runs are due.
        """
        check_number("seconds", seconds)
        if seconds > MOST_RUNS * self.interval_s:
            raise RequestError(
                f"{seconds:g} s have more than {MOST_RUNS:,} runs at an interval of {self.interval_s:g} s",
                fix="Simulate a shorter time",
            )
        return Runs(self, policy, share, seed=seed).run(seconds)


class Runs:
    """The runs of a plant, one after the other, and what changes with them."""

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
