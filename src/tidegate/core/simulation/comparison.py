"""Several policies on one plant, at equal utilization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import RequestError
from tidegate.core.rates.advice import full_batch
from tidegate.core.rates.checks import check_number
from tidegate.core.rates.pid import PidPolicy
from tidegate.core.rates.policies import POLICIES, make_rate_policy
from tidegate.core.rates.policy import RatePolicy
from tidegate.core.simulation.measures import Summary, summarize
from tidegate.core.simulation.plant import Plant, Trace
from tidegate.core.simulation.steps import Steps

UNLIMITED = "unlimited"
"""The name of a policy without any bound, beside those of `make_rate_policy`."""


@dataclass(frozen=True)
class Headroom(PidPolicy):
    """`pid`, which aims at the whole interval, with that share of its bound: so it is compared at equal utilization."""

    share: float = 1.0

    def bound(self, state: Mapping[str, Any]) -> int:
        """The share, of at least one record."""
        return max(1, round((super().bound(state) or 0) * self.share))


def policy_at(settings: Mapping[str, Any], plant: Plant, utilization: float) -> RatePolicy:
    """The policy of `settings` for a plant, aiming at that utilization where the settings do not say otherwise.

    `static` without `max_records` gets the records of a full run, by the plant's cost at the beginning; `unlimited` has no
    bound.

    Raises:
        ConfigError: a setting is not valid.
        RequestError: `static` has no bound, and an empty run takes longer than its share of the interval.
    """
    check_number("utilization", utilization, most=1)
    name, interval_s = settings.get("policy"), plant.interval_s
    if name == UNLIMITED:
        return make_rate_policy({**settings, "policy": "static"}, interval_s=interval_s)
    if name == "pid":
        return Headroom(**vars(make_rate_policy(settings, interval_s=interval_s)), share=utilization)
    if name == "static" and "max_records" not in settings:
        return make_rate_policy({**settings, "max_records": _full_batch(plant, utilization)}, interval_s=interval_s)
    if name in ("fixed_point", "target"):
        return make_rate_policy({"utilization": utilization, **settings}, interval_s=interval_s)
    return make_rate_policy(settings, interval_s=interval_s)


def _full_batch(plant: Plant, utilization: float) -> int:
    a, b = (Steps.of(cost).at(0.0) for cost in (plant.overhead_s, plant.record_s))
    records = full_batch(a, b, interval_s=plant.interval_s, utilization=utilization)
    if not records:
        raise RequestError(
            f"static: an empty run takes {a:g} s, longer than {utilization:.0%} of the interval of {plant.interval_s:g} s",
            fix="Lengthen the interval, or leave out the policy static",
        )
    return records


@dataclass(frozen=True)
class Simulated:
    """A policy, what happened under it, and the figures of that."""

    name: str
    trace: Trace
    summary: Summary

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the figures, and each batch and skipped run; times are seconds of virtual time."""
        batches = [
            {
                "due_s": batch.due_s,
                "started_s": batch.started_s,
                "ended_s": batch.ended_s,
                "records": batch.records,
                "bound": batch.bound,
                "lag": batch.lag,
            }
            for batch in self.trace.batches
        ]
        skipped = [{"due_s": skip.due_s, "reason": skip.reason, "lag": skip.lag} for skip in self.trace.skipped]
        return {"summary": self.summary.to_json(), "batches": batches, "skipped": skipped}


def compare(
    plant: Plant,
    policies: Mapping[str, RatePolicy],
    seconds: float,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Simulated]:
    """Each policy on the plant, by itself.

    Args:
        plant: the pipeline.
        policies: by the name that they are shown under.
        seconds: of virtual time.
        seed: of the noise.
        progress: called with how many policies are done.

    Raises:
        RequestError: as `Plant.run`.
    """
    done = []
    for k, (name, policy) in enumerate(policies.items()):
        progress(k)
        trace = plant.run(policy, seconds, seed=seed)
        done.append(Simulated(name, trace, summarize(trace, plant.interval_s)))
    return done


def parse_policy(text: str) -> dict[str, Any]:
    """The settings in a text such as `target` or `pid,min_rate=10,proportional=0.8`.

    Raises:
        RequestError: the policy is unknown, or a setting is no name=number.
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
