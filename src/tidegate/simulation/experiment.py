"""What is asked of a simulation: the cost and the load of a pipeline, what happens to it, for how long; and the policies on it.

Several policies run on one plant, at equal utilization, and are compared by the figures of a `Summary`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from tidegate.core.config.pipeline import Limits
from tidegate.core.model.errors import RequestError
from tidegate.core.planning.plan import RangePolicy
from tidegate.core.rates.advice import Advice, full_batch
from tidegate.core.rates.cost import Fit, arrival_rate, check_cost, cost_told, fit_cost
from tidegate.core.rates.policies import POLICIES, make_rate_policy
from tidegate.core.rates.policy import MOST_RATE, BatchTiming, RatePolicy, check_interval, check_number
from tidegate.simulation.plant import Plant, PlantBatch, Steps, Trace

Event = Literal["step", "outage"]
ArrivalSource = Literal["given", "history", "half of a full load"]
USUAL_INTERVALS = 50
"""Before an event, and after it; a step lasts as long."""
OUTAGE_S = 3600.0
USUAL_FACTOR, MOST_FACTOR = 3.0, 1000.0
"""Of a step: the cost of a record."""


@dataclass(frozen=True)
class Model:
    """The cost and the load of a pipeline.

    A run of n records takes a + b * n seconds, and may take the share `utilization` of the interval. `arrival_rate` is in
    records/s; `arrival_source` says where it comes from: given, the history, or half of what full runs load. `fit` is of the
    history, where `a` or `b` comes from it.
    """

    interval_s: float
    utilization: float
    _: KW_ONLY
    a: float
    b: float
    arrival_rate: float
    arrival_source: ArrivalSource
    fit: Fit | None = None

    def sentences(self) -> tuple[str, ...]:
        """For people: the cost, and what it rests on."""
        return self.fit.sentences() if self.fit else (f"{cost_told(self.a, self.b)}, as given",)

    @property
    def advice(self) -> Advice:
        """What follows from the cost at this load."""
        return Advice(self.a, self.b, interval_s=self.interval_s, arrival_rate=self.arrival_rate, utilization=self.utilization)


def model_of(
    timings: Sequence[BatchTiming],
    *,
    interval_s: float,
    utilization: float = 0.9,
    a: float | None = None,
    b: float | None = None,
    rate: float | None = None,
) -> Model:
    """The model of a pipeline: what is given, and the rest from its last batches.

    The timings, oldest first, may be none where `a` and `b` are given. `rate` is records/s that arrive; None: as the batches
    show, or else half of what full runs load. Raises RequestError, ConfigError: an argument is out of its bounds, or there is
    no history to take `a` or `b` from.
    """
    check_interval(interval_s)
    check_number("utilization", utilization, most=1)
    check_cost(a=a, b=b)
    if rate is not None:
        check_number("rate", rate, most=MOST_RATE, strict=False)
    fit = None
    if a is None or b is None:
        fit = fit_cost(timings, a=a, b=b)
        a, b = fit.a, fit.b
    half = 0.5 * (full_batch(a, b, interval_s=interval_s, utilization=utilization) / interval_s or utilization / b)
    known: dict[ArrivalSource, float | None] = {"given": rate, "history": arrival_rate(timings), "half of a full load": half}
    source, arrives = next((source, arrives) for source, arrives in known.items() if arrives is not None)
    return Model(interval_s, utilization, a=a, b=b, arrival_rate=min(arrives, MOST_RATE), arrival_source=source, fit=fit)


def limits_of(limits: Limits, record_bytes: float | None) -> RangePolicy:
    """A pipeline's limits as the planner takes them; `max_bytes` only where the size of a record is known."""
    return RangePolicy(limits=limits if record_bytes else replace(limits, max_bytes=None), record_bytes=record_bytes)


def step(plant: Plant, *, since_s: float, until_s: float, factor: float = USUAL_FACTOR) -> Plant:
    """Each record costs `factor` times as much from one second to another."""
    return replace(plant, record_s=Steps.of(plant.record_s).during(since_s, until_s, factor))


