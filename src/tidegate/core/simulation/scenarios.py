"""What can happen to a pipeline, each as a change of a plant: a step of the cost, quiet hours with a burst, an outage."""

from __future__ import annotations

from dataclasses import replace

from tidegate.core.simulation.plant import Plant
from tidegate.core.simulation.steps import Steps


def step(plant: Plant, *, since_s: float, until_s: float, factor: float = 3.0) -> Plant:
    """Each record costs `factor` times as much from one second to another."""
    return replace(plant, record_s=Steps.of(plant.record_s).during(since_s, until_s, factor))


def quiet(plant: Plant, *, since_s: float, until_s: float, quiet_rate: float, burst: int) -> Plant:
    """Little arrives from one second to another, then `burst` records within one interval, then what arrived before."""
    arrivals = Steps.of(plant.arrivals)
    begins = [(second, rate) for second, rate in arrivals.values if second < since_s]
    ends = until_s + plant.interval_s
    later = [(second, rate) for second, rate in arrivals.values if second > ends]
    rates = [(since_s, quiet_rate), (until_s, burst / plant.interval_s), (ends, arrivals.at(ends))]
    return replace(plant, arrivals=Steps([*begins, *rates, *later]))


def outage(plant: Plant, *, since_s: float, until_s: float) -> Plant:
    """Nothing can be committed from one second to another."""
    return replace(plant, outages=(*plant.outages, (since_s, until_s)))
