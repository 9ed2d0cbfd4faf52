"""The policies of receivers on one burst, and the figures that compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, get_args

from tidegate.core.errors import RequestError
from tidegate.core.rates.checks import check_number
from tidegate.core.receivers.backpressure import Backpressure, Policy
from tidegate.core.simulation.experiment import MOST_FACTOR
from tidegate.core.simulation.receivers import Flow, Inlet, Sample

POLICIES: tuple[Policy, ...] = get_args(Policy)
BEFORE, LASTING, AFTER = 10, 5, 25
"""Intervals before a burst, of it, and after it."""
USUAL_FACTOR = 4.0
FULL_BATCHES = 2
"""Of which `max_backlog` is made where nothing states it: one that a run loads, and one that gathers meanwhile."""

NEAR = 0.1
"""How much more than before a burst may wait where it is worked off: runs cut what arrives at other records than before."""


@dataclass(frozen=True)
class Burst:
    """A receiver to simulate: its senders send `factor` times as much for a time.

    Args:
        inlet: the receiver, with the burst in what is sent.
        factor: of the usual records/s.
        since_s, until_s: between which times.
        seconds: of virtual time.
    """

    inlet: Inlet
    factor: float
    since_s: float
    until_s: float
    seconds: float

    @property
    def event(self) -> str:
        """What happens, as a sentence."""
        return f"{self.factor:g} times as much is sent"


def burst(inlet: Inlet, *, factor: float = USUAL_FACTOR, lasting_s: float | None = None, seconds: float | None = None) -> Burst:
    """A burst after ten intervals.

    Args:
        inlet: the receiver without it.
        factor: of what is sent.
        lasting_s: seconds of it; None: five intervals.
        seconds: of virtual time; None: until 25 intervals after it.

    Raises:
        ConfigError, RequestError: an argument is out of its bounds, or the time ends before the burst.
    """
    interval_s = inlet.plant.interval_s
    check_number("burst", factor, most=MOST_FACTOR)
    length_s = LASTING * interval_s if lasting_s is None else lasting_s
    check_number("lasting", length_s)
    since_s = BEFORE * interval_s
    until_s = since_s + length_s
    seconds = until_s + AFTER * interval_s if seconds is None else seconds
    check_number("hours", seconds / 3600)
    if until_s >= seconds:
        raise RequestError(
            f"the burst begins at {since_s:g} s and lasts {length_s:g} s, longer than the simulated {seconds:g} s",
            fix="Simulate more hours, or a shorter burst",
        )
    plant = replace(inlet.plant, arrivals=inlet.sent.during(since_s, until_s, factor))
    return Burst(replace(inlet, plant=plant), factor, since_s, until_s, seconds)


def backpressures(settings: Mapping[str, Any], policies: Sequence[str], max_backlog: int) -> dict[str, Backpressure]:
    """Each policy by its name, all with the same settings.

    Args:
        settings: of a receiver's file, as `Backpressure` takes them.
        policies: their names.
        max_backlog: where the settings have none.

    Raises:
        RequestError: a policy is unknown, or a setting is out of its bounds.
    """
    for name in policies:
        if name not in POLICIES:
            raise RequestError(
                f"policy: expected one of {', '.join(POLICIES)}, got {name!r}", fix=f"Name one of {', '.join(POLICIES)}"
            )
    return {name: Backpressure(**{"max_backlog": max_backlog, **settings, "policy": name}) for name in policies}


@dataclass(frozen=True)
class Figures:
    """A flow in a few figures.

    Args:
        most_lag: records in the topic at most.
        most_backlogs: the same, as a multiple of `max_backlog`.
        most_buffered: records in one instance's buffer at most.
        most_waiting: records at the senders at most.
        held_s: seconds in which an instance held its sender back; the mean of the instances.
        longest_wait_s: the longest time that a record waited at its sender, as though all were one queue.
        mean_delay_s: from when a record was sent until it was loaded; of what was not loaded, until the end.
        longest_delay_s: the longest of these times, as though all records were one queue.
        worked_off_s: from the begin of the burst until no more records were sent and not loaded than at most before it, to a
            tenth; None: not by the end.
        loaded: records that were loaded.
        unloaded: records that were sent and not loaded by the end.
    """

    most_lag: int
    most_backlogs: float
    most_buffered: int
    most_waiting: int
    held_s: float
    longest_wait_s: float
    mean_delay_s: float
    longest_delay_s: float
    worked_off_s: float | None
    loaded: int
    unloaded: int


def figures(flow: Flow, asked: Burst, max_backlog: int) -> Figures:
    """The figures of a flow under a burst."""
    samples, last = flow.samples, flow.samples[-1]
    step_s = asked.seconds / (len(samples) - 1)
    return Figures(
        most_lag=flow.most_lag,
        most_backlogs=flow.most_lag / max_backlog,
        most_buffered=flow.most_buffered,
        most_waiting=max(sample.waiting for sample in samples),
        held_s=flow.held_s,
        longest_wait_s=longest_s(samples, lambda sample: sample.sent - sample.waiting),
        # by Little's law
        mean_delay_s=sum(sample.unloaded for sample in samples) * step_s / max(1, last.sent),
        longest_delay_s=longest_s(samples, lambda sample: sample.loaded),
        worked_off_s=_worked_off_s(samples, asked),
        loaded=last.loaded,
        unloaded=last.unloaded,
    )


def longest_s(samples: Sequence[Sample], gone: Callable[[Sample], int]) -> float:
    """The longest time between when as many records were sent as later have `gone` on; to the distance of two samples."""
    longest, k = 0.0, 0
    for sample in samples:
        while samples[k].sent <= gone(sample) and samples[k] is not sample:
            k += 1
        longest = max(longest, sample.second - samples[k].second)
    return longest


def _worked_off_s(samples: Sequence[Sample], asked: Burst) -> float | None:
    usual = (1 + NEAR) * max(sample.unloaded for sample in samples if sample.second < asked.since_s)
    above = [sample.second for sample in samples if sample.unloaded > usual]
    after = next((sample.second for sample in samples if not above or sample.second > above[-1]), None)
    return None if after is None else max(0.0, after - asked.since_s)


@dataclass(frozen=True)
class Throttled:
    """A policy, what flowed under it, and the figures of that."""

    name: str
    backpressure: Backpressure
    flow: Flow
    figures: Figures

    @property
    def taken(self) -> list[tuple[float, float]]:
        """Records/s that the instances took in, from each sample on."""
        done = [(sample.second, sample.sent - sample.waiting) for sample in self.flow.samples]
        return [(since, (after - before) / (until - since)) for (since, before), (until, after) in pairwise(done)]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the settings, the figures, and the samples; times are seconds of virtual time."""
        return {
            "settings": asdict(self.backpressure),
            "figures": asdict(self.figures),
            "samples": [asdict(sample) for sample in self.flow.samples],
        }


def compare_receivers(
    asked: Burst,
    policies: Mapping[str, Backpressure],
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Throttled]:
    """Each policy on the same burst, by itself.

    Args:
        asked: the receiver and the burst.
        policies: by the name that they are shown under.
        seed: of the looks and of the noise of runs.
        progress: called with how many policies are done.

    Raises:
        RequestError: as `Inlet.run`.
    """
    done = []
    for k, (name, backpressure) in enumerate(policies.items()):
        progress(k)
        flow = asked.inlet.run(backpressure, asked.seconds, seed=seed)
        done.append(Throttled(name, backpressure, flow, figures(flow, asked, backpressure.max_backlog)))
    return done