def outage(plant: Plant, *, since_s: float, until_s: float) -> Plant:
    """Nothing can be committed from one second to another."""
    return replace(plant, outages=(*plant.outages, (since_s, until_s)))


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A plant, the time that is simulated, and when something happens to it.

    `event` is what happens to the plant between `since_s` and `until_s`, as a sentence; None: nothing. `seconds` are of virtual
    time.
    """

    plant: Plant
    seconds: float
    event: str | None = None
    since_s: float = 0.0
    until_s: float = 0.0


def experiment(
    model: Model,
    *,
    load: Steps | None = None,
    event: Event | None = None,
    factor: float | None = None,
    lasting_s: float | None = None,
    seconds: float | None = None,
    **settings: Any,
) -> Experiment:
    """What is to be simulated: the model under a load, with an event in the second third of the time.

    `load` is records/s over time; None: the model's rate. In a `step` each record costs `factor` (3) times as much; in an
    `outage` nothing can be committed. It lasts `lasting_s`: 50 intervals, or an outage an hour. `seconds` are of virtual time:
    by default three times the event, at least 150 intervals, or 50 intervals more than the load has. `settings` are further
    arguments of `Plant`. Raises RequestError, ConfigError: an argument is out of its bounds, or fits no event.
    """
    interval_s = model.interval_s
    if factor is not None:
        check_number("factor", factor, most=MOST_FACTOR)
        if event != "step":
            raise RequestError("factor: requires --step", fix="Add --step, or leave it out")
    if lasting_s is not None:
        check_number("lasting", lasting_s)
        if event is None:
            raise RequestError("lasting: requires --step or --outage", fix="Add --step or --outage, or leave it out")
    plant = Plant(interval_s, model.a, record_s=model.b, arrivals=model.arrival_rate if load is None else load, **settings)
    usual_s = {"step": USUAL_INTERVALS * interval_s, "outage": OUTAGE_S}
    length_s = lasting_s or (usual_s[event] if event else 0.0)
    if seconds is None:
        shown_s = 3 * max(USUAL_INTERVALS * interval_s, length_s)
        seconds = shown_s if load is None else max(shown_s, load.values[-1][0] + USUAL_INTERVALS * interval_s)
    check_number("hours", seconds / 3600)
    if event is None:
        return Experiment(plant=plant, seconds=seconds)
    since_s = seconds // (3 * interval_s) * interval_s
    until_s = since_s + length_s
    if until_s >= seconds:
        raise RequestError(
            f"the event begins at {since_s:g} s and lasts {length_s:g} s, longer than the simulated {seconds:g} s",
            fix="Simulate more hours, or a shorter event",
        )
    if event == "step":
        times = factor or USUAL_FACTOR
        told = f"each record costs {times:g} times as much"
        plant = step(plant, since_s=since_s, until_s=until_s, factor=times)
    else:
        told = "nothing can be committed"
        # after the run of that interval has started, so that it meets the outage
        since_s += min(0.5 * model.a, 0.5 * interval_s)
        until_s = since_s + length_s
        plant = outage(plant, since_s=since_s, until_s=until_s)
    return Experiment(plant=plant, seconds=seconds, event=told, since_s=since_s, until_s=until_s)


BAND = 0.25
"""How much longer than the interval a run may take."""
UNLIMITED = "unlimited"
"""The name of a policy without any bound, beside those of `make_rate_policy`."""


def policy_at(settings: Mapping[str, Any], plant: Plant, utilization: float) -> tuple[RatePolicy, float]:
    """The policy of `settings` for a plant, aiming at that utilization where the settings do not say otherwise.

    And the share of its bound that a batch gets: `pid` aims at the whole interval, so it is compared with a part of its bound.

    `static` without `max_records` gets the records of a full run, by the plant's cost at the beginning; `unlimited` has no
    bound. Raises ConfigError: a setting is not valid. RequestError: `static` has no bound, and an empty run takes longer than
    its share of the interval.
    """
    check_number("utilization", utilization, most=1)
    name = settings.get("policy")
    usual: dict[str, Any] = {}
    if name == UNLIMITED:
        settings = {**settings, "policy": "static"}
    elif name == "static" and "max_records" not in settings:
        usual = {"max_records": _full_batch(plant, utilization)}
    elif name in ("fixed_point", "target"):
        usual = {"utilization": utilization}
    policy = make_rate_policy({**usual, **settings}, interval_s=plant.interval_s)
    return policy, utilization if name == "pid" else 1.0


def _full_batch(plant: Plant, utilization: float) -> int:
    a, b = (Steps.of(cost).at(0.0) for cost in (plant.overhead_s, plant.record_s))
    records = full_batch(a, b, interval_s=plant.interval_s, utilization=utilization)
    if not records:
        raise RequestError(
            f"static: an empty run takes {a:g} s, longer than {utilization:.0%} of the interval of {plant.interval_s:g} s",
            fix="Lengthen the interval, or leave out the policy static",
        )
    return records


def overlong(batches: Sequence[PlantBatch], interval_s: float) -> int:
    """Batches that took longer than 1.25 intervals."""
    return sum(batch.run_s > (1 + BAND) * interval_s for batch in batches)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A trace in a few figures.

    Args:
        batches: committed.
        records: of all of them.
        overlong: how many took longer than 1.25 intervals.
        longest_run_s: of one batch, without the wait before.
        worst_delay_s: from when a run was due until it started.
        most_lag, last_lag: records that waited when a run was planned or due, at most and at last.
        skipped_s: interval times the runs that were skipped while records waited: the run before had not ended, or an outage.
        idle: runs that were skipped because there was nothing to read.
        backlog_s: the longest time during which each run left records behind, to the commit of the one that took all;
            None: the last one left some.
    """

    batches: int
    records: int
    overlong: int
    longest_run_s: float
    worst_delay_s: float
    most_lag: int
    last_lag: int
    skipped_s: float
    idle: int
    backlog_s: float | None


