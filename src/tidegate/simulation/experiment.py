"""What is asked of a simulation of a pipeline: its cost, its load, what happens to it, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from tidegate.core.config.pipeline import Limits
from tidegate.core.model.errors import RequestError
from tidegate.core.planning.plan import RangePolicy
from tidegate.core.rates.advice import Advice, full_batch
from tidegate.core.rates.checks import MOST_RATE, check_interval, check_number
from tidegate.core.rates.fit import Fit, arrival_rate, check_cost, cost_told, fit_cost
from tidegate.core.rates.timing import BatchTiming
from tidegate.simulation.plant import Plant
from tidegate.simulation.steps import Steps

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

    Args:
        interval_s: seconds between runs.
        utilization: share of it that a run may take.
        a: seconds of a run that do not depend on its records.
        b: seconds of each record.
        arrival_rate: records/s.
        arrival_source: where that number comes from: given, the history, or half of what full runs load.
        fit: of the history, where `a` or `b` comes from it.
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

    Args:
        timings: batches of the pipeline, oldest first; may be empty where `a` and `b` are given.
        interval_s: seconds between runs.
        utilization: share of it that a run may take.
        a: seconds of a run that do not depend on its records.
        b: seconds of each record.
        rate: records/s that arrive. None: as the batches show; where they do not, half of what full runs load.

    Raises:
        RequestError, ConfigError: an argument is out of its bounds, or there is no history to take `a` or `b` from.
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

    Args:
        plant: the pipeline, with what happens to it.
        seconds: of virtual time.
        event: what happens, as a sentence; None: nothing.
        since_s, until_s: between which times.
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

    Args:
        model: the pipeline.
        load: records/s over time; None: the model's rate.
        event: `step`: each record costs `factor` times as much. `outage`: nothing can be committed.
        factor: of a step; None: 3.
        lasting_s: seconds of the event; None: 50 intervals, or an outage of an hour.
        seconds: of virtual time. None: three times the event, at least 150 intervals, or 50 intervals more than the load has.
        settings: further arguments of `Plant`.

    Raises:
        RequestError, ConfigError: an argument is out of its bounds, or fits no event.
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