def summarize(trace: Trace, interval_s: float) -> Summary:
    """The figures of a trace of runs that are due every interval."""
    batches, skipped = trace.batches, trace.skipped
    lags = trace.lags
    idle = sum(skip.reason == "nothing to read" for skip in skipped)
    return Summary(
        batches=len(batches),
        records=sum(batch.records for batch in batches),
        overlong=overlong(batches, interval_s),
        longest_run_s=max((batch.run_s for batch in batches), default=0.0),
        worst_delay_s=max((batch.started_s - batch.due_s for batch in batches), default=0.0),
        most_lag=max((lag for _, lag in lags), default=0),
        last_lag=lags[-1][1] if lags else 0,
        skipped_s=(len(skipped) - idle) * interval_s,
        idle=idle,
        backlog_s=_backlog_s(batches),
    )


def _backlog_s(batches: Sequence[PlantBatch]) -> float | None:
    if batches and batches[-1].records < batches[-1].lag:
        return None
    longest, since = 0.0, None
    for batch, following in pairwise(batches):
        if batch.records < batch.lag:
            since = batch.started_s if since is None else since
            if following.records == following.lag:
                longest, since = max(longest, following.ended_s - since), None
    return longest


@dataclass(frozen=True)
class Simulated:
    """A policy, what happened under it, and the figures of that."""

    name: str
    trace: Trace
    summary: Summary

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the figures, and each batch and skipped run; times are seconds of virtual time."""
        return {"summary": asdict(self.summary), **asdict(self.trace)}


def compare(
    plant: Plant,
    policies: Mapping[str, tuple[RatePolicy, float]],
    seconds: float,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Simulated]:
    """Each policy on the plant, by itself.

    `policies` are as of `policy_at`, by the name that they are shown under; `progress` is called with how many are done.
    """
    done = []
    for k, (name, (policy, share)) in enumerate(policies.items()):
        progress(k)
        trace = plant.run(policy, seconds, share=share, seed=seed)
        done.append(Simulated(name, trace, summarize(trace, plant.interval_s)))
    return done


def parse_policy(text: str) -> dict[str, Any]:
    """The settings in a text such as `target` or `pid,min_rate=10,proportional=0.8`.

    Raises RequestError: the policy is unknown, or a setting is no name=number.
    """
    name, *rest = (part.strip() for part in text.split(","))
    known = (*POLICIES, UNLIMITED)
    if name not in known:
        raise RequestError(
            f"policy: expected one of {', '.join(known)}, got {name!r}", fix=f"Set policy to one of {', '.join(known)}"
        )
    return {"policy": name, **dict(map(_setting, rest))}


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name or not math.isfinite(number):
        raise RequestError(
            f"policy: expected a setting as name=number, got {text!r}", fix="Write the settings as in pid,min_rate=10"
        )
    return name, int(number) if number == int(number) and "." not in value else number
